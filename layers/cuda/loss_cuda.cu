/* Losses. The value goes from the sum's last kernel straight into the top, and backward reads the
 * top's diff where it lies: the host waits for labels alone, where it must check them. */
#include "layers/cuda/layer_cuda.cuh"

#include "framework/math/scalar.h"

/* top[0] = the sum of f(i, sum) over [0, n) times factor. */
template <class F>
static ct_status put_loss(const ct_instance *in, ct_exec *ex, const char *what, int64_t n,
                          double factor, F f)
{
    float *top = ct_blob_data(in->top[0]);

    return ct_cuda_sums<1>(
        ex->stream, what, 1, n, KERNEL(int64_t, int64_t i, double *sum) { f(i, sum); },
        KERNEL(int64_t, const double *sum) { top[0] = (float)(*sum * factor); });
}

/* ---- EuclideanLoss */

static ct_status euclidean_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const float *a = ct_blob_data(in->bottom[0]), *b = ct_blob_data(in->bottom[1]);

    (void)l;
    CT_TRY(ct_loss_samples(in, ex, ct_loss_kept(in)));
    return put_loss(
        in, ex, "EuclideanLoss", count_of(in->bottom[0]), 0.5 / *ct_loss_kept(in),
        KERNEL(int64_t i, double *sum) {
            double d = (double)a[i] - (double)b[i];

            *sum += d * d;
        });
}

static ct_status euclidean_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const float *a = ct_blob_data(in->bottom[0]), *b = ct_blob_data(in->bottom[1]);
    const float *weight = ct_blob_diff(in->top[0]);
    double samples = *ct_loss_kept(in);

    for (int k = 0; k < l->n_bottom; k++) {
        float *dx = ct_blob_diff(in->bottom[k]), sign = (k == 0) ? 1.0f : -1.0f;

        if (dx == NULL) continue;
        CT_TRY(ct_cuda_map(
            ex->stream, "EuclideanLoss backward", count_of(in->bottom[0]),
            KERNEL(int64_t i) { dx[i] = sign * loss_scale(weight, samples) * (a[i] - b[i]); }));
    }
    return CT_OK;
}

const ct_device_override ct_cuda_euclidean_loss = { "EuclideanLoss", NULL, euclidean_forward,
                                               euclidean_backward };

/* ---- HingeLoss and MultinomialLogisticLoss: a label a sample, in buffer 0 */

static ct_status class_labels(const ct_layer *l, ct_instance *in, ct_exec *ex, int64_t n,
                              int64_t classes)
{
    CT_TRY(
        put_labels(l, in, ex, NULL, in->bottom[1], n, 1, classes, (int32_t *)in->buffer[0].data));
    return ct_loss_samples(in, ex, ct_loss_kept(in));
}

static bool hinge_squared(const ct_layer *l)
{
    const Ct__HingeLossParameter *p = l->param->hinge_loss_param;

    return (p != NULL) && (p->norm == CT__HINGE_LOSS_PARAMETER__NORM__L2);
}

static ct_status hinge_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const int32_t *label = (const int32_t *)in->buffer[0].data;
    const float *x = ct_blob_data(in->bottom[0]);
    int64_t n = dim_of(in->bottom[0], 0),
            classes = ct_shape_count(&in->bottom[0]->data.shape, 1, -1);
    bool squared = hinge_squared(l);

    CT_TRY(class_labels(l, in, ex, n, classes));
    return put_loss(
        in, ex, "HingeLoss", n * classes, 1.0 / *ct_loss_kept(in), KERNEL(int64_t i, double *sum) {
            bool mine = (i % classes == label[i / classes]);
            double miss = 1.0 + (mine ? -(double)x[i] : (double)x[i]);

            miss = (miss < 0.0) ? 0.0 : miss;
            *sum += squared ? miss * miss : miss;
        });
}

