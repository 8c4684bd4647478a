/* Snapshots and weights: what a solver leaves on disk and takes from there. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/clock.h"
#include "framework/base/memory.h"
#include "framework/base/trace.h"
#include "framework/net/engine_plan.h"
#include "framework/solver/solver_private.h"

bool ct_solver_has_average(const ct_solver *s)
{
    return (s->step.average != NULL) && ct_average_begun(s->param->average, s->iteration);
}

/* A rank's own net may read no data. */
static int64_t global_batch_of(const ct_solver *s)
{
    const ct_division *d = s->options.division;

    if (d != NULL) return d->whole->batch_global * d->schedule.n_micro;
    return s->net->batch_global * ct_optex_points(s->param);
}

static void fill_state(ct_solver *s, ct_snapshot_state *state)
{
    *state = (ct_snapshot_state){
        .parts = s->parts,
        .shards = s->shards,
        .weights = ((s->parts == NULL) && ct_step_has_visits(&s->step)) ? &s->step.weights : NULL,
        .iteration = s->iteration,
        .n_rank = ct_solver_writers(s)->size,
        .global_batch = global_batch_of(s),
        .seed = s->seed,
        .n_history = s->step.n_history,
        .history = s->step.history,
        .history_name = s->step.history_name,
        .average = ct_solver_has_average(s) ? s->step.average : NULL,
        .solver_type = s->rule->type,
        .n_state = s->rule->n_state,
        .binary = (s->param->snapshot_format == CT__SOLVER_PARAMETER__SNAPSHOT_FORMAT__BINARYPROTO),
        .lr_step = ct_plateau_is(s->param) ? s->plateau.step
                                           : ct_learning_rate_step(s->param, s->iteration),
        .least_loss = s->plateau.begun ? s->plateau.least : CT_NO_LEAST_LOSS,
        .last_event = s->plateau.event,
        .loss_scale = s->step.loss_scale.on ? (double)s->step.loss_scale.scale : 0.0,
        .good_steps = s->step.loss_scale.good,
        .best = s->best,
        .keep_best = (s->param->best != NULL) ? s->param->best->keep : 0,
        .provenance = s->options.provenance,
        .late = s->step.late,
        .n_loss = s->n_loss,
        .next_loss = s->next_loss,
    };
    memcpy(state->loss_window, s->loss_window, (size_t)s->n_loss * sizeof(*s->loss_window));
}

/* The solver's momentum of a parameter = the sum over the ranks of what codecs hold of it. It is
 * summed whole: parts of it could be added in another order. */
