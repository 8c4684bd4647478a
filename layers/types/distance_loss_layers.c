/* Losses of the distance between features: EuclideanLoss, L1Loss, SmoothL1Loss, ContrastiveLoss,
 * CenterLoss. */
#include <math.h>
#include <string.h>

#include "layers/types/layer_types.h"
#include "layers/types/loss.h"
#include "framework/math/math.h"

/* ---- EuclideanLoss: sum of (a - b)^2 over twice the number of samples. Either bottom may get a
 * gradient. */

typedef struct euclidean_plan {
    double samples; /* of the global batch, in the last forward */
} euclidean_plan;

static ct_status euclidean_loss_reshape(const ct_layer *l, ct_instance *in)
{
    return ct_loss_reshape_pair(l, in, 0, 1);
}

typedef struct euclidean {
    const float *a, *b;
} euclidean;

static double squared_distance(const void *ctx, int64_t from, int64_t to)
{
    const euclidean *e = ctx;
    double sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t i = from; i < to; i++)
        sum += ((double)e->a[i] - (double)e->b[i]) * ((double)e->a[i] - (double)e->b[i]);
    return sum;
}

static ct_status euclidean_loss_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    euclidean_plan *plan = in->state;
    euclidean e = { ct_blob_data(in->bottom[0]), ct_blob_data(in->bottom[1]) };
    int64_t n = ct_tensor_count(&in->bottom[0]->data);

    (void)l;
    CT_TRY(ct_loss_samples(in, ex, &plan->samples));
    ct_blob_data(in->top[0])[0] =
        (float)(ct_loss_sum(n, n, squared_distance, &e) / plan->samples / 2);
    return CT_OK;
}

static ct_status euclidean_loss_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const euclidean_plan *plan = in->state;
    const float *a = ct_blob_data(in->bottom[0]), *b = ct_blob_data(in->bottom[1]);
    float scale = (float)((double)ct_loss_weight(in) / plan->samples);
    int64_t n = ct_tensor_count(&in->bottom[0]->data);

    (void)ex;
    for (int k = 0; k < l->n_bottom; k++) {
        float *dx = ct_blob_diff(in->bottom[k]), sign = (k == 0) ? scale : -scale;

        if (dx == NULL) continue;
#pragma omp parallel for simd schedule(static) if (n >= CT_PARALLEL_MIN)
        for (int64_t i = 0; i < n; i++) dx[i] = sign * (a[i] - b[i]);
    }
    return CT_OK;
}

const ct_layer_ops ct_layer_euclidean_loss = {
    .type = "EuclideanLoss",
    .min_bottom = 2,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 1,
    .is_loss = true,
    .top_is_share = true,
    .backward_reads = CT_READS_BOTTOM,
    .instance_state_size = sizeof(euclidean_plan),
    .reshape = euclidean_loss_reshape,
    .forward = euclidean_loss_forward,
    .backward = euclidean_loss_backward,
};

/* ---- L1Loss of NVIDIA's fork: sum of |a - b| over the number of samples. Where a is b, no
 * gradient passes. */

static double absolute_distance(const void *ctx, int64_t from, int64_t to)
{
    const euclidean *e = ctx;
    double sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t i = from; i < to; i++) sum += fabs((double)e->a[i] - (double)e->b[i]);
    return sum;
}

static ct_status l1_loss_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    euclidean_plan *plan = in->state;
    euclidean e = { ct_blob_data(in->bottom[0]), ct_blob_data(in->bottom[1]) };
    int64_t n = ct_tensor_count(&in->bottom[0]->data);

    (void)l;
    CT_TRY(ct_loss_samples(in, ex, &plan->samples));
    ct_blob_data(in->top[0])[0] = (float)(ct_loss_sum(n, n, absolute_distance, &e) / plan->samples);
    return CT_OK;
}

