/* Deconvolution: the adjoint of a convolution from the top to the bottom. Its forward is that one's
 * backward by data, its backward by data that one's forward, with the same engines. n bottoms share
 * the weights. */
#include "layers/types/conv_geometry.h"
#include "layers/types/device_kernels.h"
#include "layers/engine/bias/bias.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

typedef struct deconv_instance {
    ct_conv_desc desc; /* of the convolution: its input is the top */
    ct_bias_desc bias_desc;
    const ct_conv_impl *forward, *backward_data, *backward_weight; /* of the convolution */
    const ct_bias_impl *bias_backward;
} deconv_instance;

enum { SLOT_WORK };

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    ct_conv_geometry *g = l->state;

    if (l->n_bottom != l->n_top)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%d bottoms need as many tops, not %d", l->n_bottom,
                             l->n_top);
    CT_TRY(ct_conv_read_geometry(l, &bottom[0], 0, g));
    CT_TRY(ct_conv_add_weights(l, g, g->c, g->m / g->group));
    return CT_OK;
}

/* stride (in - 1) + dilation (kernel - 1) + 1 - 2 pad */
static ct_status top_sizes(const ct_layer *l, const ct_shape *x, int64_t *out)
{
    const ct_conv_geometry *g = l->state;

    for (int i = 0; i < g->n; i++) {
        int64_t in = x->dim[g->axis + 1 + i], span, reach;

        if (in < 1)
            return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "the bottom %s is empty", ct_shape_str(x).text);
        if (__builtin_mul_overflow(g->stride[i], in - 1, &span) ||
            __builtin_mul_overflow(g->dilation[i], g->kernel[i] - 1, &reach) ||
            __builtin_add_overflow(span, reach + 1 - 2 * g->pad[i], &out[i]) || (out[i] < 1))
            return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                                 "spatial axis %d of the top would have no or too many places: "
                                 "bottom %lld, stride %lld, kernel %lld, pad %lld",
                                 i, (long long)in, (long long)g->stride[i], (long long)g->kernel[i],
                                 (long long)g->pad[i]);
    }
    return CT_OK;
}

static ct_status pick_engines(const ct_layer *l, ct_instance *in)
{
    deconv_instance *r = in->state;
    const ct_conv_desc *d = &r->desc;
    size_t work;

    CT_TRY(
        ct_conv_pick(l, CT_RUN_BACKWARD_DATA, ct_conv_backward_data_table, d, &r->backward_data));
    CT_TRY(ct_conv_pick(l, CT_RUN_FORWARD, ct_conv_forward_table, d, &r->forward));
    CT_TRY(ct_conv_pick(l, CT_RUN_BACKWARD_WEIGHT, ct_conv_backward_weight_table, d,
                        &r->backward_weight));
    r->bias_backward = ct_bias_find(ct_bias_backward_table, &r->bias_desc, "auto");
    if (r->bias_backward == NULL) return ct_engine_refuse(l, CT_RUN_BACKWARD_WEIGHT, "auto", "");
    work = ct_conv_larger(ct_conv_workspace(r->backward_data, d), ct_conv_workspace(r->forward, d));
    work = ct_conv_larger(work, ct_conv_workspace(r->backward_weight, d));
    ct_instance_buffer(in, SLOT_WORK, CT_LIFETIME_CALL, work);
    return CT_OK;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const ct_conv_geometry *g = l->state;
    const ct_shape *x = &in->bottom[0]->data.shape;
    deconv_instance *r = in->state;
    int64_t out[CT_MAX_DIM];
    ct_shape top;

    CT_TRY(ct_conv_check_bottoms(l, in, g));
    CT_TRY(top_sizes(l, x, out));
    top = ct_conv_shape(g, x, g->m, out);
    CT_TRY(ct_layer_check_shape(l, &top));
    for (int i = 0; i < l->n_top; i++) ct_blob_set_shape(in->top[i], &top);
    r->desc = (ct_conv_desc){ .device = l->dev->kind,
                              .n_thread = ct_engine_n_thread(l),
                              .n = ct_shape_count(x, 0, g->axis),
                              .group = g->group,
                              .c = g->m,
                              .m = g->c };
    CT_TRY(ct_conv_fill_desc(l, g, out, &r->desc));
    r->bias_desc = (ct_bias_desc){ .device = r->desc.device,
                                   .n_thread = r->desc.n_thread,
                                   .n = r->desc.n,
                                   .c = g->m,
                                   .s = ct_shape_count(&top, g->axis + 1, -1) };
    return pick_engines(l, in);
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_conv_geometry *g = l->state;
    deconv_instance *r = in->state;
    ct_view v = { r->bias_desc.n, r->bias_desc.c, r->bias_desc.s, 0, CT_F32 };

    for (int i = 0; i < l->n_bottom; i++) {
        float *y = ct_blob_data(in->top[i]);

        CT_TRY(r->backward_data->run(&r->desc, ex,
                                     &(ct_conv_args){ .weight = ct_blob_data(&in->weight[0]),
                                                      .dy = ct_blob_data(in->bottom[i]),
                                                      .dx = y,
                                                      .work = in->buffer[SLOT_WORK].data }));
        if (g->bias)
            CT_TRY(ct_kernels(ex)->affine(ex, &v, y, NULL, ct_blob_data(&in->weight[1]), y));
    }
    return CT_OK;
}

