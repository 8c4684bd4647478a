#include "framework/solver/train_step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/clock.h"
#include "framework/base/trace.h"
#include "framework/math/math.h"
#include "framework/snapshot/snapshot.h"

enum { UPDATE_CHUNK = 1 << 18 /* elements between two polls: some hundred microseconds */ };

static void beat(const ct_train_step *t, const char *what)
{
    if (t->beat != NULL) t->beat(t->hook_ctx, what);
}

/* By the norm of all gradients; where local_clip is given each rank does it before compression. */
static bool clips(const ct_train_step *t)
{
    const Ct__CompressionParameter *c = t->param->compression;

    return (t->param->clip_gradients >= 0.0f) && ((c == NULL) || !(c->local_clip > 0.0f));
}

/* No weight may change before all gradients are known. */
static bool waits_for_all(const ct_train_step *t)
{
    return clips(t) || t->loss_scale.on;
}

static bool absorbed(const ct_train_step *t, int param)
{
    return (t->exchange->absorbed != NULL) && t->exchange->absorbed(t->exchange->ctx, param);
}

static bool tries(const ct_train_step *t, int param)
{
    return (t->exchange->tries != NULL) && t->exchange->tries(t->exchange->ctx, param);
}

/* ---- updates */

static int64_t chunk(int64_t left)
{
    return (left < UPDATE_CHUNK) ? left : UPDATE_CHUNK;
}

/* All that the rule does is in the sum. What is only tried is added up as well, zero times, since
 * how long that takes counts. */
static ct_status update_absorbed(ct_train_step *t, const ct_param *p)
{
    const ct_math_ops *math = t->net->options.dev->math;
    float share =
        (t->average != NULL) ? ct_average_share(t->param->average, t->iteration + 1) : 0.0f;
    bool chunks = (t->exec->poll != NULL) || (share > 0.0f);
    float factor = tries(t, (int)(p - t->net->param)) ? 0.0f : -1.0f;
    int64_t n = 0;

    for (int64_t at = 0; at < p->count; at += n) {
        float *weight = ct_blob_data(&p->blob) + at;

        n = chunks ? chunk(p->count - at) : p->count;
        CT_TRY(math->axpy(t->exec->stream, n, factor, ct_blob_diff(&p->blob) + at, weight));
        if (share > 0.0f)
            CT_TRY(math->axpby(t->exec->stream, n, share, weight, 1.0f - share,
                               t->average + p->offset + at));
        CT_TRY(ct_exec_poll(t->exec));
    }
    return CT_OK;
}

/* The range [at, at + n) of a parameter. */
static void set_range(const ct_train_step *t, const ct_param *p, int64_t at, int64_t n,
                      ct_update *u)
{
    u->count = n;
    u->grad = ct_blob_diff(&p->blob) + at;
    u->weight = ct_blob_data(&p->blob) + at;
    for (int i = 0; i < t->rule->n_state; i++) u->state[i] = t->history[i] + p->offset + at;
}

/* The trust ratio, summed in chunks whatever else moves: their sizes show in the last bits. One
 * axis, as biases, scales and shifts have it: no ratio. */
static ct_status find_trust(const ct_train_step *t, const ct_param *p, ct_update *u)
{
    double weight = 0.0, step = 0.0;

    if (t->rule->norms == NULL) return CT_OK;
    for (int64_t at = 0; at < p->count; at += u->count) {
        double w = 0.0, s = 0.0;

        set_range(t, p, at, chunk(p->count - at), u);
        CT_TRY(t->rule->norms(u, &w, &s));
        weight += w;
        step += s;
        CT_TRY(ct_exec_poll(t->exec));
    }
    if ((weight > 0.0) && (step > 0.0) && (p->blob.data.shape.ndim > 1))
        u->trust = t->rule->trust(t->param, u, sqrt(weight), sqrt(step));
    return CT_OK;
}