static ct_status l1_loss_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const euclidean_plan *plan = in->state;
    const float *a = ct_blob_data(in->bottom[0]), *b = ct_blob_data(in->bottom[1]);
    float scale = (float)((double)ct_loss_weight(in) / plan->samples);
    int64_t n = ct_tensor_count(&in->bottom[0]->data);

    (void)ex;
    for (int k = 0; k < l->n_bottom; k++) {
        float *dx = ct_blob_diff(in->bottom[k]), sign = (k == 0) ? scale : -scale;

        if (dx == NULL) continue;
#pragma omp parallel for simd schedule(static) if (n >= CT_PARALLEL_MIN)
        for (int64_t i = 0; i < n; i++) dx[i] = (a[i] > b[i]) ? sign : (a[i] < b[i]) ? -sign : 0.0f;
    }
    return CT_OK;
}

const ct_layer_ops ct_layer_l1_loss = {
    .type = "L1Loss",
    .min_bottom = 2,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 1,
    .is_loss = true,
    .top_is_share = true,
    .backward_reads = CT_READS_BOTTOM,
    .instance_state_size = sizeof(euclidean_plan),
    .reshape = euclidean_loss_reshape,
    .forward = l1_loss_forward,
    .backward = l1_loss_backward,
};

/* ---- SmoothL1Loss of Fast R-CNN: w_out f(w_in (a - b)) over the samples; f(d) = (sigma d)^2 / 2
 * where |d| < 1 / sigma^2, else |d| - 1 / (2 sigma^2). */

typedef struct smooth_plan {
    double samples; /* of the global batch, in the last forward */
} smooth_plan;

static float sigma2(const ct_layer *l)
{
    const Ct__SmoothL1LossParameter *p = l->param->smooth_l1_loss_param;

    return (p != NULL) ? p->sigma * p->sigma : 1.0f;
}

static ct_status smooth_l1_loss_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__SmoothL1LossParameter *p = l->param->smooth_l1_loss_param;

    (void)bottom;
    if ((p == NULL) || ((p->sigma > 0.0f) && isfinite(sigma2(l)))) return CT_OK;
    return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "smooth_l1_loss_param.sigma %g must be above 0",
                         (double)p->sigma);
}

static ct_status smooth_l1_loss_reshape(const ct_layer *l, ct_instance *in)
{
    for (int i = 1; i < l->n_bottom; i++) CT_TRY(ct_loss_reshape_pair(l, in, 0, i));
    return CT_OK;
}

typedef struct smooth {
    const float *a, *b, *inside, *outside; /* weights: NULL: 1 */
    float sigma2;
} smooth;

static smooth smooth_of(const ct_layer *l, const ct_instance *in)
{
    return (smooth){ ct_blob_data(in->bottom[0]), ct_blob_data(in->bottom[1]),
                     (l->n_bottom > 2) ? ct_blob_data(in->bottom[2]) : NULL,
                     (l->n_bottom > 3) ? ct_blob_data(in->bottom[3]) : NULL, sigma2(l) };
}

static double smooth_l1_loss_part(const void *ctx, int64_t from, int64_t to)
{
    const smooth *s = ctx;
    double sum = 0, square = (double)s->sigma2;

    for (int64_t i = from; i < to; i++) {
        double d = (double)s->a[i] - (double)s->b[i], size, f;

        if (s->inside != NULL) d *= (double)s->inside[i];
        size = fabs(d);
        f = (size < 1 / square) ? 0.5 * square * d * d : size - 0.5 / square;
        sum += (s->outside != NULL) ? (double)s->outside[i] * f : f;
    }
    return sum;
}

static ct_status smooth_l1_loss_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    smooth_plan *plan = in->state;
    smooth s = smooth_of(l, in);
    int64_t n = ct_tensor_count(&in->bottom[0]->data);

    CT_TRY(ct_loss_samples(in, ex, &plan->samples));
    ct_blob_data(in->top[0])[0] =
        (float)(ct_loss_sum(n, n, smooth_l1_loss_part, &s) / plan->samples);
    return CT_OK;
}

