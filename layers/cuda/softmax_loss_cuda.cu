/* Losses on a softmax: SoftmaxWithLoss, InfogainLoss, FocalLoss. And CenterLoss. The host waits for
 * none of them, but where ignored labels of several ranks count. */
#include "framework/net/step_after.h"
#include "layers/cuda/layer_cuda.cuh"

extern "C" {
#include "layers/types/loss.h"
}

/* Behind the labels: ct_loss_label_bytes(). */
static divisor divisor_of(const ct_instance *in, const ct_exec *ex, const ct_loss_rule *rule)
{
    const ct_softmax_loss *plan = (const ct_softmax_loss *)in->state;
    size_t labels = (size_t)(plan->desc.outer * plan->desc.inner) * sizeof(int32_t);
    const char *there = (const char *)in->buffer[CT_SOFTMAX_LOSS_LABEL].data;

    return { plan->divisor, ct_loss_counts_on_device(rule, ex)
                                ? (const double *)(there + ct_align_up(labels))
                                : NULL };
}

/* Labels that count: where they are, or over the ranks on the host. */
static ct_status find_divisor(ct_instance *in, ct_exec *ex, const ct_loss_rule *rule)
{
    ct_softmax_loss *plan = (ct_softmax_loss *)in->state;
    const int32_t *label = (const int32_t *)in->buffer[CT_SOFTMAX_LOSS_LABEL].data;
    int64_t n = plan->desc.outer * plan->desc.inner;
    double *there = (double *)divisor_of(in, ex, rule).there, counted = (double)n;

    if (there != NULL)
        return count_there(
            ex, "labels", n,
            KERNEL(int64_t i, double *sum) { *sum += (label[i] >= 0) ? 1.0 : 0.0; }, there);
    if (rule->has_ignore && (rule->mode == CT__LOSS_PARAMETER__NORMALIZATION_MODE__VALID))
        CT_TRY(ct_cuda_sum_host(
            ex->stream, "labels", n,
            KERNEL(int64_t i, double *sum) { *sum += (label[i] >= 0) ? 1.0 : 0.0; }, &counted));
    return ct_loss_divisor(rule, ex, n, (int64_t)counted, plan->desc.outer, &plan->divisor);
}

/* Labels, divisor, softmax; then the top is the sum of f(k, sum) over k < terms, divided. */
template <class F>
static ct_status softmax_loss(const ct_layer *l, ct_instance *in, ct_exec *ex,
                              const ct_loss_rule *rule, int64_t terms, F f)
{
    const ct_softmax_loss *plan = (const ct_softmax_loss *)in->state;
    float *prob = (float *)in->buffer[CT_SOFTMAX_LOSS_PROB].data, *top = ct_blob_data(in->top[0]);
    int64_t n = plan->desc.outer * plan->desc.inner, samples = dim_of(in->bottom[1], 0);
    divisor by;

    CT_TRY(put_labels(l, in, ex, rule, in->bottom[1], n, (samples > 0) ? n / samples : 1,
                      plan->desc.classes, (int32_t *)in->buffer[CT_SOFTMAX_LOSS_LABEL].data));
    CT_TRY(find_divisor(in, ex, rule));
    by = divisor_of(in, ex, rule);
    CT_TRY(plan->engine->forward(&plan->desc, ex, ct_blob_data(in->bottom[0]), prob));
    CT_TRY(ct_cuda_sums<1>(
        ex->stream, "loss", 1, terms, KERNEL(int64_t, int64_t k, double *sum) { f(k, sum); },
        KERNEL(int64_t, const double *sum) { top[0] = (float)(*sum / by.get()); }));
    if (l->n_top < 2) return CT_OK;
    return ex->dev->copy(ex->stream, ct_blob_data(in->top[1]), prob,
                         ct_tensor_bytes(&in->bottom[0]->data));
}

/* Of a loss on a softmax: what its kernels read. */
typedef struct scores {
    ct_softmax_desc d;
    const float *prob;
    const int32_t *label;
} scores;

