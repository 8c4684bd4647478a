/* Normalize of SSD: the channels at each place, or a whole sample, over their Euclidean norm, times
 * a learned scale of each channel or of all. */
#include <math.h>

#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

enum { INVERSE, NORMAL, DOT }; /* 1 / norm of each place; x over the norms; DOT: of devices, sums */
enum { TILE = 64 };            /* places that a thread takes together      */

typedef struct normalize_state {
    Ct__FillerParameter one; /* the default filler */
    bool across, shared;
    double eps;
} normalize_state;

/* samples x channels x places; of a sample that is normalised as a whole all is one place. */
typedef struct normalize_plan {
    int64_t samples, channels, places, scaled; /* scaled: places of a channel of its own scale */
} normalize_plan;

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__NormalizeParameter *p = l->param->norm_param;
    normalize_state *s = l->state;
    ct_shape shape = { 0 };

    if (bottom->ndim < 2)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "the bottom %s has no channels: 2 axes are needed",
                             ct_shape_str(bottom).text);
    s->across = (p == NULL) || p->across_spatial;
    s->shared = (p == NULL) || p->channel_shared;
    s->eps = (p != NULL) ? (double)p->eps : 1e-10;
    if (!(s->eps >= 0) || !isfinite(s->eps))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "norm_param.eps %g must be at least 0", s->eps);
    ct__filler_parameter__init(&s->one);
    s->one.value = 1.0f;
    if (!s->shared) shape = (ct_shape){ 1, { bottom->dim[1] } };
    ct_layer_add_weight(l, &shape,
                        ((p != NULL) && (p->scale_filler != NULL)) ? p->scale_filler : &s->one);
    return CT_OK;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const normalize_state *s = l->state;
    const ct_shape *x = &in->bottom[0]->data.shape;
    normalize_plan *plan = in->state;

    if ((x->ndim < 2) || (!s->shared && (x->dim[1] != l->weight[0].shape.dim[0])))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom %s, scales %s", ct_shape_str(x).text,
                             ct_shape_str(&l->weight[0].shape).text);
    *plan = (normalize_plan){ x->dim[0], ct_shape_count(x, 1, s->across ? -1 : 2),
                              s->across ? 1 : ct_shape_count(x, 2, -1), ct_shape_count(x, 2, -1) };
    ct_instance_buffer(in, INVERSE, CT_LIFETIME_PASS,
                       (size_t)(plan->samples * plan->places) * sizeof(float));
    ct_instance_buffer(in, NORMAL, CT_LIFETIME_CALL, ct_tensor_bytes(&in->bottom[0]->data));
    ct_instance_buffer(in, DOT, CT_LIFETIME_CALL,
                       (l->dev->kind == CT_DEVICE_CPU)
                           ? 0
                           : (size_t)(plan->samples * plan->places) * sizeof(double));
    ct_blob_set_shape(in->top[0], x);
    return CT_OK;
}

/* sum[i] = sum over the channels of a b at place i of n, from one sample's tile on. */
static void dot_tile(const normalize_plan *p, int64_t n, const float *a, const float *b,
                     double *sum)
{
    for (int64_t i = 0; i < n; i++) sum[i] = 0;
    for (int64_t c = 0; c < p->channels; c++) {
        const float *ra = a + c * p->places, *rb = b + c * p->places;

#pragma omp simd
        for (int64_t i = 0; i < n; i++) sum[i] += (double)ra[i] * (double)rb[i];
    }
}

/* to = x over the norms. */
static void divide(const normalize_plan *p, const float *x, const float *inverse, float *to)
{
#pragma omp parallel for schedule(static) if (p->samples * p->channels * p->places >=              \
                                              CT_PARALLEL_MIN)
    for (int64_t r = 0; r < p->samples * p->channels; r++) {
        const float *f = inverse + r / p->channels * p->places;

#pragma omp simd
        for (int64_t i = 0; i < p->places; i++) to[r * p->places + i] = x[r * p->places + i] * f[i];
    }
}