static void gradient(const smooth *s, int64_t n, float scale, float *dx)
{
    float limit = 1.0f / s->sigma2;

#pragma omp parallel for schedule(static) if (n >= CT_PARALLEL_MIN)
    for (int64_t i = 0; i < n; i++) {
        float inside = (s->inside != NULL) ? s->inside[i] : 1.0f;
        float d = inside * (s->a[i] - s->b[i]), slope = s->sigma2 * d;

        if (!(fabsf(d) < limit)) slope = (d > 0.0f) ? 1.0f : (d < 0.0f) ? -1.0f : d;
        if (s->outside != NULL) slope *= s->outside[i];
        dx[i] = scale * inside * slope;
    }
}

static ct_status smooth_l1_loss_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const smooth_plan *plan = in->state;
    smooth s = smooth_of(l, in);
    float scale = (float)((double)ct_loss_weight(in) / plan->samples);

    (void)ex;
    for (int k = 0; k < 2; k++) {
        if (ct_blob_diff(in->bottom[k]) == NULL) continue;
        gradient(&s, ct_tensor_count(&in->bottom[0]->data), (k == 0) ? scale : -scale,
                 ct_blob_diff(in->bottom[k]));
    }
    return CT_OK;
}

const ct_layer_ops ct_layer_smooth_l1_loss = {
    .type = "SmoothL1Loss",
    .params = "smooth_l1_loss_param",
    .min_bottom = 2,
    .max_bottom = 4,
    .min_top = 1,
    .max_top = 1,
    .is_loss = true,
    .top_is_share = true,
    .no_diff_bottom = 1 << 2 | 1 << 3,
    .backward_reads = CT_READS_BOTTOM,
    .instance_state_size = sizeof(smooth_plan),
    .setup = smooth_l1_loss_setup,
    .reshape = smooth_l1_loss_reshape,
    .forward = smooth_l1_loss_forward,
    .backward = smooth_l1_loss_backward,
};

/* ---- ContrastiveLoss: draws pairs (a, b) that are similar together, and others apart, up to a
 * margin. With d = |a - b|: d^2 of a similar pair, else max(margin - d, 0)^2; over twice the pairs.
 */

enum { DISTANCE }; /* squares, one a pair */

typedef struct contrastive_plan {
    double samples; /* of the global batch, in the last forward */
    int64_t pairs, length;
} contrastive_plan;

static ct_status contrastive_loss_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__ContrastiveLossParameter *p = l->param->contrastive_loss_param;

    (void)bottom;
    if ((p == NULL) || ((p->margin > 0.0f) && isfinite(p->margin))) return CT_OK;
    return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "contrastive_loss_param.margin %g must be above 0",
                         (double)p->margin);
}

static ct_status contrastive_loss_reshape(const ct_layer *l, ct_instance *in)
{
    const ct_shape *a = &in->bottom[0]->data.shape, *b = &in->bottom[1]->data.shape;
    const ct_shape *similar = &in->bottom[2]->data.shape;
    ct_shape scalar = { 0 };
    contrastive_plan *plan = in->state;

    if ((a->ndim < 2) || (b->ndim < 2) || (a->dim[0] != b->dim[0]) || (a->dim[1] != b->dim[1]) ||
        (ct_shape_count(a, 2, -1) != 1) || (ct_shape_count(b, 2, -1) != 1))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "bottoms 0 and 1 of shapes %s and %s are not pairs of vectors, N x C "
                             "both",
                             ct_shape_str(a).text, ct_shape_str(b).text);
    if ((similar->ndim < 1) || (similar->dim[0] != a->dim[0]) ||
        (ct_shape_count(similar, 1, -1) != 1))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "bottom 2 (similar or not) of shape %s is not one number for each of "
                             "%lld pairs",
                             ct_shape_str(similar).text, (long long)a->dim[0]);
    plan->pairs = a->dim[0];
    plan->length = a->dim[1];
    ct_instance_buffer(in, DISTANCE, CT_LIFETIME_PASS, (size_t)plan->pairs * sizeof(float));
    ct_blob_set_shape(in->top[0], &scalar);
    return CT_OK;
}

