/* topk and redsync: the largest elements of what a rank has not sent yet, exchanged sparsely.
 *
 * comm/codec/select.h accumulates and selects, comm/sparse/payload.h rounds what will travel,
 * comm/sparse/sparse_allreduce.h makes the sum; what any of them drops goes back to V. redsync
 * corrects momentum; topk is plain. quantize: all values become their mean, so steps of even
 * iterations send positive elements, those of odd ones negative; not where the loss reads the
 * layer.
 *
 * With the exchange `hier` a rank selects from a slice of its node's sum. U and V are then held for
 * that slice, but a snapshot of other ranks and a dense step leave shares of them everywhere:
 * before the next coded step the node adds them up, as it adds gradients. */
#include <stdlib.h>
#include <string.h>

#include "comm/codec/error_feedback.h"
#include "comm/codec/codec_sparse.h"
#include "comm/codec/codec_types.h"
#include "framework/base/clock.h"

typedef enum { PHASE_NODE_U, PHASE_NODE_V, PHASE_NODE_GRAD, PHASE_EXCHANGE } phase;

typedef struct sparse {
    ct_codec_setup setup;
    ct_selector *selector; /* NULL: this rank's slice is empty */
    const ct_sparse_allreduce_ops *exch;
    ct_sparse_allreduce_req req;
    ct_sparse own;
    ct_error_feedback keep;
    bool plain; /* topk: no momentum correction, exact values unless asked */
    ct_sparse_warmup warmup;
    bool quantize;
    bool spread_u, spread_v; /* hier: elements outside of the slice may not be 0 */
    phase phase;
    ct_codec_step step;
    ct_codec_stats stats;
    double left_at;
} sparse;

/* ---- creation */

static void sparse_destroy(void *obj)
{
    sparse *x = obj;

    if (x == NULL) return;
    if (x->exch != NULL) x->exch->release(&x->req);
    ct_selector_destroy(x->selector);
    ct_sparse_destroy(&x->own);
    ct_error_feedback_release(&x->keep);
    free(x);
}

/* What may not be the same in another run is not chosen: Ok-Topk's regions and thresholds come from
 * the steps before, which a snapshot does not have. */
static const char *exchange_name(const ct_codec_setup *s)
{
    if (ct_sparse_is_auto(s->config->exchange)) return s->deterministic ? "allgather" : "auto";
    return s->config->exchange;
}

/* Which exchange, and in what form values travel, is for the steps after the warm-up. */
static ct_status prepare(sparse *x, const ct_codec_setup *setup, bool plain)
{
    const ct_codec_setup *s = &x->setup;
    const ct_sparse_allreduce_ops *exch = NULL;
    ct_select_kind kind = CT_SELECT_AUTO;
    int64_t k = ct_sparse_wanted(setup->config, setup->n);

    x->setup = *setup;
    x->plain = plain;
    x->phase = PHASE_EXCHANGE;
    x->quantize = s->config->quantize && !s->output;
    x->req =
        (ct_sparse_allreduce_req){ .comm = s->comm,
                                   .n = s->n,
                                   .k = k,
                                   .form = ct_sparse_form(s->config, s->n, x->quantize, x->plain),
                                   .tag = s->tag,
                                   .inner = ct_sparse_inner(s->deterministic),
                                   .sum = s->grad,
                                   .length = s->n,
                                   .k_own = k,
                                   .copies = 1 };
    atomic_store(&x->req.where.rank, -1);
    CT_TRY(ct_error_feedback_acquire(s, &x->keep));
    x->keep.masks = s->config->mask_momentum;
    CT_TRY(ct_sparse_selection(s->config->selection, &kind));
    if (s->comm->size > 1)
        CT_TRY(ct_sparse_allreduce_choose(s->comm, s->n, k, x->req.form, exchange_name(s), &exch));
    x->warmup = ct_sparse_warmup_of(s, exch, x->req.form);
    x->req.k_most = x->warmup.k_most;
    x->exch = exch; /* from now on it is released */
    if (exch != NULL) CT_TRY(exch->prepare(&x->req));
    if (x->req.length == 0) return CT_OK;
    return ct_selector_create(kind, x->req.length, x->req.k_own, &x->selector);
}

static ct_status topk_prepare(void *obj, const ct_codec_setup *setup)
{
    return prepare(obj, setup, true);
}

static ct_status redsync_prepare(void *obj, const ct_codec_setup *setup)
{
    return prepare(obj, setup, false);
}

/* ---- a step */

static bool has_nodes(const sparse *x)
{
    return (x->exch != NULL) && (x->exch->node_start != NULL);
}

