#include "comm/grad_auto.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/auto_rule.h"
#include "comm/choose.h"
#include "comm/coded_cost.h"
#include "comm/coded_types.h"
#include "comm/coding.h"
#include "comm/grad_tune.h"
#include "comm/watch.h"
#include "framework/base/clock.h"

enum {
    MOST_TRIED = 2,      /* plans with codecs                                        */
    LOOK_COUNT = 1 << 20 /* elements of the allreduce that shows how fast the network is */
};

static const double margin = 0.02;   /* of a dense step: what a codec has to gain    */
static const double near_best = 1.3; /* of the best plan's predicted step: what is tried */

typedef enum {
    PHASE_MODEL, /* the model decided, and that is that   */
    PHASE_WATCH, /* how long computation takes            */
    PHASE_TRY,   /* a plan takes its steps                */
    PHASE_FOLD,  /* the step that is over was dense: now to a plan that keeps nothing */
    PHASE_FIXED
} auto_phase;

typedef struct auto_plan {
    int *way; /* [n_range] */
    double predicted_s, bytes;
    ct_auto_times times;
} auto_plan;

struct ct_grad_auto {
    ct_grad_pipe *gp;
    ct_choose_ways ways;
    ct_coded_comm_costs costs;
    ct_grad_sizes sizes;
    ct_grad_range *range; /* [n_range] as the configuration has them */
    ct_coded_seconds *seconds;
    int64_t *count; /* [n_range] */
    ct_watch watch;
    auto_phase phase;
    bool fold; /* the step that begins sends everything */
    int n_plan;
    auto_plan plan[MOST_TRIED + 1]; /* the last is dense                     */
    int *way;                       /* [n_range] that the pipe goes          */
    int at, next;                   /* plan that is tried; FOLD: to go to     */
    bool decided, again;            /* next is for good; it was near, and all is tried once more */
    int skip;
    double begun_at;
    ct_auto_drift drift;
    int held; /* the plan that was decided on; -1: none yet */
};

/* ---- creation */

void ct_grad_auto_destroy(ct_grad_auto *a)
{
    if (a == NULL) return;
    for (int k = 0; k < a->n_plan; ++k) free(a->plan[k].way);
    ct_watch_release(&a->watch);
    free(a->range);
    free(a->seconds);
    free(a->count);
    free(a->way);
    free(a);
}

