/* Training steps as the solver takes them, with durations in place of layers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/simulate/program/sim.h"
#include "cli/simulate/sim_setup.h"
#include "comm/collective/async_sum.h"
#include "comm/collective/blocking.h"
#include "framework/base/json_writer.h"
#include "framework/base/rng.h"
#include "framework/net/step.h"
#include "runtime/config/exchange_config.h"

enum { FREE_CORES = 1 << 20 /* so many that the one which codes is not missed */ };

/* Of a layer, over the ranks. */
typedef struct layer_sum {
    double *v; /* [count of its steps]; of no meaning */
    ct_async_sum *under_way;
} layer_sum;

typedef struct train {
    ct_sim *sim;
    const ct_profile *profile;
    ct_grad_pipe *pipe;
    float *arena;
    ct_sim_overlap overlap;
    int n_warmup, n_step;
    bool jitters;
    uint64_t seed;
    bool thread;   /* messages move when they can, not when the main thread polls */
    double late_s; /* … what they were added up in beyond a layer: beside the next one */
    ct_sim_timer *timer;
    double factor;        /* of this step's compute, over the profile's */
    bool open;            /* gradients are under way     */
    double update_s;      /* per element */
    double norm_s;        /* likewise    */
    bool after_all;       /* no weight changes before all gradients have landed */
    double busy_s;        /* so far in layers, updates and what they let move */
    double sum_s;         /* so far in waits for sums of layers               */
    layer_sum *sums;      /* [profile->n_sum]                                 */
    ct_profile_zero zero; /* what replicas share out                        */
    bool owns;            /* they do, and there are several                 */
    int *first;           /* [n_param] zero 3: the first range of each chunk */
    ct_step_visits visits;
    const ct_step_visit *visit; /* of the list that runs */
    int n_visit, met, asked;
    bool forward;
    double *mark;    /* [n_warmup + n_step + 1] when a step began, and when the last was over */
    double *factors; /* [n_warmup + n_step] */
} train;

/* What a rank did up to some point: differences of two are what lies between these points. */
typedef struct account {
    double compute_s; /* layers and updates; messages that moved between them */
    double exposed_s;
    double bytes_sent;
} account;

/* ---- what steps do */

static ct_status move(void *ctx)
{
    const train *t = ctx;

    CT_TRY(ct_async_sum_poll(t->sim->comm));
    return ct_grad_pipe_poll(t->pipe);
}

/* An actor both computes and adds what comes. A thread would add beside the layers, so what goes on
 * when a layer is over is taken off the next. */
static ct_status pass_time(train *t, double seconds)
{
    double over = ct_clock_s() + seconds - t->late_s;

    if (!t->thread) return ct_sim_timer_pass(t->timer, seconds, NULL, t);
    CT_TRY(ct_sim_timer_pass(t->timer, seconds - t->late_s, move, t));
    t->late_s = fmax(0, ct_clock_s() - over);
    return CT_OK;
}

static double exposed_s(const train *t)
{
    ct_sync_stats c;

    ct_grad_pipe_get_stats(t->pipe, false, &c);
    return c.exposed_s + t->sum_s;
}

/* It was waited for, since `before`: so nothing is late any more. */
static ct_status after_wait(train *t, double before, ct_status status)
{
    if (exposed_s(t) > before) t->late_s = 0;
    return status;
}

static account take_account(const train *t)
{
    ct_sync_stats c;

    ct_grad_pipe_get_stats(t->pipe, false, &c);
    return (account){ .compute_s = t->busy_s,
                      .exposed_s = c.exposed_s + t->sum_s,
                      .bytes_sent = (double)c.bytes_sent };
}

