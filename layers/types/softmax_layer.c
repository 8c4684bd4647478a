/* Softmax, and the losses that are made of it: SoftmaxWithLoss and FocalLoss. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "layers/engine/engine.h"
#include "layers/engine/softmax/softmax.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"
#include "framework/base/memory.h"
#include "layers/types/loss.h"

/* ---- Softmax: a distribution over the classes along one axis. */

typedef struct softmax_plan {
    ct_softmax_desc desc;
    const ct_softmax_engine *forward, *backward;
} softmax_plan;

/* ---- engines of a device, by name or by timing; the CPU has one */

typedef struct trial {
    ct_engine_plan *plan;
    const ct_softmax_desc *d;
    ct_engine_offer offer;
    ct_run_kind kind;
    float *x, *y, *dx;
    ct_exec ex;
} trial;

static ct_status prepare(void *ctx)
{
    trial *t = ctx;
    int64_t n = t->d->outer * t->d->classes * t->d->inner;
    size_t bytes = 0;
    void *block;

    for (int i = 0; i < 3; i++) (void)ct_engine_scratch(NULL, &bytes, n, false);
    block = ct_engine_plan_scratch(t->plan, bytes);
    if (block == NULL) return CT_ERR_NOMEM;
    bytes = 0;
    t->x = ct_engine_scratch(block, &bytes, n, false);
    t->y = ct_engine_scratch(block, &bytes, n, false);
    t->dx = ct_engine_scratch(block, &bytes, n, false);
    return CT_OK;
}

static ct_status run_trial(void *ctx, int i)
{
    trial *t = ctx;
    const ct_softmax_engine *e = ct_softmax_table[t->offer.index[i]];

    if (t->kind == CT_RUN_FORWARD) return e->forward(t->d, &t->ex, t->x, t->y);
    return e->backward(t->d, &t->ex, t->y, t->x, t->dx);
}

static ct_status ask(const ct_layer *l, ct_run_kind kind, const ct_softmax_desc *d,
                     const ct_softmax_engine **engine_p)
{
    trial t = { .plan = ct_engine_plan_of(l), .d = d, .kind = kind, .ex = { .dev = l->dev } };
    char key[CT_ENGINE_PLAN_KEY];
    int at = 0;

    for (int i = 0; ct_softmax_table[i] != NULL; i++) {
        if (ct_softmax_table[i]->supports(d))
            ct_engine_offer_add(&t.offer, ct_softmax_table[i]->name, i,
                                ct_softmax_table[i] == *engine_p);
    }
    snprintf(key, sizeof(key), "softmax %s o%lld c%lld i%lld gpu",
             (kind == CT_RUN_FORWARD) ? "forward" : "backward_data", (long long)d->outer,
             (long long)d->classes, (long long)d->inner);
    CT_TRY(ct_engine_ask(l, key, &t.offer, prepare, run_trial, &t, &at));
    *engine_p = ct_softmax_table[at];
    return CT_OK;
}

/* On the CPU ct_kernel names nothing here. */
static ct_status pick(const ct_layer *l, ct_run_kind kind, const ct_softmax_desc *d,
                      const ct_softmax_engine **engine_p)
{
    const char *policy = ct_engine_policy(l, kind);
    bool automatic = (l->dev->kind == CT_DEVICE_CPU) || (strcmp(policy, "auto") == 0);
    char names[256] = "";

    *engine_p = ct_softmax_choose(d);
    if (*engine_p == NULL)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "not implemented on device %s", l->dev->name);
    if (automatic) {
        bool asks = (l->dev->kind != CT_DEVICE_CPU) && (ct_engine_plan_of(l) != NULL);

        return asks ? ask(l, kind, d, engine_p) : CT_OK;
    }
    for (int i = 0; ct_softmax_table[i] != NULL; i++) {
        if (!ct_softmax_table[i]->supports(d)) continue;
        *engine_p = ct_softmax_table[i];
        if (strcmp((*engine_p)->name, policy) == 0) return CT_OK;
        ct_engine_list(names, sizeof(names), (*engine_p)->name);
    }
    return ct_engine_refuse(l, kind, policy, names);
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const Ct__SoftmaxParameter *p = l->param->softmax_param;
    const ct_shape *s = &in->bottom[0]->data.shape;
    softmax_plan *plan = in->state;
    ct_view v;
    int axis;

    CT_TRY(ct_layer_axis(l, s, (p != NULL) ? p->axis : 1, "axis", &axis));
    v = ct_view_make(s, axis, 1);
    plan->desc = (ct_softmax_desc){ l->dev->kind, v.outer, v.mid, v.inner };
    CT_TRY(pick(l, CT_RUN_FORWARD, &plan->desc, &plan->forward));
    CT_TRY(pick(l, CT_RUN_BACKWARD_DATA, &plan->desc, &plan->backward));
    ct_blob_set_shape(in->top[0], s);
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const softmax_plan *plan = in->state;

    (void)l;
    return plan->forward->forward(&plan->desc, ex, ct_blob_data(in->bottom[0]),
                                  ct_blob_data(in->top[0]));
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const softmax_plan *plan = in->state;

    (void)l;
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    return plan->backward->backward(&plan->desc, ex, ct_blob_data(in->top[0]),
                                    ct_blob_diff(in->top[0]), ct_blob_diff(in->bottom[0]));
}