static ct_status hinge_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const int32_t *label = (const int32_t *)in->buffer[0].data;
    const float *x = ct_blob_data(in->bottom[0]), *weight = ct_blob_diff(in->top[0]);
    int64_t classes = ct_shape_count(&in->bottom[0]->data.shape, 1, -1);
    bool squared = hinge_squared(l);
    float *dx = ct_blob_diff(in->bottom[0]);
    double samples = *ct_loss_kept(in);

    if (dx == NULL) return CT_OK;
    return ct_cuda_map(
        ex->stream, "HingeLoss backward", count_of(in->bottom[0]), KERNEL(int64_t i) {
            float side = (i % classes == label[i / classes]) ? -1.0f : 1.0f;
            float miss = 1.0f + side * x[i], slope = squared ? 2.0f * miss : 1.0f;

            dx[i] = (miss > 0.0f) ? loss_scale(weight, samples) * side * slope : 0.0f;
        });
}

const ct_device_override ct_cuda_hinge_loss = { "HingeLoss", NULL, hinge_forward, hinge_backward };

static __device__ double at_least(float p, double least)
{
    return ((double)p < least) ? least : (double)p; /* NaN stays NaN */
}

#define LEAST 1e-20 /* of a probability in a logarithm, as in Caffe */

static ct_status multinomial_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const int32_t *label = (const int32_t *)in->buffer[0].data;
    const float *p = ct_blob_data(in->bottom[0]);
    int64_t n = dim_of(in->bottom[0], 0),
            classes = ct_shape_count(&in->bottom[0]->data.shape, 1, -1);

    CT_TRY(class_labels(l, in, ex, n, classes));
    return put_loss(
        in, ex, "MultinomialLogisticLoss", n, -1.0 / *ct_loss_kept(in),
        KERNEL(int64_t i, double *sum) {
            *sum += log(at_least(p[i * classes + label[i]], LEAST));
        });
}

static ct_status multinomial_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const int32_t *label = (const int32_t *)in->buffer[0].data;
    const float *p = ct_blob_data(in->bottom[0]), *weight = ct_blob_diff(in->top[0]);
    int64_t classes = ct_shape_count(&in->bottom[0]->data.shape, 1, -1);
    float *dp = ct_blob_diff(in->bottom[0]);
    double samples = *ct_loss_kept(in);

    (void)l;
    if (dp == NULL) return CT_OK;
    return ct_cuda_map(
        ex->stream, "MultinomialLogisticLoss backward", count_of(in->bottom[0]), KERNEL(int64_t i) {
            double scale = (weight != NULL) ? -(double)weight[0] / samples : 0.0;
            bool mine = (i % classes == label[i / classes]);

            dp[i] = mine ? (float)(scale / at_least(p[i], LEAST)) : 0.0f;
        });
}

const ct_device_override ct_cuda_multinomial_loss = { "MultinomialLogisticLoss", NULL,
                                                 multinomial_forward, multinomial_backward };

/* ---- SigmoidCrossEntropyLoss */

static __device__ bool is_ignored(float t, float above, float below)
{
    return (t > above) && (t < below);
}

static divisor sigmoid_divisor(const ct_layer *l, const ct_instance *in, const ct_exec *ex)
{
    const ct_sigmoid_loss *s = (const ct_sigmoid_loss *)l->state;

    return { *ct_loss_kept(in),
             ct_loss_counts_on_device(&s->rule, ex) ? (const double *)in->buffer[0].data : NULL };
}

/* Targets that count: where they are, or over the ranks on the host. */
static ct_status find_sigmoid_divisor(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_sigmoid_loss *s = (const ct_sigmoid_loss *)l->state;
    const float *t = ct_blob_data(in->bottom[1]);
    float above = s->above, below = s->below;
    int64_t n = count_of(in->bottom[0]);
    double counted = (double)n, *there = (double *)sigmoid_divisor(l, in, ex).there;

    if (there != NULL)
        return count_there(
            ex, "SigmoidCrossEntropyLoss", n,
            KERNEL(int64_t i, double *sum) { *sum += is_ignored(t[i], above, below) ? 0.0 : 1.0; },
            there);
    if (s->rule.has_ignore)
        CT_TRY(ct_cuda_sum_host(
            ex->stream, "SigmoidCrossEntropyLoss", n,
            KERNEL(int64_t i, double *sum) { *sum += is_ignored(t[i], above, below) ? 0.0 : 1.0; },
            &counted));
    return ct_loss_divisor(&s->rule, ex, n, (int64_t)counted, dim_of(in->bottom[0], 0),
                           ct_loss_kept(in));
}

