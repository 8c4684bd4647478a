/* AUTO: real steps decide. Plans are tried, one is taken, and looked after. */
#include "comm/autotune/tuner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/collective/blocking.h"
#include "framework/base/clock.h"

/* ---- from plan to plan */

static bool keeps(const ct_codec_tuner *a, int way)
{
    return (way > 0) && ct_codec_keeps(a->ways.way[way].ops, &a->ways.way[way].config);
}

static bool absorbs(const ct_codec_tuner *a, int way)
{
    return (way > 0) && a->ways.way[way].config.momentum_correction;
}

/* What is left behind on one way has no place on the other. */
static bool gives_up(const ct_codec_tuner *a, int from, int to)
{
    return keeps(a, from) && (!keeps(a, to) || (absorbs(a, from) != absorbs(a, to)));
}

static bool goes(const ct_codec_tuner *a, const int *way)
{
    return memcmp(a->way, way, sizeof(*a->way) * (size_t)a->gp->n_range) == 0;
}

/* What a trial left behind that moved weights waits, and has a way that has a place for it. */
static ct_status keep_tried(ct_codec_tuner *a)
{
    for (int i = 0; i < a->gp->n_range; ++i) {
        bool kept = false;

        CT_TRY(ct_grad_pipe_keep_tried(a->gp, i, &kept));
        if (kept && gives_up(a, a->way[i], a->home[i])) a->home[i] = a->way[i];
    }
    return CT_OK;
}

/* Plans are tried so that they cannot hurt: what codecs absorb in a trial moves no weight, and what
 * they leave behind then is forgotten. */
static ct_status try(ct_codec_tuner *a, const int *way)
{
    if (a->gp->aside == NULL) {
        memcpy(a->home, a->way, sizeof(*a->home) * (size_t)a->gp->n_range);
    } else {
        if (goes(a, way)) return CT_OK;
        CT_TRY(keep_tried(a));
    }
    ct_codec_tuner_take(a, way);
    return ct_grad_pipe_switch_codecs_to_try(a->gp);
}

static ct_status go(ct_codec_tuner *a, const int *way)
{
    if ((a->gp->aside == NULL) && goes(a, way)) return CT_OK;
    ct_codec_tuner_take(a, way);
    return ct_grad_pipe_switch_codecs(a->gp);
}

/* Steps that tell nothing of a way that was just taken: the first; and on a device the next, in
 * which it may record its work. */
static int steps_to_skip(const ct_codec_tuner *a)
{
    return (a->gp->config.dev != NULL) ? 2 : 1;
}

/* Both kinds of progress give the same numbers. */
static void take_thread(const ct_codec_tuner *a, const ct_auto_plan *p)
{
    if (ct_codec_tuner_may_thread(a)) ct_grad_pipe_use_thread(a->gp, p->apart);
}

/* What is fixed is tuned as any pipe is. */
static ct_status settle(ct_codec_tuner *a)
{
    CT_TRY(go(a, a->plan[a->next].way));
    take_thread(a, &a->plan[a->next]);
    a->phase = CT_AUTO_FIXED;
    a->held = a->next;
    CT_TRY(ct_coll_tuner_create(a->gp, a->colls_p));
    ct_trial_drift_begin(&a->drift,
                         steps_to_skip(a) +
                             ((*a->colls_p != NULL) ? ct_coll_tuner_n_step(*a->colls_p) : 0));
    return CT_OK;
}

/* ---- leaving: dense steps until what was left behind is with the weights */

/* On any rank, of ranges whose way home is given up. */
static ct_status look_for_kept(const ct_codec_tuner *a, int64_t *any_p)
{
    const ct_auto_plan *to = &a->plan[a->next];

    *any_p = 0;
    for (int i = 0; (*any_p == 0) && (i < a->gp->n_range); ++i)
        *any_p = gives_up(a, a->home[i], to->way[i]) && ct_grad_pipe_holds(a->gp, i);
    return ct_comm_max(a->gp->comm, any_p, 1);
}

static ct_status begin_leaving(ct_codec_tuner *a)
{
    CT_TRY(go(a, a->home));
    for (int i = 0; i < a->gp->n_range; ++i)
        a->gp->bucket[a->gp->bucket_of[i]].leaves =
            gives_up(a, a->home[i], a->plan[a->next].way[i]);
    a->leaving = CT_AUTO_MOST_LEAVING;
    a->phase = CT_AUTO_LEAVE;
    return CT_OK;
}

static ct_status leave(ct_codec_tuner *a)
{
    int64_t any = 0;

    CT_TRY(look_for_kept(a, &any));
    a->leaving -= 1;
    return (any > 0) ? CT_OK : settle(a);
}

/* ---- deciding */

/* Of its steps. */
static double median_ms(const ct_codec_tuner *a, int plan)
{
    return 1e-6 * ct_trial_median(ct_trial_row(&a->trial, plan), CT_TRIAL_ROUNDS);
}