static void estimate(const ct_layer *l, const ct_instance *in, ct_estimate *e)
{
    const softmax_plan *plan = in->state;

    (void)l;
    e->engine[CT_RUN_FORWARD] = plan->forward->name;
    e->engine[CT_RUN_BACKWARD_DATA] = plan->backward->name;
}

static unsigned softmax_splits(const Ct__LayerParameter *p)
{
    return ct_splits_behind_tokens((p->softmax_param != NULL) ? p->softmax_param->axis : 1);
}

/* Not of tokens: who samples from a net's rows makes the distribution, and would make it twice. */
static bool softmax_apart(const ct_layer *l, const ct_instance *in, int n_axis)
{
    const Ct__SoftmaxParameter *p = l->param->softmax_param;
    int axis = (p != NULL) ? p->axis : 1;

    return (n_axis == 1) && (((axis < 0) ? axis + in->bottom[0]->data.shape.ndim : axis) >= 1);
}

static const ct_sequence_ops softmax_sequence = { .apart = softmax_apart };

const ct_layer_ops ct_layer_softmax = {
    .type = "Softmax",
    .params = "softmax_param",
    .splits_of = softmax_splits,
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .allow_inplace = true,
    .backward_reads = CT_READS_TOP,
    .instance_state_size = sizeof(softmax_plan),
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .estimate = estimate,
    .on_cuda = true,
    .sequence = &softmax_sequence,
};

/* ---- What the losses on a softmax share: shapes, labels, divisor, the softmax itself. Where ranks
 * count labels, part 0 reads the labels, and the last part does the rest. */

int ct_softmax_loss_count(const ct_layer *l, const ct_instance *in, bool forward, int k)
{
    (void)in;
    return (forward && (k == 0) && (l->dev->kind == CT_DEVICE_CPU) && ct_loss_counts(l->state)) ? 1
                                                                                                : 0;
}

ct_status ct_softmax_loss_reshape(const ct_layer *l, ct_instance *in, int axis)
{
    const ct_shape *x = &in->bottom[0]->data.shape, *label = &in->bottom[1]->data.shape;
    ct_shape scalar = { 0 };
    ct_softmax_loss *plan = in->state;
    int64_t n_label;
    ct_view v;

    CT_TRY(ct_layer_axis(l, x, axis, "axis", &axis));
    v = ct_view_make(x, axis, 1);
    n_label = v.outer * v.inner;
    CT_TRY(ct_layer_check_labels(l, x, label, &v));
    if (label->dim[0] != x->dim[0])
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "scores of %lld samples, labels of %lld",
                             (long long)x->dim[0], (long long)label->dim[0]);
    plan->desc = (ct_softmax_desc){ l->dev->kind, v.outer, v.mid, v.inner };
    plan->part = NULL;
    plan->soft = false;
    plan->engine = ct_softmax_choose(&plan->desc);
    if (plan->engine == NULL)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "not implemented on device %s", l->dev->name);
    ct_instance_buffer(in, CT_SOFTMAX_LOSS_PROB, CT_LIFETIME_PASS,
                       ct_tensor_bytes(&in->bottom[0]->data));
    ct_instance_buffer(in, CT_SOFTMAX_LOSS_LABEL, CT_LIFETIME_PASS,
                       ct_loss_label_bytes(l, n_label));
    ct_instance_buffer(in, CT_SOFTMAX_LOSS_SCRATCH, CT_LIFETIME_CALL,
                       ct_softmax_scratch(&plan->desc));
    ct_instance_buffer(in, CT_SOFTMAX_LOSS_COUNTED, CT_LIFETIME_CALL,
                       (ct_softmax_loss_count(l, in, true, 0) > 0) ? sizeof(double) : 0);
    ct_blob_set_shape(in->top[0], &scalar);
    if (l->n_top > 1) ct_blob_set_shape(in->top[1], x);
    return CT_OK;
}

