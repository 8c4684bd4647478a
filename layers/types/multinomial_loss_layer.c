/* MultinomialLogisticLoss: the mean of -log p_label of probabilities that come as they are. */
#include <math.h>
#include <string.h>

#include "framework/math/math.h"
#include "layers/types/layer_types.h"
#include "layers/types/loss_util.h"

#define LEAST 1e-20 /* of a probability, as in Caffe */

static double at_least(float p)
{
    return ((double)p < LEAST) ? LEAST : (double)p; /* NaN stays NaN */
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
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

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
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
    .forward = forward,
    .backward = backward,
};