static ct_status sigmoid_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_sigmoid_loss *s = (const ct_sigmoid_loss *)l->state;
    const float *x = ct_blob_data(in->bottom[0]), *t = ct_blob_data(in->bottom[1]);
    float above = s->above, below = s->below, *top = ct_blob_data(in->top[0]);
    divisor by;

    CT_TRY(find_sigmoid_divisor(l, in, ex));
    by = sigmoid_divisor(l, in, ex);
    return ct_cuda_sums<1>(
        ex->stream, "SigmoidCrossEntropyLoss", 1, count_of(in->bottom[0]),
        KERNEL(int64_t, int64_t i, double *sum) {
            if (!is_ignored(t[i], above, below))
                *sum += (double)(ct_softplus_f32(x[i]) - t[i] * x[i]);
        },
        KERNEL(int64_t, const double *sum) { top[0] = (float)(*sum / by.get()); });
}

static ct_status sigmoid_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_sigmoid_loss *s = (const ct_sigmoid_loss *)l->state;
    const float *x = ct_blob_data(in->bottom[0]), *t = ct_blob_data(in->bottom[1]);
    const float *weight = ct_blob_diff(in->top[0]);
    float above = s->above, below = s->below, *dx = ct_blob_diff(in->bottom[0]);
    divisor by = sigmoid_divisor(l, in, ex);

    if (dx == NULL) return CT_OK;
    return ct_cuda_map(
        ex->stream, "SigmoidCrossEntropyLoss backward", count_of(in->bottom[0]), KERNEL(int64_t i) {
            float v = loss_scale(weight, by.get()) * (ct_sigmoid_f32(x[i]) - t[i]);

            dx[i] = is_ignored(t[i], above, below) ? 0.0f : v;
        });
}

const ct_device_override ct_cuda_sigmoid_loss = { "SigmoidCrossEntropyLoss", NULL, sigmoid_forward,
                                             sigmoid_backward };

/* ---- ContrastiveLoss: pairs of vectors; buffer 0: their squared distances */

static __device__ bool is_similar(float value)
{
    return (value >= 1.0f) || (value <= -1.0f);
}

typedef struct contrast {
    float margin;
    bool legacy;
} contrast;

static contrast contrast_of(const ct_layer *l)
{
    const Ct__ContrastiveLossParameter *p = l->param->contrastive_loss_param;

    return { (p != NULL) ? p->margin : 1.0f, (p != NULL) && p->legacy_version };
}

static ct_status contrastive_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const float *a = ct_blob_data(in->bottom[0]), *b = ct_blob_data(in->bottom[1]);
    const float *similar = ct_blob_data(in->bottom[2]);
    float *square = (float *)in->buffer[0].data;
    int64_t pairs = dim_of(in->bottom[0], 0), length = dim_of(in->bottom[0], 1);
    contrast c = contrast_of(l);

    CT_TRY(ct_loss_samples(in, ex, ct_loss_kept(in)));
    CT_TRY(ct_cuda_sums<1>(
        ex->stream, "ContrastiveLoss", pairs, length,
        KERNEL(int64_t r, int64_t i, double *sum) {
            double d = (double)a[r * length + i] - (double)b[r * length + i];

            *sum += d * d;
        },
        KERNEL(int64_t r, const double *sum) { square[r] = (float)*sum; }));
    return put_loss(
        in, ex, "ContrastiveLoss", pairs, 0.5 / *ct_loss_kept(in), KERNEL(int64_t i, double *sum) {
            double d = (double)square[i], margin = (double)c.margin;
            double rest = c.legacy ? margin - d : margin - sqrt(d);

            rest = (rest < 0.0) ? 0.0 : rest;
            *sum += is_similar(similar[i]) ? d : c.legacy ? rest : rest * rest;
        });
}