/* Labels as classes, checked once so that nothing behind can read out of bounds. */
static ct_status read_labels(const ct_layer *l, const ct_instance *in, const ct_exec *ex,
                             const ct_loss_rule *rule, int64_t *counted_p)
{
    const ct_softmax_loss *plan = in->state;
    const ct_class_part *part = plan->part;
    int64_t n = plan->desc.outer * plan->desc.inner, samples = in->bottom[1]->data.shape.dim[0];
    int64_t classes = (part != NULL) ? part->classes : plan->desc.classes;
    int32_t *label = in->buffer[CT_SOFTMAX_LOSS_LABEL].data;

    CT_TRY(ct_loss_labels(l, ex, rule, ct_blob_data(in->bottom[1]), n,
                          (samples > 0) ? n / samples : 1, classes, label, counted_p));
    for (int64_t k = 0; (part != NULL) && (k < n); k++) {
        int64_t c = (int64_t)label[k] - part->first;

        if (label[k] == CT_LABEL_IGNORED) continue;
        label[k] = ((c >= 0) && (c < plan->desc.classes)) ? (int32_t)c : CT_LABEL_ELSEWHERE;
    }
    return CT_OK;
}

/* ---- parts of the classes
 *
 * Each part has of every position the largest score, the sum of the exponentials, and the label's
 * score where that is here. It gets those of all parts, in their order, and adds up for itself:
 *
 *     m = max m_q,  s = sum s_q exp(m_q - m),  p_c = e_c share,  share = exp(m_q - m) / s. */

void ct_softmax_loss_reserve(ct_instance *in, int64_t rows, ct_buffer_lifetime keep)
{
    const ct_class_part *part = ((const ct_softmax_loss *)in->state)->part;

    ct_instance_buffer(in, CT_SOFTMAX_LOSS_SHARE, keep, (size_t)rows * sizeof(float));
    ct_instance_buffer(in, CT_SOFTMAX_LOSS_EXCHANGE, CT_LIFETIME_CALL,
                       (size_t)(3 * rows * (part->count + 1)) * sizeof(float));
}

/* The label's scores; 0 where another part has it. */
static void pick_scores(const ct_softmax_desc *d, const float *x, const int32_t *label, float *to)
{
    for (int64_t k = 0; k < d->outer * d->inner; k++)
        to[k] = (label[k] < 0)
                    ? 0.0f
                    : x[(k / d->inner * d->classes + label[k]) * d->inner + k % d->inner];
}

/* Position k of n, of all parts: its share of the one whose largest score is `mine`, and its loss.
 */
static float add_up(const float *all, int count, int64_t n, int64_t k, float mine, float *share_p)
{
    double largest = -INFINITY, sum = 0, score = 0, p;

    for (int q = 0; q < count; q++) {
        double m = (double)all[3 * n * q + k];

        largest = (m > largest) ? m : largest;
    }
    for (int q = 0; q < count; q++) {
        const float *of = all + 3 * n * q + k;

        sum += (double)of[n] * exp((double)of[0] - largest);
        score += (double)of[2 * n];
    }
    *share_p = (float)(exp((double)mine - largest) / sum);
    p = exp(score - largest) / sum;
    return (float)-log((p < (double)FLT_MIN) ? (double)FLT_MIN : p); /* NaN stays NaN */
}

