/* What onebit's two sides share: how its payloads travel, what that costs, and looks at it. */
#include <string.h>

#include "comm/codec/codec_cost.h"
#include "comm/codec/codec_onebit.h"
#include "comm/codec/codec_types.h"
#include "comm/collective/blocking.h"
#include "comm/sparse/sparse_cost.h"

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
static bool splits(const ct_codec_config *c, const ct_sparse_allreduce_seconds *split,
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
    yes = splits(s->config, &split, &gather);
    CT_TRY(ct_comm_broadcast(s->comm, &yes, sizeof(yes)));
    *splits_p = (yes != 0);
    return CT_OK;
}

/* ---- an object */

void ct_onebit_open(ct_onebit_head *h, const ct_codec_setup *setup, ct_error_feedback *keep)
{
    const int *order = setup->comm->topo->order;

    *h = (ct_onebit_head){ .setup = *setup,
                           .keep = keep,
                           .cut = { .n = setup->n, .parts = 1 },
                           .n = setup->n,
                           .stage = CT_ONEBIT_DONE };
    h->stride = ct_align_up(ct_sign_bytes(setup->n));
    while (order[h->me] != setup->comm->rank) h->me += 1;
    atomic_store(&h->where.rank, -1);
}

static ct_status create_split(ct_onebit_head *h)
{
    const ct_codec_setup *s = &h->setup;
    int64_t first = 0, n = 0, most = 0;

    h->cut.parts = s->comm->size;
    for (int j = 0; j < s->comm->size; ++j) {
        ct_sign_part(&h->cut, j, &first, &n);
        most = (n > most) ? n : most;
    }
    ct_sign_part(&h->cut, h->me, &h->first, &h->n);
    h->stride = ct_align_up(ct_sign_bytes(most));
    CT_TRY(ct_sign_split_create(s->comm, &h->cut, s->comm->topo->order, h->me, s->tag, &h->split));
    return (s->dev != NULL) ? ct_sign_split_keep_on(h->split, s->dev) : CT_OK;
}

ct_status ct_onebit_connect(ct_onebit_head *h)
{
    const ct_codec_setup *s = &h->setup;

    CT_TRY(choose(s, &h->splits));
    if (h->splits) CT_TRY(create_split(h));
    CT_TRY(ct_allgatherv_create(s->comm, s->comm->topo->order, s->comm->size, h->me, h->stride,
                                s->tag + (h->splits ? 1 : 0), &h->gather));
    return (s->dev != NULL) ? ct_allgatherv_keep_on(h->gather, s->dev) : CT_OK;
}

void ct_onebit_close(ct_onebit_head *h)
{
    ct_allgatherv_destroy(h->gather);
    ct_sign_split_destroy(h->split);
}

void ct_onebit_delivered(ct_onebit_head *h, double start)
{
    h->stage = CT_ONEBIT_DONE;
    ct_codec_delivered(&h->stats, start, h->left_at);
}

/* ---- looks: all that is asked of a head */

int ct_onebit_pending(void *obj, MPI_Request **out, int max)
{
    ct_onebit_head *h = obj;

    if (h->gather == NULL) return 0;
    if (h->stage == CT_ONEBIT_GATHER) return ct_allgatherv_pending(h->gather, out, max);
    return (h->stage == CT_ONEBIT_SPLIT) ? ct_sign_split_pending(h->split, out, max) : 0;
}

ct_coll_where *ct_onebit_where(void *obj)
{
    return &((ct_onebit_head *)obj)->where;
}

const char *ct_onebit_exchange(const void *obj)
{
    const ct_onebit_head *h = obj;

    if (h->gather == NULL) return "one rank";
    return h->splits ? "split" : "allgather";
}

bool ct_onebit_state(void *obj, int i, ct_codec_state *out)
{
    return ct_error_feedback_state(((ct_onebit_head *)obj)->keep, i, out);
}

void ct_onebit_stats(const void *obj, ct_codec_stats *out)
{
    *out = ((const ct_onebit_head *)obj)->stats;
}

/* ---- without an object */

int64_t ct_onebit_bytes(const ct_codec_config *c, int64_t n, int64_t rows)
{
    (void)c;
    (void)rows;
    return (int64_t)ct_sign_bytes(n);
}

/* Signs are found and taken out while a block is in the cache; what the accumulation takes more
 * than the solver's update, which it replaces: as for the sparse ones. */
void ct_onebit_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                       ct_codec_seconds *out)
{
    double update_s = m->speed.update_s * (double)n;
    ct_sparse_allreduce_seconds split, gather;

    (void)rows;
    costs(m->exch, m->bus.there ? &m->speed : ct_sparse_allreduce_model_coding(m->exch), m->n_rank,
          n, &split, &gather);
    if (c->momentum_correction) update_s -= ct_codec_stream_s(m, 8 * (double)n);
    *out = (ct_codec_seconds){ .encode_s =
                                   ((update_s > 0) ? update_s : 0) + m->speed.sign_s * (double)n };
    if (splits(c, &split, &gather)) {
        out->exchange = "split";
        out->wire_s = m->wire_factor * split.wire_s;
        out->decode_s = split.work_s;
        out->bytes = ct_codec_sum_bytes(m, (double)ct_sign_bytes(n));
    } else {
        out->exchange = "allgather";
        out->wire_s = m->wire_factor * gather.wire_s;
        out->decode_s = gather.work_s;
        out->bytes = (m->n_rank - 1) * (double)ct_sign_bytes(n);
    }
}
