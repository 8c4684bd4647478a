/* The weights of a training step, from gradients that have landed. */
#include "framework/solver/train_step.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "framework/base/clock.h"
#include "framework/base/trace.h"
#include "framework/math/math.h"

enum { UPDATE_CHUNK = 1 << 18 /* elements between two polls: some hundred microseconds */ };

bool ct_step_waits_for_all(const ct_train_step *t)
{
    return ct_update_waits_for_all(t->param) || (t->ratios.parts != NULL) ||
           (t->gradients != NULL) || (t->sync->shards && (t->rule->ratio != CT_UPDATE_NO_RATIO));
}

static ct_grad_effect effect(const ct_train_step *t, int param)
{
    return t->sync->ops->effect(t->sync->ctx, param);
}

/* After how many updates of the mean square it stays as it is; -1: it goes on. */
static int64_t frozen_at(const ct_train_step *t, int param)
{
    const ct_grad_sync_ops *ops = t->sync->ops;

    return (ops->variance_steps != NULL) ? ops->variance_steps(t->sync->ctx, param) : -1;
}

/* ---- the scale of the loss */

ct_loss_scale ct_loss_scale_open(const Ct__SolverParameter *p)
{
    bool on = (p->precision == CT__SOLVER_PARAMETER__PRECISION__FP16);

    return (ct_loss_scale){ .on = on,
                            .scale = on ? p->loss_scale : 1.0f,
                            .window = p->loss_scale_window };
}

bool ct_loss_scale_step(ct_loss_scale *s, int64_t iteration, bool finite)
{
    bool passes = ct_loss_scale_next(s, finite);

    if (!passes)
        CT_INFO("iteration %" PRId64 ": gradients are not finite, no weight changes; loss scale %g",
                iteration, (double)s->scale);
    return passes;
}

/* ---- ranges of the optimiser's states */

enum { WEIGHTS = CT_MAX_HISTORY, KEPT, WANTED };

/* While an update works on them: the rule's states, then the average; last the weights, and the
 * gradients where they are kept. */
typedef struct wanted_states {
    ct_storage_range r[WANTED];
} wanted_states;

/* status: of what was done with them. */
static ct_status give_back(const ct_train_step *t, wanted_states *w, ct_status status)
{
    for (int i = 0; i < WANTED; i++) {
        ct_status back = ct_storage_done(&w->r[i], t->pass->exec.stream);

        if (status == CT_OK) status = back;
    }
    return status;
}

/* Floats [from, from + n) of the histories [first, end), and of the weights. */
static ct_status want_states(ct_train_step *t, int first, int end, int64_t from, int64_t n,
                             wanted_states *w)
{
    ct_stream st = t->pass->exec.stream;
    ct_status status;

    *w = (wanted_states){ .r[0].storage = NULL };
    status = ct_storage_want(ct_step_weights_at(t, from), st, from, n, CT_STORAGE_UPDATE,
                             &w->r[WEIGHTS]);
    if ((status == CT_OK) && ct_step_keeps(t))
        status = ct_storage_want(&t->kept, st, from, n, CT_STORAGE_UPDATE, &w->r[KEPT]);
    for (int i = first; (i < end) && (status == CT_OK); i++)
        status = ct_storage_want(&t->history[i], st, from, n, CT_STORAGE_UPDATE, &w->r[i]);
    return (status == CT_OK) ? CT_OK : give_back(t, w, status);
}

bool ct_step_states_are_fixed(const ct_train_step *t)
{
    if (ct_host_update_is_open(&t->host)) return false; /* they are, but not on the device */
    for (int i = 0; i < t->n_history; i++)
        if (!t->history[i].ops->fixed) return false;
    return true;
}

/* ---- an average of the weights over the run: Polyak's, as an exponential moving average (EMA), or
 * the plain mean of every interval-th (Izmailov et al.: Averaging Weights Leads to Wider Optima and
 * Better Generalization, 2018, algorithm 1). Which weights count follows from the number of updates
 * alone, so a resumed run needs to know nothing but the average itself. */

/* How many weights have counted after `done` updates, and whether the last ones do. */
static int64_t counted(const Ct__WeightAverageParameter *p, int64_t done, bool *last_p)
{
    int64_t past = done - p->start_iter;
    int64_t interval = (p->type == CT__WEIGHT_AVERAGE_PARAMETER__TYPE__SWA) ? p->interval : 1;

    *last_p = (past > 0) && (past % interval == 0);
    return (past > 0) ? past / interval : 0;
}

