/* Bias: adds a learned blob, or the second bottom, broadcast from `axis` on. */
#include "layers/types/device_kernels.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__BiasParameter *p = l->param->bias_param;
    ct_shape shape;

    if (l->n_bottom > 1) return CT_OK;
    CT_TRY(ct_layer_broadcast_shape(l, &bottom[0], (p != NULL) ? p->axis : 1,
                                    (p != NULL) ? p->num_axes : 1, &shape));
    ct_layer_add_weight(l, &shape, (p != NULL) ? p->filler : NULL);
    return CT_OK;
}

/* A blob along the channels alone. */
static bool takes(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot)
{
    const Ct__BiasParameter *b = p->bias_param;

    return (p->n_bottom == 1) && ((b == NULL) || (b->num_axes == 1)) &&
           ct_layer_is_channels(&bottom[slot]->data.shape, (b != NULL) ? b->axis : 1) &&
           ct_layer_takes_block(bottom[slot]);
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const Ct__BiasParameter *p = l->param->bias_param;
    const ct_shape *x = &in->bottom[0]->data.shape;
    const ct_shape *b = (l->n_bottom > 1) ? &in->bottom[1]->data.shape : &l->weight[0].shape;

    CT_TRY(ct_layer_broadcast_view(l, x, b, (p != NULL) ? p->axis : 1, in->state));
    if (l->n_bottom == 1) in->over = 1;
    ((ct_view *)in->state)->block = in->bottom[0]->data.layout.block;
    ((ct_view *)in->state)->dtype = in->bottom[0]->data.dtype;
    ct_blob_set_like(in->top[0], x, &in->bottom[0]->data);
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_blob *b = (l->n_bottom > 1) ? in->bottom[1] : &in->weight[0];

    return ct_kernels(ex)->affine(ex, in->state, ct_blob_data(in->bottom[0]), NULL, ct_blob_data(b),
                                  ct_blob_data(in->top[0]));
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const float *dy = ct_blob_diff(in->top[0]);
    float *dx = ct_blob_diff(in->bottom[0]);
    float *db = ct_blob_diff((l->n_bottom > 1) ? in->bottom[1] : &in->weight[0]);
    bool add = (l->n_bottom == 1) && (ct_weight_beta(in, ex, 0) != 0.0f);

    if (db != NULL) CT_TRY(ct_kernels(ex)->dot(ex, in->state, dy, NULL, add, db));
    if (dx == NULL) return CT_OK;
    return ct_device_copy(ex, ct_tensor_words(&in->bottom[0]->data), dy, dx);
}

const ct_layer_ops ct_layer_bias = {
    .type = "Bias",
    .min_bottom = 1,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 1,
    .allow_inplace = true,
    .instance_state_size = sizeof(ct_view),
    .setup = setup,
    .takes = takes,
    .bf16 = true,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .on_cuda = true,
};
