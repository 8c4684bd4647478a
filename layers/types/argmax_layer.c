/* ArgMax: where the largest values are, along an axis or in the whole sample. */
#include "layers/types/argmax.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

enum { FOUND }; /* buffer: top_k of each distribution */

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__ArgMaxParameter *p = l->param->argmax_param;
    ct_argmax_state *s = l->state;

    (void)bottom;
    s->values = (p != NULL) && p->out_max_val;
    s->has_axis = (p != NULL) && p->has_axis;
    s->top_k = (p != NULL) ? p->top_k : 1;
    if (s->top_k < 1)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "argmax_param.top_k is 0, at least 1 is needed");
    return CT_OK;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const ct_argmax_state *s = l->state;
    const ct_shape *x = &in->bottom[0]->data.shape;
    ct_view *v = in->state;
    ct_shape top = *x;
    int axis;

    if (s->has_axis) {
        CT_TRY(ct_layer_axis(l, x, l->param->argmax_param->axis, "axis", &axis));
        *v = ct_view_make(x, axis, 1);
        top.dim[axis] = s->top_k;
    } else {
        if (x->ndim < 1) return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "the bottom has no axes");
        *v = ct_view_make(x, 1, x->ndim - 1);
        if (top.ndim < 3) top.ndim = 3;
        for (int i = 1; i < top.ndim; i++) top.dim[i] = 1;
        top.dim[1] = s->values ? 2 : 1;
        top.dim[2] = s->top_k;
    }
    if (s->top_k > v->mid)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "top_k is %lld, but there are only %lld values",
                             (long long)s->top_k, (long long)v->mid);
    ct_instance_buffer(in, FOUND, CT_LIFETIME_CALL,
                       (size_t)(v->outer * v->inner * s->top_k) * sizeof(ct_argmax_found));
    ct_blob_set_shape(in->top[0], &top);
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_argmax_state *s = l->state;
    const ct_view *v = in->state;
    const float *x = ct_blob_data(in->bottom[0]);
    float *y = ct_blob_data(in->top[0]);
    ct_argmax_found *all = in->buffer[FOUND].data;

    (void)ex;
#pragma omp parallel for schedule(static) if (v->outer * v->mid * v->inner >= CT_PARALLEL_MIN)
    for (int64_t d = 0; d < v->outer * v->inner; d++)
        ct_argmax_one(s, d, v->mid, v->inner, x, all + d * s->top_k, y);
    return CT_OK;
}

const ct_layer_ops ct_layer_argmax = {
    .type = "ArgMax",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .state_size = sizeof(ct_argmax_state),
    .instance_state_size = sizeof(ct_view),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
};