static float margin_of(const ct_layer *l)
{
    const Ct__ContrastiveLossParameter *p = l->param->contrastive_loss_param;

    return (p != NULL) ? p->margin : 1.0f;
}

static bool is_legacy(const ct_layer *l)
{
    const Ct__ContrastiveLossParameter *p = l->param->contrastive_loss_param;

    return (p != NULL) && p->legacy_version;
}

/* As in Caffe: what is not 0 without its fraction. */
static bool is_similar(float value)
{
    return (value >= 1.0f) || (value <= -1.0f);
}

static ct_status contrastive_loss_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    contrastive_plan *plan = in->state;
    const float *a = ct_blob_data(in->bottom[0]), *b = ct_blob_data(in->bottom[1]);
    const float *similar = ct_blob_data(in->bottom[2]);
    float *square = in->buffer[DISTANCE].data;
    double sum = 0, margin = (double)margin_of(l);

    CT_TRY(ct_loss_samples(in, ex, &plan->samples));
#pragma omp parallel for schedule(static) if (plan->pairs * plan->length >= CT_PARALLEL_MIN)
    for (int64_t i = 0; i < plan->pairs; i++) {
        double d = 0;

        for (int64_t c = i * plan->length; c < (i + 1) * plan->length; c++)
            d += ((double)a[c] - (double)b[c]) * ((double)a[c] - (double)b[c]);
        square[i] = (float)d;
    }
    for (int64_t i = 0; i < plan->pairs; i++) {
        double d = (double)square[i], rest = is_legacy(l) ? margin - d : margin - sqrt(d);

        rest = (rest < 0) ? 0 : rest;
        sum += is_similar(similar[i]) ? d : is_legacy(l) ? rest : rest * rest;
    }
    ct_blob_data(in->top[0])[0] = (float)(sum / plan->samples / 2);
    return CT_OK;
}

/* What (a - b) of a pair of squared distance d is multiplied by. */
static float factor(bool similar, bool legacy, float margin, float d)
{
    float distance = sqrtf(d);

    if (similar) return 1.0f;
    if (legacy) return (margin - d > 0.0f) ? -1.0f : 0.0f;
    /* 1e-4 as in Caffe: equal vectors have no direction */
    return (margin - distance > 0.0f) ? -(margin - distance) / (distance + 1e-4f) : 0.0f;
}

static ct_status contrastive_loss_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const contrastive_plan *plan = in->state;
    const float *a = ct_blob_data(in->bottom[0]), *b = ct_blob_data(in->bottom[1]);
    const float *similar = ct_blob_data(in->bottom[2]), *square = in->buffer[DISTANCE].data;
    float scale = (float)((double)ct_loss_weight(in) / plan->samples), margin = margin_of(l);
    bool legacy = is_legacy(l);

    (void)ex;
    for (int k = 0; k < 2; k++) {
        float *dx = ct_blob_diff(in->bottom[k]), sign = (k == 0) ? scale : -scale;

        if (dx == NULL) continue;
#pragma omp parallel for schedule(static) if (plan->pairs * plan->length >= CT_PARALLEL_MIN)
        for (int64_t i = 0; i < plan->pairs; i++) {
            float f = sign * factor(is_similar(similar[i]), legacy, margin, square[i]);

            for (int64_t c = i * plan->length; c < (i + 1) * plan->length; c++)
                dx[c] = f * (a[c] - b[c]);
        }
    }
    return CT_OK;
}

const ct_layer_ops ct_layer_contrastive_loss = {
    .type = "ContrastiveLoss",
    .params = "contrastive_loss_param",
    .min_bottom = 3,
    .max_bottom = 3,
    .min_top = 1,
    .max_top = 1,
    .is_loss = true,
    .top_is_share = true,
    .no_diff_bottom = 1 << 2,
    .backward_reads = CT_READS_BOTTOM,
    .instance_state_size = sizeof(contrastive_plan),
    .setup = contrastive_loss_setup,
    .reshape = contrastive_loss_reshape,
    .forward = contrastive_loss_forward,
    .backward = contrastive_loss_backward,
};

