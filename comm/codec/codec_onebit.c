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
 * freeze_variance: beside Adam the signs are those of its mean (codec.h).
 *
 * The cheaper by the cost model. Payloads are added in a fixed order, and every rank reads the same
 * bytes: replicas are bitwise equal. */
#include <stdlib.h>
#include <string.h>

#include "comm/codec/codec_types.h"
#include "comm/codec/codec_side.h"
#include "comm/codec/sign_split.h"
#include "comm/collective/allgatherv.h"
#include "comm/collective/blocking.h"
#include "comm/sparse/sparse_cost.h"
#include "framework/base/clock.h"

typedef enum {
    STAGE_ENCODE, /* on the host: signs are to be made                     */
    STAGE_DOWN,   /* this rank's signs come to the host                    */
    STAGE_SPLIT,
    STAGE_PART,      /* this rank's part is complete: its signs            */
    STAGE_PART_DOWN, /* likewise they come                                 */
    STAGE_GATHER,
    STAGE_DECODE,
    STAGE_DONE
} onebit_stage;

typedef struct onebit {
    ct_codec_setup setup;
    ct_codec_side side;
    bool splits;
    ct_sign_cut cut;  /* split: dealt to the ranks by their places in the topology's order */
    int me;           /* this rank's place                                                 */
    int64_t first, n; /* split: its part; else all                                         */
    size_t most;      /* bytes of a payload that everyone gets, at most                    */
    ct_sign_split *split;
    ct_allgatherv *gather; /* several ranks */
    char *block;           /* where gradients lie: what of these is not in messages' memory    */
    char *parts;           /* the payload of all parts                                     */
    char *landed;          /* split, on a device: those of its own part from others        */
    char *all;             /* one a rank, …                                                */
    size_t stride;         /* … so many bytes apart                                        */
    onebit_stage stage;
    ct_coll_where where;
    ct_codec_stats stats;
    double left_at;
    const float *mean; /* of the step under way, as ct_codec_step's */
    float mean_factor;
    ct_codec_step step; /* that one                                       */
    double coded_at[2]; /* the last computation of the host: began, ended */
} onebit;

/* ---- split or allgather */

/* Each part's signs to its owner, the sums' to everyone; or everyone's to everyone. */
static void costs(const ct_sparse_allreduce_model *m, const ct_codec_speed *speed, int p, int64_t n,
                  ct_sparse_allreduce_seconds *split, ct_sparse_allreduce_seconds *gather)
{
    double part = (double)ct_sign_bytes(n / p), elements = (double)n;

    split->wire_s =
        ct_sparse_allreduce_model_split_s(m, part) + ct_sparse_allreduce_model_ring_s(m, part);
    split->work_s = (2 * speed->unsign_s + speed->sign_s / p) * elements;
    gather->wire_s = ct_sparse_allreduce_model_ring_s(m, (double)ct_sign_bytes(n));
    gather->work_s = speed->unsign_s * elements * (p + 1);
}

/* Other names are of exchanges that other codecs of AUTO's choice shall take. */
static bool takes_split(const ct_codec_config *c, const ct_sparse_allreduce_seconds *split,
                        const ct_sparse_allreduce_seconds *gather)
{
    const char *name = (c->exchange != NULL) ? c->exchange : "auto";

    if (strcmp(name, "split") == 0) return true;
    if (strcmp(name, "allgather") == 0) return false;
    return split->wire_s + split->work_s < gather->wire_s + gather->work_s;
}

/* Ranks of unlike processors may round a cost differently: rank 0 says. */
static ct_status choose(const ct_codec_setup *s, bool *splits_p)
{
    const ct_sparse_allreduce_model *m = NULL;
    ct_sparse_allreduce_seconds split, gather;
    int64_t yes = 0;

    CT_TRY(ct_sparse_allreduce_model_of(s->comm, &m));
    costs(m, ct_sparse_allreduce_model_coding(m), s->comm->size, s->n, &split, &gather);
    yes = takes_split(s->config, &split, &gather);
    CT_TRY(ct_comm_broadcast(s->comm, &yes, sizeof(yes)));
    *splits_p = (yes != 0);
    return CT_OK;
}

/* ---- creation */

