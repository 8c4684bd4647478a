/* Reshape and Flatten: the same values in another shape. */
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"
#include "layers/types/device_kernels.h"

/* ---- Reshape: the same values in another shape. They are copied, unless the net has given top and
 * bottom the same memory. */

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__ReshapeParameter *p = l->param->reshape_param;
    int n_free = 0;

    (void)bottom;
    if ((p == NULL) || (p->shape == NULL)) return CT_OK; /* no new axes at all */
    for (size_t i = 0; i < p->shape->n_dim; i++) {
        if (p->shape->dim[i] < -1)
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "reshape_param.shape has the dimension %lld",
                                 (long long)p->shape->dim[i]);
        n_free += p->shape->dim[i] == -1;
    }
    if (n_free > 1)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "reshape_param.shape has %d dimensions -1; one may be what remains",
                             n_free);
    return CT_OK;
}

/* Which axes of the bottom go: [*from_p, *to_p). A negative axis counts from behind the last. */
static ct_status replaced(const ct_layer *l, const ct_shape *x, int *from_p, int *to_p)
{
    const Ct__ReshapeParameter *p = l->param->reshape_param;
    int axis = (p != NULL) ? p->axis : 0, n = (p != NULL) ? p->num_axes : -1;
    int from = (axis >= 0) ? axis : x->ndim + axis + 1;

    if ((from < 0) || (from > x->ndim))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "axis %d is outside the bottom's %d dimensions",
                             axis, x->ndim);
    if ((n < -1) || (n > x->ndim - from))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "num_axes %d from axis %d on do not fit into the bottom's shape %s", n,
                             from, ct_shape_str(x).text);
    *from_p = from;
    *to_p = (n == -1) ? x->ndim : from + n;
    return CT_OK;
}

/* The new axes, with 1 where the rest is to go; *free_p: which one that is, -1: none. */
static ct_status new_axes(const ct_layer *l, const ct_shape *x, int from, ct_shape *top,
                          int *free_p)
{
    const Ct__ReshapeParameter *p = l->param->reshape_param;
    size_t n = ((p != NULL) && (p->shape != NULL)) ? p->shape->n_dim : 0;

    *free_p = -1;
    for (size_t i = 0; i < n; i++) {
        int64_t d = p->shape->dim[i];

        if ((d == 0) && (from + (int)i >= x->ndim))
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                                 "dimension %zu is 0, to be kept, but the bottom %s has no axis %d",
                                 i, ct_shape_str(x).text, from + (int)i);
        if (d == 0) d = x->dim[from + (int)i];
        if (d == -1) *free_p = top->ndim;
        top->dim[top->ndim++] = (d == -1) ? 1 : d;
    }
    return CT_OK;
}

/* Elements, where an axis of length 0 counts as 1: a rank without samples has the shapes of the
 * others, but for the batch. */
static int64_t count_of_full(const ct_shape *s)
{
    int64_t n = 1;

    for (int i = 0; i < s->ndim; i++) n *= (s->dim[i] > 0) ? s->dim[i] : 1;
    return n;
}

static ct_status reshape_reshape(const ct_layer *l, ct_instance *in)
{
    const Ct__ReshapeParameter *p = l->param->reshape_param;
    const ct_shape *x = &in->bottom[0]->data.shape;
    size_t n = ((p != NULL) && (p->shape != NULL)) ? p->shape->n_dim : 0;
    int64_t count = ct_shape_count(x, 0, -1), full = count_of_full(x), known;
    ct_shape top = { 0 };
    int from, to, rest;

    CT_TRY(replaced(l, x, &from, &to));
    if (n + (size_t)(x->ndim - (to - from)) > CT_MAX_DIM)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "the top would have more than %d axes", CT_MAX_DIM);
    for (int i = 0; i < from; i++) top.dim[top.ndim++] = x->dim[i];
    CT_TRY(new_axes(l, x, from, &top, &rest));
    for (int i = to; i < x->ndim; i++) top.dim[top.ndim++] = x->dim[i];
    CT_TRY(ct_layer_check_shape(l, &top));
    known = count_of_full(&top);
    if ((rest >= 0) && (full % known == 0)) top.dim[rest] = full / known;
    if ((rest >= 0) && (count == 0) && (ct_shape_count(&top, 0, -1) > 0)) {
        top.dim[rest] = 0; /* the samples go there */
        full = count_of_full(&top);
    }
    if ((count_of_full(&top) != full) || (ct_shape_count(&top, 0, -1) != count))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "the %lld elements of the bottom %s do not fill %s%s",
                             (long long)count, ct_shape_str(x).text, ct_shape_str(&top).text,
                             (rest >= 0) ? " any number of times" : "");
    ct_blob_set_shape(in->top[0], &top);
    return CT_OK;
}

const ct_layer_ops ct_layer_reshape = {
    .type = "Reshape",
    .params = "reshape_param",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .alias = CT_ALIAS_DATA | CT_ALIAS_DIFF,
    .setup = setup,
    .reshape = reshape_reshape,
    .forward = ct_layer_copy_forward,
    .backward = ct_layer_copy_backward,
    .on_cuda = true,
};

/* ---- Flatten: the dimensions axis . end_axis become one. Values are copied, unless the net has
 * given top and bottom the same memory. Values of 16 bits, channels last, are turned to plain
 * order. */

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

static ct_status flatten_reshape(const ct_layer *l, ct_instance *in)
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

static unsigned flatten_splits(const Ct__LayerParameter *p)
{
    return ((p->flatten_param == NULL) || (p->flatten_param->axis == 1)) ? CT_SPLIT_CHANNEL : 0;
}

static const ct_layout_ops flatten_layout = { .takes = takes, .last = true };

const ct_layer_ops ct_layer_flatten = {
    .type = "Flatten",
    .params = "flatten_param",
    .splits_of = flatten_splits,
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .alias = CT_ALIAS_DATA | CT_ALIAS_DIFF,
    .reshape = flatten_reshape,
    .forward = forward,
    .backward = backward,
    .on_cuda = true,
    .layout = &flatten_layout,
};