static scores scores_of(const ct_instance *in)
{
    return { ((const ct_softmax_loss *)in->state)->desc,
             (const float *)in->buffer[CT_SOFTMAX_LOSS_PROB].data,
             (const int32_t *)in->buffer[CT_SOFTMAX_LOSS_LABEL].data };
}

/* The probability of the label at position k, which is not ignored; NaN stays NaN. */
static __device__ float label_prob(const scores &f, int64_t k)
{
    float p = f.prob[(k / f.d.inner * f.d.classes + f.label[k]) * f.d.inner + k % f.d.inner];

    return (p < FLT_MIN) ? FLT_MIN : p;
}

/* ---- SoftmaxWithLoss */

static ct_status softmax_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    scores f = scores_of(in);

    return softmax_loss(
        l, in, ex, (const ct_loss_rule *)l->state, f.d.outer * f.d.inner,
        KERNEL(int64_t k, double *sum) {
            if (f.label[k] != CT_LABEL_IGNORED) *sum -= (double)logf(label_prob(f, k));
        });
}

static ct_status softmax_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    scores f = scores_of(in);
    divisor by = divisor_of(in, ex, (const ct_loss_rule *)l->state);
    const float *weight = ct_blob_diff(in->top[0]);
    float *dx = ct_blob_diff(in->bottom[0]);

    if (dx == NULL) return CT_OK;
    return ct_cuda_map(
        ex->stream, "SoftmaxWithLoss backward", f.d.outer * f.d.classes * f.d.inner,
        KERNEL(int64_t i) {
            int64_t c = i / f.d.inner % f.d.classes;
            int32_t y = f.label[i / (f.d.inner * f.d.classes) * f.d.inner + i % f.d.inner];
            float off = f.prob[i] - ((c == y) ? 1.0f : 0.0f);

            dx[i] = (y == CT_LABEL_IGNORED) ? 0.0f : loss_scale(weight, by.get()) * off;
        });
}

/* What parts of the classes exchange goes through the host. */
static bool softmax_can(const Ct__LayerParameter *p)
{
    return (p->part == NULL) || (p->part->split != CT__PARALLEL_LAYER_PARAMETER__SPLIT__OUTPUT);
}

const ct_device_override ct_cuda_softmax_loss = { "SoftmaxWithLoss", softmax_can, softmax_forward,
                                                  softmax_backward };

/* ---- InfogainLoss */

#define LEAST 1e-20 /* of a probability in the logarithm, as in Caffe */

/* Of a file, or the third bottom. */
static const float *matrix_of(const ct_layer *l, const ct_instance *in)
{
    return (l->n_bottom > 2) ? ct_blob_data(in->bottom[2])
                             : ((const ct_infogain_state *)l->state)->there;
}

/* A logarithm a thread: rows are few where classes are many. */
static ct_status infogain_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    scores f = scores_of(in);
    const float *matrix = matrix_of(l, in);

    return softmax_loss(
        l, in, ex, (const ct_loss_rule *)l->state, f.d.outer * f.d.classes * f.d.inner,
        KERNEL(int64_t i, double *sum) {
            int64_t c = i / f.d.inner % f.d.classes;
            int32_t y = f.label[i / (f.d.inner * f.d.classes) * f.d.inner + i % f.d.inner];
            double p = (double)f.prob[i];

            if (y != CT_LABEL_IGNORED)
                *sum -= (double)matrix[y * f.d.classes + c] * log((p < LEAST) ? LEAST : p);
        });
}