/* What a codec absorbed has its momentum behind it: reading and writing that is spared here. */
static ct_status update(train *t, int first, int n)
{
    double memory = t->sim->speed.memory, seconds = 0, start = ct_clock_s();

    for (int i = first; i < first + n; ++i) {
        double count = (double)t->profile->param[i].count, update_s = t->update_s * count;

        if ((memory > 0) && ct_grad_pipe_absorbs(t->pipe, i)) update_s -= 8 * count / memory;
        seconds += (update_s > 0) ? update_s : 0;
    }
    CT_TRY(pass_time(t, seconds * t->factor));
    t->busy_s += ct_clock_s() - start;
    return CT_OK;
}

/* To the norm of all gradients. */
static ct_status add_norm(train *t, int first, int n)
{
    double count = 0, start = ct_clock_s();

    for (int i = first; i < first + n; ++i) count += (double)t->profile->param[i].count;
    CT_TRY(pass_time(t, t->norm_s * count * t->factor));
    t->busy_s += ct_clock_s() - start;
    return CT_OK;
}

/* A piece that this rank updates is summed. */
static ct_status owned(void *ctx, int i, int64_t from, int64_t count)
{
    train *t = ctx;
    double start = ct_clock_s(), element_s = t->after_all ? t->norm_s : t->update_s;

    (void)i;
    (void)from;
    CT_TRY(pass_time(t, element_s * (double)count * t->factor));
    t->busy_s += ct_clock_s() - start;
    return CT_OK;
}

static ct_status update_owned(train *t)
{
    double count = 0, start = ct_clock_s();
    int64_t from = 0, n = 0;

    for (int i = 0; i < t->profile->n_param; ++i)
        for (int k = 0; ct_grad_pipe_own(t->pipe, i, k, &from, &n); ++k) count += (double)n;
    CT_TRY(pass_time(t, t->update_s * count * t->factor));
    t->busy_s += ct_clock_s() - start;
    return ct_grad_pipe_updated(t->pipe);
}

static ct_status landed(void *ctx, int first, int n)
{
    train *t = ctx;

    if (t->owns) return CT_OK;
    return t->after_all ? add_norm(t, first, n) : update(t, first, n);
}

static ct_status finish(train *t)
{
    double before = exposed_s(t);

    return after_wait(t, before, ct_grad_pipe_finish(t->pipe, landed, t));
}

static ct_status settle(train *t)
{
    if (!t->open) return CT_OK;
    CT_TRY(finish(t));
    if (t->after_all && t->owns) {
        CT_TRY(update_owned(t));
        CT_TRY(finish(t)); /* the others' weights */
    }
    t->open = false;
    return (t->after_all && !t->owns) ? update(t, 0, t->profile->n_param) : CT_OK;
}

/* Forward is about to read weights: they are new. */
static ct_status await(train *t, int range)
{
    double before = exposed_s(t);

    if (t->after_all) return settle(t);
    if (!t->open) return CT_OK;
    return after_wait(t, before, ct_grad_pipe_wait(t->pipe, range, 1, landed, t));
}

/* Weights of chunks that step i reads are there, and the next ones come. */
static ct_status visit(train *t, int i)
{
    double before;

    for (; (t->met < t->n_visit) && (t->visit[t->met].event == i); ++t->met) {
        for (; (t->asked < t->n_visit) && (t->asked <= t->met + t->zero.ahead); ++t->asked) {
            int range = t->visit[t->asked].chunk;

            if (t->forward) CT_TRY(await(t, range));
            CT_TRY(ct_grad_pipe_gather(t->pipe, range));
        }
        before = exposed_s(t);
        CT_TRY(after_wait(t, before, ct_grad_pipe_gather_wait(t->pipe, t->visit[t->met].chunk)));
    }
    return CT_OK;
}

/* A layer computes, and lets communication move every now and then. */
static ct_status step_run(void *ctx, ct_step *s, int i)
{
    train *t = ctx;
    double seconds = s->seconds * t->factor, start;
    int n = t->thread ? 1 : 1 + s->polls;

    CT_TRY(visit(t, i));
    start = ct_clock_s();
    for (int k = 0; k < n; ++k) {
        if (k > 0) CT_TRY(move(t));
        CT_TRY(pass_time(t, seconds / n));
    }
    t->busy_s += ct_clock_s() - start;
    return CT_OK;
}