/* What (a - b) of a pair of squared distance d is multiplied by. */
static __device__ float contrast_factor(contrast c, bool similar, float d)
{
    float distance = sqrtf(d);

    if (similar) return 1.0f;
    if (c.legacy) return (c.margin - d > 0.0f) ? -1.0f : 0.0f;
    /* 1e-4 as in Caffe: equal vectors have no direction */
    return (c.margin - distance > 0.0f) ? -(c.margin - distance) / (distance + 1e-4f) : 0.0f;
}

static ct_status contrastive_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const float *a = ct_blob_data(in->bottom[0]), *b = ct_blob_data(in->bottom[1]);
    const float *similar = ct_blob_data(in->bottom[2]), *square = (const float *)in->buffer[0].data;
    const float *weight = ct_blob_diff(in->top[0]);
    int64_t length = dim_of(in->bottom[0], 1);
    double samples = *ct_loss_kept(in);
    contrast c = contrast_of(l);

    for (int k = 0; k < 2; k++) {
        float *dx = ct_blob_diff(in->bottom[k]), sign = (k == 0) ? 1.0f : -1.0f;

        if (dx == NULL) continue;
        CT_TRY(ct_cuda_map(
            ex->stream, "ContrastiveLoss backward", count_of(in->bottom[0]), KERNEL(int64_t i) {
                int64_t r = i / length;
                float f = contrast_factor(c, is_similar(similar[r]), square[r]);

                dx[i] = sign * loss_scale(weight, samples) * f * (a[i] - b[i]);
            }));
    }
    return CT_OK;
}

const ct_device_override ct_cuda_contrastive_loss = { "ContrastiveLoss", NULL, contrastive_forward,
                                                 contrastive_backward };

/* ---- SmoothL1Loss */

typedef struct smooth {
    const float *a, *b, *inside, *outside; /* weights: NULL: 1 */
    float sigma2;
} smooth;

static smooth smooth_of(const ct_layer *l, const ct_instance *in)
{
    const Ct__SmoothL1LossParameter *p = l->param->smooth_l1_loss_param;

    return { ct_blob_data(in->bottom[0]), ct_blob_data(in->bottom[1]),
             (l->n_bottom > 2) ? ct_blob_data(in->bottom[2]) : NULL,
             (l->n_bottom > 3) ? ct_blob_data(in->bottom[3]) : NULL,
             (p != NULL) ? p->sigma * p->sigma : 1.0f };
}

static ct_status smooth_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    smooth s = smooth_of(l, in);

    CT_TRY(ct_loss_samples(in, ex, ct_loss_kept(in)));
    return put_loss(
        in, ex, "SmoothL1Loss", count_of(in->bottom[0]), 1.0 / *ct_loss_kept(in),
        KERNEL(int64_t i, double *sum) {
            double d = (double)s.a[i] - (double)s.b[i], square = (double)s.sigma2, f;

            if (s.inside != NULL) d *= (double)s.inside[i];
            f = (fabs(d) < 1.0 / square) ? 0.5 * square * d * d : fabs(d) - 0.5 / square;
            *sum += (s.outside != NULL) ? (double)s.outside[i] * f : f;
        });
}

static ct_status smooth_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const float *weight = ct_blob_diff(in->top[0]);
    double samples = *ct_loss_kept(in);
    smooth s = smooth_of(l, in);

    for (int k = 0; k < 2; k++) {
        float *dx = ct_blob_diff(in->bottom[k]), sign = (k == 0) ? 1.0f : -1.0f;

        if (dx == NULL) continue;
        CT_TRY(ct_cuda_map(
            ex->stream, "SmoothL1Loss backward", count_of(in->bottom[0]), KERNEL(int64_t i) {
                float inside = (s.inside != NULL) ? s.inside[i] : 1.0f;
                float d = inside * (s.a[i] - s.b[i]), slope = s.sigma2 * d;

                if (!(fabsf(d) < 1.0f / s.sigma2))
                    slope = (d > 0.0f) ? 1.0f : (d < 0.0f) ? -1.0f : d;
                if (s.outside != NULL) slope *= s.outside[i];
                dx[i] = sign * loss_scale(weight, samples) * inside * slope;
            }));
    }
    return CT_OK;
}

const ct_device_override ct_cuda_smooth_l1_loss = { "SmoothL1Loss", NULL, smooth_forward,
                                               smooth_backward };
