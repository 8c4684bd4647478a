/* FocalLoss on a softmax: -alpha (1 - p)^gamma log p of each label's probability p, so that samples
 * which are right already count less. */
#include <float.h>
#include <math.h>

#include "layers/types/layer_types.h"
#include "layers/types/loss_util.h"

typedef struct focal_state {
    ct_loss_rule rule;
    double alpha, gamma;
} focal_state;

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__FocalLossParameter *p = l->param->focal_loss_param;
    focal_state *s = l->state;

    (void)bottom;
    s->rule = ct_loss_rule_read(l, CT__LOSS_PARAMETER__NORMALIZATION_MODE__VALID);
    s->alpha = 0.25;
    s->gamma = 2;
    if (p == NULL) return CT_OK;
    if ((p->type != CT__FOCAL_LOSS_PARAMETER__TYPE__ORIGIN) || p->has_beta)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "focal_loss_param: type LINEAR and its beta are not supported; ORIGIN "
                             "with alpha and gamma is");
    s->alpha = (double)p->alpha;
    s->gamma = (double)p->gamma;
    if (!(s->alpha > 0) || !isfinite(s->alpha) || !(s->gamma >= 0) || !isfinite(s->gamma))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "focal_loss_param: alpha %g must be above 0, gamma %g at least 0",
                             s->alpha, s->gamma);
    return CT_OK;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const Ct__SoftmaxParameter *p = l->param->softmax_param;

    return ct_softmax_loss_reshape(l, in, (p != NULL) ? p->axis : 1);
}

typedef struct focal {
    const focal_state *s;
    const ct_softmax_desc *d;
    const float *prob;
    const int32_t *label;
} focal;

static focal focal_of(const ct_layer *l, const ct_instance *in)
{
    const ct_softmax_loss *plan = in->state;

    return (focal){ l->state, &plan->desc, in->buffer[CT_SOFTMAX_LOSS_PROB].data,
                    in->buffer[CT_SOFTMAX_LOSS_LABEL].data };
}

/* The probability of the label at position k, which is not ignored; NaN stays NaN. */
static double label_prob(const focal *f, int64_t k)
{
    int64_t o = k / f->d->inner, i = k % f->d->inner;
    double p = (double)f->prob[(o * f->d->classes + f->label[k]) * f->d->inner + i];

    return (p < (double)FLT_MIN) ? (double)FLT_MIN : p;
}

static double part(const void *ctx, int64_t from, int64_t to)
{
    const focal *f = ctx;
    double sum = 0;

    for (int64_t k = from; k < to; k++) {
        double p;

        if (f->label[k] == CT_LABEL_IGNORED) continue;
        p = label_prob(f, k);
        sum -= f->s->alpha * pow(1 - p, f->s->gamma) * log(p);
    }
    return sum;
}

static ct_status sum_losses(const ct_layer *l, ct_instance *in, ct_exec *ex, double *sum_p)
{
    focal f = focal_of(l, in);
    int64_t n = f.d->outer * f.d->inner;

    (void)ex;
    *sum_p = ct_loss_sum(n, n, part, &f);
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const focal_state *s = l->state;

    return ct_softmax_loss_forward(l, in, ex, &s->rule, sum_losses);
}

/* The loss's slope along the score of a class is this times ([class is the label] - p_class):
 * p dL/dp. At p = 1 it is the limit, where (1 - p)^(gamma - 1) may be infinite. */
static double slope(const focal *f, int64_t k)
{
    double p, gamma = f->s->gamma, rest;

    if (f->label[k] == CT_LABEL_IGNORED) return 0;
    p = label_prob(f, k);
    rest = (gamma > 0) ? 0 : -1;
    if (!(p >= 1)) rest = gamma * pow(1 - p, gamma - 1) * p * log(p) - pow(1 - p, gamma);
    return f->s->alpha * rest;
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_softmax_loss *plan = in->state;
    focal f = focal_of(l, in);
    double scale = (double)ct_loss_weight(in) / plan->divisor;
    float *dx = ct_blob_diff(in->bottom[0]), *factor = in->buffer[CT_SOFTMAX_LOSS_SCRATCH].data;
    int64_t classes = f.d->classes, inner = f.d->inner, n = f.d->outer * inner;

    (void)ex;
    if (dx == NULL) return CT_OK;
#pragma omp parallel for schedule(static) if (n >= CT_PARALLEL_MIN)
    for (int64_t k = 0; k < n; k++) factor[k] = (float)(scale * slope(&f, k));
#pragma omp parallel for collapse(2) schedule(static) if (n * classes >= CT_PARALLEL_MIN)
    for (int64_t o = 0; o < f.d->outer; o++) {
        for (int64_t c = 0; c < classes; c++) {
            int64_t at = (o * classes + c) * inner;

            for (int64_t i = 0; i < inner; i++) {
                float is = (f.label[o * inner + i] == (int32_t)c) ? 1.0f : 0.0f;

                dx[at + i] = factor[o * inner + i] * (is - f.prob[at + i]);
            }
        }
    }
    return CT_OK;
}

const ct_layer_ops ct_layer_focal_loss = {
    .type = "FocalLoss",
    .min_bottom = 2,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 2,
    .is_loss = true,
    .top_is_share = true,
    .null_top_diff = true, /* the probabilities send no gradient back */
    .no_diff_bottom = 1 << 1,
    .state_size = sizeof(focal_state),
    .instance_state_size = sizeof(ct_softmax_loss),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .estimate = ct_softmax_loss_estimate,
};