ct_status ct_softmax_loss_exchange(ct_instance *in, ct_exec *ex, const ct_softmax_desc *d,
                                   const float *x, const int32_t *label, float *y, double *sum_p)
{
    const ct_softmax_loss *plan = in->state;
    int64_t n = d->outer * d->inner;
    int count = plan->part->count;
    float *mine = in->buffer[CT_SOFTMAX_LOSS_EXCHANGE].data, *all = mine + 3 * n;
    float *share = in->buffer[CT_SOFTMAX_LOSS_SHARE].data;
    float *loss = in->buffer[CT_SOFTMAX_LOSS_SCRATCH].data;
    ct_transfer t = { .kind = CT_TRANSFER_GATHER, .dtype = CT_F32, .from = mine, .to = all };
    void *ticket;

    t.n = 3 * n * count;
    t.piece = plan->part->each;
    t.unit = 3 * n;
    pick_scores(d, x, label, mine + 2 * n);
    CT_TRY(plan->engine->forward_part(d, ex, x, y, mine, mine + n));
    if (count > 1) {
        CT_TRY(ct_exec_transfer_begin(ex, &t, &ticket));
        CT_TRY(ct_exec_transfer_wait(ex, ticket));
    } else {
        all = mine;
    }
#pragma omp parallel for schedule(static) if (n * count >= CT_PARALLEL_MIN)
    for (int64_t k = 0; k < n; k++) loss[k] = add_up(all, count, n, k, mine[k], &share[k]);
    *sum_p = 0;
    for (int64_t k = 0; k < n; k++)
        *sum_p += (label[k] == CT_LABEL_IGNORED) ? 0.0 : (double)loss[k];
    return CT_OK;
}

ct_status ct_softmax_loss_begin(const ct_layer *l, ct_instance *in, ct_exec *ex, int part,
                                bool *rest_p)
{
    const ct_loss_rule *rule = l->state;
    ct_softmax_loss *plan = in->state;
    double *counted = in->buffer[CT_SOFTMAX_LOSS_COUNTED].data;
    int64_t here = 0;

    if (part == 0) CT_TRY(read_labels(l, in, ex, rule, &here));
    *rest_p = (part > 0) || !ct_loss_counts(rule);
    if (!*rest_p) {
        *counted = (double)here;
        return CT_OK;
    }
    return ct_loss_divisor_of(rule, ex, plan->desc.outer * plan->desc.inner, counted,
                              plan->desc.outer, &plan->divisor);
}

ct_status ct_softmax_loss_part(const ct_layer *l, ct_instance *in, ct_exec *ex, int part,
                               ct_status (*fn)(const ct_layer *l, ct_instance *in, ct_exec *ex,
                                               double *sum_p))
{
    const ct_softmax_loss *plan = in->state;
    float *prob = in->buffer[CT_SOFTMAX_LOSS_PROB].data;
    double sum = 0;
    bool rest;

    CT_TRY(ct_softmax_loss_begin(l, in, ex, part, &rest));
    if (!rest) return CT_OK;
    if (plan->part != NULL) {
        CT_TRY(ct_softmax_loss_exchange(in, ex, &plan->desc, ct_blob_data(in->bottom[0]),
                                        in->buffer[CT_SOFTMAX_LOSS_LABEL].data, prob, &sum));
    } else {
        CT_TRY(plan->engine->forward(&plan->desc, ex, ct_blob_data(in->bottom[0]), prob));
        CT_TRY(fn(l, in, ex, &sum));
    }
    ct_blob_data(in->top[0])[0] = (float)(sum / plan->divisor);
    if (l->n_top < 2) return CT_OK;
    return ex->dev->copy(ex->stream, ct_blob_data(in->top[1]), prob,
                         ct_tensor_bytes(&in->bottom[0]->data));
}

void ct_softmax_loss_estimate(const ct_layer *l, const ct_instance *in, ct_estimate *e)
{
    const ct_softmax_loss *plan = in->state;

    (void)l;
    e->engine[CT_RUN_FORWARD] = e->engine[CT_RUN_BACKWARD_DATA] = plan->engine->name;
}

/* ---- SoftmaxWithLoss: the mean of -log p_label over the labels that count. What counts, and what
 * the sum is divided by, is Caffe's; over several ranks the divisor is the global batch's, so that
 * the ranks' losses and gradients add up. */

/* The softmax of all classes is nobody's. */
static unsigned softmax_loss_splits(const Ct__LayerParameter *p)
{
    return (p->n_top <= 1) ? CT_SPLIT_CLASS : 0;
}

typedef struct softmax_loss_state {
    ct_loss_rule rule; /* first: losses on a softmax read it */
    ct_class_part part;
} softmax_loss_state;

static int softmax_loss_axis(const ct_layer *l)
{
    return (l->param->softmax_param != NULL) ? l->param->softmax_param->axis : 1;
}