static ct_status sum_momentum(ct_solver *s, const ct_sync_state *e, int64_t offset)
{
    size_t bytes = (size_t)e->count * sizeof(float);
    float *sum = ct_mem_acquire(bytes);
    ct_status status;

    if (sum == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a momentum of %zu bytes", bytes);
    memcpy(sum, e->data, bytes);
    status = ct_group_average(&s->exchange.data, sum, e->count, 1.0);
    if (status == CT_OK) status = ct_storage_put(&s->step.history[0], offset, e->count, sum);
    ct_mem_release(sum);
    return status;
}

/* The same where ranks have parts of parameter i of the whole net. */
static ct_status sum_momentum_of_parts(ct_solver *s, int i)
{
    int own = s->parts->own[i];
    ct_sync_state e = { 0 };
    int64_t any = 0;
    float *v = NULL;
    ct_status status = CT_OK;

    for (int k = 0; (any == 0) && (own >= 0) && ct_sync_states_get(&s->exchange.states, own, k, &e);
         k++)
        any = e.is_momentum;
    if (any != 0) v = ct_mem_acquire((size_t)e.count * sizeof(float));
    if ((any != 0) && (v == NULL)) status = CT_FAIL(CT_ERR_NOMEM, "no memory for a momentum");
    if (v != NULL) memcpy(v, e.data, (size_t)e.count * sizeof(float));
    CT_TRY_GOTO(status, out, ct_group_agree(&s->exchange.job, status));
    CT_TRY_GOTO(status, out, ct_group_max(&s->exchange.job, &any, 1));
    if (any == 0) goto out;
    CT_TRY_GOTO(status, out, ct_parts_add_up(s->parts, i, v));
    if (v != NULL)
        status = ct_storage_put(&s->step.history[0], s->net->param[own].offset, e.count, v);
out:
    ct_mem_release(v);
    return status;
}

/* What codecs have absorbed of the momentum, summed: so a run without them can go on from here. */
static ct_status collect_momentum(ct_solver *s)
{
    ct_sync_state e = { 0 };

    if (s->rule->corrects && (s->parts != NULL)) {
        for (int i = 0; i < s->parts->whole->n_param; i++) CT_TRY(sum_momentum_of_parts(s, i));
        return CT_OK;
    }
    for (int i = 0; s->rule->corrects && (i < s->net->n_param); i++) {
        for (int k = 0; ct_sync_states_get(&s->exchange.states, i, k, &e); k++)
            if (e.is_momentum) CT_TRY(sum_momentum(s, &e, s->net->param[i].offset));
    }
    return CT_OK;
}

/* Bytes of a rank; 0: none. */
static double resident_limit(const ct_solver *s)
{
    return (s->param->memory != NULL) ? s->param->memory->limit_mb * 1048576.0 : 0.0;
}

/* Loaders and layers that use HDF5 while the net trains. */
static bool uses_hdf5(const ct_net *net)
{
    static const char *const types[] = { "HDF5Data", "HDF5Output", "MemoryData", "TextData" };

    for (int i = 0; i < net->n_layer; i++)
        for (size_t k = 0; k < sizeof(types) / sizeof(types[0]); k++)
            if (strcmp(net->layer[i]->ops->type, types[k]) == 0) return true;
    return false;
}

/* HDF5 is for one thread at a time: one that gives way to all others would keep it from them. */
ct_status ct_solver_open_later(ct_solver *s)
{
    bool hdf5 = uses_hdf5(ct_solver_whole(s));
    ct_snapshot_state state;

    for (int i = 0; i < s->n_test; i++) hdf5 = hdf5 || uses_hdf5(ct_solver_whole_test(s, i));
    if (!s->param->snapshot_async || (s->param->snapshot_prefix == NULL)) return CT_OK;
    CT_TRY(ct_snapshot_later_create(!hdf5, &s->later));
    fill_state(s, &state);
    return ct_snapshot_later_reserve(s->later, s->net, &state, ct_solver_writers(s),
                                     resident_limit(s));
}

ct_status ct_solver_snapshot_end(ct_solver *s, bool wait)
{
    double seconds = 0.0;

    if ((s->later == NULL) || !ct_snapshot_later_is_open(s->later)) return CT_OK;
    if (!wait && (s->later_need == CT_LATER_RANKS)) return ct_snapshot_later_serve(s->later);
    if (!wait && (s->later_need != CT_LATER_NOTHING)) return CT_OK;
    if (wait) ct_solver_beat(s, "snapshot");
    CT_TRY(ct_snapshot_later_finish(s->later, &seconds));
    CT_INFO("snapshot of iteration %" PRId64 " was written in %.3g s", s->later_iteration, seconds);
    return ct_best_committed(s, s->later_iteration);
}

/* In one go, or by threads while training goes on. */
static ct_status write_set(ct_solver *s, const ct_snapshot_state *state)
{
    const Ct__SolverParameter *p = s->param;
    double start = ct_clock_s(), seconds = 0.0;
    bool begun = false;

    if (s->later != NULL)
        CT_TRY(ct_snapshot_later_begin(s->later, p->snapshot_prefix, s->net, state, &s->exchange,
                                       p->snapshot_keep, resident_limit(s), &begun));
    s->later_iteration = s->iteration;
    if (begun) {
        CT_INFO("snapshot of iteration %" PRId64 " is being written, training waited %.3g s",
                s->iteration, ct_clock_s() - start);
        return CT_OK;
    }
    CT_TRY(ct_snapshot_write(p->snapshot_prefix, s->net, state, &s->exchange, p->snapshot_keep,
                             &seconds));
    CT_INFO("snapshot of iteration %" PRId64 " took %.3g s", s->iteration, seconds);
    return ct_best_committed(s, s->iteration);
}

static ct_status write_snapshot(ct_solver *s)
{
    ct_snapshot_state state;
    ct_outer_set set = { .n_block = 0 };
    ct_text plan = { 0 };
    ct_status status = CT_OK;
    double traced = ct_trace_start(s->options.trace);

    CT_TRY(ct_solver_settle(s));
    ct_solver_beat(s, "snapshot");
    CT_TRY(ct_solver_snapshot_end(s, true));
    CT_TRY(ct_solver_average_statistics(s));
    CT_TRY(collect_momentum(s));
    if (s->optex != NULL) CT_TRY(ct_optex_gather(s->optex));
    fill_state(s, &state);
    if (state.n_loss > 0)
        CT_TRY(ct_group_sum(ct_solver_writers(s), state.loss_window, state.n_loss));
    if (s->options.env.plan != NULL) ct_engine_plan_text(s->options.env.plan, &plan);
    state.plan = plan.text;
    if (s->outer != NULL)
        status =
            ct_outer_set_write(s->outer, &s->exchange.data, ct_solver_is_apart(s), &set, &state);
    if ((status == CT_OK) && plan.failed)
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for the plan of a snapshot");
    if (status == CT_OK) status = write_set(s, &state);
    ct_outer_set_close(&set);
    ct_text_destroy(&plan);
    CT_TRY(status);
    s->last_snapshot = s->iteration;
    ct_trace_end(s->options.trace, traced, CT_TRACE_SNAPSHOT, NULL, NULL);
    return CT_OK;
}

ct_status ct_solver_snapshot(ct_solver *s)
{
    s->snapshot_s = ct_clock_s();
    return (s->iteration == s->last_snapshot) ? CT_OK : write_snapshot(s);
}

/* Takes up what a snapshot says; what differs from this run is said. */
static void take_state(ct_solver *s, const ct_snapshot_state *state)
{
    int64_t global_batch = global_batch_of(s);
    bool fits = (state->n_loss <= s->param->average_loss) &&
                ((state->n_loss == s->param->average_loss) || (state->next_loss == state->n_loss) ||
                 (state->n_loss == 0));

    s->iteration = state->iteration;
    ct_best_take(s, &state->best);
    s->plateau = (ct_plateau){ .begun = (state->least_loss < CT_NO_LEAST_LOSS),
                               .least = state->least_loss,
                               .event = state->last_event,
                               .step = state->lr_step };
    if (s->step.loss_scale.on && (state->loss_scale > 0.0)) {
        s->step.loss_scale.scale = (float)state->loss_scale;
        s->step.loss_scale.good = state->good_steps;
        s->step.all.has_loss = false;
    }
    if (s->param->random_seed < 0) {
        s->seed = state->seed;
    } else if (state->seed != s->seed) {
        CT_WARN("the snapshot was made with random_seed %" PRIu64 ", this run has %" PRIu64
                ": samples and dropout go on in another order",
                state->seed, s->seed);
    }
    s->net->pass->exec.seed = s->seed;
    if (state->global_batch != global_batch)
        CT_WARN("the snapshot was made with a global batch of %" PRId64 ", this run has %" PRId64
                ": the place in the data set is iteration times global batch",
                state->global_batch, global_batch);
    s->n_loss = fits ? state->n_loss : 0;
    s->next_loss = fits ? state->next_loss % s->param->average_loss : 0;
    memset(s->loss_window, 0, sizeof(s->loss_window));
    if (ct_solver_writers(s)->rank == 0) /* the means over ranks, kept as rank 0's shares */
        memcpy(s->loss_window, state->loss_window, sizeof(s->loss_window));
}

/* The newest good set, on every rank; *file_p NULL: there is none. */
static ct_status find_newest(ct_solver *s, char **file_p)
{
    const ct_group *g = ct_solver_writers(s);
    ct_status status = CT_OK;
    char *file = NULL;
    int64_t length = 0;

    if (s->param->snapshot_prefix == NULL)
        return CT_FAIL(CT_ERR_CONFIG, "--snapshot=auto needs the solver's snapshot_prefix");
    if (g->rank == 0) status = ct_snapshot_newest(s->param->snapshot_prefix, &file);
    CT_TRY(ct_solver_share_status(s, status));
    if (file != NULL) length = (int64_t)strlen(file);
    CT_TRY(ct_group_broadcast(g, &length, sizeof(length)));
    *file_p = NULL;
    if (length == 0) return CT_OK;
    if (g->rank != 0) file = calloc((size_t)length + 1, 1);
    if (file == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a file name");
    status = ct_group_broadcast(g, file, (size_t)length);
    if (status != CT_OK) {
        free(file);
        return status;
    }
    *file_p = file;
    return CT_OK;
}

/* Is file the set that a snapshot of this very iteration would write? */
static bool is_own_set(const ct_solver *s, const char *file)
{
    char own[64];
    size_t n;

    if (s->param->snapshot_prefix == NULL) return false;
    n = strlen(s->param->snapshot_prefix);
    snprintf(own, sizeof(own), "_iter_%" PRId64 ".solverstate.h5", s->iteration);
    return (strncmp(file, s->param->snapshot_prefix, n) == 0) && (strcmp(file + n, own) == 0);
}

/* What a codec kept goes to whole weights, a part in each step. */
static ct_status check_late(const ct_solver *s, const char *file)
{
    if ((s->step.late.v != NULL) && (s->optex != NULL))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: compression left behind what belongs to the weights, which rounds of "
                       "OptEx cannot add: go on without OptEx for one step, and take its set",
                       file);
    if ((s->step.late.v == NULL) || (!s->exchange.sync.shards && !ct_step_has_visits(&s->step)))
        return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s: compression left behind what belongs to the weights, which memory { zero } "
                   "and weights FILE cannot add: go on with zero: 0 for one step, and take its set",
                   file);
}

