/* BN: scale and shift in the layer, statistics as the prototxt's fork has them. Kernels are those of
 * BatchNorm. */
#include "layers/cuda/layer_cuda.cuh"
#include "layers/engine/batch_norm/cuda/batch_norm.cuh"

extern "C" {
#include "layers/bn.h"
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

static ct_status bn_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    extent e = extent_of(in);

    CT_TRY(bn_statistics(l, in, ex, e));
    return (e.n * e.s > 0) ? apply(ex, e, bn_map(in, false)) : CT_OK;
}

static ct_status bn_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_bn_state *s = (const ct_bn_state *)l->state;
    extent e = extent_of(in);
    ct_batch_norm_back b = {};

    b.map = bn_map(in, true);
    b.fixed = s->by != CT_BN_BATCH;
    b.dy[0] = ct_blob_diff(in->top[0]);
    b.n_dy = 1;
    b.dx = ct_blob_diff(in->bottom[0]);
    b.sum = (double *)in->buffer[CT_BN_SUMS].data;
    b.dot = b.sum + e.c;
    return backward_all(ex, e, b, false, diff_of(in, ex, CT_BN_SCALE),
                        diff_of(in, ex, CT_BN_SHIFT));
}

const ct_layer_form ct_cuda_bn = { "BN", NULL, bn_forward, bn_backward };