static ct_status find_part(ct_layer *l, const ct_shape *bottom)
{
    const Ct__LayerPart *p = ct_layer_narrowed(l);
    ct_class_part *part = &((softmax_loss_state *)l->state)->part;
    ct_shape whole = *bottom;
    ct_cut cut;
    int axis;

    if (p == NULL) return CT_OK;
    CT_TRY(ct_layer_axis(l, bottom, softmax_loss_axis(l), "axis", &axis));
    CT_TRY(ct_layer_widen(l, axis, &whole));
    CT_TRY(ct_layer_cut(l, &whole, axis, &cut));
    if (cut.n_range > 1)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "classes are cut in one piece, not %d", cut.n_range);
    part->count = p->count;
    part->first = cut.range[0].first;
    part->classes = whole.dim[axis];
    part->most = ct_range_of(part->classes / p->unit, 0, p->count).count * p->unit;
    part->each = malloc((size_t)p->count * sizeof(*part->each));
    if (part->each == NULL) return CT_LAYER_FAIL(l, CT_ERR_NOMEM, "%d parts", p->count);
    for (int q = 0; q < p->count; q++) part->each[q] = 1;
    return CT_OK;
}

/* ---- with a distribution over the classes for each label: the mean of -sum_c t_c log p_c */

static ct_status soft_loss_reshape(const ct_layer *l, ct_instance *in, const ct_view *v)
{
    const softmax_loss_state *s = l->state;
    const ct_shape *x = &in->bottom[0]->data.shape;
    ct_softmax_loss *plan = in->state;

    if (s->part.count > 0)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "labels that are distributions are not divided by classes");
    CT_TRY(ct_layer_check_distributions(l));
    if (s->rule.has_ignore)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "loss_param.ignore_label, but labels are distributions");
    *plan = (ct_softmax_loss){ .desc = { l->dev->kind, v->outer, v->mid, v->inner }, .soft = true };
    plan->engine = ct_softmax_choose(&plan->desc);
    ct_instance_buffer(in, CT_SOFTMAX_LOSS_PROB, CT_LIFETIME_PASS,
                       ct_tensor_bytes(&in->bottom[0]->data));
    ct_blob_set_shape(in->top[0], &(ct_shape){ 0 });
    if (l->n_top > 1) ct_blob_set_shape(in->top[1], x);
    return CT_OK;
}

typedef struct soft_loss {
    const ct_softmax_desc *d;
    const float *prob, *label;
} soft_loss;

static soft_loss soft_of(const ct_instance *in)
{
    return (soft_loss){ &((const ct_softmax_loss *)in->state)->desc,
                        in->buffer[CT_SOFTMAX_LOSS_PROB].data, ct_blob_data(in->bottom[1]) };
}

/* What position k's distribution adds up to; NaN where a share is below 0. */
static double soft_sum(const soft_loss *f, int64_t k)
{
    const float *t = f->label + k / f->d->inner * f->d->classes * f->d->inner + k % f->d->inner;
    double sum = 0;

    for (int64_t c = 0; c < f->d->classes; c++) {
        double share = (double)t[c * f->d->inner];

        sum += (share >= 0) ? share : NAN;
    }
    return sum;
}

static ct_status soft_check(const ct_layer *l, const ct_exec *ex, const soft_loss *f)
{
    for (int64_t k = 0; k < f->d->outer * f->d->inner; k++) {
        double sum = soft_sum(f, k);

        if (!(fabs(sum - 1) <= 1e-3))
            return CT_LAYER_FAIL(l, CT_ERR_DATA,
                                 "the label of sample %lld of batch %lld is no distribution over "
                                 "%lld classes: its shares add up to %g, or one is below 0",
                                 (long long)(ex->batch_first + k / f->d->inner),
                                 (long long)ex->micro_step, (long long)f->d->classes, sum);
    }
    return CT_OK;
}

static double soft_loss_part(const void *ctx, int64_t from, int64_t to)
{
    const soft_loss *f = ctx;
    double sum = 0;

    for (int64_t k = from; k < to; k++) {
        int64_t at = k / f->d->inner * f->d->classes * f->d->inner + k % f->d->inner;

        for (int64_t c = 0; c < f->d->classes; c++, at += f->d->inner) {
            double p = (double)f->prob[at];

            if (f->label[at] > 0)
                sum -= (double)f->label[at] * log((p < (double)FLT_MIN) ? (double)FLT_MIN : p);
        }
    }
    return sum;
}

