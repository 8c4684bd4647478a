/* Which classes have the highest scores: ArgMax and Accuracy. */
#include <string.h>

#include "layers/types/argmax.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

/* ---- ArgMax: where the largest values are, along an axis or in the whole sample. */

enum { FOUND }; /* buffer: top_k of each distribution */

static ct_status argmax_setup(ct_layer *l, const ct_shape *bottom)
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

static ct_status argmax_reshape(const ct_layer *l, ct_instance *in)
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

static ct_status argmax_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
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
    .params = "argmax_param",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .state_size = sizeof(ct_argmax_state),
    .instance_state_size = sizeof(ct_view),
    .setup = argmax_setup,
    .reshape = argmax_reshape,
    .forward = argmax_forward,
};

/* ---- Accuracy: the share of samples whose label is among the top_k scores; the second top tells
 * it class by class. A rank's values are its part of the global batch's: they add up. */

static ct_status accuracy_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__AccuracyParameter *p = l->param->accuracy_param;
    ct_accuracy_state *s = l->state;

    (void)bottom;
    s->top_k = (p != NULL) ? (int64_t)p->top_k : 1;
    s->has_ignore = (p != NULL) && p->has_ignore_label;
    s->ignore = s->has_ignore ? p->ignore_label : 0;
    if (s->top_k == 0) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "top_k is 0, it counts from 1");
    return CT_OK;
}

/* One label a position, or with the shape of the scores a distribution. */
static ct_status check_labels(const ct_layer *l, const ct_instance *in, ct_accuracy_plan *plan)
{
    const ct_shape *x = &in->bottom[0]->data.shape, *label = &in->bottom[1]->data.shape;

    plan->soft = ct_labels_are_distributions(x, label, &plan->view);
    return plan->soft ? ct_layer_check_distributions(l)
                      : ct_layer_check_labels(l, x, label, &plan->view);
}

static ct_status accuracy_reshape(const ct_layer *l, ct_instance *in)
{
    const Ct__AccuracyParameter *p = l->param->accuracy_param;
    const ct_accuracy_state *s = l->state;
    const ct_shape *x = &in->bottom[0]->data.shape;
    ct_shape scalar = { 0 };
    ct_accuracy_plan *plan = in->state;
    ct_view *v = &plan->view;
    int axis;

    CT_TRY(ct_layer_axis(l, x, (p != NULL) ? p->axis : 1, "axis", &axis));
    *v = ct_view_make(x, axis, 1);
    CT_TRY(check_labels(l, in, plan));
    if (s->top_k > v->mid)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "top_k %lld of %lld classes", (long long)s->top_k,
                             (long long)v->mid);
    ct_blob_set_shape(in->top[0], &scalar);
    ct_instance_buffer(in, CT_ACCURACY_SUMS, CT_LIFETIME_CALL,
                       (l->dev->kind != CT_DEVICE_CPU) ? 2 * sizeof(double) : 0);
    ct_instance_buffer(in, CT_ACCURACY_SAMPLES_OF, CT_LIFETIME_CALL,
                       (size_t)((l->n_top > 1) ? v->mid : 0) * sizeof(double) +
                           (s->has_ignore ? sizeof(double) : 0));
    if (l->n_top < 2) return CT_OK;
    ct_blob_set_shape(in->top[1], &(ct_shape){ 1, { v->mid } });
    ct_instance_buffer(in, CT_ACCURACY_RIGHT_OF, CT_LIFETIME_CALL, (size_t)v->mid * sizeof(double));
    return CT_OK;
}

/* Other classes with a score as high, or one that cannot be compared, push the label down. */
static bool is_right(const ct_view *v, const float *score, int32_t label, int64_t top_k)
{
    float mine = score[label * v->inner];
    int64_t ahead = 0;

    for (int64_t c = 0; (c < v->mid) && (ahead < top_k); c++)
        ahead += (c != label) && !(score[c * v->inner] < mine);
    return ahead < top_k;
}

/* Of position k; of a distribution the first of the largest shares. */
static float label_at(const ct_accuracy_plan *plan, const float *value, int64_t k)
{
    const ct_view *v = &plan->view;
    const float *share = value + k / v->inner * v->mid * v->inner + k % v->inner;
    int64_t best = 0;

    if (!plan->soft) return value[k];
    for (int64_t c = 1; c < v->mid; c++)
        if (share[c * v->inner] > share[best * v->inner]) best = c;
    return (float)best;
}

static bool counts(const ct_accuracy_state *s, float label)
{
    return !s->has_ignore || (label != (float)s->ignore);
}

/* ---- part 0: the labels that count. Sum 0 adds up those of each class, then those of all. */

/* Those of each class: the second top's. */
static int64_t classes_of(const ct_layer *l, const ct_instance *in)
{
    const ct_accuracy_plan *plan = in->state;

    return (l->n_top > 1) ? plan->view.mid : 0;
}

