/* Normalisation of rows: LayerNorm and MVN. */
#include <math.h>

#include "layers/types/norm.h"
#include "layers/layer_util.h"
#include "layers/types/layer_types.h"

void ct_row_stats(int64_t rows, int64_t n, const float *x, ct_row_stat *stat)
{
#pragma omp parallel for schedule(static) if (rows * n >= CT_PARALLEL_MIN)
    for (int64_t r = 0; r < rows; r++) {
        const float *row = x + r * n;
        double sum = 0, square = 0, mean;

#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) sum += (double)row[i];
        mean = sum / (double)n;
#pragma omp simd reduction(+ : square)
        for (int64_t i = 0; i < n; i++) square += ((double)row[i] - mean) * ((double)row[i] - mean);
        stat[r].mean = mean;
        stat[r].variance = square / (double)n;
    }
}

void ct_row_normalise(int64_t rows, int64_t n, const float *x, const ct_row_stat *stat, float *y)
{
#pragma omp parallel for schedule(static) if (rows * n >= CT_PARALLEL_MIN)
    for (int64_t r = 0; r < rows; r++) {
        double mean = stat[r].mean, factor = stat[r].factor;

#pragma omp simd
        for (int64_t i = r * n; i < (r + 1) * n; i++)
            y[i] = (float)(((double)x[i] - mean) * factor);
    }
}

void ct_row_gradient(int64_t rows, int64_t n, const ct_row_stat *stat, const float *y,
                     const float *dy, const float *scale, float *dx)
{
    const float one = 1.0f, *s = (scale != NULL) ? scale : &one;
    int64_t step = (scale != NULL) ? 1 : 0;

#pragma omp parallel for schedule(static) if (rows * n >= CT_PARALLEL_MIN)
    for (int64_t r = 0; r < rows; r++) {
        const float *g = dy + r * n, *v = y + r * n;
        double sum = 0, dot = 0, factor = stat[r].factor;

#pragma omp simd reduction(+ : sum, dot)
        for (int64_t i = 0; i < n; i++) {
            double d = (double)g[i] * (double)s[i * step];

            sum += d;
            dot += d * (double)v[i];
        }
        sum /= (double)n;
        dot *= stat[r].gain / (double)n;
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            dx[r * n + i] =
                (float)(((double)g[i] * (double)s[i * step] - sum - (double)v[i] * dot) * factor);
    }
}

/* ---- LayerNorm: what stands along the last axes of each sample, less its mean, over its
 * deviation, times a learned scale, plus a learned shift. */

enum { LAYER_NORM_STAT, NORMAL };

typedef struct layer_norm_state {
    Ct__FillerParameter one; /* the default filler of the scale */
    double eps;
    int axis;
} layer_norm_state;

typedef ct_row_plan layer_norm_plan;

static ct_status layer_norm_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__LayerNormParameter *p = l->param->layer_norm_param;
    layer_norm_state *s = l->state;
    ct_shape shape = { 0 };

    s->eps = (p != NULL) ? (double)p->eps : 1e-5;
    if (!(s->eps > 0) || !isfinite(s->eps))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "layer_norm_param.eps %g must be above 0", s->eps);
    CT_TRY(ct_layer_axis(l, bottom, (p != NULL) ? p->axis : -1, "axis", &s->axis));
    if (s->axis == 0)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "layer_norm_param.axis 0 would mix the samples of a batch");
    if ((p != NULL) && !p->affine) return CT_OK;
    for (int i = s->axis; i < bottom->ndim; i++) shape.dim[shape.ndim++] = bottom->dim[i];
    ct__filler_parameter__init(&s->one);
    s->one.value = 1.0f;
    ct_layer_add_weight(l, &shape,
                        ((p != NULL) && (p->scale_filler != NULL)) ? p->scale_filler : &s->one);
    ct_layer_add_weight(l, &shape, (p != NULL) ? p->bias_filler : NULL);
    return CT_OK;
}

static ct_status layer_norm_reshape(const ct_layer *l, ct_instance *in)
{
    const layer_norm_state *s = l->state;
    const ct_shape *x = &in->bottom[0]->data.shape;
    layer_norm_plan *plan = in->state;

    plan->rows = ct_shape_count(x, 0, s->axis);
    plan->n = ct_shape_count(x, s->axis, -1);
    if (plan->n < 1)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "nothing to normalise in shape %s",
                             ct_shape_str(x).text);
    if ((l->n_weight > 0) && (ct_shape_count(&l->weight[0].shape, 0, -1) != plan->n))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom %s, scales %s", ct_shape_str(x).text,
                             ct_shape_str(&l->weight[0].shape).text);
    ct_instance_buffer(in, LAYER_NORM_STAT, CT_LIFETIME_PASS, ct_row_bytes(l, plan));
    ct_instance_buffer(in, NORMAL, CT_LIFETIME_CALL, /* devices make it on the way */
                       (l->dev->kind == CT_DEVICE_CPU) ? ct_tensor_bytes(&in->bottom[0]->data) : 0);
    ct_blob_set_shape(in->top[0], x);
    return CT_OK;
}

