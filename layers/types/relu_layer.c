/* y = x for x > 0, else negative_slope * x. */
#include "layers/engine/relu/relu.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

typedef struct relu_state {
    float slope;
} relu_state;

typedef struct relu_instance {
    ct_relu_desc desc;
    const ct_relu_impl *forward, *backward;
} relu_instance;

static ct_status relu_setup(ct_layer *l, const ct_shape *bottom)
{
    relu_state *s = l->state;

    (void)bottom;
    if (l->param->relu_param != NULL) s->slope = l->param->relu_param->negative_slope;
    /* a slope of 0 or more keeps the sign of x or makes it 0, so the top tells it: in place too */
    l->backward_reads = (s->slope >= 0.0f) ? CT_READS_TOP : CT_READS_BOTTOM;
    return CT_OK;
}

static bool relu_as_tail(const Ct__LayerParameter *p, ct_epilogue_kind *kind_p)
{
    *kind_p = CT_EPILOGUE_RELU;
    return (p->ct_kernel == NULL) &&
           ((p->relu_param == NULL) || (p->relu_param->negative_slope == 0.0f));
}

static ct_status relu_reshape(const ct_layer *l, ct_instance *in)
{
    const relu_state *s = l->state;
    relu_instance *r = in->state;

    if ((s->slope < 0.0f) && (in->top[0] == in->bottom[0]))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "negative_slope %g is below 0: that cannot run in place, since the "
                             "top no longer tells the sign of the bottom",
                             (double)s->slope);
    in->over = 1;
    if (in->top[0] != in->bottom[0])
        ct_blob_set_like(in->top[0], &in->bottom[0]->data.shape, &in->bottom[0]->data);
    r->desc = (ct_relu_desc){ .device = l->dev->kind,
                              .n_thread = ct_engine_n_thread(l),
                              .count = ct_tensor_stored(&in->bottom[0]->data),
                              .slope = s->slope,
                              .bf16 = ct_blob_is_bf16(in->bottom[0]),
                              .dtype = in->bottom[0]->data.dtype };
    CT_TRY(ct_relu_pick(l, CT_RUN_FORWARD, ct_relu_forward_table, &r->desc, &r->forward));
    return ct_relu_pick(l, CT_RUN_BACKWARD_DATA, ct_relu_backward_table, &r->desc, &r->backward);
}

static ct_status relu_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    relu_instance *r = in->state;

    (void)l;
    return r->forward->run(
        &r->desc, ex,
        &(ct_relu_args){ .x = ct_blob_data(in->bottom[0]), .y = ct_blob_data(in->top[0]) });
}

static ct_status relu_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    relu_instance *r = in->state;
    const ct_blob *sign = (l->backward_reads == CT_READS_TOP) ? in->top[0] : in->bottom[0];

    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    return r->backward->run(&r->desc, ex,
                            &(ct_relu_args){ .x = ct_blob_data(sign),
                                             .dy = ct_blob_diff(in->top[0]),
                                             .dx = ct_blob_diff(in->bottom[0]) });
}

static void relu_estimate(const ct_layer *l, const ct_instance *in, ct_estimate *e)
{
    const relu_instance *r = in->state;

    (void)l;
    e->engine[CT_RUN_FORWARD] = r->forward->name;
    e->engine[CT_RUN_BACKWARD_DATA] = r->backward->name;
    e->forward_flop = e->backward_flop = (double)ct_tensor_count(&in->bottom[0]->data);
}

const ct_layer_ops ct_layer_relu = {
    .type = "ReLU",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .allow_inplace = true,
    .backward_reads = CT_READS_TOP | CT_READS_BOTTOM, /* setup narrows */
    .state_size = sizeof(relu_state),
    .instance_state_size = sizeof(relu_instance),
    .setup = relu_setup,
    .takes = ct_layer_takes_all,
    .bf16 = true,
    .last = true,
    .reshape = relu_reshape,
    .as_epilogue = relu_as_tail,
    .forward = relu_forward,
    .backward = relu_backward,
    .estimate = relu_estimate,
    .on_cuda = true,
};