static void onebit_destroy(void *obj)
{
    onebit *x = obj;

    if (x == NULL) return;
    ct_side_wait(&x->side);
    ct_allgatherv_destroy(x->gather);
    ct_sign_split_destroy(x->split);
    ct_side_release(&x->side, x->block);
    ct_side_close(&x->side);
    free(x);
}

static ct_status create_split(onebit *x)
{
    const ct_codec_setup *s = &x->setup;
    int64_t first = 0, n = 0, most = 0;

    x->cut.parts = s->comm->size;
    for (int j = 0; j < s->comm->size; ++j) {
        ct_sign_part(&x->cut, j, &first, &n);
        most = (n > most) ? n : most;
    }
    ct_sign_part(&x->cut, x->me, &x->first, &x->n);
    x->most = ct_align_up(ct_sign_bytes(most));
    CT_TRY(ct_sign_split_create(s->comm, &x->cut, s->comm->topo->order, x->me, s->tag, &x->split));
    return x->side.host ? CT_OK : ct_sign_split_keep_on(x->split, s->dev);
}

/* Whether parts go to their owners, or everyone's signs to everyone, and what they travel by. */
static ct_status connect(onebit *x)
{
    const ct_codec_setup *s = &x->setup;

    CT_TRY(choose(s, &x->splits));
    if (x->splits) CT_TRY(create_split(x));
    CT_TRY(ct_allgatherv_create(s->comm, s->comm->topo->order, s->comm->size, x->me, x->most,
                                s->tag + (x->splits ? 1 : 0), &x->gather));
    return x->side.host ? CT_OK : ct_allgatherv_keep_on(x->gather, s->dev);
}

