/* BatchNorm, with the tail that it runs, and BN. The maths is
 * layers/engine/batch_norm/batch_norm.h's; sums run in double in one pass, and what follows from
 * them stays on the device. */
#include "framework/math/cuda/narrow.cuh"
#include "layers/cuda/layer_cuda.cuh"

extern "C" {
#include "layers/bn.h"
#include "layers/engine/batch_norm/batch_norm.h"
}

static bool on_cuda(const ct_batch_norm_desc *d)
{
    return (d->device == CT_DEVICE_CUDA) && (d->block == 0);
}

extern const ct_batch_norm_engine ct_batch_norm_cuda;
const ct_batch_norm_engine ct_batch_norm_cuda = { "cuda", on_cuda, NULL, NULL, NULL };

typedef struct extent {
    int64_t n, c, s; /* samples, channels, places; where channels come last every place is a sample */
    ct_dtype type;   /* of all that has places */
} extent;

static extent extent_of(const ct_instance *in)
{
    const ct_shape *x = &in->bottom[0]->data.shape;
    ct_dtype type = in->bottom[0]->data.dtype;
    int64_t places = ct_shape_count(x, 2, -1);

    if (x->ndim < 2) return { x->dim[0], 1, 1, type };
    if (ct_blob_is_last(in->bottom[0])) return { x->dim[0] * places, x->dim[1], 1, type };
    return { x->dim[0], x->dim[1], places, type };
}

/* Value i of channel c. */
static __device__ int64_t place_of(extent e, int64_t c, int64_t i)
{
    return (i / e.s * e.c + c) * e.s + i % e.s;
}

static __device__ float get(const extent &e, const float *x, int64_t i)
{
    return ct_numbers_at(x, e.type)[i];
}

static __device__ void put(const extent &e, float *y, int64_t i, float v)
{
    ct_numbers_at(y, e.type).put(i, v);
}

/* Two sums a channel; where channels are neighbours threads side by side have channels. */
template <class F, class P>
static ct_status channel_sums(ct_exec *ex, const char *what, extent e, F f, P take)
{
    if ((e.s == 1) && (e.c > 1)) return ct_cuda_column_sums<2>(ex->stream, what, e.c, e.n, f, take);
    return ct_cuda_sums<2>(ex->stream, what, e.c, e.n * e.s, f, take);
}

/* Mean and variance of each channel to take(c, mean, variance), which keeps what it needs. */
template <class T> static ct_status statistics(ct_exec *ex, extent e, const float *x, T take)
{
    double count = (double)(e.n * e.s);

    return channel_sums(
        ex, "batch statistics", e,
        KERNEL(int64_t c, int64_t i, double *sum) {
            double v = (double)get(e, x, place_of(e, c, i));

            sum[0] += v;
            sum[1] += v * v;
        },
        KERNEL(int64_t c, const double *sum) {
            double mean = sum[0] / count, variance = sum[1] / count - mean * mean;

            take(c, mean, (variance > 0.0) ? variance : (mean == mean) ? 0.0 : mean);
        });
}

static __device__ float normal_of(const extent &e, const ct_batch_norm_map &m, int64_t c, int64_t i)
{
    float x = get(e, m.x, i);

    return (m.mean != NULL) ? (x - m.mean[c]) * m.inv_std[c] : x;
}

static __device__ float before_relu(const extent &e, const ct_batch_norm_map &m, int64_t c,
                                    int64_t i)
{
    float z = normal_of(e, m, c, i);

    if (m.scale != NULL) z *= m.scale[c];
    if (m.bias != NULL) z += m.bias[c];
    return (m.add != NULL) ? z + get(e, m.add, i) : z;
}

static ct_status apply(ct_exec *ex, extent e, ct_batch_norm_map m)
{
    return ct_cuda_map(
        ex->stream, "batch normalisation", e.n * e.c * e.s, KERNEL(int64_t i) {
            int64_t c = i / e.s % e.c;
            float z = before_relu(e, m, c, i);

            if (m.normal != NULL) put(e, m.normal, i, normal_of(e, m, c, i));
            put(e, m.y, i, (m.relu && (z < 0.0f)) ? 0.0f : z);
        });
}

