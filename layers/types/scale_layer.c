/* Scale: multiplies by a learned blob, or by the second bottom, broadcast from `axis` on, and may
 * add a learned bias of the same shape. In place the input is kept for the scale's gradient. */
#include "layers/types/device_kernels.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

typedef struct scale_state {
    Ct__FillerParameter one; /* the default filler */
    int bias;                /* index of the bias among the weights; -1: none */
} scale_state;

enum { INPUT };

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__ScaleParameter *p = l->param->scale_param;
    scale_state *s = l->state;
    ct_shape shape = bottom[(l->n_bottom > 1) ? 1 : 0];

    ct__filler_parameter__init(&s->one);
    s->one.value = 1.0f;
    s->bias = -1;
    if (l->n_bottom == 1) {
        bool given = (p != NULL) && (p->filler != NULL);

        CT_TRY(ct_layer_broadcast_shape(l, &bottom[0], (p != NULL) ? p->axis : 1,
                                        (p != NULL) ? p->num_axes : 1, &shape));
        ct_layer_add_weight(l, &shape, given ? p->filler : &s->one);
    }
    if ((p != NULL) && p->bias_term) {
        s->bias = l->n_weight;
        ct_layer_add_weight(l, &shape, p->bias_filler);
    }
    return CT_OK;
}

/* A blob along the channels alone. */
static bool takes(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot)
{
    const Ct__ScaleParameter *s = p->scale_param;

    return (p->n_bottom == 1) && ((s == NULL) || (s->num_axes == 1)) &&
           ct_layer_is_channels(&bottom[slot]->data.shape, (s != NULL) ? s->axis : 1) &&
           (ct_blob_is_last(bottom[slot]) || ct_layer_takes_block(bottom[slot]));
}

/* Along the channels alone. */
static bool as_epilogue(const Ct__LayerParameter *p, ct_epilogue_kind *kind_p)
{
    const Ct__ScaleParameter *s = p->scale_param;

    *kind_p = CT_EPILOGUE_AFFINE;
    return (p->n_bottom == 1) && ((s == NULL) || ((s->num_axes == 1) && (s->axis == 1)));
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const Ct__ScaleParameter *p = l->param->scale_param;
    const scale_state *s = l->state;
    const ct_blob *x = in->bottom[0];
    const ct_shape *scale = (l->n_bottom > 1) ? &in->bottom[1]->data.shape : &l->weight[0].shape;

    CT_TRY(ct_layer_broadcast_view(l, &x->data.shape, scale, (p != NULL) ? p->axis : 1, in->state));
    if ((s->bias >= 0) && !ct_shape_equal(scale, &l->weight[s->bias].shape))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom 1 now has shape %s, the bias %s",
                             ct_shape_str(scale).text,
                             ct_shape_str(&l->weight[s->bias].shape).text);
    ct_instance_buffer(in, INPUT, CT_LIFETIME_PASS,
                       ((in->top[0] == in->bottom[0]) && x->wants_diff) ? ct_tensor_bytes(&x->data)
                                                                        : 0);
    if ((in->top[0] == in->bottom[0]) && (l->n_bottom == 1)) in->backward_reads = 0;
    if (l->n_bottom == 1) in->over = 1;
    ((ct_view *)in->state)->block = x->data.layout.block;
    ct_layer_view_last(x, in->state);
    ct_blob_set_like(in->top[0], &x->data.shape, &x->data);
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const scale_state *s = l->state;
    const ct_blob *scale = (l->n_bottom > 1) ? in->bottom[1] : &in->weight[0];
    const float *x = ct_blob_data(in->bottom[0]);

    if (in->buffer[INPUT].bytes > 0)
        CT_TRY(
            ct_device_copy(ex, ct_tensor_words(&in->bottom[0]->data), x, in->buffer[INPUT].data));
    return ct_kernels(ex)->affine(ex, in->state, x, ct_blob_data(scale),
                                  (s->bias >= 0) ? ct_blob_data(&in->weight[s->bias]) : NULL,
                                  ct_blob_data(in->top[0]));
}

/* Gradients of scale and bias, and dx, in one pass. */
static ct_status backward_at_once(const ct_layer *l, ct_instance *in, ct_exec *ex,
                                  const ct_blob *scale, const float *x)
{
    const scale_state *s = l->state;
    ct_scale_back a = { .x = x,
                        .dy = ct_blob_diff(in->top[0]),
                        .scale = ct_blob_data(scale),
                        .add_scale = (l->n_bottom == 1) && (ct_weight_beta(in, ex, 0) != 0.0f),
                        .dscale = ct_blob_diff(scale),
                        .dx = ct_blob_diff(in->bottom[0]) };

    if (s->bias >= 0) {
        a.dbias = ct_blob_diff(&in->weight[s->bias]);
        a.add_bias = ct_weight_beta(in, ex, s->bias) != 0.0f;
    }
    return ct_kernels(ex)->scale_back(ex, in->state, &a);
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const scale_state *s = l->state;
    const ct_blob *scale = (l->n_bottom > 1) ? in->bottom[1] : &in->weight[0];
    const float *x =
        (in->buffer[INPUT].bytes > 0) ? in->buffer[INPUT].data : ct_blob_data(in->bottom[0]);
    const float *dy = ct_blob_diff(in->top[0]);
    float *dx = ct_blob_diff(in->bottom[0]), *db;

    if ((ct_kernels(ex)->scale_back != NULL) && (ct_blob_diff(scale) != NULL))
        return backward_at_once(l, in, ex, scale, x);
    if ((s->bias >= 0) && ((db = ct_blob_diff(&in->weight[s->bias])) != NULL))
        CT_TRY(ct_kernels(ex)->dot(ex, in->state, dy, NULL, ct_weight_beta(in, ex, s->bias) != 0.0f,
                                   db));
    if (ct_blob_diff(scale) != NULL)
        CT_TRY(ct_kernels(ex)->dot(ex, in->state, dy, x,
                                   (l->n_bottom == 1) && (ct_weight_beta(in, ex, 0) != 0.0f),
                                   ct_blob_diff(scale)));
    if (dx == NULL) return CT_OK;
    return ct_kernels(ex)->affine(ex, in->state, dy, ct_blob_data(scale), NULL, dx);
}

const ct_layer_ops ct_layer_scale = {
    .type = "Scale",
    .min_bottom = 1,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 1,
    .allow_inplace = true,
    .backward_reads = CT_READS_BOTTOM,
    .state_size = sizeof(scale_state),
    .instance_state_size = sizeof(ct_view),
    .setup = setup,
    .takes = takes,
    .bf16 = true,
    .last = true,
    .reshape = reshape,
    .as_epilogue = as_epilogue,
    .forward = forward,
    .backward = backward,
    .on_cuda = true,
};