float ct_average_share(const Ct__WeightAverageParameter *p, int64_t done)
{
    bool last;
    int64_t n = counted(p, done, &last);

    if (!last) return 0.0f;
    if (n == 1) return 1.0f;
    if (p->type == CT__WEIGHT_AVERAGE_PARAMETER__TYPE__SWA) return (float)(1.0 / (double)n);
    return 1.0f - p->decay;
}

bool ct_average_begun(const Ct__WeightAverageParameter *p, int64_t done)
{
    bool last;

    return counted(p, done, &last) > 0;
}

/* How many histories an update works on whose new weights have this share in the average. */
static int n_moved(const ct_train_step *t, float share)
{
    return t->rule->n_state + ((share > 0.0f) ? 1 : 0);
}

/* average = share weight + (1 - share) average, over n weights. */
static ct_status move_average(const ct_train_step *t, const wanted_states *w, float share,
                              int64_t n, const float *weight)
{
    if (!(share > 0.0f)) return CT_OK;
    return t->home->math->axpby(t->pass->exec.stream, n, share, weight, 1.0f - share,
                                w->r[t->rule->n_state].data);
}

/* ---- updates */

/* Floats from `from` on that all storages have together, n at most. */
static int64_t together(ct_train_step *t, int64_t from, int64_t n)
{
    const ct_storage *all[CT_MAX_HISTORY + 2] = { ct_step_weights_at(t, from), &t->kept };

    for (int i = 0; i < t->n_history; i++) all[2 + i] = &t->history[i];
    for (int i = 0; i < 2 + t->n_history; i++) {
        int64_t most = (all[i]->ops != NULL) ? ct_storage_together(all[i], from) : n;

        if (most < n) n = most;
    }
    return n;
}

static int64_t chunk(int64_t left)
{
    return (left < UPDATE_CHUNK) ? left : UPDATE_CHUNK;
}

/* Messages of other buckets move while this one is updated; the average finds a chunk in the cache;
 * states that come and go do so by chunks. */
static bool in_chunks(const ct_train_step *t, float share)
{
    return (t->pass->exec.poll != NULL) || (share > 0.0f) || !ct_step_states_are_fixed(t);
}

static float share_of_weights(const ct_train_step *t)
{
    return (t->average != NULL) ? ct_average_share(t->param->average, t->iteration + 1) : 0.0f;
}

/* All that the rule does is in the sum. What is only tried is added up as well, zero times, since
 * how long that takes counts. */
static ct_status update_absorbed(ct_train_step *t, const ct_param *p)
{
    const ct_math_ops *math = t->net->options.dev->math;
    float share = share_of_weights(t);
    float factor = (effect(t, (int)(p - t->net->param)) == CT_GRAD_TRIAL) ? 0.0f : -1.0f;
    int64_t n = 0;

    for (int64_t at = 0; at < p->count; at += n) {
        float *weight = ct_blob_data(&p->blob) + at;
        wanted_states w;

        n = in_chunks(t, share) ? chunk(p->count - at) : p->count - at;
        n = together(t, p->offset + at, n);
        CT_TRY(math->axpy(t->pass->exec.stream, n, factor, ct_blob_diff(&p->blob) + at, weight));
        CT_TRY(want_states(t, t->rule->n_state, n_moved(t, share), p->offset + at, n, &w));
        CT_TRY(give_back(t, &w, move_average(t, &w, share, n, weight)));
        CT_TRY(ct_exec_poll(&t->pass->exec));
    }
    return CT_OK;
}

/* The range [at, at + n) of a parameter. */
static void set_range(const ct_train_step *t, const ct_param *p, int64_t at, int64_t n,
                      const wanted_states *w, ct_update *u)
{
    u->count = n;
    if (!ct_host_update_is_open(&t->host)) /* which has found it */
        u->grad = ct_step_keeps(t) ? w->r[KEPT].data : ct_blob_diff(&p->blob) + at;
    u->weight = w->r[WEIGHTS].data;
    for (int i = 0; i < t->rule->n_state; i++) u->state[i] = w->r[i].data;
}

