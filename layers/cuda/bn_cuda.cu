/* BN and SyncBN: scale and shift in the layer, statistics as the prototxt's fork has them, or of
 * the ranks' batches together. Kernels are those of BatchNorm. */
#include "layers/cuda/layer_cuda.cuh"
#include "layers/engine/batch_norm/cuda/batch_norm.cuh"

extern "C" {
#include "layers/types/norm.h"
}

static extent extent_of(const ct_instance *in)
{
    const ct_shape *x = &in->bottom[0]->data.shape;
    ct_dtype type = in->bottom[0]->data.dtype;
    int64_t places = ct_shape_count(x, 2, -1);

    if (x->ndim < 2) return { x->dim[0], 1, 1, type };
    if (ct_blob_is_last(in->bottom[0])) return { x->dim[0] * places, x->dim[1], 1, type };
    return { x->dim[0], x->dim[1], places, type };
}

static weight_diff diff_of(const ct_instance *in, const ct_exec *ex, int w)
{
    return { ct_blob_diff(&in->weight[w]), ct_weight_beta(in, ex, w) != 0.0f };
}

static ct_status bn_statistics(const ct_layer *l, ct_instance *in, ct_exec *ex, extent e)
{
    ct_bn_state s = *(const ct_bn_state *)l->state;
    float *mean = (float *)in->buffer[CT_BN_USED_MEAN].data;
    float *inv_std = (float *)in->buffer[CT_BN_INV_STD].data;
    bool has = l->n_weight > CT_BN_VARIANCE;
    float *moving_mean = has ? ct_blob_data(&in->weight[CT_BN_MEAN]) : NULL;
    float *moving_var = has ? ct_blob_data(&in->weight[CT_BN_VARIANCE]) : NULL;
    bool running = s.by == CT_BN_RUNNING, moves = s.moves;
    float keep = s.keep, eps = s.eps;

    if (s.by != CT_BN_BATCH)
        return ct_cuda_map(
            ex->stream, "batch statistics", e.c, KERNEL(int64_t c) {
                float variance = running ? moving_var[c] : 1.0f - eps;

                mean[c] = running ? moving_mean[c] : 0.0f;
                inv_std[c] = (float)(1.0 / sqrt((double)variance + (double)eps));
            });
    if (e.n * e.s == 0) return CT_OK;
    return statistics(
        ex, e, ct_blob_data(in->bottom[0]), KERNEL(int64_t c, double m, double v) {
            mean[c] = (float)m;
            inv_std[c] = (float)(1.0 / sqrt((double)(float)v + (double)eps));
            if (!moves) return;
            moving_mean[c] = keep * moving_mean[c] + (1.0f - keep) * (float)m;
            moving_var[c] = keep * moving_var[c] + (1.0f - keep) * (float)v;
        });
}

/* Statistics of all ranks' values. As on the CPU a mean crosses first, then how far all are from
 * it: sums of squares would leave little of a variance that is small beside the mean. The variance
 * lies in the place of the deviation until the last kernel. */
static ct_status share_mean(ct_instance *in, ct_exec *ex, extent e)
{
    float *mean = (float *)in->buffer[CT_BN_USED_MEAN].data;
    float *var = (float *)in->buffer[CT_BN_INV_STD].data;
    double *shared = (double *)in->buffer[CT_BN_SHARED].data, here = (double)(e.n * e.s);
    int64_t n = e.c;

    if (here > 0.0)
        CT_TRY(statistics(
            ex, e, ct_blob_data(in->bottom[0]), KERNEL(int64_t c, double m, double v) {
                mean[c] = (float)m;
                var[c] = (float)v;
            }));
    return ct_cuda_map(
        ex->stream, "statistics over ranks", n + 1,
        KERNEL(int64_t c) { shared[c] = (c < n) ? ct_bn_mean_share(here, mean[c]) : here; });
}

static ct_status share_variance(ct_instance *in, ct_exec *ex, extent e)
{
    float *mean = (float *)in->buffer[CT_BN_USED_MEAN].data;
    const float *var = (const float *)in->buffer[CT_BN_INV_STD].data;
    double *shared = (double *)in->buffer[CT_BN_SHARED].data, here = (double)(e.n * e.s);
    double *count = (double *)in->buffer[CT_BN_COUNT].data;
    int64_t n = e.c;

    return ct_cuda_map(
        ex->stream, "statistics over ranks", n, KERNEL(int64_t c) {
            double all = ct_bn_joined(shared[c], shared[n]);

            if (c == 0) *count = shared[n];
            shared[c] = ct_bn_variance_share(here, mean[c], var[c], all);
            mean[c] = (float)all;
        });
}

