/* SmoothL1Loss of Fast R-CNN: w_out f(w_in (a - b)) over the samples; f(d) = (sigma d)^2 / 2 where
 * |d| < 1 / sigma^2, else |d| - 1 / (2 sigma^2). */
#include <math.h>

#include "layers/types/layer_types.h"
#include "layers/types/loss_util.h"

typedef struct smooth_plan {
    double samples; /* of the global batch, in the last forward */
} smooth_plan;

static float sigma2(const ct_layer *l)
{
    const Ct__SmoothL1LossParameter *p = l->param->smooth_l1_loss_param;

    return (p != NULL) ? p->sigma * p->sigma : 1.0f;
}

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__SmoothL1LossParameter *p = l->param->smooth_l1_loss_param;

    (void)bottom;
    if ((p == NULL) || ((p->sigma > 0.0f) && isfinite(sigma2(l)))) return CT_OK;
    return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "smooth_l1_loss_param.sigma %g must be above 0",
                         (double)p->sigma);
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
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

static double part(const void *ctx, int64_t from, int64_t to)
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

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    smooth_plan *plan = in->state;
    smooth s = smooth_of(l, in);
    int64_t n = ct_tensor_count(&in->bottom[0]->data);

    CT_TRY(ct_loss_samples(in, ex, &plan->samples));
    ct_blob_data(in->top[0])[0] = (float)(ct_loss_sum(n, n, part, &s) / plan->samples);
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

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
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
    .min_bottom = 2,
    .max_bottom = 4,
    .min_top = 1,
    .max_top = 1,
    .is_loss = true,
    .top_is_share = true,
    .no_diff_bottom = 1 << 2 | 1 << 3,
    .backward_reads = CT_READS_BOTTOM,
    .instance_state_size = sizeof(smooth_plan),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
};