/* Piece k = 0, 1 … of a parameter that this rank updates. */
static bool own_piece(const ct_train_step *t, int i, int k, int64_t *from_p, int64_t *count_p)
{
    if (t->sync->shards) return t->sync->ops->own(t->sync->ctx, i, k, from_p, count_p);
    *from_p = 0;
    *count_p = t->net->param[i].count;
    return k == 0;
}

/* How many of `most` elements of a parameter are worked on at once, from `at` on. On the host they
 * have come down when this returns. */
static ct_status find_range(ct_train_step *t, const ct_param *p, int64_t at, int64_t most,
                            int64_t *n_p, ct_update *u)
{
    *n_p = together(t, p->offset + at, most);
    if (!ct_host_update_is_open(&t->host)) return CT_OK;
    return ct_host_gradient(&t->host, t->pass->exec.stream, (int)(p - t->net->param), at, n_p,
                            &u->grad);
}

/* New weights go to the device, unless they come there when they are read. */
static ct_status send_weights(const ct_train_step *t, const ct_param *p, int64_t at, int64_t n,
                              const float *weight)
{
    if (!ct_host_update_is_open(&t->host) || ct_step_has_visits(t)) return CT_OK;
    return t->net->options.dev->upload(t->pass->exec.stream, ct_blob_data(&p->blob) + at, weight,
                                       (size_t)n * sizeof(float));
}

/* What a trust ratio is of, squared, of a piece of a parameter. */
static ct_status add_norms(ct_train_step *t, const ct_param *p, int64_t from, int64_t count,
                           ct_update *u)
{
    int list = 2 * (int)(p - t->net->param);

    for (int64_t at = 0; at < count; at += u->count) {
        wanted_states states;
        int64_t n;

        CT_TRY(find_range(t, p, from + at, chunk(count - at), &n, u));
        CT_TRY(want_states(t, 0, t->rule->n_state, p->offset + from + at, n, &states));
        set_range(t, p, from + at, n, &states, u);
        CT_TRY(give_back(t, &states,
                         ct_update_add_norms(t->rule->ratio, u, from + at, list, &t->squares)));
        CT_TRY(ct_exec_poll(&t->pass->exec));
    }
    return CT_OK;
}

/* Of the pieces that are here; under shards find_ratios() has made them, of all ranks. */
static ct_status find_norms(ct_train_step *t, const ct_param *p, ct_update *u, double *weight_p,
                            double *step_p)
{
    int list = 2 * (int)(p - t->net->param);

    if (!t->sync->shards) {
        ct_square_sums_begin(&t->squares, list, 2);
        CT_TRY(add_norms(t, p, 0, p->count, u));
    }
    return ct_update_norms(t->rule->ratio, u, list, &t->squares, weight_p, step_p);
}

/* One axis, as biases, scales and shifts have it: no ratio. */
static ct_status find_trust(ct_train_step *t, const ct_param *p, ct_update *u)
{
    int i = (int)(p - t->net->param);
    double weight = 0.0, step = 0.0;

    if (t->rule->ratio == CT_UPDATE_NO_RATIO) return CT_OK;
    if (t->ratios.parts != NULL) {
        weight = ct_part_sums_of(&t->ratios, i, 0);
        step = ct_part_sums_of(&t->ratios, i, 1);
    } else {
        CT_TRY(find_norms(t, p, u, &weight, &step));
    }
    if ((weight > 0.0) && (step > 0.0) && (p->blob.data.shape.ndim > 1))
        u->trust = ct_update_rule_trust(t->rule, t->param, u, sqrt(weight), sqrt(step));
    return CT_OK;
}

/* All but the range, for multipliers of the rate and the decay. */
static ct_update numbers(const ct_train_step *t, float lr_mult, float decay_mult)
{
    const Ct__SolverParameter *s = t->param;
    float decay = s->weight_decay * decay_mult;
    bool l1 = (s->regularization_type != NULL) && (strcmp(s->regularization_type, "L1") == 0);
    ct_update u = { .dev = t->home,
                    .scale = t->scale,
                    .rate = (float)t->rate * lr_mult,
                    .decay_l2 = l1 ? 0.0f : decay,
                    .decay_l1 = l1 ? decay : 0.0f };

    ct_update_rule_numbers(t->rule, s, t->iteration, &u);
    return u;
}

