/* What the losses on a softmax share: shapes, labels, divisor, the softmax itself. */
#include "framework/base/memory.h"
#include "layers/types/loss_util.h"

ct_status ct_softmax_loss_reshape(const ct_layer *l, ct_instance *in, int axis)
{
    const ct_shape *x = &in->bottom[0]->data.shape, *label = &in->bottom[1]->data.shape;
    ct_shape scalar = { 0 };
    ct_softmax_loss *plan = in->state;
    int64_t n_label;
    ct_view v;

    CT_TRY(ct_layer_axis(l, x, axis, "axis", &axis));
    v = ct_view_make(x, axis, 1);
    n_label = v.outer * v.inner;
    CT_TRY(ct_layer_check_labels(l, x, label, &v));
    if (label->dim[0] != x->dim[0])
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "scores of %lld samples, labels of %lld",
                             (long long)x->dim[0], (long long)label->dim[0]);
    plan->desc = (ct_softmax_desc){ l->dev->kind, v.outer, v.mid, v.inner };
    plan->engine = ct_softmax_choose(&plan->desc);
    if (plan->engine == NULL)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "not implemented on device %s", l->dev->name);
    ct_instance_buffer(in, CT_SOFTMAX_LOSS_PROB, CT_LIFETIME_PASS,
                       ct_tensor_bytes(&in->bottom[0]->data));
    ct_instance_buffer(in, CT_SOFTMAX_LOSS_LABEL, CT_LIFETIME_PASS,
                       ct_loss_label_bytes(l, n_label));
    ct_instance_buffer(in, CT_SOFTMAX_LOSS_SCRATCH, CT_LIFETIME_CALL,
                       ct_softmax_scratch(&plan->desc));
    ct_blob_set_shape(in->top[0], &scalar);
    if (l->n_top > 1) ct_blob_set_shape(in->top[1], x);
    return CT_OK;
}

/* Labels as classes, checked once so that nothing behind can read out of bounds. */
static ct_status read_labels(const ct_layer *l, const ct_instance *in, const ct_exec *ex,
                             const ct_loss_rule *rule, int64_t *counted_p)
{
    const ct_softmax_loss *plan = in->state;
    int64_t n = plan->desc.outer * plan->desc.inner, samples = in->bottom[1]->data.shape.dim[0];

    return ct_loss_labels(l, ex, rule, ct_blob_data(in->bottom[1]), n,
                          (samples > 0) ? n / samples : 1, plan->desc.classes,
                          in->buffer[CT_SOFTMAX_LOSS_LABEL].data, counted_p);
}

ct_status ct_softmax_loss_forward(const ct_layer *l, ct_instance *in, ct_exec *ex,
                                  const ct_loss_rule *rule,
                                  ct_status (*fn)(const ct_layer *l, ct_instance *in, ct_exec *ex,
                                                  double *sum_p))
{
    ct_softmax_loss *plan = in->state;
    float *prob = in->buffer[CT_SOFTMAX_LOSS_PROB].data;
    int64_t counted = 0;
    double sum = 0;

    CT_TRY(read_labels(l, in, ex, rule, &counted));
    CT_TRY(ct_loss_divisor(rule, ex, plan->desc.outer * plan->desc.inner, counted, plan->desc.outer,
                           &plan->divisor));
    CT_TRY(plan->engine->forward(&plan->desc, ex, ct_blob_data(in->bottom[0]), prob));
    CT_TRY(fn(l, in, ex, &sum));
    ct_blob_data(in->top[0])[0] = (float)(sum / plan->divisor);
    if (l->n_top < 2) return CT_OK;
    return ex->dev->copy(ex->stream, ct_blob_data(in->top[1]), prob,
                         ct_tensor_bytes(&in->bottom[0]->data));
}

void ct_softmax_loss_estimate(const ct_layer *l, const ct_instance *in, ct_estimate *e)
{
    const ct_softmax_loss *plan = in->state;

    (void)l;
    e->engine[CT_RUN_FORWARD] = e->engine[CT_RUN_BACKWARD_DATA] = plan->engine->name;
}
