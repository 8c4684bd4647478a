/* Reorder: the bottom in plain order, whatever its layout is. The net adds it where a layer needs
 * plain order; written into a prototxt, before values that are in plain order anyway, it copies. */
#include "framework/tensor/reorder.h"
#include "layers/layer_types.h"

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    (void)l;
    ct_blob_set_shape(in->top[0], &in->bottom[0]->data.shape);
    return CT_OK;
}

static int64_t places(const ct_shape *s)
{
    return ct_shape_count(s, 2, -1);
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_tensor *x = &in->bottom[0]->data;
    float *y = ct_blob_data(in->top[0]);

    (void)l;
    if (x->layout.block == 0) return ex->dev->copy(ex->stream, y, x->data, ct_tensor_bytes(x));
    ct_reorder_to_plain(x->shape.dim[0], x->shape.dim[1], places(&x->shape), x->layout.block,
                        x->data, y);
    return CT_OK;
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_tensor *dx = &in->bottom[0]->diff;
    const float *dy = ct_blob_diff(in->top[0]);

    (void)l;
    if (dx->data == NULL) return CT_OK;
    if (dx->layout.block == 0) return ex->dev->copy(ex->stream, dx->data, dy, ct_tensor_bytes(dx));
    ct_reorder_to_blocked(dx->shape.dim[0], dx->shape.dim[1], places(&dx->shape), dx->layout.block,
                          dy, dx->data);
    return CT_OK;
}

const ct_layer_ops ct_layer_reorder = {
    .type = "Reorder",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .by_net = true,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .on_cuda = true,
};