/* Groups of local steps have weights and states of their own. */
static ct_status read_set(ct_solver *s, const char *file, ct_snapshot_state *state)
{
    const ct_group *g = &s->exchange.data;
    ct_outer_set set;
    ct_status status;

    if (s->optex != NULL) ct_optex_forget(s->optex);
    if (s->outer == NULL) return ct_snapshot_read(file, s->net, state, &s->exchange);
    status = ct_outer_set_read(s->outer, g, &set, state);
    if (status == CT_OK) status = ct_snapshot_read(file, s->net, state, &s->exchange);
    if (status == CT_OK) status = ct_outer_set_take(s->outer, g, &set);
    ct_outer_set_close(&set);
    return status;
}

static ct_status restore_file(ct_solver *s, const char *file)
{
    ct_snapshot_state state;

    fill_state(s, &state);
    CT_INFO("Restoring previous solver status from %s", file);
    ct_solver_beat(s, "restore");
    CT_TRY(read_set(s, file, &state));
    if (s->step.owed != NULL) s->net->options.dev->mem_release(s->step.owed);
    s->step.owed = state.owed;
    ct_residual_drain_close(s->net, &s->step.late);
    s->step.late = state.late;
    CT_TRY(check_late(s, file));
    take_state(s, &state);
    if (is_own_set(s, file)) s->last_snapshot = s->iteration;
    if (state.foreign)
        CT_INFO("resuming after %" PRId64 " iterations of Caffe", s->iteration);
    else
        CT_INFO("resuming after %" PRId64 " iterations, written by %d rank%s", s->iteration,
                state.n_rank, (state.n_rank == 1) ? "" : "s");
    if (s->iteration > s->param->max_iter)
        CT_WARN("the snapshot is beyond max_iter %d", s->param->max_iter);
    return CT_OK;
}