/* … of parameter i, whose mean square may stay as it is. */
static ct_update numbers_of(const ct_train_step *t, int i)
{
    const ct_param *p = &t->net->param[i];
    ct_update u = numbers(t, p->lr_mult, p->decay_mult);
    int64_t steps = frozen_at(t, i);

    if (steps >= 0) ct_update_rule_freeze(t->rule, t->param, t->iteration, steps, &u);
    return u;
}

/* Parameters from `first` on that learn and that the same ranks share out, and these ranks. */
static int shared_alike(const ct_train_step *t, int first, const ct_group **g_p)
{
    int i = first;

    while ((i < t->net->n_param) && t->net->param[i].learns) {
        const ct_group *g = ct_step_sharers(t, &t->net->param[i]);

        if ((i > first) && (g != *g_p)) break;
        *g_p = g;
        i++;
    }
    return i - first;
}

/* Of the pieces of all parameters: each rank adds its own. */
static ct_status share_ratios(ct_train_step *t)
{
    const ct_group *g = NULL;
    int64_t from, count;

    ct_square_sums_begin(&t->squares, 0, 2 * t->net->n_param);
    for (int i = 0; i < t->net->n_param; i++) {
        const ct_param *p = &t->net->param[i];
        ct_update u = numbers(t, p->lr_mult, p->decay_mult);

        for (int k = 0; p->learns && own_piece(t, i, k, &from, &count); k++)
            CT_TRY(add_norms(t, p, from, count, &u));
    }
    for (int first = 0, n = 0; (n = shared_alike(t, first, &g)) > 0; first += n)
        CT_TRY(ct_square_sums_share(g, &t->squares, 2 * first, 2 * n));
    return CT_OK;
}

/* Of all parameters at once: each rank has parts of some. What is late of a residual is not in it.
 */
static ct_status find_ratios(ct_train_step *t)
{
    if (t->sync->shards && (t->rule->ratio != CT_UPDATE_NO_RATIO)) CT_TRY(share_ratios(t));
    if (t->ratios.parts == NULL) return CT_OK;
    ct_part_sums_begin(&t->ratios);
    for (int i = 0; i < t->net->n_param; i++) {
        const ct_param *p = &t->net->param[i];
        ct_update u = numbers(t, p->lr_mult, p->decay_mult);
        double weight = 0.0, step = 0.0;

        if (!p->learns || (effect(t, i) != CT_GRAD_SUM)) continue;
        CT_TRY(find_norms(t, p, &u, &weight, &step));
        ct_part_sums_put(&t->ratios, i, 0, weight);
        ct_part_sums_put(&t->ratios, i, 1, step);
    }
    return ct_part_sums_end(&t->ratios);
}

/* The first time that its mean square stays as it is; in pieces, whose first has at 0. */
static void freeze(const ct_train_step *t, int param, const ct_update *u)
{
    if ((frozen_at(t, param) >= 0) && !t->frozen[param])
        ct_update_floor_squares(u->count, u->state[1]);
}

static ct_status update_range(ct_train_step *t, const ct_param *p, int64_t at, int64_t n,
                              float share, ct_update *u)
{
    wanted_states w;
    ct_status status;

    CT_TRY(want_states(t, 0, n_moved(t, share), p->offset + at, n, &w));
    set_range(t, p, at, n, &w, u);
    freeze(t, (int)(p - t->net->param), u);
    status = ct_update_rule_apply(t->rule, u);
    if (status == CT_OK) status = move_average(t, &w, share, n, u->weight);
    if (status == CT_OK) status = send_weights(t, p, at, n, u->weight);
    return give_back(t, &w, status);
}

static ct_status update_piece(ct_train_step *t, const ct_param *p, int64_t from, int64_t count,
                              ct_update *u)
{
    float share = share_of_weights(t);
    bool chunks = in_chunks(t, share);

    for (int64_t at = 0; at < count; at += u->count) {
        int64_t n;

        CT_TRY(find_range(t, p, from + at, chunks ? chunk(count - at) : count - at, &n, u));
        CT_TRY(update_range(t, p, from + at, n, share, u));
        CT_TRY(ct_exec_poll(&t->pass->exec));
    }
    return CT_OK;
}