static ct_status soft_loss_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const softmax_loss_state *s = l->state;
    ct_softmax_loss *plan = in->state;
    float *prob = in->buffer[CT_SOFTMAX_LOSS_PROB].data;
    int64_t n = plan->desc.outer * plan->desc.inner;
    soft_loss f = soft_of(in);

    CT_TRY(soft_check(l, ex, &f));
    CT_TRY(ct_loss_divisor(&s->rule, ex, n, n, plan->desc.outer, &plan->divisor));
    CT_TRY(plan->engine->forward(&plan->desc, ex, ct_blob_data(in->bottom[0]), prob));
    ct_blob_data(in->top[0])[0] =
        (float)(ct_loss_sum(n, n * plan->desc.classes, soft_loss_part, &f) / plan->divisor);
    if (l->n_top < 2) return CT_OK;
    return ex->dev->copy(ex->stream, ct_blob_data(in->top[1]), prob,
                         ct_tensor_bytes(&in->bottom[0]->data));
}

/* p_c sum t - t_c */
static ct_status soft_loss_backward(ct_instance *in)
{
    const ct_softmax_loss *plan = in->state;
    soft_loss f = soft_of(in);
    float *dx = ct_blob_diff(in->bottom[0]);
    double scale = (double)ct_loss_weight(in) / plan->divisor;
    int64_t classes = f.d->classes, inner = f.d->inner, n = f.d->outer * inner;

    if (dx == NULL) return CT_OK;
#pragma omp parallel for schedule(static) if (n * classes >= CT_PARALLEL_MIN)
    for (int64_t k = 0; k < n; k++) {
        int64_t at = k / inner * classes * inner + k % inner;
        double sum = soft_sum(&f, k);

        for (int64_t c = 0; c < classes; c++, at += inner)
            dx[at] = (float)(scale * ((double)f.prob[at] * sum - (double)f.label[at]));
    }
    return CT_OK;
}

static ct_status softmax_loss_setup(ct_layer *l, const ct_shape *bottom)
{
    ct_view v;
    int axis;

    ((softmax_loss_state *)l->state)->rule =
        ct_loss_rule_read(l, CT__LOSS_PARAMETER__NORMALIZATION_MODE__VALID);
    CT_TRY(ct_layer_axis(l, &bottom[0], softmax_loss_axis(l), "axis", &axis));
    v = ct_view_make(&bottom[0], axis, 1);
    if (ct_labels_are_distributions(&bottom[0], &bottom[1], &v))
        l->backward_reads |= CT_READS_BOTTOM;
    return find_part(l, &bottom[0]);
}

static void softmax_loss_destroy(ct_layer *l)
{
    free(((softmax_loss_state *)l->state)->part.each);
}

static ct_status softmax_loss_reshape(const ct_layer *l, ct_instance *in)
{
    const ct_class_part *part = &((const softmax_loss_state *)l->state)->part;
    const ct_shape *x = &in->bottom[0]->data.shape;
    ct_softmax_loss *plan = in->state;
    ct_view v;
    int axis;

    CT_TRY(ct_layer_axis(l, x, softmax_loss_axis(l), "axis", &axis));
    v = ct_view_make(x, axis, 1);
    if (ct_labels_are_distributions(x, &in->bottom[1]->data.shape, &v))
        return soft_loss_reshape(l, in, &v);
    CT_TRY(ct_softmax_loss_reshape(l, in, softmax_loss_axis(l)));
    if (part->count == 0) return CT_OK;
    plan->part = part;
    ct_softmax_loss_reserve(in, plan->desc.outer * plan->desc.inner, CT_LIFETIME_PASS);
    return CT_OK;
}

static ct_status softmax_loss_sum_losses(const ct_layer *l, ct_instance *in, ct_exec *ex,
                                         double *sum_p)
{
    ct_softmax_loss *plan = in->state;

    (void)l;
    return plan->engine->loss(&plan->desc, ex, in->buffer[CT_SOFTMAX_LOSS_PROB].data,
                              in->buffer[CT_SOFTMAX_LOSS_LABEL].data,
                              in->buffer[CT_SOFTMAX_LOSS_SCRATCH].data, sum_p);
}

