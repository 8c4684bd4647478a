/* Losses on a softmax whose formulas are no engine's: InfogainLoss with its matrix as a bottom,
 * FocalLoss. And CenterLoss. */
#include "layers/cuda/layer_cuda.cuh"

/* Sum of f(k, sum) over the positions, on the host: the divisor is known there. */
template <class F>
static ct_status sum_positions(const ct_instance *in, ct_exec *ex, F f, double *sum_p)
{
    const ct_softmax_loss *plan = (const ct_softmax_loss *)in->state;

    return ct_cuda_sum_host(ex->stream, "loss", plan->desc.outer * plan->desc.inner, f, sum_p);
}

/* ---- InfogainLoss */

#define LEAST 1e-20 /* of a probability in the logarithm, as in Caffe */

/* A matrix of a file lies on the host. */
static bool infogain_can(const Ct__LayerParameter *p)
{
    return p->n_bottom > 2;
}

typedef struct infogain {
    ct_softmax_desc d;
    const float *matrix, *prob;
    const int32_t *label;
} infogain;

static infogain infogain_of(const ct_instance *in)
{
    return { ((const ct_softmax_loss *)in->state)->desc, ct_blob_data(in->bottom[2]),
             (const float *)in->buffer[CT_SOFTMAX_LOSS_PROB].data,
             (const int32_t *)in->buffer[CT_SOFTMAX_LOSS_LABEL].data };
}

static ct_status infogain_sum(const ct_layer *l, ct_instance *in, ct_exec *ex, double *sum_p)
{
    infogain f = infogain_of(in);

    (void)l;
    return sum_positions(
        in, ex,
        KERNEL(int64_t k, double *sum) {
            const float *row = f.matrix + f.label[k] * f.d.classes;
            const float *prob = f.prob + k / f.d.inner * f.d.classes * f.d.inner + k % f.d.inner;

            if (f.label[k] == CT_LABEL_IGNORED) return;
            for (int64_t c = 0; c < f.d.classes; c++) {
                double p = (double)prob[c * f.d.inner];

                *sum -= (double)row[c] * log((p < LEAST) ? LEAST : p);
            }
        },
        sum_p);
}

static ct_status infogain_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    return ct_softmax_loss_forward(l, in, ex, (const ct_loss_rule *)l->state, infogain_sum);
}

/* p_c sum_k H[label][k] - H[label][c] */
static ct_status infogain_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    infogain f = infogain_of(in);
    double divisor = ((const ct_softmax_loss *)in->state)->divisor;
    const float *weight = ct_blob_diff(in->top[0]);
    float *dx = ct_blob_diff(in->bottom[0]);
    float *total = (float *)in->buffer[CT_SOFTMAX_LOSS_SCRATCH].data;

    (void)l;
    if (dx == NULL) return CT_OK;
    CT_TRY(ct_cuda_map(
        ex->stream, "InfogainLoss backward", f.d.outer * f.d.inner, KERNEL(int64_t k) {
            double sum = 0.0;

            for (int64_t c = 0; (f.label[k] != CT_LABEL_IGNORED) && (c < f.d.classes); c++)
                sum += (double)f.matrix[f.label[k] * f.d.classes + c];
            total[k] = (float)sum;
        }));
    return ct_cuda_map(
        ex->stream, "InfogainLoss backward", f.d.outer * f.d.classes * f.d.inner,
        KERNEL(int64_t i) {
            int64_t c = i / f.d.inner % f.d.classes;
            int64_t k = i / (f.d.inner * f.d.classes) * f.d.inner + i % f.d.inner;
            int32_t y = f.label[k];
            float h = (y == CT_LABEL_IGNORED) ? 0.0f : f.matrix[y * f.d.classes + c];

            dx[i] = loss_scale(weight, divisor) * (f.prob[i] * total[k] - h);
        });
}

const ct_layer_form ct_cuda_infogain_loss = { "InfogainLoss", infogain_can, infogain_forward,
                                              infogain_backward };

/* ---- FocalLoss */

typedef struct focal {
    double alpha, gamma;
    ct_softmax_desc d;
    const float *prob;
    const int32_t *label;
} focal;

static focal focal_of(const ct_layer *l, const ct_instance *in)
{
    const Ct__FocalLossParameter *p = l->param->focal_loss_param;

    return { (p != NULL) ? (double)p->alpha : 0.25, (p != NULL) ? (double)p->gamma : 2.0,
             ((const ct_softmax_loss *)in->state)->desc,
             (const float *)in->buffer[CT_SOFTMAX_LOSS_PROB].data,
             (const int32_t *)in->buffer[CT_SOFTMAX_LOSS_LABEL].data };
}

/* The probability of the label at position k, which is not ignored; NaN stays NaN. */
static __device__ double label_prob(const focal &f, int64_t k)
{
    double p =
        (double)f.prob[(k / f.d.inner * f.d.classes + f.label[k]) * f.d.inner + k % f.d.inner];

    return (p < (double)FLT_MIN) ? (double)FLT_MIN : p;
}