static ct_status update_param(ct_train_step *t, const ct_param *p)
{
    int i = (int)(p - t->net->param);
    ct_update u = numbers_of(t, i);
    int64_t from, count;

    CT_TRY(find_trust(t, p, &u));
    for (int k = 0; own_piece(t, i, k, &from, &count); k++)
        CT_TRY(update_piece(t, p, from, count, &u));
    t->frozen[i] = t->frozen[i] || (frozen_at(t, i) >= 0);
    if (ct_host_update_is_open(&t->host)) ct_host_gradient_done(&t->host, i);
    return CT_OK;
}

ct_status ct_step_update_piece(ct_train_step *t, int param, int64_t from, int64_t count)
{
    const ct_param *p = &t->net->param[param];
    ct_update u = numbers_of(t, param);
    double start = ct_clock_s(), traced = ct_trace_start(t->pass->exec.trace);

    CT_TRY(update_piece(t, p, from, count, &u));
    t->update_s += ct_clock_s() - start;
    ct_trace_end(t->pass->exec.trace, traced, CT_TRACE_UPDATE, NULL, p->key);
    return CT_OK;
}

/* The device updates by its plan. */
static bool by_plan(const ct_train_step *t)
{
    return ct_update_plan_is_open(&t->all) && !ct_host_update_is_open(&t->host);
}

/* How many parameters from `first` on may go in one pass. */
static int at_once(const ct_train_step *t, int first, int end)
{
    const ct_param *p = t->net->param;
    int i = first;

    if (!by_plan(t)) return 0;
    while ((i < end) && p[i].learns && (effect(t, i) == CT_GRAD_SUM) &&
           !ct_residual_drain_has(&t->late, i) && (p[i].grad_shift == p[first].grad_shift))
        i++;
    return i - first;
}

/* Kernels index the states as the arena, so their addresses are those of its start: a device's
 * number, which nothing reads before the range. */
static void take_states(const ct_train_step *t, const wanted_states *w, ct_update *u,
                        float **average_p)
{
    int64_t from = w->r[WEIGHTS].from;

    for (int i = 0; i < t->rule->n_state; i++) u->state[i] = w->r[i].data - from;
    if (t->average != NULL) *average_p = w->r[t->rule->n_state].data - from;
}

/* Elements [from, to) of the arena, which all storages have together. The trust ratios of n
 * parameters from `first` on, which begin there, are found first; n 0: they are known. */
static ct_status update_lines(ct_train_step *t, ct_update *u, int64_t from, int64_t to, int first,
                              int n)
{
    ct_stream st = t->pass->exec.stream;
    float *average = NULL;
    ct_status status;
    wanted_states w;

    CT_TRY(want_states(t, 0, t->n_history, from, to - from, &w));
    take_states(t, &w, u, &average);
    status =
        ct_update_plan_trust(t->net, &t->all, st, u, (double)t->param->local_gw_ratio, first, n);
    if (status == CT_OK)
        status = ct_update_plan_run(t->net, &t->all, st, t->rule->kind, u, average, from, to);
    return give_back(t, &w, status);
}

/* States that come and go do so by chunks. */
static ct_status update_many(ct_train_step *t, int first, int n)
{
    const ct_net *net = t->net;
    ct_update u = numbers(t, 1.0f, 1.0f);
    int64_t from, to, end;

    ct_update_plan_range(net, first, n, &from, &to);
    u.count = net->grad_count;
    u.grad = net->grad_arena + net->param[first].grad_shift;
    u.weight = net->weight_arena;
    for (int64_t at = from; at < to; at = end) {
        end = at + together(t, at, to - at);
        if ((end < to) && (t->rule->ratio == CT_UPDATE_RATIO_STEP))
            return CT_FAIL(CT_ERR_ARG, "the norms of a step are of whole parameters, whose states "
                                       "come by chunks");
        CT_TRY(update_lines(t, &u, at, end, first, (at == from) ? n : 0));
    }
    return CT_OK;
}

static ct_status update_one(ct_train_step *t, int i)
{
    const ct_param *p = &t->net->param[i];

    if (effect(t, i) != CT_GRAD_SUM) return update_absorbed(t, p);
    return by_plan(t) ? update_many(t, i, 1) : update_param(t, p);
}