/* The first bottom overwrites or adds as the rule says, the others add to it. */
static ct_status backward_weights(const ct_layer *l, ct_instance *in, ct_exec *ex, int i)
{
    const ct_conv_geometry *g = l->state;
    deconv_instance *r = in->state;
    ct_conv_args a = { .x = ct_blob_diff(in->top[i]),
                       .dy = ct_blob_data(in->bottom[i]),
                       .work = in->buffer[SLOT_WORK].data };
    ct_bias_args b = { .dy = a.x };

    a.dweight = ct_blob_diff(&in->weight[0]);
    a.beta = (i > 0) ? 1.0f : ct_weight_beta(in, ex, 0);
    if (a.dweight != NULL) CT_TRY(r->backward_weight->run(&r->desc, ex, &a));
    if (!g->bias || (ct_blob_diff(&in->weight[1]) == NULL)) return CT_OK;
    b.dbias = ct_blob_diff(&in->weight[1]);
    b.beta = (i > 0) ? 1.0f : ct_weight_beta(in, ex, 1);
    return r->bias_backward->run(&r->bias_desc, ex, &b);
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    deconv_instance *r = in->state;

    for (int i = 0; i < l->n_bottom; i++) {
        CT_TRY(backward_weights(l, in, ex, i));
        if (ct_blob_diff(in->bottom[i]) == NULL) continue;
        CT_TRY(r->forward->run(&r->desc, ex,
                               &(ct_conv_args){ .x = ct_blob_diff(in->top[i]),
                                                .weight = ct_blob_data(&in->weight[0]),
                                                .y = ct_blob_diff(in->bottom[i]),
                                                .work = in->buffer[SLOT_WORK].data }));
    }
    return CT_OK;
}

static void estimate(const ct_layer *l, const ct_instance *in, ct_estimate *e)
{
    const deconv_instance *r = in->state;
    double product = 2.0 * (double)ct_tensor_count(&in->bottom[0]->data) *
                     (double)ct_shape_count(&l->weight[0].shape, 1, -1);
    double bias = (l->n_weight > 1) ? (double)ct_tensor_count(&in->top[0]->data) : 0.0;

    e->engine[CT_RUN_FORWARD] = r->backward_data->name;
    e->engine[CT_RUN_BACKWARD_DATA] = r->forward->name;
    e->engine[CT_RUN_BACKWARD_WEIGHT] = r->backward_weight->name;
    for (int i = 0; i < l->n_bottom; i++) {
        e->forward_flop += product + bias;
        e->backward_flop += product + bias + (in->bottom[i]->wants_diff ? product : 0.0);
    }
}

const ct_layer_ops ct_layer_deconvolution = {
    .type = "Deconvolution",
    .params = "convolution_param",
    .min_bottom = 1,
    .max_bottom = -1,
    .min_top = 1,
    .max_top = -1,
    .backward_reads = CT_READS_BOTTOM,
    .state_size = sizeof(ct_conv_geometry),
    .instance_state_size = sizeof(deconv_instance),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .estimate = estimate,
    .on_cuda = true,
};