static ct_status focal_sum(const ct_layer *l, ct_instance *in, ct_exec *ex, double *sum_p)
{
    focal f = focal_of(l, in);

    return sum_positions(
        in, ex,
        KERNEL(int64_t k, double *sum) {
            double p;

            if (f.label[k] == CT_LABEL_IGNORED) return;
            p = label_prob(f, k);
            *sum -= f.alpha * pow(1.0 - p, f.gamma) * log(p);
        },
        sum_p);
}

static ct_status focal_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    return ct_softmax_loss_forward(l, in, ex, (const ct_loss_rule *)l->state, focal_sum);
}

/* The loss's slope along the score of a class is this times ([class is the label] - p_class). */
static __device__ double focal_slope(const focal &f, int64_t k)
{
    double p, rest;

    if (f.label[k] == CT_LABEL_IGNORED) return 0.0;
    p = label_prob(f, k);
    rest = (f.gamma > 0.0) ? 0.0 : -1.0; /* at p = 1, where (1 - p)^(gamma - 1) may be infinite */
    if (!(p >= 1.0))
        rest = f.gamma * pow(1.0 - p, f.gamma - 1.0) * p * log(p) - pow(1.0 - p, f.gamma);
    return f.alpha * rest;
}

static ct_status focal_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    focal f = focal_of(l, in);
    double divisor = ((const ct_softmax_loss *)in->state)->divisor;
    const float *weight = ct_blob_diff(in->top[0]);
    float *dx = ct_blob_diff(in->bottom[0]);
    float *factor = (float *)in->buffer[CT_SOFTMAX_LOSS_SCRATCH].data;

    if (dx == NULL) return CT_OK;
    CT_TRY(ct_cuda_map(
        ex->stream, "FocalLoss backward", f.d.outer * f.d.inner, KERNEL(int64_t k) {
            double scale = (weight != NULL) ? (double)weight[0] / divisor : 0.0;

            factor[k] = (float)(scale * focal_slope(f, k));
        }));
    return ct_cuda_map(
        ex->stream, "FocalLoss backward", f.d.outer * f.d.classes * f.d.inner, KERNEL(int64_t i) {
            int64_t c = i / f.d.inner % f.d.classes;
            int64_t k = i / (f.d.inner * f.d.classes) * f.d.inner + i % f.d.inner;

            dx[i] = factor[k] * (((f.label[k] == c) ? 1.0f : 0.0f) - f.prob[i]);
        });
}

const ct_layer_form ct_cuda_focal_loss = { "FocalLoss", NULL, focal_forward, focal_backward };

/* ---- CenterLoss: labels in buffer 0, samples of each class in the global batch in buffer 1 */

static ct_status count_classes(ct_instance *in, ct_exec *ex, const int32_t *label, int64_t m,
                               int64_t classes)
{
    double *count = (double *)calloc((size_t)classes + 1, sizeof(*count));
    ct_status status = CT_OK;

    if (count == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory to count %lld classes", (long long)classes);
    for (int64_t i = 0; i < m; i++) count[label[i]] += 1.0;
    if (ex->sum_ranks != NULL) status = ex->sum_ranks(ex->hook_ctx, count, (int)classes);
    if (status == CT_OK)
        status = ex->dev->from_host(ex->stream, in->buffer[1].data, count,
                                    (size_t)classes * sizeof(*count));
    free(count);
    return status;
}

static ct_status center_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    int64_t classes = l->weight[0].shape.dim[0], length = l->weight[0].shape.dim[1];
    int64_t m = count_of(in->bottom[0]) / length, samples = dim_of(in->bottom[0], 0);
    const float *x = ct_blob_data(in->bottom[0]), *center = ct_blob_data(&in->weight[0]);
    int32_t *label = (int32_t *)in->buffer[0].data;
    float *top = ct_blob_data(in->top[0]);
    const int32_t *host;
    double divisor;

    CT_TRY(read_labels(l, ex, NULL, in->bottom[1], m, (samples > 0) ? m / samples : 1, classes,
                       label, NULL, &host));
    CT_TRY(ct_exec_global_count(ex, (double)m, false, &divisor));
    if (divisor < 1.0) divisor = 1.0;
    *ct_loss_kept(in) = divisor;
    if (ct_blob_diff(&in->weight[0]) != NULL) CT_TRY(count_classes(in, ex, host, m, classes));
    return ct_cuda_sums<1>(
        ex->stream, "CenterLoss", 1, m * length,
        KERNEL(int64_t, int64_t i, double *sum) {
            double d = (double)x[i] - (double)center[label[i / length] * length + i % length];

            *sum += d * d;
        },
        KERNEL(int64_t, const double *sum) { top[0] = (float)(*sum / divisor / 2.0); });
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

    if (dc != NULL)
        CT_TRY(ct_cuda_map(
            ex->stream, "CenterLoss centers", l->weight[0].shape.dim[0] * length,
            KERNEL(int64_t e) {
                int64_t c = e / length, k = e % length;
                float share = (float)(1.0 / (count[c] + 1.0)), sum = add ? dc[e] : 0.0f;

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

const ct_layer_form ct_cuda_center_loss = { "CenterLoss", NULL, center_forward, center_backward };