/* to = from times the scales. */
static void rescale(const ct_layer *l, const ct_instance *in, const float *from, float *to)
{
    const normalize_state *s = l->state;
    const normalize_plan *p = in->state;
    int64_t n = ct_tensor_count(&in->bottom[0]->data);
    ct_view v = s->shared
                    ? (ct_view){ 1, 1, n, 0, CT_F32 }
                    : (ct_view){ p->samples, l->weight[0].shape.dim[0], p->scaled, 0, CT_F32 };

    ct_view_affine(&v, from, ct_blob_data(&in->weight[0]), NULL, to);
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const normalize_state *s = l->state;
    const normalize_plan *p = in->state;
    const float *x = ct_blob_data(in->bottom[0]);
    float *inverse = in->buffer[INVERSE].data, *y = ct_blob_data(in->top[0]);
    int64_t tiles = (p->places + TILE - 1) / TILE;

    (void)ex;
#pragma omp parallel for schedule(static) if (p->samples * p->channels * p->places >=              \
                                              CT_PARALLEL_MIN)
    for (int64_t t = 0; t < p->samples * tiles; t++) {
        int64_t at = t % tiles * TILE, n = (at + TILE < p->places) ? TILE : p->places - at;
        const float *from = x + t / tiles * p->channels * p->places + at;
        double sum[TILE];

        dot_tile(p, n, from, from, sum);
        for (int64_t i = 0; i < n; i++)
            inverse[t / tiles * p->places + at + i] = (float)(1 / sqrt(sum[i] + s->eps));
    }
    divide(p, x, inverse, y);
    rescale(l, in, y, y);
    return CT_OK;
}

/* With v = x / norm and g = dy scale: dx = (g - v sum(g v)) / norm, in place of g. */
static void gradient(const normalize_plan *p, const float *v, const float *inverse, float *dx)
{
    int64_t tiles = (p->places + TILE - 1) / TILE;

#pragma omp parallel for schedule(static) if (p->samples * p->channels * p->places >=              \
                                              CT_PARALLEL_MIN)
    for (int64_t t = 0; t < p->samples * tiles; t++) {
        int64_t at = t % tiles * TILE, n = (at + TILE < p->places) ? TILE : p->places - at;
        int64_t from = t / tiles * p->channels * p->places + at;
        const float *f = inverse + t / tiles * p->places + at;
        double sum[TILE];

        dot_tile(p, n, dx + from, v + from, sum);
        for (int64_t c = 0; c < p->channels; c++) {
            const float *rv = v + from + c * p->places;
            float *row = dx + from + c * p->places;

#pragma omp simd
            for (int64_t i = 0; i < n; i++)
                row[i] = (float)(((double)row[i] - (double)rv[i] * sum[i]) * (double)f[i]);
        }
    }
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const normalize_state *s = l->state;
    const normalize_plan *p = in->state;
    const float *dy = ct_blob_diff(in->top[0]), *inverse = in->buffer[INVERSE].data;
    float *normal = in->buffer[NORMAL].data, *dx = ct_blob_diff(in->bottom[0]);
    float *ds = ct_blob_diff(&in->weight[0]);
    ct_view v = { p->samples, l->weight[0].shape.dim[0], p->scaled, 0, CT_F32 };

    if (s->shared) v = (ct_view){ 1, 1, ct_tensor_count(&in->bottom[0]->data), 0, CT_F32 };
    divide(p, ct_blob_data(in->bottom[0]), inverse, normal);
    if (ds != NULL) ct_view_dot(&v, dy, normal, ct_weight_beta(in, ex, 0) != 0.0f, ds);
    if (dx == NULL) return CT_OK;
    rescale(l, in, dy, dx);
    gradient(p, normal, inverse, dx);
    return CT_OK;
}

/* A sample whole, or its channels, which are tokens where there are any. */
static bool apart(const ct_layer *l, const ct_instance *in, int n_axis)
{
    (void)l;
    (void)in;
    return n_axis == 1;
}

static const ct_sequence_ops normalize_sequence = { .apart = apart };

const ct_layer_ops ct_layer_normalize = {
    .type = "Normalize",
    .params = "norm_param",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .backward_reads = CT_READS_BOTTOM,
    .state_size = sizeof(normalize_state),
    .instance_state_size = sizeof(normalize_plan),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .sequence = &normalize_sequence,
};