/* p_c sum_k H[label][k] - H[label][c] */
static ct_status infogain_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    scores f = scores_of(in);
    divisor by = divisor_of(in, ex, (const ct_loss_rule *)l->state);
    const float *matrix = matrix_of(l, in), *weight = ct_blob_diff(in->top[0]);
    float *dx = ct_blob_diff(in->bottom[0]);
    float *total = (float *)in->buffer[CT_SOFTMAX_LOSS_SCRATCH].data;

    if (dx == NULL) return CT_OK;
    CT_TRY(ct_cuda_sums<1>(
        ex->stream, "InfogainLoss backward", f.d.outer * f.d.inner, f.d.classes,
        KERNEL(int64_t k, int64_t c, double *sum) {
            if (f.label[k] != CT_LABEL_IGNORED)
                *sum += (double)matrix[f.label[k] * f.d.classes + c];
        },
        KERNEL(int64_t k, const double *sum) { total[k] = (float)*sum; }));
    return ct_cuda_map(
        ex->stream, "InfogainLoss backward", f.d.outer * f.d.classes * f.d.inner,
        KERNEL(int64_t i) {
            int64_t c = i / f.d.inner % f.d.classes;
            int64_t k = i / (f.d.inner * f.d.classes) * f.d.inner + i % f.d.inner;
            int32_t y = f.label[k];
            float h = (y == CT_LABEL_IGNORED) ? 0.0f : matrix[y * f.d.classes + c];

            dx[i] = loss_scale(weight, by.get()) * (f.prob[i] * total[k] - h);
        });
}

const ct_device_override ct_cuda_infogain_loss = { "InfogainLoss", NULL, infogain_forward,
                                                   infogain_backward };

/* ---- FocalLoss */

typedef struct focal {
    double alpha, gamma;
    scores s;
} focal;

static focal focal_of(const ct_layer *l, const ct_instance *in)
{
    const Ct__FocalLossParameter *p = l->param->focal_loss_param;

    return { (p != NULL) ? (double)p->alpha : 0.25, (p != NULL) ? (double)p->gamma : 2.0,
             scores_of(in) };
}

static ct_status focal_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    focal f = focal_of(l, in);

    return softmax_loss(
        l, in, ex, (const ct_loss_rule *)l->state, f.s.d.outer * f.s.d.inner,
        KERNEL(int64_t k, double *sum) {
            double p;

            if (f.s.label[k] == CT_LABEL_IGNORED) return;
            p = (double)label_prob(f.s, k);
            *sum -= f.alpha * pow(1.0 - p, f.gamma) * log(p);
        });
}

/* The loss's slope along the score of a class is this times ([class is the label] - p_class). */
static __device__ double focal_slope(const focal &f, int64_t k)
{
    double p, rest;

    if (f.s.label[k] == CT_LABEL_IGNORED) return 0.0;
    p = (double)label_prob(f.s, k);
    rest = (f.gamma > 0.0) ? 0.0 : -1.0; /* at p = 1, where (1 - p)^(gamma - 1) may be infinite */
    if (!(p >= 1.0))
        rest = f.gamma * pow(1.0 - p, f.gamma - 1.0) * p * log(p) - pow(1.0 - p, f.gamma);
    return f.alpha * rest;
}

static ct_status focal_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    focal f = focal_of(l, in);
    ct_softmax_desc d = f.s.d;
    divisor by = divisor_of(in, ex, (const ct_loss_rule *)l->state);
    const float *weight = ct_blob_diff(in->top[0]);
    float *dx = ct_blob_diff(in->bottom[0]);
    float *factor = (float *)in->buffer[CT_SOFTMAX_LOSS_SCRATCH].data;

    if (dx == NULL) return CT_OK;
    CT_TRY(ct_cuda_map(
        ex->stream, "FocalLoss backward", d.outer * d.inner, KERNEL(int64_t k) {
            double scale = (weight != NULL) ? (double)weight[0] / by.get() : 0.0;

            factor[k] = (float)(scale * focal_slope(f, k));
        }));
    return ct_cuda_map(
        ex->stream, "FocalLoss backward", d.outer * d.classes * d.inner, KERNEL(int64_t i) {
            int64_t c = i / d.inner % d.classes;
            int64_t k = i / (d.inner * d.classes) * d.inner + i % d.inner;

            dx[i] = factor[k] * (((f.s.label[k] == c) ? 1.0f : 0.0f) - f.s.prob[i]);
        });
}

