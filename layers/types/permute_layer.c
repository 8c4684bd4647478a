/* Permute: the axes in another order (SSD). ShuffleChannel: the channels, a group's after
 * another's, dealt out one from each in turn (ShuffleNet). */
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"
#include "layers/types/strided.h"

typedef struct permute_state {
    int n;
    int order[CT_MAX_DIM]; /* axis of the bottom that axis i of the top is */
} permute_state;

static ct_status permute_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__PermuteParameter *p = l->param->permute_param;
    permute_state *s = l->state;
    bool used[CT_MAX_DIM] = { false };

    for (size_t i = 0; (p != NULL) && (i < p->n_order); i++) {
        uint32_t axis = p->order[i];

        if (axis >= (uint32_t)bottom[0].ndim)
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "order %u is outside the bottom's %d axes", axis,
                                 bottom[0].ndim);
        if (used[axis])
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "axis %u stands in order twice", axis);
        used[axis] = true;
        s->order[s->n++] = (int)axis;
    }
    for (int i = 0; i < bottom[0].ndim; i++) {
        if (!used[i]) s->order[s->n++] = i;
    }
    return CT_OK;
}

static ct_status permute_reshape(const ct_layer *l, ct_instance *in)
{
    const permute_state *s = l->state;
    const ct_shape *x = &in->bottom[0]->data.shape;
    ct_shape top = { .ndim = x->ndim };

    if (x->ndim != s->n)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom of shape %s: set up for %d axes",
                             ct_shape_str(x).text, s->n);
    for (int i = 0; i < s->n; i++) top.dim[i] = x->dim[s->order[i]];
    ct_blob_set_shape(in->top[0], &top);
    return CT_OK;
}

static void permute_plan(const ct_instance *in, int t, ct_strided *s)
{
    const permute_state *p = in->layer->state;
    const ct_shape *x = &in->bottom[0]->data.shape, *y = &in->top[t]->data.shape;

    for (int i = 0; i < p->n; i++)
        ct_strided_axis(s, y->dim[i], ct_shape_count(x, p->order[i] + 1, -1),
                        ct_shape_count(y, i + 1, -1));
}

static ct_status permute_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    return ct_move_forward(in, ex, permute_plan);
}

static ct_status permute_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    return ct_move_backward(in, ex, permute_plan, false);
}

const ct_layer_ops ct_layer_permute = {
    .type = "Permute",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .state_size = sizeof(permute_state),
    .setup = permute_setup,
    .reshape = permute_reshape,
    .forward = permute_forward,
    .backward = permute_backward,
    .on_cuda = true,
};

static int64_t group_of(const ct_layer *l)
{
    const Ct__ShuffleChannelParameter *p = l->param->shuffle_channel_param;

    return (p != NULL) ? p->group : 1;
}

static ct_status shuffle_reshape(const ct_layer *l, ct_instance *in)
{
    const ct_shape *x = &in->bottom[0]->data.shape;
    int64_t group = group_of(l);

    if (group < 1)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "shuffle_channel_param.group is %lld, at least 1",
                             (long long)group);
    if ((x->ndim < 2) || (x->dim[1] % group != 0))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "the channels of a bottom of shape %s do not divide into %lld groups",
                             ct_shape_str(x).text, (long long)group);
    ct_blob_set_shape(in->top[0], x);
    return CT_OK;
}

/* channel g k + i becomes channel i group + g, with k channels in a group */
static void shuffle_plan(const ct_instance *in, int t, ct_strided *s)
{
    const ct_shape *x = &in->bottom[0]->data.shape;
    int64_t group = group_of(in->layer), k = x->dim[1] / group;
    int64_t inner = ct_shape_count(x, 2, -1), sample = x->dim[1] * inner;

    (void)t;
    ct_strided_axis(s, x->dim[0], sample, sample);
    ct_strided_axis(s, k, inner, group * inner);
    ct_strided_axis(s, group, k * inner, inner);
    ct_strided_axis(s, inner, 1, 1);
}

static ct_status shuffle_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    return ct_move_forward(in, ex, shuffle_plan);
}

static ct_status shuffle_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    return ct_move_backward(in, ex, shuffle_plan, false);
}

const ct_layer_ops ct_layer_shuffle_channel = {
    .type = "ShuffleChannel",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .reshape = shuffle_reshape,
    .forward = shuffle_forward,
    .backward = shuffle_backward,
    .on_cuda = true,
};