static int accuracy_sums(const ct_layer *l, const ct_instance *in, bool forward, int k)
{
    const ct_accuracy_state *s = l->state;

    if (!forward || (k > 0)) return 0;
    return (int)classes_of(l, in) + (s->has_ignore ? 1 : 0);
}

static ct_status count_labels(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_accuracy_state *s = l->state;
    const ct_accuracy_plan *plan = in->state;
    const ct_view *v = &plan->view;
    const float *value = ct_blob_data(in->bottom[1]);
    double *of = in->buffer[CT_ACCURACY_SAMPLES_OF].data;
    int64_t n = v->outer * v->inner, counted = 0, bad = n;

    for (int k = 0; k < accuracy_sums(l, in, true, 0); k++) of[k] = 0;
        /* counts are whole numbers, so the order in which threads add them does not matter */
#pragma omp parallel for schedule(static) reduction(+ : counted) reduction(min : bad)              \
    if (n >= CT_PARALLEL_MIN)
    for (int64_t k = 0; k < n; k++) {
        float here = label_at(plan, value, k);
        int32_t label;

        if (!counts(s, here)) continue;
        if (!ct_label_class(here, v->mid, &label)) {
            bad = (k < bad) ? k : bad;
            continue;
        }
        counted += 1;
        if (l->n_top < 2) continue;
#pragma omp atomic
        of[label] += 1;
    }
    if (bad < n)
        return ct_label_fail(l, ex, value[bad], bad, n / in->bottom[1]->data.shape.dim[0], v->mid);
    if (s->has_ignore) of[classes_of(l, in)] = (double)counted;
    return CT_OK;
}

/* ---- the last part */

static int64_t count_right(const ct_layer *l, ct_instance *in)
{
    const ct_accuracy_state *s = l->state;
    const ct_accuracy_plan *plan = in->state;
    const ct_view *v = &plan->view;
    const float *score = ct_blob_data(in->bottom[0]), *value = ct_blob_data(in->bottom[1]);
    double *right_of = in->buffer[CT_ACCURACY_RIGHT_OF].data;
    int64_t n = v->outer * v->inner, right = 0;

#pragma omp parallel for schedule(static) reduction(+ : right) if (n * v->mid >= CT_PARALLEL_MIN)
    for (int64_t k = 0; k < n; k++) {
        float here = label_at(plan, value, k);
        int32_t label;
        bool hit;

        if (!counts(s, here)) continue;
        label = (int32_t)here;
        hit = is_right(v, score + k / v->inner * v->mid * v->inner + k % v->inner, label, s->top_k);
        right += hit;
        if (l->n_top < 2) continue;
#pragma omp atomic
        right_of[label] += hit;
    }
    return right;
}

static ct_status put_shares(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_accuracy_state *s = l->state;
    const ct_accuracy_plan *plan = in->state;
    const ct_view *v = &plan->view;
    double *right_of = in->buffer[CT_ACCURACY_RIGHT_OF].data,
           *of = in->buffer[CT_ACCURACY_SAMPLES_OF].data;
    double all = s->has_ignore ? of[classes_of(l, in)] : (double)(v->outer * v->inner), right;

    if (!s->has_ignore) CT_TRY(ct_exec_global_count(ex, all, false, &all));
    if (l->n_top > 1) memset(right_of, 0, (size_t)v->mid * sizeof(double));
    right = (double)count_right(l, in);
    ct_blob_data(in->top[0])[0] = (all > 0) ? (float)(right / all) : 0.0f;
    for (int64_t c = 0; c < classes_of(l, in); c++)
        ct_blob_data(in->top[1])[c] = (of[c] > 0) ? (float)(right_of[c] / of[c]) : 0.0f;
    return CT_OK;
}

static ct_status accuracy_part(const ct_layer *l, ct_instance *in, ct_exec *ex, int part)
{
    if (part == 0) CT_TRY(count_labels(l, in, ex));
    return (accuracy_sums(l, in, true, part) > 0) ? CT_OK : put_shares(l, in, ex);
}

static const ct_sum_ops accuracy_sum_ops = { .count = accuracy_sums,
                                             .slot = CT_ACCURACY_SAMPLES_OF,
                                             .first_bottoms = 1u << 1,
                                             .first_buffers = 1u << CT_ACCURACY_SAMPLES_OF,
                                             .forward = accuracy_part };

const ct_layer_ops ct_layer_accuracy = {
    .type = "Accuracy",
    .params = "accuracy_param",
    .min_bottom = 2,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 2,
    .top_is_share = true,
    .no_diff_bottom = 1 << 0 | 1 << 1,
    .state_size = sizeof(ct_accuracy_state),
    .instance_state_size = sizeof(ct_accuracy_plan),
    .setup = accuracy_setup,
    .reshape = accuracy_reshape,
    .forward = ct_layer_forward_parts,
    .sums = &accuracy_sum_ops,
};
