/* onebit: signs, and the mean magnitude of each sign in blocks of 1024, with error feedback (Seide
 * et al., 1-Bit Stochastic Gradient Descent, Interspeech 2014): what the means do not tell stays in
 * V. About n / 8 bytes.
 *
 * split    Each rank looks after one part of the elements. It sends the others the signs of theirs,
 *          adds what it gets to its own V there, exactly, and the signs of that sum go to everyone;
 *          what they do not tell is its V from then on. So 2 (p - 1) / p payloads are sent, however
 *          many ranks there are (as 1-bit Adam does it: Tang et al., ICML 2021).
 * allgather  Everyone's signs to everyone: p - 1 payloads, but half as many messages in a row, and
 *          rounded once. For few ranks.
 *
 * The cheaper by the cost model. Payloads are added in a fixed order, and every rank reads the same
 * bytes: replicas are bitwise equal. */
#include <stdlib.h>
#include <string.h>

#include "comm/coded_cost.h"
#include "comm/coded_keep.h"
#include "comm/coded_onebit.h"
#include "comm/coded_types.h"
#include "comm/exch_cost.h"
#include "comm/gather.h"
#include "comm/sign_split.h"
#include "framework/base/clock.h"

typedef enum { SPLIT, GATHER, DONE } stage;

typedef struct onebit {
    ct_coded_setup setup;
    ct_keep keep;
    bool splits;
    ct_sign_cut cut; /* split: dealt to the ranks by their places in the topology's order */
    const int *order;
    int me;           /* this rank's place                                             */
    int64_t first, n; /* its part                                                      */
    char *payload;    /* one rank: of all elements     */
    ct_sign_split *split;
    ct_gather *gather;
    const void **all;  /* [p], allgather: payloads */
    size_t *all_bytes; /* [p]                      */
    stage stage;
    ct_coll_where where;
    ct_coded_stats stats;
    double left_at;
} onebit;

/* ---- creation */

static void onebit_destroy(void *obj)
{
    onebit *x = obj;

    if (x == NULL) return;
    ct_gather_destroy(x->gather);
    ct_keep_release(&x->keep);
    ct_mem_release(x->payload);
    ct_sign_split_destroy(x->split);
    free(x->all);
    free(x->all_bytes);
    free(x);
}

/* Each part's signs to its owner, the sums' to everyone; or everyone's to everyone. */
static void costs(const ct_exch_model *m, const ct_coding_speed *speed, int p, int64_t n,
                  ct_exch_seconds *split, ct_exch_seconds *gather)
{
    double part = (double)ct_sign_bytes(n / p), elements = (double)n;

    split->wire_s = ct_exch_model_split_s(m, part) + ct_exch_model_ring_s(m, part);
    split->work_s = (2 * speed->unsign_s + speed->sign_s / p) * elements;
    gather->wire_s = ct_exch_model_ring_s(m, (double)ct_sign_bytes(n));
    gather->work_s = speed->unsign_s * elements * (p + 1);
}

static bool is_auto(const char *name)
{
    return (name == NULL) || (strcmp(name, "auto") == 0);
}

static bool splits(const ct_codec_config *c, const ct_exch_seconds *split,
                   const ct_exch_seconds *gather)
{
    if (!is_auto(c->exchange)) return strcmp(c->exchange, "split") == 0;
    return split->wire_s + split->work_s < gather->wire_s + gather->work_s;
}

/* Ranks of unlike processors may round a cost differently: rank 0 says. */
ct_status ct_onebit_choose(const ct_coded_setup *s, bool *splits_p)
{
    const ct_exch_model *m = NULL;
    ct_exch_seconds split, gather;
    int64_t yes = 0;

    CT_TRY(ct_exch_model_of(s->comm, &m));
    costs(m, ct_exch_model_coding(m), s->comm->size, s->n, &split, &gather);
    yes = splits(s->config, &split, &gather);
    CT_TRY(ct_comm_broadcast(s->comm, &yes, sizeof(yes)));
    *splits_p = (yes != 0);
    return CT_OK;
}

static ct_status no_memory(const onebit *x)
{
    return CT_FAIL(CT_ERR_NOMEM, "no memory to compress %s", x->setup.key);
}

static ct_status create_split(onebit *x)
{
    int64_t first = 0, n = 0, most = 0;
    int p = x->setup.comm->size;

    x->cut.parts = p;
    for (int j = 0; j < p; ++j) {
        ct_sign_part(&x->cut, j, &first, &n);
        most = (n > most) ? n : most;
    }
    ct_sign_part(&x->cut, x->me, &x->first, &x->n);
    CT_TRY(ct_sign_split_create(x->setup.comm, &x->cut, x->order, x->me, x->setup.tag, &x->split));
    return ct_gather_create_among(x->setup.comm, x->order, p, x->me, ct_sign_bytes(most),
                                  x->setup.tag + 1, &x->gather);
}

