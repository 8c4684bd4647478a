/* AUTO: the plans of codecs, at the start and on what was seen of a step, and what is said of them.
 */
#include "comm/autotune/tuner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/autotune/codec_speed.h"
#include "comm/collective/blocking.h"

enum { LOOK_COUNT = 1 << 20 /* elements of the allreduce that shows how fast the network is */ };

static const double margin = 0.02; /* of a dense step: what a codec has to gain    */
/* … where no step was seen, and none is tried: computation may hide any of the communication, and a
 * codec that leaves less than half of it loses only where that is more than half of dense */
static const double margin_untried = 0.5;
static const double near_best = 1.3; /* of the best plan's predicted step: what is tried */

/* ---- creation */

void ct_codec_tuner_destroy(ct_codec_tuner *a)
{
    if (a == NULL) return;
    for (int k = 0; k < a->n_plan; ++k) free(a->plan[k].way);
    ct_step_observer_release(&a->watch);
    ct_trial_release(&a->trial);
    free(a->range);
    free(a->seconds);
    free(a->count);
    free(a->way);
    free(a->home);
    free(a);
}

static ct_status acquire(ct_codec_tuner *a)
{
    const ct_grad_pipe *gp = a->gp;
    size_t n = (size_t)gp->n_range + 1;

    a->range = malloc(sizeof(*a->range) * n);
    a->seconds = calloc(n * CT_CODEC_CANDIDATES, sizeof(*a->seconds));
    a->count = malloc(sizeof(*a->count) * n);
    a->way = malloc(sizeof(*a->way) * n);
    a->home = malloc(sizeof(*a->home) * n);
    if ((a->range == NULL) || (a->seconds == NULL) || (a->count == NULL) || (a->way == NULL) ||
        (a->home == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory to choose compression");
    for (int i = 0; i < gp->n_range; ++i) {
        a->range[i] = gp->range[i];
        a->count[i] = gp->range[i].count;
        a->way[i] = ct_codec_planner_decides(&gp->config, &gp->range[i]) ? 0 : -1;
    }
    return CT_OK;
}

static double dense_s(void *ctx, int64_t bytes)
{
    return ct_codec_sum_s(ctx, CT_F32, bytes) + ct_codec_bus_s(ctx, (double)bytes, (double)bytes);
}

/* Nothing to hide behind: gradients are ready at once, and weights are read at once. */
static ct_status empty_line(const ct_codec_tuner *a, ct_step_timeline_event **list_p,
                            ct_step_timeline *line)
{
    int n = a->gp->n_range;
    ct_step_timeline_event *list = calloc(2 * (size_t)n + 1, sizeof(*list));

    if (list == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a step's line");
    for (int i = 0; i < n; ++i) {
        list[i] = (ct_step_timeline_event){ .kind = CT_STEP_TIMELINE_READY, .range = i };
        list[n + i] = (ct_step_timeline_event){ .kind = CT_STEP_TIMELINE_READ, .range = n - 1 - i };
    }
    line->backward = list;
    line->forward = list + n;
    line->n_backward = line->n_forward = n;
    *list_p = list;
    return CT_OK;
}

bool ct_codec_tuner_may_thread(const ct_codec_tuner *a)
{
    return (a->gp->config.progress == CT_PROGRESS_AUTO) && (a->gp->coder != NULL);
}

/* A choice between the ways on this line, whose lists are there; both are borrowed. watched: its
 * computation is what a step was seen to do, the update of all weights after each other included.
 */
static void frame(const ct_codec_tuner *a, bool watched, ct_step_timeline *line,
                  ct_step_timeline *apart, ct_codec_planner *c)
{
    bool both = false;

    line->n_range = a->gp->n_range;
    line->count = a->count;
    line->after_all = a->gp->config.after_all;
    if ((line->update_s == 0) && !(watched && line->after_all)) /* momentum, weight, gradient */
        line->update_s = ct_codec_stream_s(&a->costs.costs, 20);
    if (line->norm_s == 0) line->norm_s = ct_codec_stream_s(&a->costs.costs, 4);
    line->taken = a->taken;
    if (a->gp->coder != NULL) {
        *apart = *line;
        ct_step_timeline_code_apart(apart, a->gp->comm->n_thread, a->costs.costs.speed.one_core);
        both = ct_codec_tuner_may_thread(a);
        if (!both) *line = *apart;
    }
    *c = (ct_codec_planner){ .config = &a->gp->config,
                             .sizes = &a->sizes,
                             .range = a->range,
                             .n_range = a->gp->n_range,
                             .n_rank = a->gp->comm->size,
                             .ways = &a->ways,
                             .seconds = a->seconds,
                             .dense_s = dense_s,
                             .ctx = (void *)(uintptr_t)&a->costs.costs,
                             .line = line,
                             .apart = both ? apart : NULL,
                             .margin = (a->untried != NULL) ? margin_untried : margin };
}

/* ---- agreeing: rank 0's plans */

/* Every range takes as long: `hier` where nodes have one rank is another name for what is between
 * them. */
static bool is_alike(const ct_codec_planner *c, const ct_codec_plan *x, const ct_codec_plan *y)
{
    const double little = 1e-6;

    for (int i = 0; i < c->n_range; ++i) {
        const ct_codec_seconds *s = c->seconds + (size_t)i * CT_CODEC_CANDIDATES, *a, *b;

        if (x->way[i] == y->way[i]) continue;
        if ((x->way[i] <= 0) || (y->way[i] <= 0)) return false;
        a = &s[x->way[i]];
        b = &s[y->way[i]];
        if ((fabs(a->encode_s - b->encode_s) > little * a->encode_s) ||
            (fabs(a->wire_s - b->wire_s) > little * a->wire_s) ||
            (fabs(a->decode_s - b->decode_s) > little * a->decode_s))
            return false;
    }
    return true;
}

static bool is_listed(const ct_codec_planner *c, const ct_codec_plan *const *list, int n,
                      const ct_codec_plan *p)
{
    for (int k = 0; k < n; ++k) {
        if (is_alike(c, list[k], p)) return true;
    }
    return false;
}

/* What real steps shall try, the best first, dense the last. The plan that trusts in no hiding is
 * among them, and one place is for the plan of the start (put_first_back()). The others are the
 * best of each way: between exchanges that all hide the model cannot tell what messages take of a
 * rank's own time. */
static int list_tried(const ct_codec_planner *c, const ct_codec_plan **list)
{
    int dense = c->n_plan - 1, n = 0;
    const ct_codec_plan *alone = &c->alone;

    if (dense > 0) list[n++] = &c->plan[0];
    if ((alone->way != NULL) && !is_listed(c, list, n, alone) &&
        (alone->times.step_s < (1 - c->margin) * c->plan[dense].times.step_s))
        list[n++] = alone;
    for (int k = 1; (k < dense) && (n < CT_AUTO_TRIED - 1); ++k) {
        if (c->plan[k].times.step_s > near_best * c->plan[0].times.step_s) continue;
        if (!is_listed(c, list, n, &c->plan[k])) list[n++] = &c->plan[k];
    }
    list[n++] = &c->plan[dense];
    return n;
}

/* Room for n plans on every rank, or an error on all of them. */
static ct_status make_room(ct_codec_tuner *a, int n)
{
    int64_t missing = 0;

    for (int k = 0; k < n; ++k) {
        a->plan[k] = (ct_auto_plan){ .way = malloc(sizeof(int) * (size_t)a->gp->n_range + 1) };
        missing += (a->plan[k].way == NULL);
    }
    a->n_plan = n;
    CT_TRY(ct_comm_max(a->gp->comm, &missing, 1));
    if (missing == 0) return CT_OK;
    return CT_FAIL(CT_ERR_NOMEM, "no memory to choose compression, on a rank at least");
}

static ct_status share(ct_codec_tuner *a, ct_status status, const ct_codec_planner *c)
{
    ct_comm *comm = a->gp->comm;
    size_t bytes = sizeof(int) * (size_t)a->gp->n_range;
    const ct_codec_plan *list[CT_AUTO_PLANS];
    int n = 0;

    for (int k = 0; k < a->n_plan; ++k) free(a->plan[k].way);
    a->n_plan = 0;
    if ((comm->rank == 0) && (status == CT_OK)) n = list_tried(c, list);
    CT_TRY(ct_comm_broadcast(comm, &n, sizeof(n)));
    if (n == 0)
        return (status != CT_OK) ? status
                                 : CT_FAIL(CT_ERR_COMM, "rank 0 could not choose compression");
    CT_TRY(make_room(a, n));
    for (int k = 0; k < n; ++k) {
        ct_auto_plan *p = &a->plan[k];
        double figures[3] = { 0, 0, 0 };

        if (comm->rank == 0) {
            memcpy(p->way, list[k]->way, bytes);
            figures[0] = list[k]->times.step_s;
            figures[1] = list[k]->bytes;
            figures[2] = list[k]->apart;
        }
        CT_TRY(ct_comm_broadcast(comm, p->way, bytes));
        CT_TRY(ct_comm_broadcast(comm, figures, sizeof(figures)));
        p->predicted_s = figures[0];
        p->bytes = figures[1];
        p->apart = (figures[2] != 0);
    }
    return CT_OK;
}

/* Rank 0 chooses on its line; NULL: on an empty one, or the configuration's. */
ct_status ct_codec_tuner_plan(ct_codec_tuner *a, ct_step_timeline *seen)
{
    const ct_step_timeline *given = a->gp->config.line;
    ct_step_timeline line = { .overlap = CT_STEP_TIMELINE_BOTH }, apart;
    ct_step_timeline_event *list = NULL;
    ct_codec_planner c = { .n_plan = 0 };
    ct_status status = CT_OK;

    if (a->gp->comm->rank == 0) {
        if (seen != NULL)
            line = *seen;
        else if (given != NULL)
            line = *given;
        else
            status = empty_line(a, &list, &line);
        if (status == CT_OK) {
            frame(a, seen != NULL, &line, &apart, &c);
            status = ct_codec_planner_run(&c);
        }
    }
    status = share(a, status, &c);
    ct_codec_planner_release(&c);
    free(list);
    return status;
}

void ct_codec_tuner_take(ct_codec_tuner *a, const int *way)
{
    memmove(a->way, way, sizeof(*a->way) * (size_t)a->gp->n_range);
    memcpy(a->gp->range, a->range, sizeof(*a->range) * (size_t)a->gp->n_range);
    ct_codec_planner_apply(&a->ways, a->way, a->gp->range, a->gp->n_range);
}

/* ---- words */

void ct_codec_tuner_log(const ct_codec_tuner *a, const ct_auto_plan *p, const char *why)
{
    enum { MOST_LINES = 24 };
    int n_coded = 0, n_open = 0, n_line = 0;
    const ct_auto_plan *dense = &a->plan[a->n_plan - 1];

    for (int i = 0; i < a->gp->n_range; ++i) {
        n_open += (p->way[i] >= 0);
        n_coded += (p->way[i] > 0);
    }
    CT_INFO(
        "compression auto: %d of %d parameters compressed%s, %s; predicted %.3f ms a step, dense "
        "%.3f; %.4g MB sent, dense %.4g",
        n_coded, n_open, p->apart ? " by a thread beside the layers" : "", why,
        1e3 * p->predicted_s, 1e3 * dense->predicted_s, 1e-6 * p->bytes, 1e-6 * dense->bytes);
    for (int i = 0; (i < a->gp->n_range) && (n_line < MOST_LINES); ++i) {
        const ct_codec_seconds *s = a->seconds + (size_t)i * CT_CODEC_CANDIDATES;
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

/* ---- where no plan is tried: why, and what the model says of the choice once it has seen a step
 */

/* NULL: real steps decide, or the model, which is told what a step is. */
static const char *why_untried(const ct_grad_pipe_config *config)
{
    if (config->line != NULL) return NULL; /* the model knows the step */
    if (config->tune_iterations > 0) return NULL;
    return config->deterministic ? "deterministic: what steps take may not decide"
                                 : "tune_iterations is 0";
}

void ct_codec_tuner_say_untried(const ct_codec_tuner *a, bool dense)
{
    if (dense)
        CT_INFO("compression auto: off: no plan is tried by real steps (%s), and by the model "
                "compression does not halve communication, of which computation may hide the rest; "
                "a codec's own name takes it all the same",
                a->untried);
    else if (a->gp->comm->rank == 0)
        CT_WARN("compression auto: not verified: no plan is tried by real steps (%s); the model "
                "has communication more than halved, but does not know what computation hides",
                a->untried);
}

/* ---- a look at the step, which changes nothing */

static ct_status predict(const ct_codec_tuner *a, const ct_codec_planner *c, bool dense,
                         double *step_s_p)
{
    size_t bytes = sizeof(int) * (size_t)a->gp->n_range;
    ct_codec_plan plan = { .way = malloc(bytes + 1) };
    ct_status status = CT_OK;

    if (plan.way == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to predict compression");
    memcpy(plan.way, a->way, bytes);
    for (int i = 0; dense && (i < a->gp->n_range); ++i) {
        if (plan.way[i] > 0) plan.way[i] = 0;
    }
    status = ct_codec_planner_cost(c, &plan);
    *step_s_p = plan.times.step_s;
    free(plan.way);
    return status;
}

static ct_status compare(ct_codec_tuner *a)
{
    ct_step_timeline line = { .overlap = a->gp->config.overlap ? CT_STEP_TIMELINE_BOTH
                                                               : CT_STEP_TIMELINE_OFF };
    ct_step_timeline apart;
    ct_codec_planner c;
    double coded_s = 0, dense_s = 0;

    if ((a->gp->comm->rank != 0) || !ct_step_observer_line(&a->watch, &line)) return CT_OK;
    frame(a, true, &line, &apart, &c);
    CT_TRY(predict(a, &c, false, &coded_s));
    CT_TRY(predict(a, &c, true, &dense_s));
    if (coded_s < dense_s)
        CT_INFO("compression auto: beside the computation of a step: predicted %.3f ms, dense %.3f",
                1e3 * coded_s, 1e3 * dense_s);
    else
        CT_WARN("compression auto: beside the computation of a step dense is not slower: predicted "
                "%.3f ms, compressed %.3f; it stays compressed, since %s: compression NONE is the "
                "way to have that",
                1e3 * dense_s, 1e3 * coded_s, a->untried);
    return CT_OK;
}

ct_status ct_codec_tuner_look(ct_codec_tuner *a)
{
    if (!a->watch.on) {
        a->watch.on = true;
        ct_step_observer_turn(&a->watch, true);
        return CT_OK;
    }
    ct_step_observer_turn(&a->watch, false);
    if (a->watch.n_cycle < CT_STEP_OBSERVER_CYCLES) return CT_OK;
    a->watch.on = false;
    a->phase = CT_AUTO_MODEL;
    return compare(a);
}

/* ---- creation, continued */

static int64_t largest_open(const ct_codec_tuner *a)
{
    int64_t most = 0;

    for (int i = 0; i < a->gp->n_range; ++i) {
        if ((a->way[i] >= 0) && (a->count[i] > most)) most = a->count[i];
    }
    return most;
}

static bool is_dense(const ct_codec_tuner *a)
{
    bool dense = true;

    for (int i = 0; i < a->gp->n_range; ++i) dense = dense && (a->way[i] <= 0);
    return dense;
}

/* Nothing is known of a device that is not measured. */
static ct_status look_at_device(const ct_grad_pipe *gp, ct_codec_costs *m)
{
    if (gp->config.deterministic)
        return CT_FAIL(CT_ERR_CONFIG,
                       "compression auto on device %s chooses by what it measures there, and so "
                       "not the same in every run, as deterministic wants: name a codec",
                       gp->config.dev->name);
    return ct_codec_speed_on_device(gp->comm, gp->config.dev, &m->speed, &m->bus);
}

/* deterministic: in each run the same numbers, so none that are measured. */
static ct_status prepare(ct_codec_tuner *a, int64_t most)
{
    ct_grad_pipe *gp = a->gp;
    const ct_grad_pipe_config *config = &gp->config;
    ct_codec_costs *m = &a->costs.costs;
    ct_codec_calibration here;

    CT_TRY(ct_codec_candidates_list(&config->codec_config, config->deterministic, &a->ways));
    CT_TRY(ct_bucket_sizes_find(gp->comm, config, gp->range, gp->n_range, &a->sizes));
    if (!config->deterministic) CT_TRY(ct_codec_speed_find(gp->comm));
    CT_TRY(ct_codec_costs_of(gp->comm, config->allreduce, config->deterministic, &a->costs));
    if (config->dev != NULL) CT_TRY(look_at_device(gp, m));
    if (!config->deterministic) {
        CT_TRY(ct_codec_calibrate(gp->comm, config->allreduce,
                                  (most < LOOK_COUNT) ? most : LOOK_COUNT, &here));
        m->sum_factor = here.sum_factor;
        m->wire_factor = here.wire_factor;
        a->taken = here.taken;
        CT_INFO("compression auto: an allreduce takes %.3g times, a sparse exchange's messages "
                "%.3g times what the model says; computation beside messages stands still for %.2g "
                "of their time",
                here.sum_factor, here.wire_factor, here.taken);
    }
    ct_codec_planner_seconds(m, config, a->range, gp->n_range, &a->ways, a->seconds);
    return ct_codec_tuner_plan(a, NULL);
}

static ct_auto_phase first_phase(const ct_codec_tuner *a)
{
    const ct_grad_pipe_config *config = &a->gp->config;

    if ((config->line != NULL) || is_dense(a)) return CT_AUTO_MODEL;
    if (a->untried == NULL) return CT_AUTO_WATCH;
    /* nothing to be seen on a device (codec_trials.c) */
    return (config->dev == NULL) ? CT_AUTO_LOOK : CT_AUTO_MODEL;
}

/* Nothing travels, or nothing large; or the model would have to say alone what is faster, and knows
 * one side only. */
static bool has_no_choice(const ct_codec_tuner *a)
{
    const ct_grad_pipe_config *config = &a->gp->config;

    if ((a->gp->comm->size == 1) || (largest_open(a) == 0)) return true;
    if ((a->untried == NULL) || !config->dense_elsewhere || config->deterministic) return false;
    CT_INFO("compression auto: off: no plan is tried by real steps (%s), and what the device's own "
            "sums take the model does not know; a codec's own name takes it all the same",
            a->untried);
    return true;
}

ct_status ct_codec_tuner_create(ct_grad_pipe *gp, ct_coll_tuner **colls_p, ct_codec_tuner **a_p)
{
    ct_codec_tuner *a = calloc(1, sizeof(*a));
    ct_status status = CT_OK;

    if (a == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to choose compression");
    a->gp = gp;
    a->colls_p = colls_p;
    a->held = -1;
    a->trial.decided = true;
    a->untried = why_untried(&gp->config);
    CT_TRY_GOTO(status, done, acquire(a));
    if (has_no_choice(a)) {
        for (int i = 0; i < gp->n_range; ++i) {
            if (a->way[i] < 0) continue;
            gp->range[i].codec = &ct_codec_none;
            gp->range[i].codec_config = &gp->config.codec_config;
        }
        goto done;
    }
    CT_TRY_GOTO(status, done, prepare(a, largest_open(a)));
    ct_codec_tuner_take(a, a->plan[0].way);
    ct_codec_tuner_log(a, &a->plan[0],
                       (is_dense(a) && (a->untried == NULL)) ? "off is faster here"
                       : (gp->config.line == NULL)           ? "were there nothing to hide behind"
                                                             : "by the model");
    if (a->untried != NULL) ct_codec_tuner_say_untried(a, is_dense(a));
    a->phase = first_phase(a);
    *a_p = a;
    return CT_OK;

done:
    ct_codec_tuner_destroy(a);
    return status;
}