static ct_status sparse_fold(void *obj, const ct_codec_step *step)
{
    sparse *x = obj;

    ct_error_feedback_fold(&x->keep, step, &x->stats);
    x->spread_u = has_nodes(x) && x->setup.absorb;
    return CT_OK;
}

/* Every rank sent everything to itself. */
static void deliver_alone(sparse *x)
{
    memset(x->setup.grad, 0, sizeof(float) * (size_t)x->setup.n);
    ct_payload_round(x->req.form, &x->own, &(ct_residual_return){ .v = x->keep.v });
    ct_sparse_add_to(&x->own, x->setup.grad);
    x->req.filled = x->own.count;
}

static ct_status select_own(sparse *x)
{
    ct_momentum_correction a =
        ct_error_feedback_accum(&x->keep, &x->step, x->req.first, x->req.length, x->req.copies);
    ct_select_stats s;

    x->own.n = x->req.length;
    x->own.count = 0;
    if (x->selector == NULL) return CT_OK;
    if (x->quantize) ct_selector_sign(x->selector, (x->step.iteration % 2 == 0) ? 1 : -1);
    CT_TRY(ct_selector_run(x->selector, &a, &x->own));
    ct_selector_stats(x->selector, &s);
    x->stats.accumulate_s += s.update_s;
    x->stats.select_s += s.select_s;
    x->stats.selected += x->own.count;
    if (x->step.iteration < x->setup.config->warmup_iterations)
        x->stats.warm_selected += x->own.count;
    x->stats.bytes_coded += (int64_t)ct_payload_bytes(x->req.form, x->own.n, x->own.count);
    return CT_OK;
}

static ct_status select_and_start(sparse *x)
{
    double start = ct_clock_s(), selected = 0;
    ct_status status = CT_OK;

    CT_TRY(select_own(x));
    selected = ct_clock_s();
    x->req.own = &x->own;
    x->req.residual = (ct_residual_return){ .v = x->keep.v + x->req.first };
    x->phase = PHASE_EXCHANGE;
    if (x->exch == NULL)
        deliver_alone(x);
    else
        status = x->exch->start(&x->req);
    x->left_at = ct_clock_s();
    x->stats.pack_s += x->left_at - selected;
    x->stats.encoded_at[0] = start;
    x->stats.encoded_at[1] = x->left_at;
    return status;
}

static float *phase_data(const sparse *x)
{
    if (x->phase == PHASE_NODE_U) return x->keep.u;
    return (x->phase == PHASE_NODE_V) ? x->keep.v : x->setup.grad;
}

static ct_status enter(sparse *x, phase next)
{
    if ((next == PHASE_NODE_U) && !x->spread_u) next = PHASE_NODE_V;
    if ((next == PHASE_NODE_V) && !x->spread_v) next = PHASE_NODE_GRAD;
    x->phase = next;
    return x->exch->node_start(&x->req, phase_data(x));
}

/* As many elements as are to be selected in this iteration, while their number falls and after. */
static void take_density(sparse *x)
{
    const ct_codec_config *c = x->setup.config;
    int64_t k = ct_sparse_wanted_at(c, x->setup.n, x->step.iteration);

    x->stats.warm_steps += (x->step.iteration < c->warmup_iterations);
    if (k > x->warmup.k_most) k = x->warmup.k_most;
    if (k == x->req.k) return;
    ct_sparse_allreduce_want(&x->req, k);
    if (x->selector != NULL) ct_selector_want(x->selector, x->req.k_own);
}

static ct_status sparse_start(void *obj, const ct_codec_step *step)
{
    sparse *x = obj;

    x->step = *step;
    take_density(x);
    x->stats.n_step += 1;
    x->stats.bytes_dense += x->setup.n * (int64_t)sizeof(float);
    x->left_at = ct_clock_s();
    if (!has_nodes(x)) return select_and_start(x);
    if (step->clip != 1) /* a node's sum is of gradients that were limited */
        ct_momentum_correction_scale(x->setup.grad, x->setup.n, step->clip,
                                     x->setup.comm->n_thread);
    x->step.clip = 1;
    return enter(x, PHASE_NODE_U);
}

/* U or V of the node is summed: other elements are other ranks'. */
static void keep_slice(sparse *x, float *data)
{
    int64_t end = x->req.first + x->req.length;

    memset(data, 0, sizeof(float) * (size_t)x->req.first);
    memset(data + end, 0, sizeof(float) * (size_t)(x->setup.n - end));
}