/* All that was tried, in words: "512.7 412.0 …". */
static void say_tried(const ct_codec_tuner *a, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (int k = 0; (k < a->n_plan - 1) && (used < size); ++k)
        used += (size_t)snprintf(text + used, size - used, "%s%.3f", (k > 0) ? ", " : "",
                                 median_ms(a, k));
}

static ct_status take_plan(void *ctx, int plan)
{
    ct_codec_tuner *a = ctx;
    int dense = a->n_plan - 1;
    double dense_ms = median_ms(a, dense);
    char tried[96], why[224];
    int64_t any = 0;

    say_tried(a, tried, sizeof(tried));
    if (plan == dense) {
        CT_INFO("compression auto: off is faster here: %.3f ms a step, compressed %s", dense_ms,
                tried);
    } else {
        snprintf(why, sizeof(why), "as measured: %.3f ms a step so, %.3f dense, tried %s",
                 median_ms(a, plan), dense_ms, tried);
        ct_codec_tuner_log(a, &a->plan[plan], why);
    }
    a->next = plan;
    CT_TRY(keep_tried(a));
    CT_TRY(look_for_kept(a, &any));
    return (any > 0) ? begin_leaving(a) : settle(a);
}

static ct_status try_plan(void *ctx, int plan)
{
    ct_codec_tuner *a = ctx;

    CT_TRY(try(a, a->plan[plan].way));
    take_thread(a, &a->plan[plan]);
    a->trial.skip = steps_to_skip(a);
    a->phase = CT_AUTO_TRY;
    return CT_OK;
}

static int64_t whole_step(void *ctx, int64_t step_ns)
{
    (void)ctx;
    return step_ns;
}

static const ct_tried_ops plans = { .took = whole_step, .go = try_plan, .settle = take_plan };

static ct_status begin_trials(ct_codec_tuner *a)
{
    CT_TRY(ct_trial_begin(&a->trial, &ct_trial_blocks, a->n_plan, 0, a->held));
    return ct_trial_start(&a->trial, &plans, a);
}

/* What the model said when nothing hid anything is tried beside what it says now: messages take
 * more of the rank's own time than it knows. There is room for it (list_tried()); dense stays the
 * last. */
static void put_first_back(ct_codec_tuner *a, ct_auto_plan *first)
{
    size_t bytes = sizeof(int) * (size_t)a->gp->n_range;

    for (int k = 0; k < a->n_plan; ++k) {
        if (memcmp(a->plan[k].way, first->way, bytes) == 0) return;
    }
    a->plan[a->n_plan] = a->plan[a->n_plan - 1];
    a->plan[a->n_plan - 1] = *first;
    a->n_plan += 1;
    first->way = NULL;
}

