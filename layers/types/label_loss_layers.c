/* Losses of scores with one label a sample: HingeLoss, MultinomialLogisticLoss, InfogainLoss.
 * SoftmaxWithLoss and FocalLoss are in softmax_layer.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "layers/types/layer_types.h"
#include "layers/types/loss.h"
#include "framework/math/math.h"
#include "framework/base/memory.h"
#include "framework/base/file.h"
#include "framework/proto/message.h"

/* ---- HingeLoss, one against all: of each score, by how much it misses 1 on its side (the label's
 * score above 0, the others' below), or that squared. */

static bool squared(const ct_layer *l)
{
    const Ct__HingeLossParameter *p = l->param->hinge_loss_param;

    return (p != NULL) && (p->norm == CT__HINGE_LOSS_PARAMETER__NORM__L2);
}

typedef struct hinge {
    const ct_class_loss *plan;
    const float *x;
    const int32_t *label;
    bool squared;
} hinge;

static double hinge_loss_part(const void *ctx, int64_t from, int64_t to)
{
    const hinge *h = ctx;
    double sum = 0;

    for (int64_t i = from; i < to; i++) {
        const float *x = h->x + i * h->plan->classes;

        for (int64_t c = 0; c < h->plan->classes; c++) {
            double miss = 1.0 + ((c == h->label[i]) ? -(double)x[c] : (double)x[c]);

            miss = (miss < 0) ? 0 : miss;
            sum += h->squared ? miss * miss : miss;
        }
    }
    return sum;
}

static ct_status hinge_loss_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_class_loss *plan = in->state;
    const int32_t *label = in->buffer[CT_CLASS_LOSS_LABEL].data;
    hinge h = { plan, ct_blob_data(in->bottom[0]), label, squared(l) };

    CT_TRY(ct_class_loss_begin(l, in, ex));
    ct_blob_data(in->top[0])[0] =
        (float)(ct_loss_sum(plan->n, plan->n * plan->classes, hinge_loss_part, &h) / plan->samples);
    return CT_OK;
}

static ct_status hinge_loss_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_class_loss *plan = in->state;
    const int32_t *label = in->buffer[CT_CLASS_LOSS_LABEL].data;
    const float *x = ct_blob_data(in->bottom[0]);
    float *dx = ct_blob_diff(in->bottom[0]);
    float scale = (float)((double)ct_loss_weight(in) / plan->samples);
    bool square = squared(l);

    (void)ex;
    if (dx == NULL) return CT_OK;
#pragma omp parallel for schedule(static) if (plan->n * plan->classes >= CT_PARALLEL_MIN)
    for (int64_t i = 0; i < plan->n; i++) {
        for (int64_t c = i * plan->classes; c < (i + 1) * plan->classes; c++) {
            float side = (c == i * plan->classes + label[i]) ? -1.0f : 1.0f;
            float miss = 1.0f + side * x[c], slope = square ? 2.0f * miss : 1.0f;

            dx[c] = (miss > 0.0f) ? scale * side * slope : 0.0f;
        }
    }
    return CT_OK;
}

const ct_layer_ops ct_layer_hinge_loss = {
    .type = "HingeLoss",
    .params = "hinge_loss_param",
    .min_bottom = 2,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 1,
    .is_loss = true,
    .top_is_share = true,
    .no_diff_bottom = 1 << 1,
    .backward_reads = CT_READS_BOTTOM,
    .instance_state_size = sizeof(ct_class_loss),
    .reshape = ct_class_loss_reshape,
    .forward = hinge_loss_forward,
    .backward = hinge_loss_backward,
};

/* ---- MultinomialLogisticLoss: the mean of -log p_label of probabilities that come as they are. */

#define MULTINOMIAL_LOSS_LEAST 1e-20 /* of a probability, as in Caffe */

static double at_least(float p)
{
    return ((double)p < MULTINOMIAL_LOSS_LEAST) ? MULTINOMIAL_LOSS_LEAST
                                                : (double)p; /* NaN stays NaN */
}

static ct_status multinomial_loss_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_class_loss *plan = in->state;
    const int32_t *label = in->buffer[CT_CLASS_LOSS_LABEL].data;
    const float *p = ct_blob_data(in->bottom[0]);
    double sum = 0;

    CT_TRY(ct_class_loss_begin(l, in, ex));
    for (int64_t i = 0; i < plan->n; i++) sum -= log(at_least(p[i * plan->classes + label[i]]));
    ct_blob_data(in->top[0])[0] = (float)(sum / plan->samples);
    return CT_OK;
}