static ct_status softmax_loss_forward(const ct_layer *l, ct_instance *in, ct_exec *ex, int part)
{
    if (((const ct_softmax_loss *)in->state)->soft) return soft_loss_forward(l, in, ex);
    return ct_softmax_loss_part(l, in, ex, part, softmax_loss_sum_losses);
}

static ct_status softmax_loss_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_softmax_loss *plan = in->state;
    const float *prob = in->buffer[CT_SOFTMAX_LOSS_PROB].data;
    const int32_t *label = in->buffer[CT_SOFTMAX_LOSS_LABEL].data;
    float scale = (float)((double)ct_loss_weight(in) / plan->divisor);
    float *dx = ct_blob_diff(in->bottom[0]);

    (void)l;
    if (plan->soft) return soft_loss_backward(in);
    if (dx == NULL) return CT_OK;
    if (plan->part != NULL)
        return plan->engine->loss_backward_part(
            &plan->desc, ex, prob, in->buffer[CT_SOFTMAX_LOSS_SHARE].data, label, scale, dx);
    return plan->engine->loss_backward(&plan->desc, ex, prob, label, scale, dx);
}

static bool softmax_loss_as_epilogue(const Ct__LayerParameter *p, ct_epilogue_kind *kind_p)
{
    *kind_p = CT_EPILOGUE_LOSS;
    return (p->n_bottom == 2) && (p->n_top == 1);
}

static const ct_fusion_ops softmax_loss_fusion = { .as_epilogue = softmax_loss_as_epilogue };
static const ct_sum_ops softmax_loss_sums = CT_SOFTMAX_LOSS_SUMS(softmax_loss_forward);

const ct_layer_ops ct_layer_softmax_loss = {
    .type = "SoftmaxWithLoss",
    .splits_of = softmax_loss_splits,
    .params = "loss_param softmax_param",
    .min_bottom = 2,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 2,
    .is_loss = true,
    .top_is_share = true,
    .null_top_diff = true, /* the probabilities send no gradient back, as in Caffe */
    .no_diff_bottom = 1 << 1,
    .state_size = sizeof(softmax_loss_state),
    .instance_state_size = sizeof(ct_softmax_loss),
    .setup = softmax_loss_setup,
    .destroy = softmax_loss_destroy,
    .reshape = softmax_loss_reshape,
    .forward = ct_layer_forward_parts,
    .backward = softmax_loss_backward,
    .estimate = ct_softmax_loss_estimate,
    .fusion = &softmax_loss_fusion,
    .sums = &softmax_loss_sums,
};

/* ---- FocalLoss on a softmax: -alpha (1 - p)^gamma log p of each label's probability p, so that
 * samples which are right already count less. */

typedef struct focal_state {
    ct_loss_rule rule; /* first: losses on a softmax read it */
    double alpha, gamma;
} focal_state;

static ct_status focal_loss_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__FocalLossParameter *p = l->param->focal_loss_param;
    focal_state *s = l->state;

    (void)bottom;
    s->rule = ct_loss_rule_read(l, CT__LOSS_PARAMETER__NORMALIZATION_MODE__VALID);
    s->alpha = 0.25;
    s->gamma = 2;
    if (p == NULL) return CT_OK;
    if ((p->type != CT__FOCAL_LOSS_PARAMETER__TYPE__ORIGIN) || p->has_beta)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "focal_loss_param: type LINEAR and its beta are not supported; ORIGIN "
                             "with alpha and gamma is");
    s->alpha = (double)p->alpha;
    s->gamma = (double)p->gamma;
    if (!(s->alpha > 0) || !isfinite(s->alpha) || !(s->gamma >= 0) || !isfinite(s->gamma))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "focal_loss_param: alpha %g must be above 0, gamma %g at least 0",
                             s->alpha, s->gamma);
    return CT_OK;
}

static ct_status focal_loss_reshape(const ct_layer *l, ct_instance *in)
{
    const Ct__SoftmaxParameter *p = l->param->softmax_param;

    return ct_softmax_loss_reshape(l, in, (p != NULL) ? p->axis : 1);
}

typedef struct focal {
    const focal_state *s;
    const ct_softmax_desc *d;
    const float *prob;
    const int32_t *label;
} focal;