const ct_device_override ct_cuda_focal_loss = { "FocalLoss", NULL, focal_forward, focal_backward };

/* ---- CenterLoss: labels in buffer 0, samples of each class in the global batch in buffer 1 */

static ct_status count_classes(ct_instance *in, ct_exec *ex, const int32_t *label, int64_t m,
                               int64_t classes)
{
    double *count = (double *)in->buffer[1].data;

    CT_TRY(ct_cuda_map(
        ex->stream, "CenterLoss", classes, KERNEL(int64_t c) {
            double n = 0.0;

            for (int64_t i = 0; i < m; i++) n += (label[i] == c) ? 1.0 : 0.0;
            count[c] = n;
        }));
    return sum_over_ranks(ex, count, classes);
}

static ct_status center_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    int64_t classes = l->weight[0].shape.dim[0], length = l->weight[0].shape.dim[1];
    int64_t m = count_of(in->bottom[0]) / length, samples = dim_of(in->bottom[0], 0);
    const float *x = ct_blob_data(in->bottom[0]), *center = ct_blob_data(&in->weight[0]);
    int32_t *label = (int32_t *)in->buffer[0].data;
    float *top = ct_blob_data(in->top[0]);
    double by;

    CT_TRY(put_labels(l, in, ex, NULL, in->bottom[1], m, (samples > 0) ? m / samples : 1, classes,
                      label));
    CT_TRY(ct_exec_global_count(ex, (double)m, false, &by));
    if (by < 1.0) by = 1.0;
    *ct_loss_kept(in) = by;
    if (ct_blob_diff(&in->weight[0]) != NULL) CT_TRY(count_classes(in, ex, label, m, classes));
    return ct_cuda_sums<1>(
        ex->stream, "CenterLoss", 1, m * length,
        KERNEL(int64_t, int64_t i, double *sum) {
            double d = (double)x[i] - (double)center[label[i / length] * length + i % length];

            *sum += d * d;
        },
        KERNEL(int64_t, const double *sum) { top[0] = (float)(*sum / by / 2.0); });
}

/* Each element of a center gathers its samples, in the order of the batch. */
static ct_status center_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    int64_t length = l->weight[0].shape.dim[1], m = count_of(in->bottom[0]) / length;
    const float *x = ct_blob_data(in->bottom[0]), *center = ct_blob_data(&in->weight[0]);
    const float *weight = ct_blob_diff(in->top[0]);
    const int32_t *label = (const int32_t *)in->buffer[0].data;
    const double *count = (const double *)in->buffer[1].data;
    float *dx = ct_blob_diff(in->bottom[0]), *dc = ct_blob_diff(&in->weight[0]);
    bool add = ct_weight_beta(in, ex, 0) != 0.0f;
    double samples = *ct_loss_kept(in);
    const ct_step_there *step = ex->numbers_there;

    if (dc != NULL)
        CT_TRY(ct_cuda_map(
            ex->stream, "CenterLoss centers", l->weight[0].shape.dim[0] * length,
            KERNEL(int64_t e) {
                int64_t c = e / length, k = e % length;
                float scale = (step != NULL) ? step->loss.scale : 1.0f; /* of all gradients */
                float share = scale * (float)(1.0 / (count[c] + 1.0)), sum = add ? dc[e] : 0.0f;

                for (int64_t i = 0; i < m; i++) {
                    if (label[i] == c) sum += share * (center[e] - x[i * length + k]);
                }
                dc[e] = sum;
            }));
    if (dx == NULL) return CT_OK;
    return ct_cuda_map(
        ex->stream, "CenterLoss backward", m * length, KERNEL(int64_t i) {
            dx[i] = loss_scale(weight, samples) *
                    (x[i] - center[label[i / length] * length + i % length]);
        });
}

const ct_device_override ct_cuda_center_loss = { "CenterLoss", NULL, center_forward,
                                                 center_backward };
