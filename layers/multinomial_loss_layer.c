/* MultinomialLogisticLoss: the mean of -log p_label of probabilities that come as they are. */
#include <math.h>
#include <string.h>

#include "framework/math/math.h"
#include "layers/layer_types.h"
#include "layers/loss_util.h"

#define LEAST 1e-20 /* of a probability, as in Caffe */

enum { LABEL };

typedef struct multinomial_plan {
    double samples; /* of the global batch, in the last forward */
    int64_t n, classes;
} multinomial_plan;

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const ct_shape *x = &in->bottom[0]->data.shape;
    ct_shape scalar = { 0 };
    multinomial_plan *plan = in->state;
    ct_view v;

    if (x->ndim < 1) return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom 0 has no samples");
    v = (ct_view){ x->dim[0], ct_shape_count(x, 1, -1), 1, 0 };
    CT_TRY(ct_layer_check_labels(l, x, &in->bottom[1]->data.shape, &v));
    plan->n = v.outer;
    plan->classes = v.mid;
    ct_instance_buffer(in, LABEL, CT_KEEP_PASS, (size_t)v.outer * sizeof(int32_t));
    ct_blob_set_shape(in->top[0], &scalar);
    return CT_OK;
}

static double at_least(float p)
{
    return ((double)p < LEAST) ? LEAST : (double)p; /* NaN stays NaN */
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    multinomial_plan *plan = in->state;
    int32_t *label = in->buffer[LABEL].data;
    const float *p = ct_blob_data(in->bottom[0]);
    double sum = 0;

    CT_TRY(ct_loss_labels(l, ex, NULL, ct_blob_data(in->bottom[1]), plan->n, 1, plan->classes,
                          label, NULL));
    CT_TRY(ct_loss_samples(in, ex, &plan->samples));
    for (int64_t i = 0; i < plan->n; i++) sum -= log(at_least(p[i * plan->classes + label[i]]));
    ct_blob_data(in->top[0])[0] = (float)(sum / plan->samples);
    return CT_OK;
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const multinomial_plan *plan = in->state;
    const int32_t *label = in->buffer[LABEL].data;
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
    .instance_state_size = sizeof(multinomial_plan),
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
};
