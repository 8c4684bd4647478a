/* What losses and their like ask of the shape of labels, targets and marks. */
#include "framework/data/absent/shape_demand.h"

#include <string.h>

enum { MAX_DEPTH = 64 }; /* layers that a top passes on its way to the one that asks */

static bool is_one_of(const Ct__LayerParameter *l, const char *const *type)
{
    for (; *type != NULL; type++)
        if (ct_layer_param_is(l, *type)) return true;
    return false;
}

/* The shape of bottom k, where it is known. Without a net any may become known. */
static bool bottom_shape(const ct_demand_net *d, const Ct__LayerParameter *l, size_t k, ct_shape *s)
{
    int blob;

    if (k >= l->n_bottom) return false;
    *s = (ct_shape){ CT_MAX_DIM, { 1, 1, 1, 1, 1, 1, 1, 1 } };
    if (d->made == NULL) return true;
    for (int i = 0; i < d->n_lack; i++)
        if (strcmp(d->lack[i], l->bottom[k]) == 0) return false;
    blob = ct_net_find_blob(d->made, l->bottom[k]);
    if (blob < 0) return false;
    *s = d->made->pass->blob[blob]->data.shape;
    return s->ndim > 0;
}

/* Of one label for each distribution of scores: N x C: N; N x C x H x W: N x 1 x H x W. */
static bool labels_of(const ct_shape *scores, int axis, ct_shape *s)
{
    int at;

    if (!ct_shape_axis(scores, axis, &at) || (at == 0)) return false;
    s->ndim = 0;
    for (int i = 0; i < scores->ndim; i++) {
        if (i != at)
            s->dim[s->ndim++] = scores->dim[i];
        else if ((at == 1) && (scores->ndim > 2))
            s->dim[s->ndim++] = 1;
    }
    return true;
}

static int axis_of(const Ct__LayerParameter *l)
{
    if (ct_layer_param_is(l, "Accuracy"))
        return (l->accuracy_param != NULL) ? l->accuracy_param->axis : 1;
    if (ct_layer_param_is(l, "InfogainLoss"))
        return (l->infogain_loss_param != NULL) ? l->infogain_loss_param->axis : 1;
    return (l->softmax_param != NULL) ? l->softmax_param->axis : 1;
}

/* A number a sample of what bottom 0 has. */
static bool one_a_sample(const ct_demand_net *d, const Ct__LayerParameter *l, ct_shape *s)
{
    if (!bottom_shape(d, l, 0, s)) return false;
    s->ndim = 1;
    return true;
}

/* What bottom b must have so that it fits another one. */
static bool as_another(const ct_demand_net *d, const Ct__LayerParameter *l, size_t b, ct_shape *s)
{
    for (size_t k = 0; k < l->n_bottom; k++)
        if ((k != b) && bottom_shape(d, l, k, s)) return true;
    return false;
}

/* Bottom b of that layer. */
static bool asks(const ct_demand_net *d, const Ct__LayerParameter *l, size_t b, ct_shape *s)
{
    static const char *const of_scores[] = { "SoftmaxWithLoss", "InfogainLoss", "FocalLoss",
                                             "Accuracy", NULL };
    static const char *const of_class[] = { "HingeLoss", "MultinomialLogisticLoss", "CenterLoss",
                                            NULL };
    static const char *const of_equals[] = { "EuclideanLoss", "SigmoidCrossEntropyLoss",
                                             "SmoothL1Loss",  "L1Loss",
                                             "Eltwise",       NULL };
    static const char *const of_steps[] = { "LSTM", "RNN", NULL };
    ct_shape x;

    if (is_one_of(l, of_scores))
        return (b == 1) && bottom_shape(d, l, 0, &x) && labels_of(&x, axis_of(l), s);
    if (is_one_of(l, of_class)) return (b == 1) && one_a_sample(d, l, s);
    if (is_one_of(l, of_equals)) return as_another(d, l, b, s);
    if (ct_layer_param_is(l, "ContrastiveLoss"))
        return (b == 2) ? one_a_sample(d, l, s) : bottom_shape(d, l, 1 - b, s);
    if (is_one_of(l, of_steps)) {
        if ((b != 1) || !bottom_shape(d, l, 0, s) || (s->ndim < 2)) return false;
        s->ndim = 2;
        return true;
    }
    if (ct_layer_param_is(l, "Filter")) return (b + 1 == l->n_bottom) && one_a_sample(d, l, s);
    if (ct_layer_param_is(l, "ROIPooling") && (b == 1)) {
        *s = (ct_shape){ 2, { 1, 5 } };
        return true;
    }
    return false;
}

