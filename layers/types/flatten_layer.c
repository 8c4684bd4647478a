/* Flatten: the dimensions axis .. end_axis become one. Values are copied, unless the net has given
 * top and bottom the same memory. Values of 16 bits, channels last, are turned to plain order. */
#include "layers/types/device_kernels.h"
#include "layers/types/layer_types.h"

/* All but the samples: what is left then has one place each. */
static bool takes(const Ct__LayerParameter *param, const ct_blob *const *bottom, int slot)
{
    const Ct__FlattenParameter *p = param->flatten_param;
    const ct_shape *s = &bottom[slot]->data.shape;
    int from, to;

    return ct_blob_is_last(bottom[slot]) && ct_shape_axis(s, (p != NULL) ? p->axis : 1, &from) &&
           ct_shape_axis(s, (p != NULL) ? p->end_axis : -1, &to) && (from == 1) &&
           (to == s->ndim - 1);
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const Ct__FlattenParameter *p = l->param->flatten_param;
    const ct_shape *s = &in->bottom[0]->data.shape;
    ct_shape flat = { 0 };
    int from, to;

    CT_TRY(ct_layer_axis(l, s, (p != NULL) ? p->axis : 1, "axis", &from));
    CT_TRY(ct_layer_axis(l, s, (p != NULL) ? p->end_axis : -1, "end_axis", &to));
    if (from > to)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "axis %d lies behind end_axis %d in shape %s", from,
                             to, ct_shape_str(s).text);
    for (int i = 0; i < from; i++) flat.dim[flat.ndim++] = s->dim[i];
    flat.dim[flat.ndim++] = ct_shape_count(s, from, to + 1);
    for (int i = to + 1; i < s->ndim; i++) flat.dim[flat.ndim++] = s->dim[i];
    if (ct_blob_is_last(in->bottom[0]) && in->read_narrow)
        ct_blob_set_like(in->top[0], &flat, &in->bottom[0]->data);
    else
        ct_blob_set_shape(in->top[0], &flat);
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_tensor *x = &in->bottom[0]->data, *y = &in->top[0]->data;

    if (!ct_blob_is_last(in->bottom[0])) return ct_layer_copy_forward(l, in, ex);
    if (x->data == y->data) return CT_OK;
    return ct_kernels(ex)->last_to_plain(ex, x->shape.dim[0], x->shape.dim[1],
                                         ct_shape_count(&x->shape, 2, -1), x->dtype, x->data,
                                         y->dtype, y->data);
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_tensor *dx = &in->bottom[0]->diff, *dy = &in->top[0]->diff;

    if (!ct_blob_is_last(in->bottom[0])) return ct_layer_copy_backward(l, in, ex);
    if ((dx->data == NULL) || (dx->data == dy->data)) return CT_OK;
    return ct_kernels(ex)->plain_to_last(ex, dx->shape.dim[0], dx->shape.dim[1],
                                         ct_shape_count(&dx->shape, 2, -1), dy->dtype, dy->data,
                                         dx->dtype, dx->data);
}

const ct_layer_ops ct_layer_flatten = {
    .type = "Flatten",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .alias = CT_ALIAS_DATA | CT_ALIAS_DIFF,
    .takes = takes,
    .last = true,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .on_cuda = true,
};
