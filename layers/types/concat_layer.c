/* Concat and Slice: bottoms joined along one axis, and one bottom cut along it. */
#include <string.h>

#include "framework/base/bf16.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"
#include "layers/types/device_kernels.h"

/* ---- Concat: the bottoms behind one another along one axis. */

static ct_status concat_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__ConcatParameter *p = l->param->concat_param;

    (void)bottom;
    if ((p != NULL) && p->has_axis && p->has_concat_dim)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "axis and concat_dim are both set; choose one");
    return CT_OK;
}

/* Along the channels, of whole blocks; the last bottom may have a part of one. */
static bool takes(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot)
{
    const Ct__ConcatParameter *c = p->concat_param;
    ct_layout layout = bottom[slot]->data.layout;
    int axis = (c == NULL) ? 1 : c->has_concat_dim ? (int)c->concat_dim : c->axis;

    if (((layout.block == 0) && !ct_blob_is_last(bottom[slot])) ||
        !ct_layer_is_channels(&bottom[slot]->data.shape, axis))
        return false;
    for (size_t i = 0; i < p->n_bottom; i++) {
        if (!ct_layout_equal(bottom[i]->data.layout, layout)) return false;
        if (ct_blob_is_bf16(bottom[slot]) && !ct_blob_is_bf16(bottom[i])) return false;
        if (layout.block == 0) continue;
        if ((i + 1 < p->n_bottom) && (bottom[i]->data.shape.dim[1] % layout.block != 0))
            return false;
    }
    return true;
}

static ct_status concat_find_axis(const ct_layer *l, const ct_shape *s, int *axis_p)
{
    const Ct__ConcatParameter *p = l->param->concat_param;

    if ((p == NULL) || !p->has_concat_dim)
        return ct_layer_axis(l, s, (p != NULL) ? p->axis : 1, "axis", axis_p);
    if (p->concat_dim >= (uint32_t)s->ndim) /* the old field counts from the front only */
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "concat_dim %u is outside the bottom's %d dimensions", p->concat_dim,
                             s->ndim);
    *axis_p = (int)p->concat_dim;
    return CT_OK;
}

static ct_status concat_reshape(const ct_layer *l, ct_instance *in)
{
    ct_shape sum = in->bottom[0]->data.shape;
    int *axis = in->state;

    CT_TRY(concat_find_axis(l, &sum, axis));
    for (int i = 1; i < l->n_bottom; i++) {
        ct_shape s = in->bottom[i]->data.shape;
        int64_t length = (s.ndim == sum.ndim) ? s.dim[*axis] : 0;

        if (s.ndim == sum.ndim) s.dim[*axis] = sum.dim[*axis];
        if (!ct_shape_equal(&s, &sum))
            return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                                 "bottom %d has shape %s, bottom 0 %s: they may differ only along "
                                 "axis %d",
                                 i, ct_shape_str(&in->bottom[i]->data.shape).text,
                                 ct_shape_str(&in->bottom[0]->data.shape).text, *axis);
        sum.dim[*axis] += length;
    }
    CT_TRY(ct_layer_check_shape(l, &sum));
    ct_blob_set_like(in->top[0], &sum, &in->bottom[0]->data);
    return CT_OK;
}

/* Elements in memory of one index of the axes before `axis`. */
static int64_t row_of(const ct_tensor *t, int axis)
{
    ct_shape s = t->shape;
    int64_t block = t->layout.block;

    if (block > 0) s.dim[1] = (s.dim[1] + block - 1) / block * block;
    return ct_shape_count(&s, axis, -1);
}

/* Moves bottom i's slice of every outer row: from the top, or to it. */
static void move_slice(const ct_instance *in, int i, int64_t offset, bool to_top)
{
    int axis = *(const int *)in->state;
    int64_t outer = ct_shape_count(&in->top[0]->data.shape, 0, axis);
    int64_t row = row_of(&in->bottom[i]->data, axis), stride = row_of(&in->top[0]->data, axis);
    float *mine = to_top ? ct_blob_data(in->bottom[i]) : ct_blob_diff(in->bottom[i]);
    float *whole = to_top ? ct_blob_data(in->top[0]) : ct_blob_diff(in->top[0]);
    bool bf16 = ct_blob_is_bf16(in->top[0]);
    size_t bytes = (size_t)row * ct_num_size(bf16);

    if (bytes == 0) return;
#pragma omp parallel for schedule(static) if (outer * row >= CT_PARALLEL_MIN)
    for (int64_t o = 0; o < outer; o++) {
        float *part = ct_num_to(mine, bf16, o * row);
        float *there = ct_num_to(whole, bf16, offset + o * stride);

        memcpy(to_top ? there : part, to_top ? part : there, bytes);
    }
}

static void move_all(const ct_layer *l, const ct_instance *in, bool to_top)
{
    int axis = *(const int *)in->state;
    int64_t offset = 0;

    for (int i = 0; i < l->n_bottom; i++) {
        if (to_top || (ct_blob_diff(in->bottom[i]) != NULL)) move_slice(in, i, offset, to_top);
        offset += row_of(&in->bottom[i]->data, axis);
    }
}

static ct_status concat_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)ex;
    move_all(l, in, true);
    return CT_OK;
}

static ct_status concat_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)ex;
    move_all(l, in, false);
    return CT_OK;
}

static const ct_layout_ops concat_layout = { .takes = takes, .bf16 = true, .last = true };

const ct_layer_ops ct_layer_concat = {
    .type = "Concat",
    .params = "concat_param",
    .min_bottom = 1,
    .max_bottom = -1,
    .min_top = 1,
    .max_top = 1,
    .instance_state_size = sizeof(int),
    .setup = concat_setup,
    .reshape = concat_reshape,
    .forward = concat_forward,
    .backward = concat_backward,
    .layout = &concat_layout,
};

/* ---- Slice: the bottom cut along one axis, a piece for each top. */

static ct_status slice_setup(ct_layer *l, const ct_shape *bottom)
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

static ct_status slice_find_axis(const ct_layer *l, const ct_shape *s, int *axis_p)
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

static ct_status slice_reshape(const ct_layer *l, ct_instance *in)
{
    const ct_shape *x = &in->bottom[0]->data.shape;
    int *axis = in->state;

    CT_TRY(slice_find_axis(l, x, axis));
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

static ct_status slice_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    return ct_move_forward(in, ex, plan);
}

static ct_status slice_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    return ct_move_backward(in, ex, plan, false);
}

const ct_layer_ops ct_layer_slice = {
    .type = "Slice",
    .params = "slice_param",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = -1,
    .instance_state_size = sizeof(int),
    .setup = slice_setup,
    .reshape = slice_reshape,
    .forward = slice_forward,
    .backward = slice_backward,
    .on_cuda = true,
};
