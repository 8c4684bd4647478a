/* topk and redsync of gradients on a device (codec.h, device_codec.h): U, V and the gradient stay
 * there. A payload comes down beside what the device computes, goes round with those of the other
 * ranks, and theirs go up and are added, in the same order everywhere; other exchanges than the
 * allgather run on the host (sparse_lists.h), and what they make goes up. Momentum, masks, rounding
 * and the order of additions are codec_sparse.c's, so both make the same bits. */
#include <string.h>

#include "comm/codec/codec_sparse.h"
#include "comm/codec/codec_sparse_device.h"
#include "comm/codec/codec_types.h"
#include "framework/base/clock.h"

typedef ct_sparse_device sparse;

static ct_status topk_prepare(void *obj, const ct_codec_setup *setup)
{
    return ct_sparse_device_prepare(obj, setup, true);
}

static ct_status redsync_prepare(void *obj, const ct_codec_setup *setup)
{
    return ct_sparse_device_prepare(obj, setup, false);
}

static ct_coll_where *sparse_where(void *obj)
{
    sparse *x = obj;

    return (x->lists.exch != NULL) ? &x->lists.req.where : &x->where;
}

/* ---- a step */

/* Of what this step selects; memory is there for the most. */
static size_t payload_room(const sparse *x)
{
    ct_coder_setup now = x->size;

    now.k_most = 0;
    return ct_coder_room(&now);
}

static ct_status select_own(sparse *x)
{
    void *to = NULL;

    CT_TRY(x->side.codec->select(x->picker, x->side.stream, &x->accum, x->sign));
    CT_TRY(ct_side_bring(&x->side, 0, x->side.note, x->side.codec->note(x->picker),
                         sizeof(*x->side.note)));
    if (x->setup.comm->size == 1)
        return x->side.codec->add(x->side.coder, x->side.stream, x->payload, 1, x->setup.grad);
    to = (x->gather != NULL) ? ct_allgatherv_payload(x->gather, x->me) : x->lists.payload;
    return ct_side_bring(&x->side, 1, to, x->side.codec->payload(x->picker), payload_room(x));
}

static ct_status ready_coded(sparse *x, double limit)
{
    const ct_codec_setup *s = &x->setup;

    if (!ct_lists_has_nodes(&x->lists)) {
        CT_TRY(x->side.codec->clip(x->side.coder, x->side.stream, s->grad, s->n, limit));
        return select_own(x);
    }
    CT_TRY(x->side.codec->shrink(x->side.coder, x->side.stream, s->grad, s->n, limit));
    return ct_side_bring(&x->side, 0, s->host, s->grad, sizeof(float) * (size_t)s->n);
}

/* As many elements as are to be selected in this iteration (codec_sparse.c). */
static void take_density(sparse *x, int64_t iteration)
{
    const ct_codec_config *c = x->setup.config;
    int64_t k = ct_sparse_wanted_at(c, x->setup.n, iteration);

    x->warms = (iteration < c->warmup_iterations);
    if (k > x->warmup.k_most) k = x->warmup.k_most;
    if (k == x->k) return;
    x->k = x->size.k = k;
    if (x->lists.exch != NULL) {
        ct_sparse_allreduce_want(&x->lists.req, k);
        x->size.k = x->lists.req.k_own;
    }
    if (x->picker != NULL) x->side.codec->want(x->picker, x->size.k);
}

static ct_status sparse_ready(void *obj, const ct_codec_step *step, bool dense, double limit)
{
    sparse *x = obj;
    const ct_codec_setup *s = &x->setup;
    const ct_sparse_allreduce_req *r = &x->lists.req;
    bool nodes = ct_lists_has_nodes(&x->lists), empty = false;

    x->stats.encoded_at[0] = ct_clock_s();
    CT_TRY(ct_side_begin(&x->side, &empty));
    if (dense) {
        x->lists.dirty = true; /* `host` gets other contents */
        x->lists.spread_u = nodes && s->absorb;
        return ct_side_dense(&x->side, step, empty, limit);
    }
    take_density(x, step->iteration);
    x->accum = nodes ? ct_error_feedback_accum(&x->side.keep, step, r->first, r->length, r->copies)
                     : ct_error_feedback_accum(&x->side.keep, step, 0, s->n, s->comm->size);
    x->sign = !x->quantize ? 0 : (step->iteration % 2 == 0) ? 1 : -1;
    return ready_coded(x, limit);
}

