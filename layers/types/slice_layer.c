/* Slice: the bottom cut along one axis, a piece for each top. */
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"
#include "layers/types/strided.h"

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__SliceParameter *p = l->param->slice_param;

    (void)bottom;
    if ((p != NULL) && p->has_axis && p->has_slice_dim)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "axis and slice_dim are both set; choose one");
    if ((p != NULL) && (p->n_slice_point > 0) && (p->n_slice_point != (size_t)l->n_top - 1))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%zu slice_point for %d tops: one less than tops",
                             p->n_slice_point, l->n_top);
    return CT_OK;
}

static ct_status find_axis(const ct_layer *l, const ct_shape *s, int *axis_p)
{
    const Ct__SliceParameter *p = l->param->slice_param;

    if ((p == NULL) || !p->has_slice_dim)
        return ct_layer_axis(l, s, (p != NULL) ? p->axis : 1, "axis", axis_p);
    if (p->slice_dim >= (uint32_t)s->ndim) /* the old field counts from the front only */
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "slice_dim %u is outside the bottom's %d dimensions",
                             p->slice_dim, s->ndim);
    *axis_p = (int)p->slice_dim;
    return CT_OK;
}

/* Where top t begins and ends. */
static ct_status piece(const ct_layer *l, int64_t length, int t, int64_t *from_p, int64_t *to_p)
{
    const Ct__SliceParameter *p = l->param->slice_param;
    int64_t n = l->n_top;

    if ((p == NULL) || (p->n_slice_point == 0)) {
        if (length % n != 0)
            return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                                 "%lld along the axis do not divide into %lld equal tops; give "
                                 "slice_point",
                                 (long long)length, (long long)n);
        *from_p = length / n * t;
        *to_p = length / n * (t + 1);
        return CT_OK;
    }
    *from_p = (t > 0) ? p->slice_point[t - 1] : 0;
    *to_p = (t < n - 1) ? p->slice_point[t] : length;
    if ((*from_p >= *to_p) || (*to_p > length))
        return CT_LAYER_FAIL(
            l, CT_ERR_CONFIG,
            "top %d would be %lld to %lld of %lld along the axis: slice_point must "
            "rise and stay inside",
            t, (long long)*from_p, (long long)*to_p, (long long)length);
    return CT_OK;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const ct_shape *x = &in->bottom[0]->data.shape;
    int *axis = in->state;

    CT_TRY(find_axis(l, x, axis));
    for (int t = 0; t < l->n_top; t++) {
        ct_shape top = *x;
        int64_t from, to;

        CT_TRY(piece(l, x->dim[*axis], t, &from, &to));
        top.dim[*axis] = to - from;
        ct_blob_set_shape(in->top[t], &top);
    }
    return CT_OK;
}

static void plan(const ct_instance *in, int t, ct_strided *s)
{
    int axis = *(const int *)in->state;
    int64_t at[CT_MAX_DIM] = { 0 };

    for (int i = 0; i < t; i++) at[axis] += in->top[i]->data.shape.dim[axis];
    *s = ct_strided_part(&in->bottom[0]->data.shape, &in->top[t]->data.shape, at);
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    return ct_move_forward(in, ex, plan);
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    return ct_move_backward(in, ex, plan, false);
}

const ct_layer_ops ct_layer_slice = {
    .type = "Slice",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = -1,
    .instance_state_size = sizeof(int),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .on_cuda = true,
};