/* All but the range, for multipliers of the rate and the decay. */
static ct_update numbers(const ct_train_step *t, float lr_mult, float decay_mult)
{
    const Ct__SolverParameter *s = t->param;
    float decay = s->weight_decay * decay_mult;
    bool l1 = (s->regularization_type != NULL) && (strcmp(s->regularization_type, "L1") == 0);
    ct_update u = { .dev = t->net->options.dev,
                    .scale = t->scale,
                    .rate = (float)t->rate * lr_mult,
                    .decay_l2 = l1 ? 0.0f : decay,
                    .decay_l1 = l1 ? decay : 0.0f };

    ct_update_rule_numbers(t->rule, s, t->iteration, &u);
    return u;
}

static ct_status update_param(ct_train_step *t, const ct_param *p)
{
    const Ct__SolverParameter *s = t->param;
    const ct_math_ops *math = t->net->options.dev->math;
    float share = (t->average != NULL) ? ct_average_share(s->average, t->iteration + 1) : 0.0f;
    /* messages of other buckets move while this one is updated; the average finds a chunk in the
     * cache */
    bool chunks = (t->exec->poll != NULL) || (share > 0.0f);
    ct_update u = numbers(t, p->lr_mult, p->decay_mult);

    CT_TRY(find_trust(t, p, &u));
    for (int64_t at = 0; at < p->count; at += u.count) {
        set_range(t, p, at, chunks ? chunk(p->count - at) : p->count, &u);
        CT_TRY(t->rule->apply(&u));
        if (share > 0.0f)
            CT_TRY(math->axpby(t->exec->stream, u.count, share, u.weight, 1.0f - share,
                               t->average + p->offset + at));
        CT_TRY(ct_exec_poll(t->exec));
    }
    return CT_OK;
}

/* How many parameters from `first` on may go in one pass. */
static int at_once(const ct_train_step *t, int first, int end)
{
    int i = first;

    if (t->all.part == NULL) return 0;
    while ((i < end) && t->net->param[i].learns && !absorbed(t, i) && !ct_late_has(&t->late, i))
        i++;
    return i - first;
}

static ct_status update_many(ct_train_step *t, int first, int n)
{
    const ct_net *net = t->net;
    ct_update u = numbers(t, 1.0f, 1.0f);

    u.count = net->grad_count;
    u.grad = net->grad_arena;
    u.weight = net->weight_arena;
    for (int i = 0; i < t->rule->n_state; i++) u.state[i] = t->history[i];
    return ct_update_plan_run(net, &t->all, t->exec->stream, t->rule->kind, &u, first, n);
}

static ct_status update_one(ct_train_step *t, int i)
{
    const ct_param *p = &t->net->param[i];
    ct_status (*update)(ct_train_step * t, const ct_param *p) =
        absorbed(t, i) ? update_absorbed : update_param;

    if (!ct_late_has(&t->late, i)) return update(t, p);
    CT_TRY(ct_late_begin(t->net, &t->late, t->exec->stream, i));
    CT_TRY(update(t, p)); /* an average sees the next step what comes late */
    return ct_late_end(t->net, &t->late, t->exec->stream, i, (float)t->rate * p->lr_mult);
}

static ct_status update_range(ct_train_step *t, int first, int n)
{
    double start = ct_clock_s(), traced = ct_trace_start(t->exec->trace);

    for (int i = first; i < first + n; i++) {
        int many = at_once(t, i, first + n);

        if (many > 0) {
            CT_TRY(update_many(t, i, many));
            i += many - 1;
            continue;
        }
        if (t->net->param[i].learns) CT_TRY(update_one(t, i));
    }
    t->update_s += ct_clock_s() - start;
    ct_trace_end(t->exec->trace, traced, CT_TRACE_UPDATE, NULL,
                 (n > 0) ? t->net->param[first].key : NULL);
    return CT_OK;
}