static focal focal_of(const ct_layer *l, const ct_instance *in)
{
    const ct_softmax_loss *plan = in->state;

    return (focal){ l->state, &plan->desc, in->buffer[CT_SOFTMAX_LOSS_PROB].data,
                    in->buffer[CT_SOFTMAX_LOSS_LABEL].data };
}

/* The probability of the label at position k, which is not ignored; NaN stays NaN. */
static double label_prob(const focal *f, int64_t k)
{
    int64_t o = k / f->d->inner, i = k % f->d->inner;
    double p = (double)f->prob[(o * f->d->classes + f->label[k]) * f->d->inner + i];

    return (p < (double)FLT_MIN) ? (double)FLT_MIN : p;
}

static double part(const void *ctx, int64_t from, int64_t to)
{
    const focal *f = ctx;
    double sum = 0;

    for (int64_t k = from; k < to; k++) {
        double p;

        if (f->label[k] == CT_LABEL_IGNORED) continue;
        p = label_prob(f, k);
        sum -= f->s->alpha * pow(1 - p, f->s->gamma) * log(p);
    }
    return sum;
}

static ct_status focal_loss_sum_losses(const ct_layer *l, ct_instance *in, ct_exec *ex,
                                       double *sum_p)
{
    focal f = focal_of(l, in);
    int64_t n = f.d->outer * f.d->inner;

    (void)ex;
    *sum_p = ct_loss_sum(n, n, part, &f);
    return CT_OK;
}

static ct_status focal_loss_forward(const ct_layer *l, ct_instance *in, ct_exec *ex, int part)
{
    return ct_softmax_loss_part(l, in, ex, part, focal_loss_sum_losses);
}

/* The loss's slope along the score of a class is this times ([class is the label] - p_class):
 * p dL/dp. At p = 1 it is the limit, where (1 - p)^(gamma - 1) may be infinite. */
static double slope(const focal *f, int64_t k)
{
    double p, gamma = f->s->gamma, rest;

    if (f->label[k] == CT_LABEL_IGNORED) return 0;
    p = label_prob(f, k);
    rest = (gamma > 0) ? 0 : -1;
    if (!(p >= 1)) rest = gamma * pow(1 - p, gamma - 1) * p * log(p) - pow(1 - p, gamma);
    return f->s->alpha * rest;
}

static ct_status focal_loss_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_softmax_loss *plan = in->state;
    focal f = focal_of(l, in);
    double scale = (double)ct_loss_weight(in) / plan->divisor;
    float *dx = ct_blob_diff(in->bottom[0]), *factor = in->buffer[CT_SOFTMAX_LOSS_SCRATCH].data;
    int64_t classes = f.d->classes, inner = f.d->inner, n = f.d->outer * inner;

    (void)ex;
    if (dx == NULL) return CT_OK;
#pragma omp parallel for schedule(static) if (n >= CT_PARALLEL_MIN)
    for (int64_t k = 0; k < n; k++) factor[k] = (float)(scale * slope(&f, k));
#pragma omp parallel for collapse(2) schedule(static) if (n * classes >= CT_PARALLEL_MIN)
    for (int64_t o = 0; o < f.d->outer; o++) {
        for (int64_t c = 0; c < classes; c++) {
            int64_t at = (o * classes + c) * inner;

            for (int64_t i = 0; i < inner; i++) {
                float is = (f.label[o * inner + i] == (int32_t)c) ? 1.0f : 0.0f;

                dx[at + i] = factor[o * inner + i] * (is - f.prob[at + i]);
            }
        }
    }
    return CT_OK;
}

static const ct_sum_ops focal_loss_sums = CT_SOFTMAX_LOSS_SUMS(focal_loss_forward);

const ct_layer_ops ct_layer_focal_loss = {
    .type = "FocalLoss",
    .params = "loss_param softmax_param focal_loss_param",
    .min_bottom = 2,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 2,
    .is_loss = true,
    .top_is_share = true,
    .null_top_diff = true, /* the probabilities send no gradient back */
    .no_diff_bottom = 1 << 1,
    .state_size = sizeof(focal_state),
    .instance_state_size = sizeof(ct_softmax_loss),
    .setup = focal_loss_setup,
    .reshape = focal_loss_reshape,
    .forward = ct_layer_forward_parts,
    .backward = focal_loss_backward,
    .estimate = ct_softmax_loss_estimate,
    .sums = &focal_loss_sums,
};
