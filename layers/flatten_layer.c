/* Flatten: the dimensions axis .. end_axis become one. Values are copied, unless the net has given
 * top and bottom the same memory. */
#include "layers/layer_types.h"
#include "layers/layer_util.h"

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
    ct_blob_set_shape(in->top[0], &flat);
    return CT_OK;
}

const ct_layer_ops ct_layer_flatten = {
    .type = "Flatten",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .alias = CT_ALIAS_DATA | CT_ALIAS_DIFF,
    .reshape = reshape,
    .forward = ct_layer_copy_forward,
    .backward = ct_layer_copy_backward,
    .on_cuda = true,
};