static ct_status step_poll(void *ctx)
{
    train *t = ctx;
    double start = ct_clock_s();

    CT_TRY(move(t));
    t->busy_s += ct_clock_s() - start;
    return CT_OK;
}

static layer_sum *sum_of(const train *t, const ct_step *s)
{
    return &t->sums[s->pair - t->profile->n_param];
}

/* A gradient is ready, or a layer has what it adds up over the ranks. */
static ct_status step_begin(void *ctx, ct_step *s, int i)
{
    train *t = ctx;
    double start = ct_clock_s();

    (void)i;
    if (ct_step_is_of_weights(s))
        CT_TRY(ct_grad_pipe_ready(t->pipe, s->param));
    else
        CT_TRY(
            ct_async_sum_begin(t->sim->comm, sum_of(t, s)->v, s->count, &sum_of(t, s)->under_way));
    t->busy_s += ct_clock_s() - start;
    if (t->thread) t->late_s += ct_clock_s() - start;
    return CT_OK;
}

/* Nothing else is to be done: what it takes shows. */
static ct_status wait_sum(train *t, layer_sum *s)
{
    double start = ct_clock_s();

    CT_TRY(ct_async_sum_end(s->under_way));
    t->sum_s += ct_clock_s() - start;
    if (ct_clock_s() > start) t->late_s = 0;
    return CT_OK;
}

static ct_status step_wait(void *ctx, ct_step *s, int i)
{
    train *t = ctx;

    if (!ct_step_is_of_weights(s)) return wait_sum(t, sum_of(t, s));
    CT_TRY(await(t, s->param));
    return visit(t, i);
}

static ct_status run_list(train *t, ct_step *list, int n, bool forward)
{
    const ct_step_hooks hooks = {
        .run = step_run, .begin = step_begin, .wait = step_wait, .poll = step_poll
    };

    t->forward = forward;
    t->visit = forward ? t->visits.forward : t->visits.backward;
    t->n_visit = forward ? t->visits.n_forward : t->visits.n_backward;
    t->met = t->asked = 0;
    return ct_steps_run(list, n, &hooks, t);
}

/* From where one exchange begins to where the next one does: there nothing is under way, so a step
 * holds all of one exchange and nothing of another. */
static ct_status iterate(train *t, int i)
{
    CT_TRY(ct_grad_pipe_begin(t->pipe, i, 1, 0.01f));
    t->open = true;
    CT_TRY(run_list(t, t->profile->backward, t->profile->n_backward, false));
    if (t->overlap != CT_SIM_BOTH) CT_TRY(settle(t));
    CT_TRY(run_list(t, t->profile->forward, t->profile->n_forward, true));
    CT_TRY(settle(t)); /* what no layer waited for */
    t->mark[i + 1] = ct_clock_s();
    return CT_OK;
}

static double draw(const train *t, int i)
{
    uint64_t key = ct_rng_key(t->seed, (uint64_t)i, ct_rng_hash("jitter"));
    uint32_t word = ct_rng_philox(key, 0, (uint64_t)t->sim->comm->rank).v[0];

    if (!t->jitters || (t->profile->n_sample == 0)) return 1 / t->sim->node_speed;
    return ct_profile_jitter(t->profile, (int)(word % (uint32_t)t->profile->n_sample)) /
           t->sim->node_speed;
}