static ct_status on_landed(void *ctx, int first, int n)
{
    ct_train_step *t = ctx;

    for (int i = first; i < first + n; i++) {
        if (t->landed[i])
            return CT_FAIL(CT_ERR_ARG, "the gradient of %s landed twice", t->net->param[i].key);
        t->landed[i] = true;
    }
    return waits_for_all(t) ? CT_OK : update_range(t, first, n);
}

/* The norm of the summed gradient before it is divided by iter_size, as Caffe takes it, without the
 * loss's scale. Padding is zero, so the arena is summed in one go. */
static ct_status gradient_norm(const ct_train_step *t, double *norm_p)
{
    const ct_net *net = t->net;
    double sumsq = 0.0;

    CT_TRY(
        net->options.dev->math->sumsq(t->exec->stream, net->grad_count, net->grad_arena, &sumsq));
    *norm_p = sqrt(sumsq) / (double)t->loss_scale.scale;
    return CT_OK;
}

/* All gradients are there: the update, unless 16 bits were too few for one of them. */
static ct_status update_all(ct_train_step *t)
{
    double limit = (double)t->param->clip_gradients, norm;

    CT_TRY(gradient_norm(t, &norm));
    if (!ct_loss_scale_step(&t->loss_scale, t->iteration, isfinite(norm))) return CT_OK;
    if (clips(t) && (norm > limit)) {
        CT_INFO("Gradient clipping: scaling down gradients (L2 norm %g > %g) by scale factor %g",
                norm, limit, limit / norm);
        t->scale *= (float)(limit / norm);
    }
    return update_range(t, 0, t->net->n_param);
}

ct_status ct_train_step_settle(ct_train_step *t)
{
    double start = ct_trace_start(t->exec->trace);

    if (!t->open) return CT_OK;
    beat(t, "exchange of gradients and update");
    CT_TRY(t->exchange->finish(t->exchange->ctx, on_landed, t));
    ct_trace_end(t->exec->trace, start, CT_TRACE_WAIT, NULL, NULL);
    if (waits_for_all(t)) CT_TRY(update_all(t));
    t->open = false;
    ct_net_weights_changed(t->net);
    return CT_OK;
}

/* ---- the step */

static ct_status on_ready(void *ctx, int param)
{
    const ct_train_step *t = ctx;
    const ct_param *p = &t->net->param[param];

    if ((t->owed != NULL) && p->learns)
        CT_TRY(t->net->options.dev->math->axpy(t->exec->stream, p->count, t->loss_scale.scale,
                                               t->owed + p->offset, ct_blob_diff(&p->blob)));
    return t->exchange->ready(t->exchange->ctx, param);
}

static void drop_owed(ct_train_step *t)
{
    if (t->owed != NULL) t->net->options.dev->mem_release(t->owed);
    t->owed = NULL;
}

/* Forward is about to read this parameter. */
static ct_status on_wait(void *ctx, int param)
{
    ct_train_step *t = ctx;
    double start = ct_trace_start(t->exec->trace);

    if (!t->open) return CT_OK;
    if (t->exchange->reads != NULL) t->exchange->reads(t->exchange->ctx, param);
    if (t->landed[param]) return CT_OK;
    beat(t, "exchange of gradients and update, in forward");
    CT_TRY(t->exchange->wait(t->exchange->ctx, param, 1, on_landed, t));
    if (!t->landed[param])
        return CT_FAIL(CT_ERR_ARG, "the exchange returned without the gradient of %s",
                       t->net->param[param].key);
    beat(t, "forward");
    ct_trace_end(t->exec->trace, start, CT_TRACE_WAIT, NULL, t->net->param[param].key);
    return CT_OK;
}

/* The gradients of the last backward are about to leave, to be applied at this rate. */
static ct_status begin(ct_train_step *t, int64_t iteration, double rate)
{
    /* forward has waited for every parameter that it reads, which are all; to be sure */
    CT_TRY(ct_train_step_settle(t));
    t->iteration = iteration;
    t->rate = rate;
    t->scale = 1.0f / ((float)t->param->iter_size * t->loss_scale.scale);
    CT_TRY(t->exchange->begin(t->exchange->ctx, iteration, t->scale, (float)rate));
    memset(t->landed, 0, (size_t)t->net->n_param * sizeof(*t->landed));
    return CT_OK;
}