/* An average sees in the next step what comes late. */
static ct_status update_with_late(ct_train_step *t, int i)
{
    if (!ct_residual_drain_has(&t->late, i)) return update_one(t, i);
    CT_TRY(ct_residual_drain_begin(t->net, &t->late, t->pass->exec.stream, i));
    CT_TRY(update_one(t, i));
    return ct_residual_drain_end(t->net, &t->late, t->pass->exec.stream, i,
                                 (float)t->rate * t->net->param[i].lr_mult);
}

ct_status ct_step_update(ct_train_step *t, int first, int n)
{
    double start = ct_clock_s(), traced = ct_trace_start(t->pass->exec.trace);

    if (t->refused) return CT_OK;
    for (int i = first; i < first + n; i++) {
        int many = at_once(t, i, first + n);

        if (many > 0) {
            CT_TRY(update_many(t, i, many));
            i += many - 1;
            continue;
        }
        if (t->net->param[i].learns) CT_TRY(update_with_late(t, i));
    }
    t->update_s += ct_clock_s() - start;
    ct_trace_end(t->pass->exec.trace, traced, CT_TRACE_UPDATE, NULL,
                 (n > 0) ? t->net->param[first].key : NULL);
    return CT_OK;
}

/* clip_gradients is a limit of the sum over iter_size batches as it is, as Caffe has it; with
 * batch_tokens, where nobody says how many there are, of their mean. Of the micro-batches that a
 * parallel file cuts a batch into it is one of the mean, too. */
static double limited(const ct_train_step *t)
{
    if (t->param->batch_tokens > 0) return (double)t->iter_size;
    return (t->micro_batches > 0) ? (double)t->micro_batches : 1.0;
}

/* Of the sum; below 0: none. */
static double limit_of(const ct_train_step *t)
{
    return ct_update_clips(t->param) ? (double)t->param->clip_gradients * limited(t) : -1.0;
}

static void tell_clipping(const ct_train_step *t, double norm)
{
    double limit = limit_of(t);

    if ((limit >= 0.0) && (norm > limit))
        CT_INFO("Gradient clipping: scaling down gradients (L2 norm %g > %g) by scale factor %g",
                norm / limited(t), limit / limited(t), limit / norm);
}

/* What the device has decided by itself, which the host accounts for. */
static void hear_norm(void *ctx, int64_t iteration, double norm)
{
    ct_train_step *t = ctx;

    if (ct_loss_scale_step(&t->loss_scale, iteration, isfinite(norm))) tell_clipping(t, norm);
}

ct_status ct_step_add_norm(ct_train_step *t, int first, int n)
{
    double start = ct_clock_s();

    if (!ct_grad_norm_is_open(&t->norm) || (t->gradients != NULL)) return CT_OK;
    CT_TRY(ct_grad_norm_landed(t->net, &t->norm, &t->pass->exec, first, n));
    t->norm_s += ct_clock_s() - start;
    return CT_OK;
}

/* Floats from `from` on that may be wanted at once of what is kept, n at most. */
static int64_t kept_together(const ct_train_step *t, int64_t from, int64_t n)
{
    int64_t most = ct_storage_together(&t->kept, from);

    return (most < n) ? most : n;
}

ct_status ct_step_add_part(ct_train_step *t, int param, int64_t from, int64_t count)
{
    const ct_param *p = &t->net->param[param];
    double start = ct_clock_s();
    ct_status status = CT_OK, back;

    for (int64_t at = 0, n = 0; (at < count) && (status == CT_OK); at += n) {
        const float *data = ct_blob_diff(&p->blob) + from + at;
        ct_storage_range kept = { .storage = NULL };

        n = count - at;
        if (ct_step_keeps(t)) {
            n = kept_together(t, p->offset + from + at, n);
            CT_TRY(
                ct_storage_want(&t->kept, NULL, p->offset + from + at, n, CT_STORAGE_READ, &kept));
            data = kept.data;
        }
        status = ct_grad_norm_part(t->net, &t->norm, &t->pass->exec, param, from + at, n, data);
        back = ct_storage_done(&kept, NULL);
        if (status == CT_OK) status = back;
    }
    t->norm_s += ct_clock_s() - start;
    return status;
}