/* Weights that come lie, as all large memory here, where gradients do: nobody reads either. */
static ct_status share_out(train *t, const ct_grad_range *range, ct_step_timeline *line,
                           ct_grad_pipe_config *config)
{
    int n = t->profile->n_param;
    bool *begins = calloc((size_t)n + 1, sizeof(*begins));
    ct_status status = CT_OK;

    t->zero = ct_profile_read_zero(t->sim->solver);
    t->owns = (t->zero.stage > 0) && (t->sim->comm->size > 1);
    t->first = calloc((size_t)n + 1, sizeof(*t->first));
    if ((begins == NULL) || (t->first == NULL)) {
        free(begins);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d parameters", n);
    }
    if (t->owns) {
        config->weights = t->arena;
        config->slots = (t->zero.stage >= 2);
        config->visits = line->visits = (t->zero.stage == 3);
        line->ahead = t->zero.ahead;
    }
    if (config->visits) status = ct_grad_pipe_cut(t->sim->comm, config, range, n, begins);
    for (int i = 0, first = 0; i < n; ++i) {
        if (begins[i]) first = i;
        t->first[i] = first;
    }
    free(begins);
    if ((status == CT_OK) && config->visits)
        status = ct_step_visits_find(line, t->first, &t->visits);
    return status;
}