static ct_status layer_norm_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const layer_norm_state *s = l->state;
    const layer_norm_plan *plan = in->state;
    const float *x = ct_blob_data(in->bottom[0]);
    ct_row_stat *stat = in->buffer[LAYER_NORM_STAT].data;
    float *y = ct_blob_data(in->top[0]);

    (void)ex;
    ct_row_stats(plan->rows, plan->n, x, stat);
    for (int64_t r = 0; r < plan->rows; r++) {
        stat[r].factor = 1 / sqrt(stat[r].variance + s->eps);
        stat[r].gain = 1;
    }
    ct_row_normalise(plan->rows, plan->n, x, stat, y);
    if (l->n_weight > 0)
        ct_view_affine(&(ct_view){ plan->rows, plan->n, 1, 0, CT_F32 }, y,
                       ct_blob_data(&in->weight[0]), ct_blob_data(&in->weight[1]), y);
    return CT_OK;
}

static ct_status layer_norm_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const layer_norm_plan *plan = in->state;
    const float *dy = ct_blob_diff(in->top[0]);
    const ct_view v = { plan->rows, plan->n, 1, 0, CT_F32 };
    float *normal = in->buffer[NORMAL].data, *dx = ct_blob_diff(in->bottom[0]);

    ct_row_normalise(plan->rows, plan->n, ct_blob_data(in->bottom[0]),
                     in->buffer[LAYER_NORM_STAT].data, normal);
    for (int i = 0; i < l->n_weight; i++) {
        float *dw = ct_blob_diff(&in->weight[i]);

        if (dw != NULL)
            ct_view_dot(&v, dy, (i == 0) ? normal : NULL, ct_weight_beta(in, ex, i) != 0.0f, dw);
    }
    if (dx != NULL)
        ct_row_gradient(plan->rows, plan->n, in->buffer[LAYER_NORM_STAT].data, normal, dy,
                        (l->n_weight > 0) ? ct_blob_data(&in->weight[0]) : NULL, dx);
    return CT_OK;
}

const ct_layer_ops ct_layer_layer_norm = {
    .type = "LayerNorm",
    .params = "layer_norm_param",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .backward_reads = CT_READS_BOTTOM,
    .state_size = sizeof(layer_norm_state),
    .instance_state_size = sizeof(layer_norm_plan),
    .setup = layer_norm_setup,
    .reshape = layer_norm_reshape,
    .forward = layer_norm_forward,
    .backward = layer_norm_backward,
};

/* ---- MVN: each row (a channel of a sample, or a whole sample) less its mean, over its deviation.
 */

enum { MVN_STAT }; /* a ct_row_stat for each row */

typedef struct mvn_state {
    bool variance, across;
    double eps;
} mvn_state;

typedef ct_row_plan mvn_plan;

static ct_status mvn_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__MVNParameter *p = l->param->mvn_param;
    mvn_state *s = l->state;

    (void)bottom;
    s->variance = (p == NULL) || p->normalize_variance;
    s->across = (p != NULL) && p->across_channels;
    s->eps = (p != NULL) ? (double)p->eps : 1e-9;
    if ((s->eps > 0) && isfinite(s->eps)) return CT_OK;
    return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "mvn_param.eps %g must be above 0", s->eps);
}

static ct_status mvn_reshape(const ct_layer *l, ct_instance *in)
{
    const ct_shape *x = &in->bottom[0]->data.shape;
    const mvn_state *s = l->state;
    mvn_plan *plan = in->state;
    ct_shape four = { 4, { 0 } };

    if ((x->ndim < 1) || (x->ndim > 4))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "the bottom %s must have 1 to 4 axes",
                             ct_shape_str(x).text);
    for (int i = 0; i < 4; i++) four.dim[i] = ct_shape_legacy(x, i);
    plan->rows = four.dim[0] * (s->across ? 1 : four.dim[1]);
    plan->n = ct_shape_count(&four, s->across ? 1 : 2, -1);
    ct_instance_buffer(in, MVN_STAT, CT_LIFETIME_PASS, ct_row_bytes(l, plan));
    if (in->top[0] != in->bottom[0]) ct_blob_set_shape(in->top[0], &four);
    return CT_OK;
}

static ct_status mvn_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const mvn_state *s = l->state;
    const mvn_plan *plan = in->state;
    const float *x = ct_blob_data(in->bottom[0]);
    ct_row_stat *stat = in->buffer[MVN_STAT].data;

    (void)ex;
    ct_row_stats(plan->rows, plan->n, x, stat);
    for (int64_t r = 0; r < plan->rows; r++) {
        double deviation = sqrt(stat[r].variance);

        stat[r].factor = s->variance ? 1 / (deviation + s->eps) : 1;
        stat[r].gain = !s->variance ? 0 : (deviation > 0) ? 1 + s->eps / deviation : 1;
    }
    ct_row_normalise(plan->rows, plan->n, x, stat, ct_blob_data(in->top[0]));
    return CT_OK;
}

static ct_status mvn_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const mvn_plan *plan = in->state;

    (void)l, (void)ex;
    if (ct_blob_diff(in->bottom[0]) != NULL)
        ct_row_gradient(plan->rows, plan->n, in->buffer[MVN_STAT].data, ct_blob_data(in->top[0]),
                        ct_blob_diff(in->top[0]), NULL, ct_blob_diff(in->bottom[0]));
    return CT_OK;
}

const ct_layer_ops ct_layer_mvn = {
    .type = "MVN",
    .params = "mvn_param",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .allow_inplace = true,
    .backward_reads = CT_READS_TOP,
    .state_size = sizeof(mvn_state),
    .instance_state_size = sizeof(mvn_plan),
    .setup = mvn_setup,
    .reshape = mvn_reshape,
    .forward = mvn_forward,
    .backward = mvn_backward,
};