/* The gradient of z. */
static __device__ float gradient_of(const extent &e, const ct_batch_norm_back &b, int64_t c,
                                    int64_t i)
{
    float g = 0.0f, sign = 1.0f;

    for (int k = 0; k < b.n_dy; k++) g += get(e, b.dy[k], i);
    if (b.map.relu) sign = (b.map.add != NULL) ? get(e, b.map.y, i) : before_relu(e, b.map, c, i);
    return (sign > 0.0f) ? g : 0.0f;
}

/* Where a weight's gradient goes. */
typedef struct weight_diff {
    float *to; /* NULL: not wanted */
    bool add;
} weight_diff;

static weight_diff diff_of(const ct_instance *in, const ct_exec *ex, int w)
{
    return { ct_blob_diff(&in->weight[w]), ct_weight_beta(in, ex, w) != 0.0f };
}

static __device__ void put_diff(weight_diff d, int64_t c, double sum)
{
    if (d.to != NULL) d.to[c] = (float)(sum + (d.add ? (double)d.to[c] : 0.0));
}

/* The sums, gradients of scale and bias, and of the bottom and of add. */
static ct_status backward_all(ct_exec *ex, extent e, ct_batch_norm_back b, weight_diff scale,
                              weight_diff bias)
{
    double count = (double)(e.n * e.s);

    CT_TRY(channel_sums(
        ex, "batch normalisation backward", e,
        KERNEL(int64_t c, int64_t i, double *sum) {
            int64_t at = place_of(e, c, i);
            double g = (double)gradient_of(e, b, c, at);

            sum[0] += g;
            sum[1] += g * (double)normal_of(e, b.map, c, at);
        },
        KERNEL(int64_t c, const double *sum) {
            b.sum[c] = sum[0];
            b.dot[c] = sum[1];
            put_diff(scale, c, sum[1]);
            put_diff(bias, c, sum[0]);
        }));
    if ((b.dx == NULL) && (b.g == NULL)) return CT_OK;
    return ct_cuda_map(
        ex->stream, "batch normalisation backward", e.n * e.c * e.s, KERNEL(int64_t i) {
            int64_t c = i / e.s % e.c;
            float g = gradient_of(e, b, c, i), less = 0.0f;
            float unit = ((b.map.scale != NULL) ? b.map.scale[c] : 1.0f) * b.map.inv_std[c];

            if (!b.fixed)
                less = (float)(b.sum[c] / count) +
                       normal_of(e, b.map, c, i) * (float)(b.dot[c] / count);
            if (b.g != NULL) put(e, b.g, i, g);
            if (b.dx != NULL) put(e, b.dx, i, (g - less) * unit);
        });
}

/* ---- BatchNorm */

enum { MEAN, VARIANCE, FACTOR };            /* weights */
enum { BATCH_MEAN, INV_STD, NORMAL, SUMS }; /* buffers */

/* As its setup reads them. */
typedef struct rule {
    bool use_global;
    float decay;
    double eps;
} rule;

static rule rule_of(const ct_layer *l)
{
    const Ct__BatchNormParameter *p = l->param->batch_norm_param;
    bool given = (p != NULL) && p->has_use_global_stats;

    return { given ? (bool)p->use_global_stats : (l->phase == CT_TEST),
             (p != NULL) ? p->moving_average_fraction : 0.999f,
             (p != NULL) ? (double)p->eps : 1e-5 };
}

/* What forward does to the normal values: the tail. */
static ct_batch_norm_map map_of(const ct_instance *in)
{
    const ct_tail *tail = in->tail;
    const ct_instance *affine;
    ct_batch_norm_map m = {};

    m.x = ct_blob_data(in->bottom[0]);
    m.mean = (const float *)in->buffer[BATCH_MEAN].data;
    m.inv_std = (const float *)in->buffer[INV_STD].data;
    m.y = ct_blob_data(ct_instance_top(in));
    if (tail == NULL) {
        if (in->buffer[NORMAL].bytes > 0) m.normal = (float *)in->buffer[NORMAL].data;
        return m;
    }
    affine = tail->of[CT_TAIL_AFFINE];
    if (affine != NULL) {
        m.scale = ct_blob_data(&affine->weight[0]);
        if (affine->layer->n_weight > 1) m.bias = ct_blob_data(&affine->weight[1]);
    }
    if (tail->of[CT_TAIL_SUM] != NULL)
        m.add = ct_blob_data(tail->of[CT_TAIL_SUM]->bottom[1 - tail->slot]);
    m.relu = tail->of[CT_TAIL_RELU] != NULL;
    return m;
}