/* ---- CenterLoss: half the mean square distance of features from the center of their class.
 * Centers are learned, but not by the loss's gradient: each moves by the sum of its samples'
 * distances over one more than their number, whatever the loss weight. */

enum { LABEL, COUNT };

typedef struct center_state {
    int64_t classes, length;
    int axis;
} center_state;

typedef struct center_plan {
    double samples; /* of the global batch, in the last forward */
    int64_t m;
} center_plan;

static ct_status center_loss_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__CenterLossParameter *p = l->param->center_loss_param;
    center_state *s = l->state;
    ct_shape shape = { 2, { 0 } };

    if ((p == NULL) || (p->num_output == 0) || (p->num_output > INT32_MAX))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "center_loss_param.num_output, the number of classes, is missing");
    CT_TRY(ct_layer_axis(l, &bottom[0], p->axis, "axis", &s->axis));
    if (s->axis == 0)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "center_loss_param.axis 0 leaves no samples");
    s->classes = (int64_t)p->num_output;
    s->length = ct_shape_count(&bottom[0], s->axis, -1);
    shape.dim[0] = s->classes;
    shape.dim[1] = s->length;
    ct_layer_add_weight(l, &shape, p->center_filler);
    return CT_OK;
}

static ct_status center_loss_reshape(const ct_layer *l, ct_instance *in)
{
    const center_state *s = l->state;
    const ct_shape *x = &in->bottom[0]->data.shape, *label = &in->bottom[1]->data.shape;
    ct_shape scalar = { 0 };
    center_plan *plan = in->state;

    if (ct_shape_count(x, s->axis, -1) != s->length)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "features of shape %s, centers have %lld numbers",
                             ct_shape_str(x).text, (long long)s->length);
    plan->m = ct_shape_count(x, 0, s->axis);
    if ((label->ndim < 1) || (ct_shape_count(label, 0, -1) != plan->m))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "%lld feature vectors, labels of shape %s",
                             (long long)plan->m, ct_shape_str(label).text);
    ct_instance_buffer(in, LABEL, CT_LIFETIME_PASS, (size_t)plan->m * sizeof(int32_t));
    ct_instance_buffer(in, COUNT, CT_LIFETIME_PASS, (size_t)s->classes * sizeof(double));
    ct_blob_set_shape(in->top[0], &scalar);
    return CT_OK;
}

typedef struct center {
    int64_t length;
    const float *x, *center;
    const int32_t *label;
} center;

static double center_loss_part(const void *ctx, int64_t from, int64_t to)
{
    const center *f = ctx;
    double sum = 0;

    for (int64_t i = from; i < to; i++) {
        const float *x = f->x + i * f->length, *c = f->center + f->label[i] * f->length;

        for (int64_t k = 0; k < f->length; k++)
            sum += ((double)x[k] - (double)c[k]) * ((double)x[k] - (double)c[k]);
    }
    return sum;
}

/* Where centers learn: a sum for each class. */
static int center_loss_count(const ct_layer *l, const ct_instance *in, bool forward, int k)
{
    const center_state *s = l->state;

    return (forward && (k == 0) && in->weight[0].wants_diff) ? (int)s->classes : 0;
}

/* The samples of each class, of this rank; the sum has those of the global batch. */
static void count_classes(const center_state *s, const center_plan *plan, const ct_instance *in)
{
    const int32_t *label = in->buffer[LABEL].data;
    double *count = in->buffer[COUNT].data;

    memset(count, 0, (size_t)s->classes * sizeof(*count));
    for (int64_t i = 0; i < plan->m; i++) count[label[i]] += 1;
}

static ct_status center_loss_begin(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const center_state *s = l->state;
    const center_plan *plan = in->state;
    int64_t samples = in->bottom[0]->data.shape.dim[0];

    return ct_loss_labels(l, ex, NULL, ct_blob_data(in->bottom[1]), plan->m,
                          (samples > 0) ? plan->m / samples : 1, s->classes, in->buffer[LABEL].data,
                          NULL);
}