static ct_status take_variance(const ct_layer *l, ct_instance *in, ct_exec *ex, extent e)
{
    ct_bn_state s = *(const ct_bn_state *)l->state;
    const float *mean = (const float *)in->buffer[CT_BN_USED_MEAN].data;
    float *inv_std = (float *)in->buffer[CT_BN_INV_STD].data;
    const double *shared = (const double *)in->buffer[CT_BN_SHARED].data;
    const double *count = (const double *)in->buffer[CT_BN_COUNT].data;
    float *moving_mean = ct_blob_data(&in->weight[CT_BN_MEAN]);
    float *moving_var = ct_blob_data(&in->weight[CT_BN_VARIANCE]);

    return ct_cuda_map(
        ex->stream, "statistics over ranks", e.c, KERNEL(int64_t c) {
            float v = (float)ct_bn_joined(shared[c], *count);

            inv_std[c] = (float)(1.0 / sqrt((double)v + (double)s.eps));
            if (!s.moves || !(*count > 0.0)) return;
            moving_mean[c] = s.keep * moving_mean[c] + (1.0f - s.keep) * mean[c];
            moving_var[c] = s.keep * moving_var[c] + (1.0f - s.keep) * v;
        });
}

/* In place the normal values are kept, for backward. */
static ct_batch_norm_map bn_map(const ct_instance *in, bool backward)
{
    bool kept = in->buffer[CT_BN_NORMAL].bytes > 0;
    ct_batch_norm_map m = {};

    m.x = ct_blob_data(in->bottom[0]);
    m.mean = (const float *)in->buffer[CT_BN_USED_MEAN].data;
    m.inv_std = (const float *)in->buffer[CT_BN_INV_STD].data;
    m.scale = ct_blob_data(&in->weight[CT_BN_SCALE]);
    m.bias = ct_blob_data(&in->weight[CT_BN_SHIFT]);
    m.y = ct_blob_data(in->top[0]);
    if (!kept) return m;
    if (backward) {
        m.x = (const float *)in->buffer[CT_BN_NORMAL].data;
        m.mean = NULL;
    } else {
        m.normal = (float *)in->buffer[CT_BN_NORMAL].data;
    }
    return m;
}

static ct_status forward_part(const ct_layer *l, ct_instance *in, ct_exec *ex, int part)
{
    const ct_bn_state *s = (const ct_bn_state *)l->state;
    extent e = extent_of(in);

    if (!s->sync || (s->by != CT_BN_BATCH))
        CT_TRY(bn_statistics(l, in, ex, e));
    else if (part == 0)
        return share_mean(in, ex, e);
    else if (part == 1)
        return share_variance(in, ex, e);
    else
        CT_TRY(take_variance(l, in, ex, e));
    return (e.n * e.s > 0) ? apply(ex, e, bn_map(in, false)) : CT_OK;
}

static ct_batch_norm_back bn_back(const ct_layer *l, const ct_instance *in, const extent &e)
{
    const ct_bn_state *s = (const ct_bn_state *)l->state;
    ct_batch_norm_back b = {};

    b.map = bn_map(in, true);
    b.fixed = s->by != CT_BN_BATCH;
    b.dy[0] = ct_blob_diff(in->top[0]);
    b.n_dy = 1;
    b.dx = ct_blob_diff(in->bottom[0]);
    b.sum = (double *)in->buffer[CT_BN_SUMS].data;
    b.dot = b.sum + e.c;
    return b;
}

/* The gradients of scale and shift are this rank's; the bottom's takes off what all ranks' sums
 * say.
 */
static ct_status backward_part(const ct_layer *l, ct_instance *in, ct_exec *ex, int part)
{
    const ct_bn_state *s = (const ct_bn_state *)l->state;
    extent e = extent_of(in);
    ct_batch_norm_back b = bn_back(l, in, e);
    double *shared = (double *)in->buffer[CT_BN_SHARED].data;

    if (!s->sync || (s->by != CT_BN_BATCH))
        return backward_all(ex, e, b, false, diff_of(in, ex, CT_BN_SCALE),
                            diff_of(in, ex, CT_BN_SHIFT));
    if (part == 0) {
        CT_TRY(backward_sums(ex, e, b, false, diff_of(in, ex, CT_BN_SCALE),
                             diff_of(in, ex, CT_BN_SHIFT)));
        return in->bottom[0]->wants_diff
                   ? ex->dev->copy(ex->stream, shared, b.sum, 2 * (size_t)e.c * sizeof(*shared))
                   : CT_OK;
    }
    b.sum = shared;
    b.dot = shared + e.c;
    if (e.n * e.s == 0) return CT_OK; /* a rank without samples */
    return backward_values(ex, e, b, false, { 0.0, (const double *)in->buffer[CT_BN_COUNT].data });
}

/* All parts, where nobody cuts the layer. Collective for SyncBN. */
static ct_status all_parts(const ct_layer *l, ct_instance *in, ct_exec *ex, bool forward)
{
    const ct_sum_ops *sums = l->ops->sums;

    for (int k = 0;; k++) {
        int n = (sums != NULL) ? sums->count(l, in, forward, k) : 0;

        CT_TRY(forward ? forward_part(l, in, ex, k) : backward_part(l, in, ex, k));
        if (n == 0) return CT_OK;
        CT_TRY(sum_over_ranks(ex, (double *)in->buffer[sums->slot].data, n));
    }
}

static ct_status bn_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    return all_parts(l, in, ex, true);
}

static ct_status bn_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    return all_parts(l, in, ex, false);
}

const ct_device_override ct_cuda_bn = { "BN", NULL, bn_forward, bn_backward };
const ct_device_override ct_cuda_sync_bn = { "SyncBN", NULL, bn_forward,   bn_backward,
                                             false,    NULL, forward_part, backward_part };