static ct_status sparse_fold(void *obj, const ct_codec_step *step)
{
    sparse *x = obj;

    (void)step;
    return ct_side_arrived(&x->side, sparse_where(x));
}

static ct_status sparse_summed(void *obj)
{
    return ct_side_summed(&((sparse *)obj)->side);
}

static ct_status sparse_start(void *obj, const ct_codec_step *step)
{
    sparse *x = obj;

    (void)step;
    x->stats.n_step += 1;
    x->stats.warm_steps += x->warms;
    x->stats.bytes_dense += x->setup.n * (int64_t)sizeof(float);
    x->phase = ct_lists_has_nodes(&x->lists) ? CT_SPARSE_NODE_DOWN : CT_SPARSE_DOWN;
    return CT_OK;
}

static ct_status take_note(sparse *x)
{
    const ct_coder_note *note = x->side.note;

    if (note->bad != 0)
        return CT_FAIL(CT_ERR_DIVERGED, "an accumulated gradient holds NaN or infinity");
    if (note->wrong != 0)
        return CT_FAIL(CT_ERR_COMM,
                       "a payload of the last step named elements out of order, or beyond its %lld",
                       (long long)x->setup.n);
    x->stats.selected += note->count;
    if (x->warms) x->stats.warm_selected += note->count;
    if (x->lists.exch == NULL) x->stats.filled += note->filled;
    if (x->size.n > 0)
        x->stats.bytes_coded += (int64_t)ct_payload_bytes(x->size.form, x->size.n, note->count);
    x->left_at = ct_clock_s();
    x->stats.encoded_at[1] = x->left_at;
    x->stats.select_s += x->left_at - x->stats.encoded_at[0];
    return CT_OK;
}

/* What the others sent goes up, and all is added there. */
static ct_status add_all(sparse *x)
{
    for (int i = 0; i < x->setup.comm->size; ++i) {
        void *from = ct_allgatherv_payload(x->gather, i), *none = NULL;
        size_t bytes = ct_allgatherv_bytes(x->gather, i);

        if (i == x->me) continue;
        CT_TRY(ct_payload_check(from, bytes, x->setup.n));
        CT_TRY(x->setup.dev->copy_begin(x->side.stream, from, (void *)(uintptr_t)x->payload[i],
                                        bytes, false, &none));
    }
    return x->side.codec->add(x->side.coder, x->side.stream, x->payload, x->setup.comm->size,
                              x->setup.grad);
}

/* hier: the node's sum, and what is selected from it. */
static ct_status progress_node(sparse *x)
{
    if (x->phase == CT_SPARSE_NODE_DOWN) {
        CT_TRY(ct_side_arrived(&x->side, sparse_where(x)));
        CT_TRY(ct_lists_node_start(&x->lists));
        x->phase = CT_SPARSE_NODE;
    }
    CT_TRY(ct_lists_node_progress(&x->lists, &x->side.keep));
    memset(x->side.note, 0, sizeof(*x->side.note));
    x->phase = CT_SPARSE_DOWN;
    return (x->lists.req.length > 0) ? select_own(x) : CT_OK;
}

static ct_status start_exchange(sparse *x)
{
    size_t bytes = ct_payload_bytes(x->size.form, x->size.n, x->side.note->count);

    CT_TRY(take_note(x));
    x->phase = CT_SPARSE_EXCHANGE;
    if (x->gather != NULL) return ct_allgatherv_start(x->gather, bytes);
    if (x->lists.exch == NULL) return CT_OK;
    return ct_lists_start(&x->lists, (x->size.n > 0) ? bytes : 0);
}

static ct_status progress_exchange(sparse *x)
{
    if (x->gather != NULL) return ct_allgatherv_progress(x->gather, &x->bytes_sent, &x->where);
    return (x->lists.exch != NULL) ? ct_lists_progress(&x->lists) : CT_OK;
}

static ct_status deliver(sparse *x)
{
    if (x->gather != NULL) return add_all(x);
    if (x->lists.exch == NULL) return CT_OK;
    x->stats.filled += x->lists.req.filled;
    x->bytes_sent = x->lists.req.bytes_sent;
    return ct_lists_deliver(&x->lists, x->side.coder, x->side.keep.v);
}