/* Part 0 reads the labels. */
static ct_status center_loss_forward(const ct_layer *l, ct_instance *in, ct_exec *ex, int part)
{
    const center_state *s = l->state;
    center_plan *plan = in->state;
    center f = { s->length, ct_blob_data(in->bottom[0]), ct_blob_data(&in->weight[0]),
                 in->buffer[LABEL].data };

    if (part == 0) CT_TRY(center_loss_begin(l, in, ex));
    if (center_loss_count(l, in, true, part) > 0) {
        count_classes(s, plan, in);
        return CT_OK;
    }
    CT_TRY(ct_exec_global_count(ex, (double)plan->m, false, &plan->samples));
    if (plan->samples < 1) plan->samples = 1;
    ct_blob_data(in->top[0])[0] =
        (float)(ct_loss_sum(plan->m, plan->m * s->length, center_loss_part, &f) / plan->samples /
                2);
    return CT_OK;
}

/* A thread has columns of its own, so that every element is summed in the order of the batch. */
static void add_rows(const center *f, int64_t m, const double *count, float *dc)
{
    enum { COLUMNS = 64 };
    int64_t n = f->length, n_block = (n + COLUMNS - 1) / COLUMNS;

#pragma omp parallel for schedule(static) if (m * n >= CT_PARALLEL_MIN)
    for (int64_t b = 0; b < n_block; b++) {
        int64_t from = b * COLUMNS, to = (from + COLUMNS < n) ? from + COLUMNS : n;

        for (int64_t i = 0; i < m; i++) {
            int64_t row = f->label[i] * n;
            float share = (float)(1 / (count[f->label[i]] + 1));

#pragma omp simd
            for (int64_t k = from; k < to; k++)
                dc[row + k] += share * (f->center[row + k] - f->x[i * n + k]);
        }
    }
}

static ct_status center_loss_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const center_state *s = l->state;
    const center_plan *plan = in->state;
    center f = { s->length, ct_blob_data(in->bottom[0]), ct_blob_data(&in->weight[0]),
                 in->buffer[LABEL].data };
    float scale = (float)((double)ct_loss_weight(in) / plan->samples);
    float *dx = ct_blob_diff(in->bottom[0]), *dc = ct_blob_diff(&in->weight[0]);

    if (dc != NULL) {
        if (ct_weight_beta(in, ex, 0) == 0.0f)
            CT_TRY(l->dev->math->set(ex->stream, s->classes * s->length, 0.0f, dc));
        add_rows(&f, plan->m, in->buffer[COUNT].data, dc);
    }
    if (dx == NULL) return CT_OK;
#pragma omp parallel for schedule(static) if (plan->m * s->length >= CT_PARALLEL_MIN)
    for (int64_t i = 0; i < plan->m; i++) {
        const float *c = f.center + f.label[i] * s->length;

        for (int64_t k = 0; k < s->length; k++)
            dx[i * s->length + k] = scale * (f.x[i * s->length + k] - c[k]);
    }
    return CT_OK;
}

static const ct_sum_ops center_loss_sums = { .count = center_loss_count,
                                             .slot = COUNT,
                                             .first_bottoms = 1u << 1,
                                             .first_buffers = 1u << LABEL | 1u << COUNT,
                                             .forward = center_loss_forward };

const ct_layer_ops ct_layer_center_loss = {
    .type = "CenterLoss",
    .params = "center_loss_param",
    .min_bottom = 2,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 1,
    .is_loss = true,
    .top_is_share = true,
    .no_diff_bottom = 1 << 1,
    .backward_reads = CT_READS_BOTTOM,
    .state_size = sizeof(center_state),
    .instance_state_size = sizeof(center_plan),
    .setup = center_loss_setup,
    .reshape = center_loss_reshape,
    .forward = ct_layer_forward_parts,
    .backward = center_loss_backward,
    .sums = &center_loss_sums,
};