ct_status ct_step_keep(ct_train_step *t, int param, int64_t from, int64_t count)
{
    const ct_param *p = &t->net->param[param];
    const float *sum = ct_blob_diff(&p->blob) + from;
    ct_storage_use use = t->first ? CT_STORAGE_WRITE : CT_STORAGE_UPDATE;
    ct_status status = CT_OK, back;

    for (int64_t at = 0, n = 0; (at < count) && (status == CT_OK); at += n) {
        ct_storage_range kept;

        n = kept_together(t, p->offset + from + at, count - at);
        CT_TRY(ct_storage_want(&t->kept, NULL, p->offset + from + at, n, use, &kept));
        if (t->first)
            memcpy(kept.data, sum + at, (size_t)n * sizeof(*sum));
        else
            status = t->net->options.dev->math->axpy(NULL, n, 1.0f, sum + at, kept.data);
        back = ct_storage_done(&kept, NULL);
        if (status == CT_OK) status = back;
    }
    return status;
}

static ct_status square(ct_train_step *t, double *square_p)
{
    const ct_net *net = t->net;

    if (ct_grad_norm_is_open(&t->norm)) return ct_grad_norm_square(&t->norm, square_p);
    return net->options.dev->math->sumsq(t->pass->exec.stream, net->grad_count, net->grad_arena,
                                         square_p);
}

static ct_status share_norm(ct_train_step *t)
{
    const ct_group *g = NULL;

    for (int first = 0, n = 0; (n = shared_alike(t, first, &g)) > 0; first += n)
        CT_TRY(ct_grad_norm_share(g, first, n, &t->norm));
    return CT_OK;
}

static ct_status clip(ct_train_step *t, double limit)
{
    double norm = 0.0;

    if (t->sync->shards) CT_TRY(share_norm(t));
    CT_TRY(square(t, &norm));
    norm = sqrt(norm);
    tell_clipping(t, norm);
    if ((limit >= 0.0) && (norm > limit)) t->scale *= (float)(limit / norm);
    return CT_OK;
}

/* What the device has decided, for the host. */
static ct_status take_decision(ct_train_step *t)
{
    ct_step_there now;

    if (!ct_host_update_is_open(&t->host)) return CT_OK;
    CT_TRY(t->net->options.dev->to_host(t->pass->exec.stream, &now, t->all.at, sizeof(now)));
    t->scale = now.now.scale;
    t->refused = now.refused;
    return CT_OK;
}

/* All gradients are there. The norm is that of the sum, before it is divided by iter_size; padding
 * is zero, so that it adds nothing. A device that has the step's numbers goes on by itself, and
 * changes nothing where 16 bits were too few for a gradient. */
ct_status ct_step_update_all(ct_train_step *t)
{
    const ct_net *net = t->net;
    double limit = limit_of(t);

    if (ct_update_plan_is_open(&t->all)) {
        CT_TRY(t->all.ops->decide(t->pass->exec.stream, t->all.at, net->grad_count, net->grad_arena,
                                  limit));
        CT_TRY(take_decision(t));
        return ct_step_update(t, 0, net->n_param);
    }
    if (t->gradients != NULL) CT_TRY(t->gradients(t->gradients_ctx));
    if (ct_update_waits_for_all(t->param) && !t->refused) CT_TRY(clip(t, limit));
    CT_TRY(find_ratios(t));
    return ct_step_update(t, 0, net->n_param);
}

/* The step's numbers, for a device that reads them there. */
ct_status ct_step_put_numbers(ct_train_step *t)
{
    ct_update u = numbers(t, 1.0f, 1.0f);
    ct_step_numbers now = { u.scale, u.rate, u.correction, u.correction2, 0.0f };

    if (!ct_update_plan_is_open(&t->all)) return CT_OK;
    now.average = share_of_weights(t);
    return ct_update_plan_begin(t->net, &t->all, t->pass->exec.stream, &now, &t->loss_scale);
}

/* ---- what the device decides */

ct_status ct_step_tell(ct_train_step *t)
{
    if (!ct_step_waits_for_all(t) || !ct_update_plan_is_open(&t->all)) return CT_OK;
    return ct_update_plan_tell(t->net, &t->all, t->pass->exec.stream, t->iteration);
}

ct_status ct_step_hear(ct_train_step *t, bool all)
{
    return ct_update_plan_hear(t->net, &t->all, all, hear_norm, t);
}