/* Whether top 0 has the values of bottom 0, and as many. */
static bool keeps(const Ct__LayerParameter *l)
{
    static const char *const type[] = { "Split", "Flatten", "Reshape", "Power",     "Scale",
                                        "Bias",  "Dropout", "ReLU",    "Sigmoid",   "TanH",
                                        "Exp",   "Log",     "AbsVal",  "Threshold", NULL };

    return (l->n_top == 1) && is_one_of(l, type);
}

static bool find(const ct_demand_net *d, int maker, const char *name, int depth, ct_shape *s,
                 const Ct__LayerParameter **reason);

/* How much of the axis top t of a Slice has; 0: its readers say. */
static int64_t slice_size(const Ct__LayerParameter *l, size_t t)
{
    const Ct__SliceParameter *p = l->slice_param;

    if ((p == NULL) || (p->n_slice_point + 1 != l->n_top) || (t >= p->n_slice_point)) return 0;
    return (int64_t)p->slice_point[t] - ((t > 0) ? (int64_t)p->slice_point[t - 1] : 0);
}

/* The bottom of a Slice by what reads its tops: where there are no points, all are alike. */
static bool sliced(const ct_demand_net *d, int at, int depth, ct_shape *s,
                   const Ct__LayerParameter **reason)
{
    const Ct__LayerParameter *l = d->layer[at];
    const Ct__SliceParameter *p = l->slice_param;
    bool points = (p != NULL) && (p->n_slice_point > 0), any = false;
    int axis = (p == NULL) ? 1 : p->has_slice_dim ? (int)p->slice_dim : p->axis, index;
    int64_t sum = 0;

    for (size_t t = 0; t < l->n_top; t++) {
        int64_t size = slice_size(l, t);
        ct_shape one;
        bool is = find(d, at, l->top[t], depth + 1, &one, reason);

        if (is && (d->made == NULL)) return true;
        if (is && (one.ndim == 1) && (axis == 1)) one = (ct_shape){ 2, { one.dim[0], 1 } };
        if (is && !ct_shape_axis(&one, axis, &index)) return false;
        if (is) *s = one;
        any |= is;
        if ((size == 0) && is) size = one.dim[index];
        if ((size < 1) && points) return false;
        if ((sum == 0) || points) sum = points ? sum + size : size;
    }
    if (!any || !ct_shape_axis(s, axis, &index)) return false;
    s->dim[index] = points ? sum : sum * (int64_t)l->n_top;
    return s->dim[index] > 0;
}

/* Numbers of words, of which Embed makes what an LSTM reads: as many as marks where they begin. */
static bool words(const ct_demand_net *d, int at, ct_shape *s, const Ct__LayerParameter **reason)
{
    const Ct__LayerParameter *embed = d->layer[at];

    for (int i = at + 1; (embed->n_top == 1) && (i < d->n_layer); i++) {
        const Ct__LayerParameter *l = d->layer[i];

        if (!(ct_layer_param_is(l, "LSTM") || ct_layer_param_is(l, "RNN")) || (l->n_bottom < 2) ||
            (strcmp(l->bottom[0], embed->top[0]) != 0) || !bottom_shape(d, l, 1, s))
            continue;
        *reason = l;
        return true;
    }
    return false;
}

static bool find(const ct_demand_net *d, int maker, const char *name, int depth, ct_shape *s,
                 const Ct__LayerParameter **reason)
{
    if (depth > MAX_DEPTH) return false;
    for (int i = maker + 1; i < d->n_layer; i++) {
        const Ct__LayerParameter *l = d->layer[i];

        for (size_t b = 0; b < l->n_bottom; b++) {
            if (strcmp(l->bottom[b], name) != 0) continue;
            *reason = l;
            if (asks(d, l, b, s)) return true;
            if (ct_layer_param_is(l, "Embed") && words(d, i, s, reason)) return true;
            if (ct_layer_param_is(l, "Slice") && sliced(d, i, depth, s, reason)) return true;
            if ((b == 0) && keeps(l) && (strcmp(l->top[0], name) != 0) &&
                find(d, i, l->top[0], depth + 1, s, reason))
                return true;
        }
    }
    return false;
}

bool ct_shape_demanded(const ct_demand_net *d, int maker, const char *name, ct_shape *shape_p,
                       const Ct__LayerParameter **reason_p)
{
    return find(d, maker, name, 0, shape_p, reason_p);
}