static ct_status multinomial_loss_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_class_loss *plan = in->state;
    const int32_t *label = in->buffer[CT_CLASS_LOSS_LABEL].data;
    const float *p = ct_blob_data(in->bottom[0]);
    float *dp = ct_blob_diff(in->bottom[0]);
    double scale = -(double)ct_loss_weight(in) / plan->samples;

    if (dp == NULL) return CT_OK;
    CT_TRY(l->dev->math->set(ex->stream, plan->n * plan->classes, 0.0f, dp));
    for (int64_t i = 0; i < plan->n; i++) {
        int64_t at = i * plan->classes + label[i];

        dp[at] = (float)(scale / at_least(p[at]));
    }
    return CT_OK;
}

const ct_layer_ops ct_layer_multinomial_loss = {
    .type = "MultinomialLogisticLoss",
    .min_bottom = 2,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 1,
    .is_loss = true,
    .top_is_share = true,
    .no_diff_bottom = 1 << 1,
    .backward_reads = CT_READS_BOTTOM,
    .instance_state_size = sizeof(ct_class_loss),
    .reshape = ct_class_loss_reshape,
    .forward = multinomial_loss_forward,
    .backward = multinomial_loss_backward,
};

/* ---- InfogainLoss: -sum_k H[label][k] log p_k of the softmax p; H from a file or the third
 * bottom. */

#define INFOGAIN_LOSS_LEAST 1e-20 /* of a probability in the logarithm, as in Caffe */

static ct_status take_matrix(const ct_layer *l, const char *path, const Ct__BlobProto *b)
{
    ct_infogain_state *s = l->state;
    size_t n = (b->n_double_data > 0) ? b->n_double_data : b->n_data;

    if (n == 0)
        return CT_LAYER_FAIL(l, CT_ERR_DATA, "infogain_loss_param: source %s holds no numbers",
                             path);
    s->matrix = ct_mem_acquire(n * sizeof(float));
    if (s->matrix == NULL) return CT_LAYER_FAIL(l, CT_ERR_NOMEM, "no memory for %s", path);
    for (size_t i = 0; i < n; i++)
        s->matrix[i] = (b->n_double_data > 0) ? (float)b->double_data[i] : b->data[i];
    s->count = (int64_t)n;
    return ct_layer_constant(l, s->matrix, s->count, &s->there);
}

static ct_status read_matrix(const ct_layer *l, const char *path)
{
    Ct__BlobProto *b;
    const char *why;
    char *data;
    size_t size;
    ct_status status;

    CT_TRY(ct_settings_read(path, &data, &size));
    b = (Ct__BlobProto *)(void *)ct_message_unpack(&ct__blob_proto__descriptor, data, size, &why);
    free(data);
    if (b == NULL)
        return CT_LAYER_FAIL(l, CT_ERR_DATA,
                             "infogain_loss_param: source %s is not a BlobProto: %s", path, why);
    status = take_matrix(l, path, b);
    ct__blob_proto__free_unpacked(b, NULL);
    return status;
}

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__InfogainLossParameter *p = l->param->infogain_loss_param;
    ct_infogain_state *s = l->state;
    bool has_source = (p != NULL) && (p->source != NULL) && (p->source[0] != '\0');

    (void)bottom;
    s->rule = ct_loss_rule_read(l, CT__LOSS_PARAMETER__NORMALIZATION_MODE__VALID);
    if ((l->param->loss_param != NULL) && l->param->loss_param->has_normalize)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "loss_param.normalize is not for this layer; give normalization");
    if (has_source && (l->n_bottom > 2))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "the matrix is given twice: infogain_loss_param.source and bottom 2");
    if (l->n_bottom > 2) return CT_OK;
    l->backward_reads = 0;
    if (!has_source)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "the matrix is missing: infogain_loss_param.source, a .binaryproto, "
                             "or a third bottom");
    return l->env->no_data ? CT_OK : read_matrix(l, p->source);
}

static void destroy(ct_layer *l)
{
    ct_infogain_state *s = l->state;

    ct_layer_constant_release(l, s->matrix, s->there);
    ct_mem_release(s->matrix);
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const Ct__InfogainLossParameter *p = l->param->infogain_loss_param;
    const ct_infogain_state *s = l->state;
    const ct_softmax_loss *plan = in->state;
    int64_t have = s->count, classes;

    CT_TRY(ct_softmax_loss_reshape(l, in, (p != NULL) ? p->axis : 1));
    classes = plan->desc.classes;
    if (l->n_bottom > 2) have = ct_tensor_count(&in->bottom[2]->data);
    if ((l->n_bottom == 2) && (s->matrix == NULL)) return CT_OK; /* `check` reads no data */
    if (have != classes * classes)
        return CT_LAYER_FAIL(
            l, CT_ERR_SHAPE, "the matrix has %lld elements, %lld classes need %lld x %lld",
            (long long)have, (long long)classes, (long long)classes, (long long)classes);
    return CT_OK;
}

