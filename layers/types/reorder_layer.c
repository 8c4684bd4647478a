/* Layers that the net adds where a reader does not take a value as it is, and that copy where they
 * are written into a prototxt:
 *  Reorder  the bottom in plain order and f32, whatever its layout and dtype
 *  Cast     the bottom in f32, in its layout */
#include "framework/base/bf16.h"
#include "framework/tensor/tensor.h"
#include "layers/layer_util.h"
#include "layers/types/device_kernels.h"
#include "layers/types/layer_types.h"

static ct_status reorder_reshape(const ct_layer *l, ct_instance *in)
{
    (void)l;
    ct_blob_set_shape(in->top[0], &in->bottom[0]->data.shape);
    return CT_OK;
}

static ct_status cast_reshape(const ct_layer *l, ct_instance *in)
{
    (void)l;
    ct_blob_set_layout(in->top[0], &in->bottom[0]->data.shape, in->bottom[0]->data.layout);
    return CT_OK;
}

static int64_t places(const ct_shape *s)
{
    return ct_shape_count(s, 2, -1);
}

/* Of the same layout. */
static ct_status widen(ct_exec *ex, const ct_tensor *x, float *y)
{
    if (x->dtype != CT_BF16) return ex->dev->copy(ex->stream, y, x->data, ct_tensor_bytes(x));
    ct_bf16_widen_all(ct_tensor_stored(x), x->data, y);
    return CT_OK;
}

static ct_status narrow(ct_exec *ex, const float *dy, const ct_tensor *dx)
{
    if (dx->dtype != CT_BF16) return ex->dev->copy(ex->stream, dx->data, dy, ct_tensor_bytes(dx));
    ct_bf16_narrow_all(ct_tensor_stored(dx), dy, dx->data);
    return CT_OK;
}

static ct_status cast_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    return widen(ex, &in->bottom[0]->data, ct_blob_data(in->top[0]));
}

static ct_status cast_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    return narrow(ex, ct_blob_diff(in->top[0]), &in->bottom[0]->diff);
}

static ct_status reorder_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_tensor *x = &in->bottom[0]->data;

    if (ct_blob_is_last(in->bottom[0]))
        return ct_kernels(ex)->last_to_plain(ex, x->shape.dim[0], x->shape.dim[1],
                                             places(&x->shape), x->dtype, x->data, CT_F32,
                                             ct_blob_data(in->top[0]));
    if (x->layout.block == 0) return cast_forward(l, in, ex);
    if (x->dtype == CT_BF16)
        ct_reorder_to_plain_bf16(x->shape.dim[0], x->shape.dim[1], places(&x->shape),
                                 x->layout.block, x->data, ct_blob_data(in->top[0]));
    else
        ct_reorder_to_plain(x->shape.dim[0], x->shape.dim[1], places(&x->shape), x->layout.block,
                            x->data, ct_blob_data(in->top[0]));
    return CT_OK;
}

static ct_status reorder_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_tensor *dx = &in->bottom[0]->diff;
    const float *dy = ct_blob_diff(in->top[0]);

    if ((dx->data != NULL) && ct_blob_is_last(in->bottom[0]))
        return ct_kernels(ex)->plain_to_last(ex, dx->shape.dim[0], dx->shape.dim[1],
                                             places(&dx->shape), CT_F32, dy, dx->dtype, dx->data);
    if ((dx->data == NULL) || (dx->layout.block == 0)) return cast_backward(l, in, ex);
    if (dx->dtype == CT_BF16)
        ct_reorder_to_blocked_bf16(dx->shape.dim[0], dx->shape.dim[1], places(&dx->shape),
                                   dx->layout.block, dy, dx->data);
    else
        ct_reorder_to_blocked(dx->shape.dim[0], dx->shape.dim[1], places(&dx->shape),
                              dx->layout.block, dy, dx->data);
    return CT_OK;
}

#define CONVERSION(_type, _name)                                                                   \
    {                                                                                              \
        .type = _type, .min_bottom = 1, .max_bottom = 1, .min_top = 1, .max_top = 1,               \
        .by_net = true, .reshape = _name##_reshape, .forward = _name##_forward,                    \
        .backward = _name##_backward, .on_cuda = true, .sequence = &ct_sequence_apart,             \
    }

const ct_layer_ops ct_layer_reorder = CONVERSION("Reorder", reorder);
const ct_layer_ops ct_layer_cast = CONVERSION("Cast", cast);