static ct_status find_statistics(ct_instance *in, ct_exec *ex, extent e, rule r)
{
    float *mean = (float *)in->buffer[BATCH_MEAN].data,
          *inv_std = (float *)in->buffer[INV_STD].data;
    float *moving_mean = ct_blob_data(&in->weight[MEAN]),
          *factor = ct_blob_data(&in->weight[FACTOR]);
    float *moving_var = ct_blob_data(&in->weight[VARIANCE]);
    double count = (double)(e.n * e.s), unbias = (count > 1.0) ? count / (count - 1.0) : 1.0;

    if (r.use_global)
        return ct_cuda_map(
            ex->stream, "batch statistics", e.c, KERNEL(int64_t c) {
                float scale = (factor[0] == 0.0f) ? 0.0f : 1.0f / factor[0];

                mean[c] = moving_mean[c] * scale;
                inv_std[c] = (float)(1.0 / sqrt((double)(moving_var[c] * scale) + r.eps));
            });
    return statistics(
        ex, e, ct_blob_data(in->bottom[0]), KERNEL(int64_t c, double m, double v) {
            mean[c] = (float)m;
            inv_std[c] = (float)(1.0 / sqrt((double)(float)v + r.eps));
            moving_mean[c] = r.decay * moving_mean[c] + (float)m;
            moving_var[c] = r.decay * moving_var[c] + (float)unbias * (float)v;
            if (c == 0) factor[0] = factor[0] * r.decay + 1.0f;
        });
}

static ct_status batch_norm_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    extent e = extent_of(in);

    if (e.n * e.s == 0) return CT_OK; /* a rank without samples */
    CT_TRY(find_statistics(in, ex, e, rule_of(l)));
    return apply(ex, e, map_of(in));
}

static ct_status batch_norm_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_tail *tail = in->tail;
    const ct_instance *last = (tail != NULL) ? tail->last : in;
    const ct_instance *sum = (tail != NULL) ? tail->of[CT_TAIL_SUM] : NULL;
    const ct_instance *affine = (tail != NULL) ? tail->of[CT_TAIL_AFFINE] : NULL;
    weight_diff none = { NULL, false }, scale = none, bias = none;
    extent e = extent_of(in);
    ct_batch_norm_back b = {};

    b.map = map_of(in);
    b.fixed = rule_of(l).use_global;
    b.dx = ct_blob_diff(in->bottom[0]);
    b.sum = (double *)in->buffer[SUMS].data;
    b.dot = b.sum + e.c;
    if (b.map.normal != NULL) {
        b.map.x = b.map.normal;
        b.map.mean = NULL;
    }
    for (int t = 0; t < last->layer->n_top; t++) {
        if (ct_blob_diff(last->top[t]) != NULL) b.dy[b.n_dy++] = ct_blob_diff(last->top[t]);
    }
    if (sum != NULL) b.g = ct_blob_diff(sum->bottom[1 - tail->slot]);
    if (affine != NULL) {
        scale = diff_of(affine, ex, 0);
        if (affine->layer->n_weight > 1) bias = diff_of(affine, ex, 1);
    }
    return backward_all(ex, e, b, scale, bias);
}

const ct_layer_form ct_cuda_batch_norm = { "BatchNorm", NULL, batch_norm_forward,
                                           batch_norm_backward, true };

/* ---- BN: scale and shift in the layer, statistics as the prototxt's fork has them */

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
    return backward_all(ex, e, b, diff_of(in, ex, CT_BN_SCALE), diff_of(in, ex, CT_BN_SHIFT));
}

const ct_layer_form ct_cuda_bn = { "BN", NULL, bn_forward, bn_backward };