static ct_status acquire(ct_grad_auto *a)
{
    const ct_grad_pipe *gp = a->gp;
    size_t n = (size_t)gp->n_range + 1;

    a->range = malloc(sizeof(*a->range) * n);
    a->seconds = calloc(n * CT_CHOOSE_WAYS, sizeof(*a->seconds));
    a->count = malloc(sizeof(*a->count) * n);
    a->way = malloc(sizeof(*a->way) * n);
    if ((a->range == NULL) || (a->seconds == NULL) || (a->count == NULL) || (a->way == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory to choose compression");
    for (int i = 0; i < gp->n_range; ++i) {
        a->range[i] = gp->range[i];
        a->count[i] = gp->range[i].count;
        a->way[i] = ct_choose_is_open(&gp->config, &gp->range[i]) ? 0 : -1;
    }
    return CT_OK;
}

static double dense_s(void *ctx, int64_t bytes)
{
    return ct_coded_sum_s(ctx, CT_F32, bytes);
}

/* Nothing to hide behind: gradients are ready at once, and weights are read at once. */
static ct_status empty_line(const ct_grad_auto *a, ct_line_event **list_p, ct_line *line)
{
    int n = a->gp->n_range;
    ct_line_event *list = calloc(2 * (size_t)n + 1, sizeof(*list));

    if (list == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a step's line");
    for (int i = 0; i < n; ++i) {
        list[i] = (ct_line_event){ .kind = CT_LINE_READY, .range = i };
        list[n + i] = (ct_line_event){ .kind = CT_LINE_READ, .range = n - 1 - i };
    }
    line->backward = list;
    line->forward = list + n;
    line->n_backward = line->n_forward = n;
    *list_p = list;
    return CT_OK;
}

/* line: its lists are there. */
static ct_status choose_on(ct_grad_auto *a, ct_line *line, ct_choose *c)
{
    line->n_range = a->gp->n_range;
    line->count = a->count;
    line->update_s = ct_coded_stream_s(&a->costs.costs, 20); /* momentum, weight and gradient */
    *c = (ct_choose){ .config = &a->gp->config,
                      .sizes = &a->sizes,
                      .range = a->range,
                      .n_range = a->gp->n_range,
                      .n_rank = a->gp->comm->size,
                      .ways = &a->ways,
                      .seconds = a->seconds,
                      .dense_s = dense_s,
                      .ctx = &a->costs.costs,
                      .line = line,
                      .margin = margin };
    return ct_choose_run(c);
}

/* ---- agreeing: rank 0's plans */

static ct_status share(ct_grad_auto *a, ct_status status, const ct_choose *c)
{
    ct_comm *comm = a->gp->comm;
    size_t bytes = sizeof(int) * (size_t)a->gp->n_range;
    int n = 0;

    for (int k = 0; k < a->n_plan; ++k) free(a->plan[k].way);
    a->n_plan = 0;
    if (comm->rank == 0) {
        if (status == CT_OK) n = c->n_plan;
        while ((n > 2) && (c->plan[n - 2].times.step_s > near_best * c->plan[0].times.step_s))
            n -= 1;
        if (n > MOST_TRIED + 1) n = MOST_TRIED + 1;
    }
    CT_TRY(ct_comm_broadcast(comm, &n, sizeof(n)));
    if (n == 0)
        return (status != CT_OK) ? status
                                 : CT_FAIL(CT_ERR_COMM, "rank 0 could not choose compression");
    for (int k = 0; k < n; ++k) {
        auto_plan *p = &a->plan[a->n_plan];
        double figures[2] = { 0, 0 };

        *p = (auto_plan){ .way = malloc(bytes + 1) };
        if (p->way == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to choose compression");
        a->n_plan += 1;
        if (comm->rank == 0) { /* dense is the last in any case */
            const ct_choose_plan *from = &c->plan[(k == n - 1) ? c->n_plan - 1 : k];

            memcpy(p->way, from->way, bytes);
            figures[0] = from->times.step_s;
            figures[1] = from->bytes;
        }
        CT_TRY(ct_comm_broadcast(comm, p->way, bytes));
        CT_TRY(ct_comm_broadcast(comm, figures, sizeof(figures)));
        p->predicted_s = figures[0];
        p->bytes = figures[1];
    }
    return CT_OK;
}

/* Rank 0 chooses on its line; NULL: on an empty one, or the configuration's. */
static ct_status plan_on(ct_grad_auto *a, ct_line *seen)
{
    const ct_line *given = a->gp->config.line;
    ct_line line = { .overlap = CT_LINE_BOTH };
    ct_line_event *list = NULL;
    ct_choose c = { .n_plan = 0 };
    ct_status status = CT_OK;

    if (a->gp->comm->rank == 0) {
        if (seen != NULL)
            line = *seen;
        else if (given != NULL)
            line = *given;
        else
            status = empty_line(a, &list, &line);
        if (status == CT_OK) status = choose_on(a, &line, &c);
    }
    status = share(a, status, &c);
    ct_choose_release(&c);
    free(list);
    return status;
}

static void take(ct_grad_auto *a, const auto_plan *p)
{
    memcpy(a->way, p->way, sizeof(*a->way) * (size_t)a->gp->n_range);
    memcpy(a->gp->range, a->range, sizeof(*a->range) * (size_t)a->gp->n_range);
    ct_choose_apply(&a->ways, a->way, a->gp->range, a->gp->n_range);
}

/* ---- words */

static void log_plan(const ct_grad_auto *a, const auto_plan *p, const char *why)
{
    enum { MOST_LINES = 24 };
    int n_coded = 0, n_open = 0, n_line = 0;
    const auto_plan *dense = &a->plan[a->n_plan - 1];

    for (int i = 0; i < a->gp->n_range; ++i) {
        n_open += (p->way[i] >= 0);
        n_coded += (p->way[i] > 0);
    }
    CT_INFO("compression auto: %d of %d parameters compressed, %s; predicted %.3f ms a step, dense "
            "%.3f; %.4g MB sent, dense %.4g",
            n_coded, n_open, why, 1e3 * p->predicted_s, 1e3 * dense->predicted_s, 1e-6 * p->bytes,
            1e-6 * dense->bytes);
    for (int i = 0; (i < a->gp->n_range) && (n_line < MOST_LINES); ++i) {
        const ct_coded_seconds *s = a->seconds + (size_t)i * CT_CHOOSE_WAYS;
        double dense_ms = 1e3 * dense_s((void *)(uintptr_t)&a->costs.costs, 4 * a->count[i]);

        if (p->way[i] <= 0) continue;
        s += p->way[i];
        n_line += 1;
        CT_INFO("compression auto: %s by %s%s%s: alone %.3g ms in place of %.3g, of which coding "
                "%.3g",
                a->range[i].key, a->ways.way[p->way[i]].ops->name,
                (s->exchange != NULL) ? ", " : "", (s->exchange != NULL) ? s->exchange : "",
                1e3 * (s->encode_s + s->wire_s + s->decode_s), dense_ms,
                1e3 * (s->encode_s + s->decode_s));
    }
}

/* ---- creation, continued */

static int64_t largest_open(const ct_grad_auto *a)
{
    int64_t most = 0;

    for (int i = 0; i < a->gp->n_range; ++i) {
        if ((a->way[i] >= 0) && (a->count[i] > most)) most = a->count[i];
    }
    return most;
}

static bool is_dense(const ct_grad_auto *a)
{
    bool dense = true;

    for (int i = 0; i < a->gp->n_range; ++i) dense = dense && (a->way[i] <= 0);
    return dense;
}

/* deterministic: in each run the same numbers, so none that are measured. */
static ct_status prepare(ct_grad_auto *a, int64_t most)
{
    ct_grad_pipe *gp = a->gp;
    const ct_grad_pipe_config *config = &gp->config;
    ct_coded_costs *m = &a->costs.costs;

    CT_TRY(ct_choose_list(&config->codec_config, config->deterministic, &a->ways));
    CT_TRY(ct_grad_sizes_find(gp->comm, config, gp->range, gp->n_range, &a->sizes));
    if (!config->deterministic) CT_TRY(ct_coding_find(gp->comm));
    CT_TRY(ct_coded_costs_of(gp->comm, config->allreduce, &a->costs));
    if (!config->deterministic) {
        CT_TRY(ct_coding_calibrate(gp->comm, config->allreduce,
                                   (most < LOOK_COUNT) ? most : LOOK_COUNT, &m->sum_factor,
                                   &m->wire_factor));
        CT_INFO("compression auto: an allreduce takes %.3g times, a sparse exchange's messages "
                "%.3g times what the model says",
                m->sum_factor, m->wire_factor);
    }
    ct_choose_seconds(m, config, a->range, gp->n_range, &a->ways, a->seconds);
    return plan_on(a, NULL);
}

ct_status ct_grad_auto_create(ct_grad_pipe *gp, ct_grad_auto **a_p)
{
    ct_grad_auto *a = calloc(1, sizeof(*a));
    int64_t most = 0;
    ct_status status = CT_OK;

    if (a == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to choose compression");
    a->gp = gp;
    a->held = -1;
    CT_TRY_GOTO(status, done, acquire(a));
    most = largest_open(a);
    if ((gp->comm->size == 1) || (most == 0)) { /* nothing travels, or nothing large */
        for (int i = 0; i < gp->n_range; ++i) {
            if (a->way[i] < 0) continue;
            gp->range[i].codec = &ct_coded_none;
            gp->range[i].codec_config = &gp->config.codec_config;
        }
        goto done;
    }
    CT_TRY_GOTO(status, done, prepare(a, most));
    take(a, &a->plan[0]);
    log_plan(a, &a->plan[0],
             is_dense(a)                 ? "off is faster here"
             : (gp->config.line == NULL) ? "were there nothing to hide behind"
                                         : "by the model");
    a->phase = ((gp->config.tune_iterations > 0) && (gp->config.line == NULL) && !is_dense(a))
                   ? PHASE_WATCH
                   : PHASE_MODEL;
    *a_p = a;
    return CT_OK;

done:
    ct_grad_auto_destroy(a);
    return status;
}

/* ---- from plan to plan */

static bool keeps(const ct_grad_auto *a, int way)
{
    return (way > 0) && a->ways.way[way].ops->keeps;
}

static bool must_fold(const ct_grad_auto *a, const auto_plan *p)
{
    bool must = false;

    for (int i = 0; i < a->gp->n_range; ++i)
        must = must || (keeps(a, a->way[i]) && !keeps(a, p->way[i]));
    return must;
}

static bool goes(const ct_grad_auto *a, const auto_plan *p)
{
    return memcmp(a->way, p->way, sizeof(*a->way) * (size_t)a->gp->n_range) == 0;
}

static ct_status change(ct_grad_auto *a, const auto_plan *p)
{
    if (goes(a, p)) return CT_OK;
    take(a, p);
    return ct_grad_pipe_recode(a->gp);
}

/* What is fixed is tuned as any pipe is. */
static ct_status arrive(ct_grad_auto *a)
{
    CT_TRY(change(a, &a->plan[a->next]));
    a->at = a->next;
    a->skip = 1;
    a->phase = PHASE_TRY;
    if (!a->decided) return CT_OK;
    a->phase = PHASE_FIXED;
    a->held = a->at;
    CT_TRY(ct_grad_tune_create(a->gp, &a->gp->tune));
    ct_auto_drift_begin(&a->drift,
                        (a->gp->tune != NULL) ? ct_grad_tune_n_step(a->gp->tune) + 1 : 1);
    return CT_OK;
}

/* With a dense step before, where something is kept that the next plan has no place for. */
static ct_status go(ct_grad_auto *a, int plan, bool for_good)
{
    a->next = plan;
    a->decided = for_good;
    if (!must_fold(a, &a->plan[plan])) return arrive(a);
    a->fold = true;
    a->phase = PHASE_FOLD;
    return CT_OK;
}

/* ---- deciding */

static int best_coded(const ct_grad_auto *a)
{
    int best = 0;

    for (int k = 1; k < a->n_plan - 1; ++k) {
        if (ct_auto_median(&a->plan[k].times) < ct_auto_median(&a->plan[best].times)) best = k;
    }
    return best;
}

static ct_status decide(ct_grad_auto *a)
{
    int dense = a->n_plan - 1, coded = best_coded(a);
    const ct_auto_times *c = &a->plan[coded].times, *d = &a->plan[dense].times;
    bool takes = false;
    char why[160];

    if (ct_auto_is_near(c, d) && !a->again) {
        a->again = true;
        return go(a, coded, false);
    }
    takes = ct_auto_takes(c, d,
                          a->held < 0          ? CT_AUTO_NEW
                          : (a->held == dense) ? CT_AUTO_DENSE
                                               : CT_AUTO_CODED);
    snprintf(why, sizeof(why), "as measured: %.3f ms a step so, %.3f dense",
             1e3 * ct_auto_median(c), 1e3 * ct_auto_median(d));
    if (takes) {
        log_plan(a, &a->plan[coded], why);
    } else {
        CT_INFO("compression auto: off is faster here: %.3f ms a step, %.3f compressed",
                1e3 * ct_auto_median(d), 1e3 * ct_auto_median(c));
    }
    return go(a, takes ? coded : dense, true);
}

/* The plan has had its steps. */
static ct_status try_next(ct_grad_auto *a)
{
    int dense = a->n_plan - 1;

    if (a->at == dense) return decide(a);
    /* the second time, the best and dense alone */
    return go(a, a->again ? dense : a->at + 1, false);
}

static ct_status begin_trials(ct_grad_auto *a)
{
    for (int k = 0; k < a->n_plan; ++k) a->plan[k].times.n = 0;
    a->again = false;
    return go(a, 0, false);
}

static ct_status end_watch(ct_grad_auto *a)
{
    ct_line line = { .overlap = a->gp->config.overlap ? CT_LINE_BOTH : CT_LINE_OFF };
    auto_plan first = { .way = malloc(sizeof(int) * ((size_t)a->gp->n_range + 1)) };
    bool seen = ct_watch_line(&a->watch, &line);
    ct_status status = CT_OK;

    a->watch.on = false;
    if (first.way == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to choose compression");
    memcpy(first.way, a->way, sizeof(int) * (size_t)a->gp->n_range);
    first.predicted_s = a->plan[0].predicted_s;
    first.bytes = a->plan[0].bytes;
    status = plan_on(a, seen ? &line : NULL);
    /* where the model now says dense, what it said before is put against it */
    if ((status == CT_OK) && (a->n_plan == 1)) {
        a->plan[1] = a->plan[0];
        a->plan[0] = first;
        a->n_plan = 2;
    } else {
        free(first.way);
    }
    CT_TRY(status);
    return begin_trials(a);
}

/* ---- step by step */

static ct_status watch(ct_grad_auto *a)
{
    if (a->gp->history ==
        NULL) { /* absorbed momentum has nowhere to go: what the model said counts */
        a->phase = PHASE_MODEL;
        return ct_grad_tune_create(a->gp, &a->gp->tune);
    }
    if (!a->watch.on) {
        a->watch.on = true;
        ct_watch_turn(&a->watch, true);
        return CT_OK;
    }
    ct_watch_turn(&a->watch, false);
    return (a->watch.n_cycle == CT_WATCH_CYCLES) ? end_watch(a) : CT_OK;
}

static ct_status note_try(ct_grad_auto *a, double last_s)
{
    ct_auto_times *t = &a->plan[a->at].times;
    int64_t ns = (int64_t)(1e9 * last_s);
    const ct_auto_times *against = (a->at == a->n_plan - 1) ? &a->plan[best_coded(a)].times : NULL;

    if (a->skip > 0) {
        a->skip -= 1;
        return CT_OK;
    }
    CT_TRY(ct_comm_max(a->gp->comm, &ns, 1));
    ct_auto_times_add(t, ns);
    return ct_auto_is_enough(t, against, a->again) ? try_next(a) : CT_OK;
}

static ct_status look_for_drift(ct_grad_auto *a, double last_s)
{
    double mean_s = 0;
    int64_t ns = 0;

    if (!ct_auto_drift_add(&a->drift, last_s, &mean_s)) return CT_OK;
    ns = (int64_t)(1e9 * mean_s);
    CT_TRY(ct_comm_max(a->gp->comm, &ns, 1));
    if (!ct_auto_drift_window(&a->drift, 1e-9 * (double)ns)) return CT_OK;
    CT_INFO("compression auto: steps take %.3f ms, and %.3f when this was decided: once more",
            1e-6 * (double)ns, 1e3 * a->drift.reference_s);
    ct_grad_tune_destroy(a->gp->tune);
    a->gp->tune = NULL;
    return begin_trials(a);
}

ct_status ct_grad_auto_step(ct_grad_auto *a, int64_t iteration, bool *dense_p)
{
    double now = ct_clock_s(), last_s = now - a->begun_at;
    ct_status status = CT_OK;

    a->begun_at = now;
    a->fold = false;
    *dense_p = false;
    if (iteration < a->gp->config.codec_config.warmup_iterations) return CT_OK;
    switch (a->phase) {
    case PHASE_MODEL:
        break;
    case PHASE_WATCH:
        status = watch(a);
        break;
    case PHASE_TRY:
        status = note_try(a, last_s);
        break;
    case PHASE_FOLD:
        status = arrive(a);
        break;
    case PHASE_FIXED:
        status = look_for_drift(a, last_s);
        break;
    }
    *dense_p = a->fold;
    return status;
}

bool ct_grad_auto_tries(const ct_grad_auto *a)
{
    return (a != NULL) && (a->phase != PHASE_MODEL);
}

int ct_grad_auto_n_step(const ct_grad_auto *a)
{
    int tune = a->gp->config.tune_iterations;

    if ((a->phase == PHASE_MODEL) || (a->phase == PHASE_FIXED)) return 0;
    /* each plan, and the near ones again; folds; then the tuning of the pipe */
    return 1 + CT_WATCH_CYCLES + (MOST_TRIED + 3) * (CT_AUTO_STEPS + 2) + ct_grad_tune_most(tune);
}

void ct_grad_auto_enter(ct_grad_auto *a)
{
    if ((a != NULL) && a->watch.on) ct_watch_enter(&a->watch, ct_clock_s());
}

void ct_grad_auto_leave(ct_grad_auto *a)
{
    if ((a != NULL) && a->watch.on) ct_watch_leave(&a->watch, ct_clock_s());
}

void ct_grad_auto_note(ct_grad_auto *a, ct_line_kind kind, int range)
{
    if (a != NULL) ct_watch_note(&a->watch, kind, range);
}