typedef struct infogain {
    const ct_softmax_desc *d;
    const float *matrix, *prob;
    const int32_t *label;
} infogain;

static infogain infogain_of(const ct_layer *l, const ct_instance *in)
{
    const ct_infogain_state *s = l->state;
    const ct_softmax_loss *plan = in->state;

    return (infogain){ &plan->desc, (l->n_bottom > 2) ? ct_blob_data(in->bottom[2]) : s->matrix,
                       in->buffer[CT_SOFTMAX_LOSS_PROB].data,
                       in->buffer[CT_SOFTMAX_LOSS_LABEL].data };
}

static double infogain_loss_part(const void *ctx, int64_t from, int64_t to)
{
    const infogain *f = ctx;
    int64_t classes = f->d->classes, inner = f->d->inner;
    double sum = 0;

    for (int64_t k = from; k < to; k++) {
        const float *row = f->matrix + f->label[k] * classes;
        const float *prob = f->prob + k / inner * classes * inner + k % inner;

        if (f->label[k] == CT_LABEL_IGNORED) continue;
        for (int64_t c = 0; c < classes; c++) {
            double p = (double)prob[c * inner];

            sum -= (double)row[c] * log((p < INFOGAIN_LOSS_LEAST) ? INFOGAIN_LOSS_LEAST : p);
        }
    }
    return sum;
}

static ct_status sum_losses(const ct_layer *l, ct_instance *in, ct_exec *ex, double *sum_p)
{
    infogain f = infogain_of(l, in);
    int64_t n = f.d->outer * f.d->inner;

    (void)ex;
    *sum_p = ct_loss_sum(n, n * f.d->classes, infogain_loss_part, &f);
    return CT_OK;
}

static ct_status infogain_loss_forward(const ct_layer *l, ct_instance *in, ct_exec *ex, int part)
{
    return ct_softmax_loss_part(l, in, ex, part, sum_losses);
}

/* p_c sum_k H[label][k] - H[label][c] */
static ct_status infogain_loss_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_softmax_loss *plan = in->state;
    infogain f = infogain_of(l, in);
    float scale = (float)((double)ct_loss_weight(in) / plan->divisor);
    float *dx = ct_blob_diff(in->bottom[0]), *total = in->buffer[CT_SOFTMAX_LOSS_SCRATCH].data;
    int64_t classes = f.d->classes, inner = f.d->inner, n = f.d->outer * inner;

    (void)ex;
    if (dx == NULL) return CT_OK;
#pragma omp parallel for schedule(static) if (n * classes >= CT_PARALLEL_MIN)
    for (int64_t k = 0; k < n; k++) {
        double sum = 0;

        for (int64_t c = 0; (f.label[k] != CT_LABEL_IGNORED) && (c < classes); c++)
            sum += (double)f.matrix[f.label[k] * classes + c];
        total[k] = (float)sum;
    }
#pragma omp parallel for collapse(2) schedule(static) if (n * classes >= CT_PARALLEL_MIN)
    for (int64_t o = 0; o < f.d->outer; o++) {
        for (int64_t c = 0; c < classes; c++) {
            int64_t at = (o * classes + c) * inner;

            for (int64_t i = 0; i < inner; i++) {
                int32_t y = f.label[o * inner + i];
                float h = (y == CT_LABEL_IGNORED) ? 0.0f : f.matrix[y * classes + c];

                dx[at + i] = scale * (f.prob[at + i] * total[o * inner + i] - h);
            }
        }
    }
    return CT_OK;
}

static const ct_sum_ops infogain_loss_sums = CT_SOFTMAX_LOSS_SUMS(infogain_loss_forward);

const ct_layer_ops ct_layer_infogain_loss = {
    .type = "InfogainLoss",
    .params = "loss_param infogain_loss_param",
    .min_bottom = 2,
    .max_bottom = 3,
    .min_top = 1,
    .max_top = 2,
    .is_loss = true,
    .top_is_share = true,
    .null_top_diff = true, /* the probabilities send no gradient back, as in Caffe */
    .no_diff_bottom = 1 << 1 | 1 << 2,
    .backward_reads = CT_READS_BOTTOM, /* the matrix; setup narrows */
    .state_size = sizeof(ct_infogain_state),
    .instance_state_size = sizeof(ct_softmax_loss),
    .setup = setup,
    .reshape = reshape,
    .forward = ct_layer_forward_parts,
    .backward = infogain_loss_backward,
    .estimate = ct_softmax_loss_estimate,
    .sums = &infogain_loss_sums,
    .destroy = destroy,
};
