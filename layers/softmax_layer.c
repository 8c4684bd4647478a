/* Softmax: a distribution over the classes along one axis. */
#include "layers/engine/softmax/softmax.h"
#include "layers/layer_types.h"
#include "layers/layer_util.h"

typedef struct softmax_plan {
    ct_softmax_desc desc;
    const ct_softmax_engine *engine;
} softmax_plan;

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const Ct__SoftmaxParameter *p = l->param->softmax_param;
    const ct_shape *s = &in->bottom[0]->data.shape;
    softmax_plan *plan = in->state;
    ct_view v;
    int axis;

    CT_TRY(ct_layer_axis(l, s, (p != NULL) ? p->axis : 1, "axis", &axis));
    v = ct_view_make(s, axis, 1);
    plan->desc = (ct_softmax_desc){ l->dev->kind, v.outer, v.mid, v.inner };
    plan->engine = ct_softmax_choose(&plan->desc);
    if (plan->engine == NULL)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "not implemented on device %s", l->dev->name);
    ct_blob_set_shape(in->top[0], s);
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const softmax_plan *plan = in->state;

    (void)l;
    return plan->engine->forward(&plan->desc, ex, ct_blob_data(in->bottom[0]),
                                 ct_blob_data(in->top[0]));
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const softmax_plan *plan = in->state;

    (void)l;
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    return plan->engine->backward(&plan->desc, ex, ct_blob_data(in->top[0]),
                                  ct_blob_diff(in->top[0]), ct_blob_diff(in->bottom[0]));
}

static void estimate(const ct_layer *l, const ct_instance *in, ct_estimate *e)
{
    const softmax_plan *plan = in->state;

    (void)l;
    e->engine[CT_RUN_FORWARD] = e->engine[CT_RUN_BACKWARD_DATA] = plan->engine->name;
}

const ct_layer_ops ct_layer_softmax = {
    .type = "Softmax",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .allow_inplace = true,
    .backward_reads = CT_READS_TOP,
    .instance_state_size = sizeof(softmax_plan),
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .estimate = estimate,
    .on_cuda = true,
};