ct_status ct_solver_restore(ct_solver *s, const char *file)
{
    char *newest = NULL;
    ct_status status;

    if (strcmp(file, "auto") != 0) return restore_file(s, file);
    CT_TRY(find_newest(s, &newest));
    if (newest == NULL) {
        CT_INFO("no snapshot at %s yet, starting from the beginning", s->param->snapshot_prefix);
        return CT_OK;
    }
    status = restore_file(s, newest);
    free(newest);
    return status;
}

/* ---- --weights */

typedef struct weights_loading {
    ct_solver *s;
    const char *files;
} weights_loading;

/* To where w says, or NULL: to this rank's net. */
static ct_status load_file(ct_solver *s, const char *file, ct_storage *whole)
{
    if (whole == NULL) return ct_weights_load(file, s->net);
    if (s->parts == NULL) return ct_weights_load_learned(file, s->net, whole);
    return ct_weights_load_parts(file, s->parts, whole);
}

/* Each of the comma separated files in turn, on rank 0. */
static ct_status load_here(ct_solver *s, const char *files, ct_storage *whole)
{
    char *copy = strdup(files), *rest = copy, *file;
    ct_status status = CT_OK;

    if (copy == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a file name");
    while ((status == CT_OK) && ((file = strsep(&rest, ",")) != NULL)) {
        size_t n;

        file += strspn(file, " \t");
        n = strlen(file);
        while ((n > 0) && ((file[n - 1] == ' ') || (file[n - 1] == '\t'))) file[--n] = '\0';
        if (n > 0) status = load_file(s, file, whole);
    }
    free(copy);
    return status;
}

static ct_status load_whole(void *ctx, ct_storage *whole)
{
    const weights_loading *l = ctx;

    return load_here(l->s, l->files, whole);
}

ct_status ct_solver_load_weights(ct_solver *s, const char *files)
{
    ct_status status = CT_OK;

    if (s->parts != NULL) {
        ct_storage weights = ct_parts_weights(s->parts);

        status = ct_parts_run(s->parts, &(ct_storage *){ &weights }, 1, load_whole,
                              &(weights_loading){ s, files });
        ct_net_weights_changed(s->net);
        return status;
    }
    if (ct_step_has_visits(&s->step)) {
        ct_storage *weights = &s->step.weights;

        if (s->shards != NULL)
            status = ct_state_shards_run(s->shards, &weights, 1, load_whole,
                                         &(weights_loading){ s, files });
        else
            status = load_here(s, files, weights);
    } else if (s->exchange.data.rank == 0) {
        status = load_here(s, files, NULL);
    }
    CT_TRY(ct_solver_share_status(s, status));
    return ct_solver_broadcast_weights(s);
}