static ct_status progress_node(sparse *x)
{
    while (x->phase != PHASE_EXCHANGE) {
        ct_status status = x->exch->node_progress(&x->req);

        if (status != CT_OK) return status;
        if (x->phase == PHASE_NODE_GRAD) {
            x->stats.exchange_s += ct_clock_s() - x->left_at;
            CT_TRY(select_and_start(x));
            break;
        }
        keep_slice(x, phase_data(x));
        if (x->phase == PHASE_NODE_U) x->spread_u = false;
        if (x->phase == PHASE_NODE_V) x->spread_v = false;
        CT_TRY(enter(x, (x->phase == PHASE_NODE_U) ? PHASE_NODE_V : PHASE_NODE_GRAD));
    }
    return CT_OK;
}

static ct_status sparse_progress(void *obj)
{
    sparse *x = obj;
    double before = x->req.decode_s, now = 0, decoding = 0;
    ct_status status = CT_OK;

    if (x->exch != NULL) {
        if (x->phase != PHASE_EXCHANGE) {
            status = progress_node(x);
            if (status != CT_OK) return status;
        }
        status = x->exch->progress(&x->req);
        now = ct_clock_s();
        decoding = x->req.decode_s - before;
        x->stats.unpack_s += decoding;
        x->stats.exchange_s -= decoding;
        if (status != CT_OK) return status;
    }
    now = ct_clock_s();
    x->stats.exchange_s += now - x->left_at;
    x->stats.decoded_at[0] = now - decoding;
    x->stats.decoded_at[1] = now;
    x->stats.filled += x->req.filled;
    return CT_OK;
}

/* ---- looks */

static int sparse_pending(void *obj, MPI_Request **out, int max)
{
    sparse *x = obj;

    return ((x->exch != NULL) && (x->exch->pending != NULL)) ? x->exch->pending(&x->req, out, max)
                                                             : 0;
}

static ct_coll_where *sparse_where(void *obj)
{
    return &((sparse *)obj)->req.where;
}

static const char *sparse_exchange(const void *obj)
{
    const sparse *x = obj;

    return (x->exch != NULL) ? x->exch->name : "one rank";
}

static int64_t sparse_dense_until(const void *obj)
{
    return ((const sparse *)obj)->warmup.dense_until;
}

static bool sparse_state(void *obj, int i, ct_codec_state *out)
{
    sparse *x = obj;

    return ct_error_feedback_state(&x->keep, i, out);
}

static ct_status sparse_restored(void *obj)
{
    sparse *x = obj;

    x->spread_u = has_nodes(x) && x->setup.absorb;
    x->spread_v = has_nodes(x);
    if (x->selector != NULL) ct_selector_forget(x->selector);
    return CT_OK;
}

static void sparse_stats(const void *obj, ct_codec_stats *out)
{
    const sparse *x = obj;

    *out = x->stats;
    out->bytes_sent = x->req.bytes_sent;
}

static ct_status topk_check(const ct_codec_config *c)
{
    if (c->momentum_correction)
        return CT_FAIL(CT_ERR_CONFIG,
                       "compression topk is the plain one, without momentum_correction; redsync "
                       "is topk with it");
    return ct_sparse_check(c);
}

const ct_codec_ops ct_codec_topk = {
    .name = "topk",
    .on_device = &ct_codec_topk_device,
    .gathers = true,
    .sparse = true,
    .keeps = true,
    .check = topk_check,
    .size = sizeof(sparse),
    .prepare = topk_prepare,
    .destroy = sparse_destroy,
    .dense_until = sparse_dense_until,
    .fold = sparse_fold,
    .start = sparse_start,
    .progress = sparse_progress,
    .pending = sparse_pending,
    .where = sparse_where,
    .exchange = sparse_exchange,
    .state = sparse_state,
    .restored = sparse_restored,
    .stats = sparse_stats,
    .payload_bytes = ct_topk_payload_bytes,
    .seconds = ct_topk_seconds,
};

const ct_codec_ops ct_codec_redsync = {
    .name = "redsync",
    .on_device = &ct_codec_redsync_device,
    .automatic = true,
    .gathers = true,
    .sparse = true,
    .keeps = true,
    .absorbs = true,
    .check = ct_sparse_check,
    .size = sizeof(sparse),
    .prepare = redsync_prepare,
    .destroy = sparse_destroy,
    .dense_until = sparse_dense_until,
    .fold = sparse_fold,
    .start = sparse_start,
    .progress = sparse_progress,
    .pending = sparse_pending,
    .where = sparse_where,
    .exchange = sparse_exchange,
    .state = sparse_state,
    .restored = sparse_restored,
    .stats = sparse_stats,
    .payload_bytes = ct_redsync_payload_bytes,
    .seconds = ct_redsync_seconds,
};