/* The device writes between heads that are there. */
static ct_status write_heads(const onebit *x)
{
    size_t bytes = ct_sign_at(&x->cut, x->cut.parts);
    char *heads = ct_mem_acquire(bytes);
    int64_t first = 0, n = 0;
    ct_status status = CT_OK;

    if (heads == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to compress %s", x->setup.key);
    for (int j = 0; j < x->cut.parts; ++j) {
        ct_sign_part(&x->cut, j, &first, &n);
        ct_sign_head(heads + ct_sign_at(&x->cut, j), n);
    }
    status = x->setup.dev->from_host(x->side.stream, x->parts, heads, bytes);
    if ((status == CT_OK) && x->splits) {
        ct_sign_head(heads, x->n);
        status = x->setup.dev->from_host(x->side.stream, x->all + x->stride * (size_t)x->me, heads,
                                         CT_SIGN_HEAD);
    }
    ct_mem_release(heads);
    return status;
}

/* In the host's memory payloads are made, and read, where messages have them. */
static ct_status place_on_host(onebit *x)
{
    void *block = NULL;

    if (x->gather == NULL) {
        CT_TRY(ct_side_acquire(&x->side, x->most, &block));
        x->block = x->parts = x->all = block;
        return CT_OK;
    }
    x->all = ct_allgatherv_payload(x->gather, 0);
    x->stride = (size_t)((char *)ct_allgatherv_payload(x->gather, 1) - x->all);
    x->parts =
        x->splits ? ct_sign_split_payload(x->split) : ct_allgatherv_payload(x->gather, x->me);
    return CT_OK;
}

/* Without split all that is one place: this rank's among everyone's. */
static ct_status place_on_device(onebit *x)
{
    size_t p = (size_t)x->setup.comm->size, landed = 0, parts = 0;
    void *block = NULL;

    if (x->splits) {
        parts = ct_align_up(ct_sign_at(&x->cut, x->cut.parts));
        landed = (p - 1) * ct_align_up(ct_sign_bytes(x->n));
    }
    x->stride = x->most;
    CT_TRY(ct_side_acquire(&x->side, parts + landed + p * x->stride, &block));
    x->block = block;
    x->landed = x->block + parts;
    x->all = x->landed + landed;
    x->parts = x->splits ? x->block : x->all + x->stride * (size_t)x->me;
    return write_heads(x);
}

static ct_status onebit_prepare(void *obj, const ct_codec_setup *setup)
{
    onebit *x = obj;
    const int *order = setup->comm->topo->order;

    x->setup = *setup;
    x->cut = (ct_sign_cut){ .n = setup->n, .parts = 1 };
    x->n = setup->n;
    x->most = ct_align_up(ct_sign_bytes(setup->n));
    x->stage = STAGE_DONE;
    while (order[x->me] != setup->comm->rank) x->me += 1;
    atomic_store(&x->where.rank, -1);
    CT_TRY(ct_side_open(&x->side, &x->setup, true));
    CT_TRY(ct_side_plain_coder(&x->side));
    if (setup->comm->size > 1) CT_TRY(connect(x));
    return x->side.host ? place_on_host(x) : place_on_device(x);
}

/* ---- a step */

/* All parts but this rank's own. */
static ct_status bring_parts(onebit *x)
{
    size_t hole = ct_sign_at(&x->cut, x->me), behind = ct_sign_at(&x->cut, x->me + 1);
    size_t end = ct_sign_at(&x->cut, x->cut.parts);
    char *to = ct_sign_split_payload(x->split);

    if (hole > 0) CT_TRY(ct_side_bring(&x->side, 0, to, x->parts, hole));
    return (end > behind) ? ct_side_bring(&x->side, 1, to + behind, x->parts + behind, end - behind)
                          : CT_OK;
}

/* The update and its signs. The note of a split comes with its part. */
static ct_status begin(onebit *x, const ct_codec_step *step, double limit)
{
    ct_codec_side *d = &x->side;
    const ct_codec_setup *s = &x->setup;
    ct_momentum_correction a = ct_error_feedback_accum(&d->keep, step, 0, s->n, s->comm->size);

    x->mean = a.mean;
    x->mean_factor = step->mean_factor;
    CT_TRY(d->kernels->clip(d->coder, d->stream, s->grad, s->n, limit));
    CT_TRY(
        d->kernels->sign(d->coder, d->stream, &a, x->cut.parts, x->splits ? x->me : -1, x->parts));
    if (x->splits) return bring_parts(x);
    if (s->comm->size == 1)
        CT_TRY(
            d->kernels->sign_add(d->coder, d->stream, x->all, x->stride, 1, false, s->grad, s->n));
    CT_TRY(ct_side_bring_note(d, 0, d->coder));
    if (s->comm->size == 1) return CT_OK;
    return ct_side_bring(d, 1, ct_allgatherv_payload(x->gather, x->me), x->parts,
                         ct_sign_bytes(s->n));
}

static ct_status onebit_ready(void *obj, const ct_codec_step *step, bool dense, double limit)
{
    onebit *x = obj;
    bool empty = false;

    if (!x->side.host) x->stats.encoded_at[0] = ct_clock_s();
    CT_TRY(ct_side_begin(&x->side, &empty));
    return dense ? ct_side_dense(&x->side, step, empty, limit) : begin(x, step, limit);
}

static ct_status onebit_fold(void *obj, const ct_codec_step *step)
{
    onebit *x = obj;

    return ct_side_fold(&x->side, step, &x->stats, &x->where);
}

static ct_status onebit_summed(void *obj)
{
    return ct_side_summed(&((onebit *)obj)->side);
}

/* Signs are there, and leave. */
static ct_status leave(onebit *x)
{
    CT_TRY(ct_side_arrived(&x->side, &x->where));
    x->left_at = x->stats.encoded_at[1] = ct_clock_s();
    if (x->side.host) memcpy(x->stats.encoded_at, x->coded_at, sizeof(x->coded_at));
    x->stats.accumulate_s += x->stats.encoded_at[1] - x->stats.encoded_at[0];
    x->stage = x->splits ? STAGE_SPLIT : STAGE_GATHER;
    if (x->splits) {
        ct_sign_split_start(x->split);
        return CT_OK;
    }
    CT_TRY(ct_side_check(&x->side));
    return (x->gather != NULL) ? ct_allgatherv_start(x->gather, ct_sign_bytes(x->setup.n)) : CT_OK;
}

/* What came for this rank's part is added to V (in the host's memory, as it came), and the signs of
 * all that come down. */
static ct_status complete_part(onebit *x)
{
    ct_codec_side *d = &x->side;
    size_t each = ct_align_up(ct_sign_bytes(x->n)), bytes = ct_sign_bytes(x->n);
    float *v = d->keep.v + x->first;
    char *own = x->all + x->stride * (size_t)x->me;
    int p = x->setup.comm->size;

    for (int shift = 1; !d->host && (shift < p) && (x->n > 0); ++shift) {
        void *from = ct_sign_split_landed(x->split, shift);

        CT_TRY(ct_sign_check(from, bytes, x->n));
        CT_TRY(ct_side_lift(d, from, x->landed + each * (size_t)(shift - 1), bytes));
    }
    if (!d->host)
        CT_TRY(d->kernels->sign_add(d->coder, d->stream, x->landed, each, p - 1, true, v, x->n));
    CT_TRY(d->kernels->sign_take(d->coder, d->stream, v, x->n, own));
    CT_TRY(ct_side_bring_note(d, 0, d->coder));
    return ct_side_bring(d, 1, ct_allgatherv_payload(x->gather, x->me), own, bytes);
}

static ct_status progress_split(onebit *x)
{
    float *part = x->side.host ? x->side.keep.v + x->first : NULL;
    double before = x->stats.unpack_s;
    ct_status status =
        ct_sign_split_progress(x->split, part, &x->stats.bytes_sent, &x->stats.unpack_s, &x->where);

    x->stats.exchange_s -= x->stats.unpack_s - before;
    if (status == CT_OK) x->stage = STAGE_PART;
    return status;
}

static ct_status leave_part(onebit *x)
{
    CT_TRY(ct_side_arrived(&x->side, &x->where));
    CT_TRY(ct_side_check(&x->side));
    x->stats.pack_s += x->coded_at[1] - x->coded_at[0];
    x->stats.exchange_s -= x->coded_at[1] - x->coded_at[0];
    x->stage = STAGE_GATHER;
    return ct_allgatherv_start(x->gather, ct_sign_bytes(x->n));
}

static ct_status deliver(onebit *x)
{
    ct_codec_side *d = &x->side;
    const ct_codec_setup *s = &x->setup;
    int p = s->comm->size;

    for (int j = 0; j < p; ++j) {
        void *from = ct_allgatherv_payload(x->gather, j);
        size_t bytes = ct_allgatherv_bytes(x->gather, j);
        int64_t first = 0, n = 0;

        if (j == x->me) continue;
        ct_sign_part(&x->cut, x->splits ? j : 0, &first, &n);
        CT_TRY(ct_sign_check(from, bytes, n));
        CT_TRY(ct_side_lift(d, from, x->all + x->stride * (size_t)j, bytes));
    }
    if (x->splits)
        return d->kernels->sign_put(d->coder, d->stream, x->all, x->stride, p, s->grad, s->n);
    return d->kernels->sign_add(d->coder, d->stream, x->all, x->stride, p, false, s->grad, s->n);
}

static ct_status land(onebit *x)
{
    if (x->gather != NULL)
        CT_TRY(ct_allgatherv_progress(x->gather, &x->stats.bytes_sent, &x->where));
    x->stats.exchange_s += ct_clock_s() - x->left_at;
    x->stage = STAGE_DECODE;
    return CT_OK;
}

static ct_status decode(onebit *x)
{
    if (x->gather != NULL) CT_TRY(deliver(x));
    if (x->mean != NULL)
        ct_momentum_correction_less(x->setup.grad, x->setup.n, x->mean_factor, x->mean,
                                    *x->setup.n_thread);
    return ct_side_hand_over(&x->side);
}

static bool computes_next(const onebit *x)
{
    return (x->stage == STAGE_ENCODE) || (x->stage == STAGE_PART) || (x->stage == STAGE_DECODE);
}

static bool onebit_codes(const void *obj)
{
    const onebit *x = obj;

    return x->step.apart && computes_next(x);
}

/* Whoever computes notes the time of it, and no other figure. */
static ct_status onebit_code(void *obj)
{
    onebit *x = obj;

    x->coded_at[0] = ct_clock_s();
    if (x->stage == STAGE_ENCODE)
        CT_TRY(onebit_ready(obj, &x->step, false, 0));
    else
        CT_TRY((x->stage == STAGE_PART) ? complete_part(x) : decode(x));
    x->coded_at[1] = ct_clock_s();
    x->stage += 1;
    return CT_OK;
}

static ct_status onebit_start(void *obj, const ct_codec_step *step)
{
    onebit *x = obj;

    x->stats.n_step += 1;
    x->stats.bytes_dense += x->setup.n * (int64_t)sizeof(float);
    x->stats.bytes_coded += (int64_t)ct_sign_at(&x->cut, x->cut.parts);
    x->step = *step;
    x->stage = x->side.host ? STAGE_ENCODE : STAGE_DOWN;
    if (!x->side.host || step->apart) return CT_OK;
    CT_TRY(onebit_code(obj));
    return leave(x);
}

static ct_status compute(onebit *x)
{
    if (!computes_next(x)) return CT_OK;
    return onebit_codes(x) ? CT_INPROGRESS : onebit_code(x);
}

static ct_status onebit_progress(void *obj)
{
    onebit *x = obj;

    CT_TRY(compute(x));
    if (x->stage == STAGE_DOWN) CT_TRY(leave(x));
    if (x->stage == STAGE_SPLIT) CT_TRY(progress_split(x));
    CT_TRY(compute(x));
    if (x->stage == STAGE_PART_DOWN) CT_TRY(leave_part(x));
    if (x->stage == STAGE_GATHER) CT_TRY(land(x));
    CT_TRY(compute(x));
    ct_codec_decoded(&x->stats, x->coded_at);
    return CT_OK;
}

/* ---- looks */

static int onebit_pending(void *obj, MPI_Request **out, int max)
{
    onebit *x = obj;

    if (x->gather == NULL) return 0;
    if (x->stage == STAGE_GATHER) return ct_allgatherv_pending(x->gather, out, max);
    return (x->stage == STAGE_SPLIT) ? ct_sign_split_pending(x->split, out, max) : 0;
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

static bool onebit_state(void *obj, int i, ct_codec_state *out)
{
    return ct_error_feedback_state(&((onebit *)obj)->side.keep, i, out);
}

static ct_status onebit_restored(void *obj)
{
    return ct_error_feedback_restored(&((onebit *)obj)->side.keep);
}

static void onebit_stats(const void *obj, ct_codec_stats *out)
{
    *out = ((const onebit *)obj)->stats;
}

static double onebit_left(void *obj)
{
    return ct_side_left(&((onebit *)obj)->side);
}

/* ---- without an object */

static int64_t onebit_bytes(const ct_codec_config *c, int64_t n, int64_t rows)
{
    (void)c;
    (void)rows;
    return (int64_t)ct_sign_bytes(n);
}

/* Signs are found and taken out while a block is in the cache; what the accumulation takes more
 * than the solver's update, which it replaces: as for the sparse ones. */
static void onebit_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n,
                           int64_t rows, ct_codec_seconds *out)
{
    double update_s = m->speed.update_s * (double)n, signs = (double)ct_sign_bytes(n);
    double others = m->n_rank - 1;
    ct_sparse_allreduce_seconds split, gather;

    (void)rows;
    costs(m->exch, m->bus.there ? &m->speed : ct_sparse_allreduce_model_coding(m->exch), m->n_rank,
          n, &split, &gather);
    if (c->momentum_correction) update_s -= ct_codec_stream_s(m, 8 * (double)n);
    *out = (ct_codec_seconds){ .encode_s =
                                   ((update_s > 0) ? update_s : 0) + m->speed.sign_s * (double)n };
    if (takes_split(c, &split, &gather)) {
        out->exchange = "split";
        out->wire_s = m->wire_factor * split.wire_s;
        out->decode_s = split.work_s;
        out->bytes = ct_codec_sum_bytes(m, signs);
        others *= 2.0 / m->n_rank;
    } else {
        out->exchange = "allgather";
        out->wire_s = m->wire_factor * gather.wire_s;
        out->decode_s = gather.work_s;
        out->bytes = (m->n_rank - 1) * signs;
    }
    out->wire_s += ct_codec_bus_s(m, signs, others * signs);
}

const ct_codec_ops ct_codec_onebit = {
    .name = "onebit",
    .uses = CT_CODEC_USES_RESYNC | CT_CODEC_USES_MOMENTUM_CORRECTION | CT_CODEC_USES_FREEZE,
    .on_device = true,
    .size = sizeof(onebit),
    .prepare = onebit_prepare,
    .destroy = onebit_destroy,
    .fold = onebit_fold,
    .ready = onebit_ready,
    .summed = onebit_summed,
    .start = onebit_start,
    .progress = onebit_progress,
    .codes = onebit_codes,
    .code = onebit_code,
    .pending = onebit_pending,
    .where = onebit_where,
    .exchange = onebit_exchange,
    .state = onebit_state,
    .restored = onebit_restored,
    .stats = onebit_stats,
    .left = onebit_left,
    .payload_bytes = onebit_bytes,
    .seconds = onebit_seconds,
};
