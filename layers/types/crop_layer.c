/* Crop: of the first bottom the piece that has the second's shape from an axis on. */
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"
#include "layers/types/strided.h"

typedef struct crop_piece {
    int64_t at[CT_MAX_DIM];
} crop_piece;

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const Ct__CropParameter *p = l->param->crop_param;
    const ct_shape *x = &in->bottom[0]->data.shape, *like = &in->bottom[1]->data.shape;
    size_t n_offset = (p != NULL) ? p->n_offset : 0;
    crop_piece *c = in->state;
    ct_shape top = *x;
    int axis;

    CT_TRY(ct_layer_axis(l, x, (p != NULL) ? p->axis : 2, "axis", &axis));
    if ((n_offset > 1) && (n_offset != (size_t)(x->ndim - axis)))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "%zu offset for the %d axes from axis %d on; give one, or one each",
                             n_offset, x->ndim - axis, axis);
    if (like->ndim != x->ndim)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom 1 has shape %s, bottom 0 %s: as many axes",
                             ct_shape_str(like).text, ct_shape_str(x).text);
    *c = (crop_piece){ { 0 } };
    for (int i = axis; i < x->ndim; i++) {
        if (n_offset > 0) c->at[i] = p->offset[(n_offset == 1) ? 0 : i - axis];
        top.dim[i] = like->dim[i];
        if (c->at[i] + top.dim[i] > x->dim[i])
            return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                                 "axis %d: %lld from offset %lld on are more than the bottom's "
                                 "%lld",
                                 i, (long long)top.dim[i], (long long)c->at[i],
                                 (long long)x->dim[i]);
    }
    ct_blob_set_shape(in->top[0], &top);
    return CT_OK;
}

static void plan(const ct_instance *in, int t, ct_strided *s)
{
    const crop_piece *c = in->state;

    *s = ct_strided_part(&in->bottom[0]->data.shape, &in->top[t]->data.shape, c->at);
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    return ct_move_forward(in, ex, plan);
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    return ct_move_backward(in, ex, plan, true);
}

const ct_layer_ops ct_layer_crop = {
    .type = "Crop",
    .min_bottom = 2,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 1,
    .no_diff_bottom = 1 << 1, /* only its shape counts */
    .instance_state_size = sizeof(crop_piece),
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .on_cuda = true,
};
