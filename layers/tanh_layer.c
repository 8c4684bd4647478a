/* TanH: y = tanh(x). */
#include "layers/engine/recurrent/gates.h"
#include "layers/layer_types.h"

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    (void)l;
    ct_blob_set_shape(in->top[0], &in->bottom[0]->data.shape);
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    (void)ex;
    ct_tanh_forward(ct_tensor_count(&in->bottom[0]->data), ct_blob_data(in->bottom[0]),
                    ct_blob_data(in->top[0]));
    return CT_OK;
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    (void)ex;
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    ct_tanh_backward(ct_tensor_count(&in->bottom[0]->data), ct_blob_data(in->top[0]),
                     ct_blob_diff(in->top[0]), ct_blob_diff(in->bottom[0]));
    return CT_OK;
}

const ct_layer_ops ct_layer_tanh = {
    .type = "TanH",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .allow_inplace = true,
    .backward_reads = CT_READS_TOP,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
};