ct_status ct_train_step_run(ct_train_step *t, int64_t iteration, double rate, double *loss_p)
{
    int n = t->param->iter_size;
    double loss = 0.0, one = 0.0;

    for (int i = 0; i < n; i++) {
        bool last = (i == n - 1);

        t->exec->micro_step = iteration * n + i;
        t->exec->accumulate = (i > 0);
        t->exec->loss_scale = t->loss_scale.scale;
        beat(t, "forward");
        CT_TRY(ct_net_forward_begin(t->net, t->exec));
        if (i == 0) CT_TRY(begin(t, iteration, rate));
        if (last && (t->look != NULL)) CT_TRY(t->look(t->hook_ctx));
        beat(t, "backward");
        CT_TRY(ct_net_backward(t->net, t->exec, last ? on_ready : NULL, t));
        /* a device has all of the step to do by now, so waiting for its loss leaves no gap */
        if (!last) {
            CT_TRY(ct_net_forward_end(t->net, t->exec, &one));
            loss += one;
        }
    }
    drop_owed(t);
    t->open = true;
    if (!t->forward_overlap) CT_TRY(ct_train_step_settle(t));
    CT_TRY(ct_net_forward_end(t->net, t->exec, &one));
    loss += one;
    /* what still travels arrives before its first reader looks */
    ct_net_weights_changed(t->net);
    *loss_p = loss / n;
    return CT_OK;
}

/* ---- making it */

static ct_status add_history(ct_train_step *t, const char *name)
{
    const ct_net *net = t->net;
    void *data = NULL;

    CT_TRY(net->options.dev->mem_acquire((size_t)net->grad_count * sizeof(float), &data));
    t->history[t->n_history] = data;
    t->history_name[t->n_history++] = name;
    return CT_OK;
}

ct_status ct_train_step_open(ct_train_step *t)
{
    const Ct__CommParameter none = CT__COMM_PARAMETER__INIT;
    const Ct__CommParameter *comm = (t->param->comm != NULL) ? t->param->comm : &none;
    const Ct__WeightAverageParameter *average = t->param->average;
    const ct_net *net = t->net;

    t->loss_scale = ct_loss_scale_open(t->param);
    t->forward_overlap =
        (t->exchange->n_rank > 1) && comm->overlap && comm->forward_overlap && !waits_for_all(t);
    t->landed = calloc((size_t)net->n_param + 1, sizeof(*t->landed));
    if (t->landed == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a training step");
    for (int i = 0; i < t->rule->n_state; i++) CT_TRY(add_history(t, t->rule->state_name[i]));
    if ((average != NULL) && (average->type != CT__WEIGHT_AVERAGE_PARAMETER__TYPE__NONE)) {
        CT_TRY(add_history(t, CT_HISTORY_AVERAGE));
        t->average = t->history[t->n_history - 1];
    }
    /* ratios of norms are a parameter's own, and an average finds a chunk in the cache */
    if ((t->rule->norms == NULL) && (t->average == NULL)) CT_TRY(ct_update_plan_open(net, &t->all));
    if ((t->exchange->share != NULL) && t->rule->corrects)
        t->exchange->share(t->exchange->ctx, t->history[0]);
    t->exec->wait = on_wait;
    t->exec->wait_ctx = t;
    return CT_OK;
}

void ct_train_step_close(ct_train_step *t)
{
    for (int i = 0; i < t->n_history; i++) t->net->options.dev->mem_release(t->history[i]);
    ct_update_plan_close(t->net, &t->all);
    t->n_history = 0;
    t->average = NULL;
    drop_owed(t);
    if (t->net != NULL) ct_late_close(t->net, &t->late);
    free(t->landed);
    t->landed = NULL;
}