static ct_status sparse_progress(void *obj)
{
    sparse *x = obj;
    double now = 0;

    if (x->phase < CT_SPARSE_DOWN) CT_TRY(progress_node(x));
    if (x->phase == CT_SPARSE_DOWN) {
        CT_TRY(ct_side_arrived(&x->side, sparse_where(x)));
        CT_TRY(start_exchange(x));
    }
    CT_TRY(progress_exchange(x));
    now = ct_clock_s();
    x->stats.exchange_s += now - x->left_at;
    x->stats.decoded_at[0] = now;
    CT_TRY(deliver(x));
    CT_TRY(ct_side_hand_over(&x->side));
    x->stats.decoded_at[1] = ct_clock_s();
    x->stats.unpack_s += x->stats.decoded_at[1] - now;
    return CT_OK;
}

/* ---- looks */

static int sparse_pending(void *obj, MPI_Request **out, int max)
{
    sparse *x = obj;

    if ((x->phase == CT_SPARSE_NODE_DOWN) || (x->phase == CT_SPARSE_DOWN)) return 0;
    if ((x->phase == CT_SPARSE_NODE) && !x->lists.running) return 0;
    if (x->gather != NULL) return ct_allgatherv_pending(x->gather, out, max);
    return (x->lists.exch != NULL) ? x->lists.exch->pending(&x->lists.req, out, max) : 0;
}

static const char *sparse_exchange(const void *obj)
{
    const sparse *x = obj;

    if (x->lists.exch != NULL) return x->lists.exch->name;
    return (x->gather != NULL) ? "allgather" : "one rank";
}

static int64_t sparse_dense_until(const void *obj)
{
    return ((const sparse *)obj)->warmup.dense_until;
}

static bool sparse_state(void *obj, int i, ct_codec_state *out)
{
    return ct_error_feedback_state(&((sparse *)obj)->side.keep, i, out);
}

static ct_status sparse_restored(void *obj)
{
    sparse *x = obj;

    x->lists.spread_v = ct_lists_has_nodes(&x->lists);
    x->lists.spread_u = x->lists.spread_v && x->setup.absorb;
    CT_TRY(ct_error_feedback_restored(&x->side.keep));
    if ((x->picker != x->side.coder) && (x->picker != NULL))
        CT_TRY(x->side.codec->forget(x->picker, x->side.stream));
    return x->side.codec->forget(x->side.coder, x->side.stream);
}

static void sparse_stats(const void *obj, ct_codec_stats *out)
{
    const sparse *x = obj;

    *out = x->stats;
    out->bytes_sent = x->bytes_sent;
}

static double sparse_left(void *obj)
{
    return ct_side_left(&((sparse *)obj)->side);
}

static void topk_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                         ct_codec_seconds *out)
{
    (void)rows;
    ct_sparse_device_seconds(m, c, n, true, out);
}

static void redsync_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n,
                            int64_t rows, ct_codec_seconds *out)
{
    (void)rows;
    ct_sparse_device_seconds(m, c, n, false, out);
}

#define SPARSE_ON_DEVICE                                                                           \
    .gathers = true, .sparse = true, .keeps = true, .chains = true,                                \
    .destroy = ct_sparse_device_destroy, .dense_until = sparse_dense_until, .fold = sparse_fold,   \
    .ready = sparse_ready, .summed = sparse_summed, .start = sparse_start,                         \
    .progress = sparse_progress, .pending = sparse_pending, .where = sparse_where,                 \
    .exchange = sparse_exchange, .state = sparse_state, .restored = sparse_restored,               \
    .stats = sparse_stats, .left = sparse_left

const ct_codec_ops ct_codec_topk_device = {
    .name = "topk",
    SPARSE_ON_DEVICE,
    .size = sizeof(sparse),
    .prepare = topk_prepare,
    .payload_bytes = ct_topk_payload_bytes,
    .seconds = topk_seconds,
};

const ct_codec_ops ct_codec_redsync_device = {
    .name = "redsync",
    SPARSE_ON_DEVICE,
    .absorbs = true,
    .size = sizeof(sparse),
    .prepare = redsync_prepare,
    .payload_bytes = ct_redsync_payload_bytes,
    .seconds = redsync_seconds,
};