static ct_status end_watch(ct_codec_tuner *a)
{
    ct_step_timeline line = { .overlap = a->gp->config.overlap ? CT_STEP_TIMELINE_BOTH
                                                               : CT_STEP_TIMELINE_OFF };
    ct_auto_plan first = { .way = malloc(sizeof(int) * ((size_t)a->gp->n_range + 1)) };
    bool seen = ct_step_observer_line(&a->watch, &line);
    ct_status status = CT_OK;

    a->watch.on = false;
    if (first.way == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to choose compression");
    memcpy(first.way, a->way, sizeof(int) * (size_t)a->gp->n_range);
    first.predicted_s = a->plan[0].predicted_s;
    first.bytes = a->plan[0].bytes;
    first.apart = a->plan[0].apart;
    status = ct_codec_tuner_plan(a, seen ? &line : NULL);
    if (status == CT_OK) put_first_back(a, &first);
    free(first.way);
    CT_TRY(status);
    return begin_trials(a);
}

/* ---- step by step */

static bool any_absorbs(const ct_codec_tuner *a)
{
    bool any = false;

    for (int w = 1; w < a->ways.n; ++w) any = any || absorbs(a, w);
    for (int k = 0; k < a->gp->n_bucket; ++k) any = any || a->gp->bucket[k].absorbed;
    return any;
}

static ct_status watch(ct_codec_tuner *a)
{
    if ((a->gp->history == NULL) && any_absorbs(a)) { /* the momentum has nowhere to go meanwhile */
        a->untried = "whose momentum it is does not share it";
        ct_codec_tuner_say_untried(a, false);
        a->phase = CT_AUTO_MODEL;
        return ct_coll_tuner_create(a->gp, a->colls_p);
    }
    /* a device computes when the host has long gone on: there is nothing to see */
    if (a->gp->config.dev != NULL) return begin_trials(a);
    if (!a->watch.on) {
        CT_TRY(try(a, a->way));
        a->watch.on = true;
        ct_step_observer_turn(&a->watch, true);
        return CT_OK;
    }
    ct_step_observer_turn(&a->watch, false);
    return (a->watch.n_cycle == CT_STEP_OBSERVER_CYCLES) ? end_watch(a) : CT_OK;
}

static ct_status look_for_drift(ct_codec_tuner *a, double last_s)
{
    double median_s = 0;
    int64_t ns = 0;

    if (!ct_trial_drift_add(&a->drift, last_s, &median_s)) return CT_OK;
    ns = (int64_t)(1e9 * median_s);
    CT_TRY(ct_comm_max(a->gp->comm, &ns, 1));
    if (!ct_trial_drift_window(&a->drift, 1e-9 * (double)ns)) return CT_OK;
    CT_INFO("compression auto: steps take %.3f ms, and %.3f when this was decided: once more",
            1e-6 * (double)ns, 1e3 * a->drift.reference_s);
    ct_coll_tuner_destroy(*a->colls_p);
    *a->colls_p = NULL;
    return begin_trials(a);
}

ct_status ct_codec_tuner_step(ct_codec_tuner *a, int64_t iteration, bool *begins_p, float *least_p)
{
    double now = ct_clock_s(), last_s = now - a->begun_at;
    ct_status status = CT_OK;

    a->begun_at = now;
    *least_p = 0;
    *begins_p = false;
    if (iteration < a->gp->config.codec_config.warmup_iterations) return CT_OK;
    switch (a->phase) {
    case CT_AUTO_MODEL:
        break;
    case CT_AUTO_LOOK:
        status = ct_codec_tuner_look(a);
        break;
    case CT_AUTO_WATCH:
        status = watch(a);
        break;
    case CT_AUTO_TRY:
        status = ct_trial_step(&a->trial, a->gp->comm, &plans, a, (int64_t)(1e9 * last_s));
        break;
    case CT_AUTO_LEAVE:
        status = leave(a);
        break;
    case CT_AUTO_FIXED:
        status = look_for_drift(a, last_s);
        break;
    }
    if (a->phase != CT_AUTO_LEAVE) return status;
    *begins_p = (a->leaving == CT_AUTO_MOST_LEAVING);
    *least_p = 1 / (float)a->leaving;
    return status;
}

void ct_codec_tuner_report(const ct_codec_tuner *a)
{
    const ct_auto_plan *taken = NULL, *dense = NULL;
    double step_s = 0, dense_s = 0;

    if ((a == NULL) || (a->phase != CT_AUTO_FIXED) || (a->drift.n_all == 0)) return;
    taken = &a->plan[a->held];
    dense = &a->plan[a->n_plan - 1];
    step_s = a->drift.all_s / (double)a->drift.n_all;
    dense_s = 1e-3 * median_ms(a, a->n_plan - 1);
    if (taken == dense) {
        CT_INFO("compression auto: off; a step took %.3f ms (mean of %lld), predicted %.3f",
                1e3 * step_s, (long long)a->drift.n_all, 1e3 * dense->predicted_s);
        return;
    }
    CT_INFO("compression auto: a step took %.3f ms (mean of %lld), predicted %.3f; dense %.3f when "
            "tried, predicted %.3f: %.3f ms a step %s, predicted %.3f",
            1e3 * step_s, (long long)a->drift.n_all, 1e3 * taken->predicted_s, 1e3 * dense_s,
            1e3 * dense->predicted_s, 1e3 * fabs(dense_s - step_s),
            (dense_s >= step_s) ? "saved" : "lost",
            1e3 * (dense->predicted_s - taken->predicted_s));
}

bool ct_codec_tuner_tries(const ct_codec_tuner *a)
{
    return (a != NULL) && (a->phase != CT_AUTO_MODEL) && (a->phase != CT_AUTO_LOOK);
}

int ct_codec_tuner_n_step(const ct_codec_tuner *a)
{
    int tune = a->gp->config.tune_iterations;

    if (!ct_codec_tuner_tries(a) || (a->phase == CT_AUTO_FIXED)) return 0;
    /* each plan, and the near ones again; then the tuning of the pipe */
    return 1 + CT_STEP_OBSERVER_CYCLES + 2 * CT_AUTO_PLANS * (CT_TRIAL_BLOCK + steps_to_skip(a)) +
           ct_coll_tuner_most(tune);
}

void ct_codec_tuner_observe(ct_codec_tuner *a, ct_grad_event event, int range)
{
    if (a == NULL) return;
    if ((event == CT_GRAD_READY) || (event == CT_GRAD_READ))
        ct_step_observer_note(
            &a->watch, (event == CT_GRAD_READY) ? CT_STEP_TIMELINE_READY : CT_STEP_TIMELINE_READ,
            range);
    else if (a->watch.on && (event == CT_GRAD_ENTER))
        ct_step_observer_enter(&a->watch, ct_clock_s());
    else if (a->watch.on)
        ct_step_observer_leave(&a->watch, ct_clock_s());
}