static ct_status open_pipe(train *t)
{
    const ct_profile *p = t->profile;
    const ct_profile_param *last = &p->param[p->n_param - 1];
    ct_grad_range *range = calloc((size_t)p->n_param, sizeof(*range));
    static const ct_step_timeline_overlap as_line[] = { [CT_SIM_OFF] = CT_STEP_TIMELINE_OFF,
                                                        [CT_SIM_BACKWARD] =
                                                            CT_STEP_TIMELINE_BACKWARD,
                                                        [CT_SIM_BOTH] = CT_STEP_TIMELINE_BOTH };
    ct_grad_pipe_config config = { .allreduce = NULL };
    ct_profile_timeline line = { .event = NULL };
    const ct_topo *topo = t->sim->comm->topo;
    double slowest = ct_topo_speed(topo, ct_topo_slowest_node(topo));
    int64_t count = 0;
    ct_status status = CT_OK;

    if (range == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d parameters", p->n_param);
    for (int i = 0; i < p->n_param; ++i) {
        range[i] = (ct_grad_range){ .key = p->param[i].key,
                                    .offset = p->param[i].offset,
                                    .count = p->param[i].count,
                                    .rows = p->param[i].rows,
                                    .weight = t->arena + p->param[i].offset,
                                    .rate_mult = 1 };
        count += p->param[i].count;
    }
    t->update_s = 1e-3 * p->update_ms / (double)((count > 0) ? count : 1);
    t->norm_s = ct_profile_norm_s(p) / (double)((count > 0) ? count : 1);
    t->arena = ct_mem_acquire(sizeof(float) * (size_t)(last->offset + last->count));
    if (t->arena == NULL)
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for %lld gradients", (long long)count);
    if (status == CT_OK) status = ct_exchange_read_config(t->sim->solver, &config);
    /* the model decides, as it would after tuning on a machine that is as the model says */
    if ((t->sim->solver->comm == NULL) || !t->sim->solver->comm->has_tune_iterations)
        config.tune_iterations = 0;
    config.overlap = config.overlap && (t->overlap != CT_SIM_OFF);
    if (!config.overlap) t->overlap = CT_SIM_OFF;
    t->after_all = config.after_all = ct_profile_after_all(p, t->sim->solver);
    if (status == CT_OK) status = ct_profile_make_line(p, as_line[t->overlap], 1 / slowest, &line);
    line.line.after_all = t->after_all;
    /* coding then takes as long as on the whole node, and nothing of what computes */
    if (t->sim->thread) ct_step_timeline_code_apart(&line.line, FREE_CORES, 1);
    if (status == CT_OK) status = share_out(t, range, &line.line, &config);
    config.line = &line.line; /* AUTO: the model's choice, on what it is told of computation */
    if (status == CT_OK)
        status = ct_grad_pipe_create(t->sim->comm, &config, t->arena, range, p->n_param, &t->pipe);
    if ((status == CT_OK) && t->owns) ct_grad_pipe_hear_parts(t->pipe, owned, t);
    ct_profile_line_release(&line);
    free(range);
    return status;
}

static ct_status make_sums(train *t)
{
    const ct_profile *p = t->profile;

    t->sums = calloc((size_t)p->n_sum + 1, sizeof(*t->sums));
    if (t->sums == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d sums", p->n_sum);
    for (int i = 0; i < p->n_forward + p->n_backward; ++i) {
        const ct_step *s = (i < p->n_forward) ? &p->forward[i] : &p->backward[i - p->n_forward];

        if ((s->kind != CT_STEP_BEGIN) || ct_step_is_of_weights(s)) continue;
        sum_of(t, s)->v = calloc((size_t)s->count, sizeof(double));
        if (sum_of(t, s)->v == NULL)
            return CT_FAIL(CT_ERR_NOMEM, "no memory for a sum of %d numbers", s->count);
    }
    return CT_OK;
}

/* ---- the result */

/* Over the ranks: sum and maximum of v[n], on rank 0. */
static ct_status reduce(const train *t, const double *v, int n, double *sum, double *most)
{
    MPI_Comm all = t->sim->comm->mpi;

    if (t->sim->comm->size == 1) { /* SMPI's reduce of one rank sends to a rank that is not there */
        memcpy(sum, v, sizeof(*v) * (size_t)n);
        memcpy(most, v, sizeof(*v) * (size_t)n);
        return CT_OK;
    }
    CT_TRY_MPI(MPI_Reduce(v, sum, n, MPI_DOUBLE, MPI_SUM, 0, all));
    CT_TRY_MPI(MPI_Reduce(v, most, n, MPI_DOUBLE, MPI_MAX, 0, all));
    return CT_OK;
}

static void add_list(ct_json_writer *w, const char *name, const double *v, int n, double scale)
{
    ct_json_begin_list(w, name);
    for (int i = 0; i < n; ++i) ct_json_add_number(w, NULL, v[i] * scale);
    ct_json_end(w);
}

static void add_buckets(const train *t, ct_json_writer *w)
{
    ct_json_begin_list(w, "buckets");
    for (int i = 0; i < ct_grad_pipe_n_bucket(t->pipe); ++i) {
        int64_t bytes = 0;
        const char *algorithm = ct_grad_pipe_bucket(t->pipe, i, &bytes);

        ct_json_begin_object(w, NULL);
        ct_json_add_integer(w, "bytes", bytes);
        ct_json_add_text(w, "algorithm", algorithm);
        ct_json_end(w);
    }
    ct_json_end(w);
}

/* Adds the lists of steps: how long each took, the mean of the ranks; what it computed. *mean_p: of
 * the steps. */
static ct_status add_steps(const train *t, ct_json_writer *w, double *mean_p)
{
    int first = t->n_warmup, n = t->n_step;
    double ranks = t->sim->comm->size, compute_ms = 1e3 * ct_profile_compute_s(t->profile);
    double *list = calloc((size_t)(5 * n), sizeof(*list));
    double *step = list, *factor = list + n, *most = list + 2 * n, *mine = list + 3 * n;
    ct_status status = CT_OK;

    if (list == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the times");
    for (int i = 0; i < n; ++i) mine[i] = t->mark[first + i + 1] - t->mark[first + i];
    CT_TRY_GOTO(status, done, reduce(t, mine, n, step, mine + n));
    CT_TRY_GOTO(status, done, reduce(t, t->factors + first, n, factor, most));
    *mean_p = 0;
    for (int i = 0; i < n; ++i) *mean_p += 1e3 * step[i] / ranks / n;
    add_list(w, "step_ms", step, n, 1e3 / ranks);
    add_list(w, "compute_mean_ms", factor, n, compute_ms / ranks);
    add_list(w, "compute_max_ms", most, n, compute_ms);

done:
    free(list);
    return status;
}

static ct_status summarise(const train *t, const account *before, const account *after,
                           ct_json_writer *w)
{
    static const char *const overlap[] = { "off", "backward", "both" };
    double ranks = t->sim->comm->size, total[3], worst[3], mean = 0, n = t->n_step;
    const double mine[3] = { after->compute_s - before->compute_s,
                             after->exposed_s - before->exposed_s,
                             after->bytes_sent - before->bytes_sent };
    ct_text lists = { 0 };
    ct_json_writer list = ct_json_members_into(&lists);
    ct_status status = add_steps(t, &list, &mean);

    if (status == CT_OK) status = reduce(t, mine, 3, total, worst);
    if (status != CT_OK) {
        ct_text_destroy(&lists);
        return status;
    }
    ct_json_add_text(w, "net", t->profile->net);
    ct_json_add_text(w, "net_hash", t->profile->net_hash);
    ct_json_add_integer(w, "batch", t->profile->batch);
    ct_json_add_integer(w, "iterations", t->n_step);
    ct_json_add_integer(w, "warmup", t->n_warmup);
    ct_json_add_text(w, "overlap", overlap[t->overlap]);
    ct_json_add_bool(w, "after_all", t->after_all);
    ct_json_add_text(w, "progress", t->thread ? "thread" : "poll");
    ct_json_add_made(w, "jitter_seed",
                     t->jitters ? ct_options_text(t->sim->options, "jitter_seed") : "null");
    ct_json_add_number(w, "mean_step_ms", mean);
    ct_json_add_number(w, "compute_ms", 1e3 * total[0] / ranks / n);
    ct_json_add_number(w, "images_per_s", 1e3 * ranks * (double)t->profile->batch / mean);
    ct_json_add_number(w, "exposed_ms", 1e3 * total[1] / ranks / n);
    ct_json_add_decimals(w, "bytes_sent", total[2] / ranks / n, 0);
    ct_json_add_decimals(w, "max_bytes_sent", worst[2] / n, 0);
    ct_json_add_members(w, lists.text);
    w->to->failed = w->to->failed || lists.failed;
    ct_text_destroy(&lists);
    add_buckets(t, w);
    return CT_OK;
}

static ct_status run(train *t, ct_json_writer *w)
{
    account before = { 0 }, after;
    int n = t->n_warmup + t->n_step;

    CT_TRY(open_pipe(t));
    CT_TRY(make_sums(t));
    t->mark = calloc((size_t)n + 1, sizeof(*t->mark));
    t->factors = calloc((size_t)n, sizeof(*t->factors));
    if ((t->mark == NULL) || (t->factors == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d steps", n);
    CT_TRY(ct_comm_barrier(t->sim->comm));
    t->mark[0] = ct_clock_s();
    for (int i = 0; i < n; ++i) {
        if (i == t->n_warmup) before = take_account(t);
        t->factor = t->factors[i] = draw(t, i);
        CT_TRY(iterate(t, i));
    }
    after = take_account(t);
    return summarise(t, &before, &after, w);
}

ct_status ct_sim_train(ct_sim *sim, ct_json_writer *w)
{
    train t = { .sim = sim,
                .profile = sim->profile,
                .overlap = sim->overlap,
                .n_warmup = sim->n_warmup,
                .n_step = sim->n_step,
                .thread = sim->thread,
                .jitters = (ct_options_text(sim->options, "jitter_seed") != NULL),
                .seed = (uint64_t)ct_options_count(sim->options, "jitter_seed", 0),
                .factor = 1 };
    ct_status status = ct_sim_timer_create(sim->comm, &t.timer);

    sim->comm->prompt = sim->thread;
    if (status == CT_OK) status = run(&t, w);
    ct_sim_timer_destroy(t.timer);
    ct_grad_pipe_destroy(t.pipe);
    ct_mem_release(t.arena);
    for (int i = 0; (t.sums != NULL) && (i < t.profile->n_sum); ++i) free(t.sums[i].v);
    free(t.sums);
    free(t.mark);
    free(t.factors);
    free(t.first);
    ct_step_visits_release(&t.visits);
    return status;
}
