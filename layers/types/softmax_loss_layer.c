/* SoftmaxWithLoss: the mean of -log p_label over the labels that count. What counts, and what the
 * sum is divided by, is Caffe's; over several ranks the divisor is the global batch's, so that the
 * ranks' losses and gradients add up. */
#include "layers/types/layer_types.h"
#include "layers/types/loss_util.h"

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    (void)bottom;
    *(ct_loss_rule *)l->state = ct_loss_rule_read(l, CT__LOSS_PARAMETER__NORMALIZATION_MODE__VALID);
    return CT_OK;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const Ct__SoftmaxParameter *p = l->param->softmax_param;

    return ct_softmax_loss_reshape(l, in, (p != NULL) ? p->axis : 1);
}

static ct_status sum_losses(const ct_layer *l, ct_instance *in, ct_exec *ex, double *sum_p)
{
    ct_softmax_loss *plan = in->state;

    (void)l;
    return plan->engine->loss(&plan->desc, ex, in->buffer[CT_SOFTMAX_LOSS_PROB].data,
                              in->buffer[CT_SOFTMAX_LOSS_LABEL].data,
                              in->buffer[CT_SOFTMAX_LOSS_SCRATCH].data, sum_p);
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    return ct_softmax_loss_forward(l, in, ex, l->state, sum_losses);
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_softmax_loss *plan = in->state;

    (void)l;
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    return plan->engine->loss_backward(&plan->desc, ex, in->buffer[CT_SOFTMAX_LOSS_PROB].data,
                                       in->buffer[CT_SOFTMAX_LOSS_LABEL].data,
                                       (float)((double)ct_loss_weight(in) / plan->divisor),
                                       ct_blob_diff(in->bottom[0]));
}

const ct_layer_ops ct_layer_softmax_loss = {
    .type = "SoftmaxWithLoss",
    .min_bottom = 2,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 2,
    .is_loss = true,
    .top_is_share = true,
    .null_top_diff = true, /* the probabilities send no gradient back, as in Caffe */
    .no_diff_bottom = 1 << 1,
    .state_size = sizeof(ct_loss_rule),
    .instance_state_size = sizeof(ct_softmax_loss),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .estimate = ct_softmax_loss_estimate,
};