static ct_status prepare(onebit *x)
{
    const ct_coded_setup *s = &x->setup;
    size_t p = (size_t)s->comm->size;

    x->cut = (ct_sign_cut){ .n = s->n, .parts = 1 };
    x->order = s->comm->topo->order;
    while (x->order[x->me] != s->comm->rank) x->me += 1;
    CT_TRY(ct_keep_acquire(s, &x->keep));
    x->all = calloc(p, sizeof(*x->all));
    x->all_bytes = calloc(p, sizeof(*x->all_bytes));
    if ((x->all == NULL) || (x->all_bytes == NULL)) return no_memory(x);
    if (p == 1) {
        x->payload = ct_mem_acquire(ct_sign_bytes(s->n));
        return (x->payload != NULL) ? CT_OK : no_memory(x);
    }
    CT_TRY(ct_onebit_choose(s, &x->splits));
    if (x->splits) return create_split(x);
    return ct_gather_create_among(s->comm, x->order, s->comm->size, x->me, ct_sign_bytes(s->n),
                                  s->tag, &x->gather);
}

static ct_status onebit_create(const ct_coded_setup *setup, void **obj_p)
{
    onebit *x = calloc(1, sizeof(*x));
    ct_status status = CT_OK;

    if (x == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to compress %s", setup->key);
    x->setup = *setup;
    x->stage = DONE;
    atomic_store(&x->where.rank, -1);
    status = prepare(x);
    if (status != CT_OK) {
        onebit_destroy(x);
        return status;
    }
    *obj_p = x;
    return CT_OK;
}

/* ---- a step */

static ct_status onebit_fold(void *obj, const ct_coded_step *step)
{
    onebit *x = obj;

    ct_keep_fold(&x->keep, step, &x->stats);
    return CT_OK;
}

static ct_status onebit_start(void *obj, const ct_coded_step *step)
{
    onebit *x = obj;
    const ct_coded_setup *s = &x->setup;
    ct_accum a = ct_keep_accum(&x->keep, step, 0, s->n, s->comm->size);
    char *to =
        ((x->gather != NULL) && !x->splits) ? ct_gather_payload(x->gather, x->me) : x->payload;
    size_t bytes = ct_sign_at(&x->cut, x->cut.parts);
    double start = ct_clock_s();

    if (x->splits)
        to = ct_sign_split_payload(x->split);
    else if (x->gather != NULL)
        to = ct_gather_payload(x->gather, x->me);
    CT_TRY(ct_sign_encode(&x->cut, &a, x->splits ? x->me : -1, to));
    x->left_at = ct_clock_s();
    if (x->splits) bytes -= ct_sign_bytes(x->n);
    x->stats.n_step += 1;
    x->stats.bytes_dense += s->n * (int64_t)sizeof(float);
    x->stats.bytes_coded += (int64_t)bytes;
    x->stats.accumulate_s += x->left_at - start;
    x->stats.encoded_at[0] = start;
    x->stats.encoded_at[1] = x->left_at;
    x->stage = x->splits ? SPLIT : GATHER;
    if (x->splits) ct_sign_split_start(x->split);
    return ((x->gather != NULL) && !x->splits) ? ct_gather_start(x->gather, bytes) : CT_OK;
}

/* This rank's part is complete: its V and everyone's signs. */
static ct_status start_gather(onebit *x)
{
    double start = ct_clock_s();

    CT_TRY(ct_sign_take(x->keep.v + x->first, x->n, x->setup.comm->n_thread,
                        ct_gather_payload(x->gather, x->me)));
    x->stats.pack_s += ct_clock_s() - start;
    x->stats.exchange_s -= ct_clock_s() - start;
    x->stats.bytes_coded += (int64_t)ct_sign_bytes(x->n);
    x->stage = GATHER;
    return ct_gather_start(x->gather, ct_sign_bytes(x->n));
}

static ct_status deliver_parts(onebit *x)
{
    const ct_coded_setup *s = &x->setup;

    for (int j = 0; j < s->comm->size; ++j) {
        const void *payload = ct_gather_payload(x->gather, j);
        size_t bytes = ct_gather_bytes(x->gather, j);
        int64_t first = 0, n = 0;

        ct_sign_part(&x->cut, j, &first, &n);
        CT_TRY(ct_sign_sum(&payload, &bytes, 1, s->grad + first, n, s->comm->n_thread));
    }
    return CT_OK;
}

static ct_status deliver(onebit *x)
{
    const ct_coded_setup *s = &x->setup;

    if (x->splits) return deliver_parts(x);
    for (int j = 0; j < s->comm->size; ++j) {
        x->all[j] = (x->gather != NULL) ? ct_gather_payload(x->gather, j) : x->payload;
        x->all_bytes[j] = (x->gather != NULL) ? ct_gather_bytes(x->gather, j) : ct_sign_bytes(s->n);
    }
    return ct_sign_sum(x->all, x->all_bytes, s->comm->size, s->grad, s->n, s->comm->n_thread);
}

static ct_status onebit_progress(void *obj)
{
    onebit *x = obj;
    double start = 0;

    if (x->stage == SPLIT) {
        double before = x->stats.unpack_s;
        ct_status status = ct_sign_split_progress(
            x->split, x->keep.v + x->first, &x->stats.bytes_sent, &x->stats.unpack_s, &x->where);

        x->stats.exchange_s -= x->stats.unpack_s - before;
        if (status != CT_OK) return status;
        CT_TRY(start_gather(x));
    }
    if (x->gather != NULL) {
        ct_status status = ct_gather_progress(x->gather, &x->stats.bytes_sent, &x->where);

        if (status != CT_OK) return status;
    }
    start = ct_clock_s();
    CT_TRY(deliver(x));
    x->stage = DONE;
    x->stats.decoded_at[0] = start;
    x->stats.decoded_at[1] = ct_clock_s();
    x->stats.exchange_s += start - x->left_at;
    x->stats.unpack_s += x->stats.decoded_at[1] - start;
    return CT_OK;
}

/* ---- looks */

static int onebit_pending(void *obj, MPI_Request **out, int max)
{
    onebit *x = obj;

    if (x->gather == NULL) return 0;
    if (x->stage == GATHER) return ct_gather_pending(x->gather, out, max);
    return (x->stage == SPLIT) ? ct_sign_split_pending(x->split, out, max) : 0;
}

static ct_coll_where *onebit_where(void *obj)
{
    return &((onebit *)obj)->where;
}

static const char *onebit_exchange(const void *obj)
{
    const onebit *x = obj;

    if (x->gather == NULL) return "one rank";
    return x->splits ? "split" : "allgather";
}

static bool onebit_state(void *obj, int i, ct_coded_state *out)
{
    onebit *x = obj;

    return ct_keep_state(&x->keep, i, out);
}

static void onebit_stats(const void *obj, ct_coded_stats *out)
{
    const onebit *x = obj;

    *out = x->stats;
}

ct_status ct_onebit_check(const ct_codec_config *c)
{
    if (!is_auto(c->exchange) && (strcmp(c->exchange, "split") != 0) &&
        (strcmp(c->exchange, "allgather") != 0))
        return CT_FAIL(CT_ERR_CONFIG,
                       "exchange \"%s\" is none of onebit's; known are auto, allgather, split",
                       c->exchange);
    return CT_OK;
}

int64_t ct_onebit_bytes(const ct_codec_config *c, int64_t n, int64_t rows)
{
    (void)c;
    (void)rows;
    return (int64_t)ct_sign_bytes(n);
}

/* Signs are found and taken out while a block is in the cache; what the accumulation takes more
 * than the solver's update, which it replaces: as for the sparse ones. */
void ct_onebit_seconds(const ct_coded_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                       ct_coded_seconds *out)
{
    double update_s = m->speed.update_s * (double)n;
    ct_exch_seconds split, gather;

    (void)rows;
    costs(m->exch, m->bus.there ? &m->speed : ct_exch_model_coding(m->exch), m->n_rank, n, &split,
          &gather);
    if (c->momentum_correction) update_s -= ct_coded_stream_s(m, 8 * (double)n);
    *out = (ct_coded_seconds){ .encode_s =
                                   ((update_s > 0) ? update_s : 0) + m->speed.sign_s * (double)n };
    if (splits(c, &split, &gather)) {
        out->exchange = "split";
        out->wire_s = m->wire_factor * split.wire_s;
        out->decode_s = split.work_s;
        out->bytes = ct_coded_sum_bytes(m, (double)ct_sign_bytes(n));
    } else {
        out->exchange = "allgather";
        out->wire_s = m->wire_factor * gather.wire_s;
        out->decode_s = gather.work_s;
        out->bytes = (m->n_rank - 1) * (double)ct_sign_bytes(n);
    }
}

const ct_coded_ops ct_coded_onebit = {
    .name = "onebit",
    .on_device = &ct_coded_onebit_device,
    .keeps = true,
    .absorbs = true,
    .check = ct_onebit_check,
    .create = onebit_create,
    .destroy = onebit_destroy,
    .fold = onebit_fold,
    .start = onebit_start,
    .progress = onebit_progress,
    .pending = onebit_pending,
    .where = onebit_where,
    .exchange = onebit_exchange,
    .state = onebit_state,
    .stats = onebit_stats,
    .payload_bytes = ct_onebit_bytes,
    .seconds = ct_onebit_seconds,
};
