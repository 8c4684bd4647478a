#include "framework/solver/solver.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "framework/base/clock.h"
#include "framework/base/rng.h"
#include "framework/base/trace.h"
#include "framework/proto/prototxt.h"
#include "framework/report/report.h"
#include "framework/solver/solver_private.h"

static ct_status choose_device(ct_solver *s)
{
    bool gpu = s->param->has_solver_mode &&
               (s->param->solver_mode == CT__SOLVER_PARAMETER__SOLVER_MODE__GPU);

    /* Caffe's schema says GPU where nothing is set; a build without one must run all the same */
    s->dev = s->options.dev;
    if (s->dev == NULL) return ct_device_open(gpu ? "cuda" : "cpu", 0, &s->dev);
    if (gpu && (s->dev->kind == CT_DEVICE_CPU))
        return CT_FAIL(CT_ERR_CONFIG, "solver_mode is GPU, but this run is on the CPU; say "
                                      "solver_mode: CPU, or build with CUDA=1");
    return CT_OK;
}

static uint64_t draw_seed(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    /* 31 bits: it can be given as random_seed later */
    return ct_rng_key((uint64_t)now.tv_sec, (uint64_t)now.tv_nsec, (uint64_t)getpid()) & 0x7fffffff;
}

static ct_status open_exchange(ct_solver *s)
{
    int n = 0;

    while ((n < s->net->n_param) &&
           (s->net->param[n].offset + s->net->param[n].count <= s->net->grad_count))
        n++;
    ct_exchange_single(n, &s->alone);
    if (s->options.open_exchange != NULL)
        return s->options.open_exchange(s->options.open_exchange_ctx, s->net, &s->exchange);
    s->exchange = s->alone;
    return CT_OK;
}

static ct_status open_outer(ct_solver *s)
{
    if (s->param->outer == NULL) return CT_OK;
    if (s->options.outer == NULL)
        return CT_FAIL(CT_ERR_CONFIG, "outer: nobody has told this solver of groups of ranks");
    return ct_outer_create(s->param, s->options.outer, s->net, &s->outer);
}

static ct_status open_parts(ct_solver *s)
{
    if (s->options.division == NULL) return CT_OK;
    return ct_parts_create(s->options.division->whole, s->net, &s->exchange.job, &s->parts);
}

void ct_solver_divide_exec(ct_solver *s, ct_exec *ex)
{
    const ct_division *d = s->options.division;

    if (d == NULL) return;
    s->sums_of[0] = ct_group_sums(&s->exchange.stage);
    s->sums_of[1] = ct_group_sums(&s->exchange.data);
    ex->sums_of = s->sums_of;
    ex->transfers = d->transfers;
    ex->transfers_ctx = d->transfers_ctx;
}

static ct_status agree_seed(ct_solver *s)
{
    const ct_group *g = ct_solver_sharers(s);

    CT_TRY(ct_group_broadcast(&s->exchange.job, &s->seed, sizeof(s->seed)));
    if (s->param->random_seed < 0)
        CT_INFO("random_seed %" PRIu64 ", drawn from the clock", s->seed);
    s->options.env.seed = s->seed;
    s->net->options.env.seed = s->seed; /* the initial weights are rank 0's anyway */
    s->net->pass->exec = (ct_exec){
        .dev = s->dev,
        .phase = CT_TRAIN,
        .deterministic = s->param->deterministic,
        .seed = s->seed,
        .trace = s->options.trace,
    };
    ct_exec_set_group(&s->net->pass->exec, g);
    ct_solver_divide_exec(s, &s->net->pass->exec);
    if ((s->dev->graph != NULL) && s->net->options.graph)
        CT_TRY(s->dev->graph->stream_open(&s->net->pass->exec.stream));
    return CT_OK;
}

static ct_status take_outputs(void *ctx, const ct_pass *pass)
{
    ct_solver *s = ctx;

    if (!s->display) return CT_OK;
    ct_outputs_begin(&s->outputs);
    if ((s->optex != NULL) && !ct_optex_shows(s->optex)) return CT_OK;
    return ct_outputs_add(&s->outputs, pass);
}

static void beat(void *ctx, const char *what)
{
    ct_solver_beat(ctx, what);
}

static ct_status open_optex(ct_solver *s)
{
    const ct_group *ranks = &s->exchange.data;

    if ((ct_optex_points(s->param) > 1) && (ct_optex_sharers(s->param, ranks->size) > 1) &&
        (s->options.point == NULL))
        return CT_FAIL(CT_ERR_CONFIG, "optex: nobody has told this solver of ranks that share a "
                                      "point: take as many ranks as divide optex.parallel");
    return ct_optex_create(s->param, &s->step, ranks, &s->exchange.states, &s->optex);
}

static ct_status open_step(ct_solver *s)
{
    const ct_division *d = s->options.division;
    bool together = (ct_optex_points(s->param) == 1); /* else a round sums gradients at its end */
    bool several = together && ((ct_solver_sharers(s)->size > 1) ||
                                ((d != NULL) && (s->exchange.stage.size > 1)));

    s->step = (ct_train_step){ .param = s->param,
                               .iter_size = s->iter_size,
                               .micro_batches = s->options.micro_batches,
                               .net = s->net,
                               .sync = together ? &s->exchange.sync : &s->alone.sync,
                               .parts = s->parts,
                               .several = several,
                               .ranks = &s->exchange,
                               .pass = s->net->pass,
                               .also = (s->outer != NULL) ? ct_outer_under_way(s->outer) : NULL,
                               .schedule = (d != NULL) ? &d->schedule : NULL,
                               .stage = (d != NULL) ? d->stage : 0,
                               .n_stage = (d != NULL) ? d->n_stage : 0,
                               .rule = s->rule,
                               .look = take_outputs,
                               .beat = beat,
                               .hook_ctx = s,
                               .open_weights = s->options.open_weights,
                               .open_weights_ctx = s->options.open_weights_ctx,
                               .open_state = s->options.open_state,
                               .open_state_ctx = s->options.open_state_ctx,
                               .on_host = s->options.on_host,
                               .host_piece = s->options.host_piece };
    CT_TRY(ct_train_step_open(&s->step));
    if (s->outer != NULL) CT_TRY(ct_outer_attach(s->outer, &s->step, &s->exchange.states));
    if (ct_optex_is(s->param)) CT_TRY(open_optex(s));
    if (s->parts != NULL)
        return ct_parts_share_out(s->parts, s->exchange.sync.shards ? &s->step.shard : NULL,
                                  ct_step_has_visits(&s->step) ? &s->step.weights : NULL);
    if (!s->exchange.sync.shards) return CT_OK;
    return ct_state_shards_create(&s->step.shard, s->net->grad_count, &s->exchange.data,
                                  &s->shards);
}

/* From here on max_iter is what max_epoch makes of it. */
static ct_status end_by_epochs(ct_solver *s)
{
    const ct_solver_text text = { s->param, s->options.map };
    int64_t batch = s->batches * s->net->batch_global;

    if (!(s->param->max_epoch > 0.0f)) return CT_OK;
    CT_TRY(ct_group_max(&s->exchange.job, &batch, 1)); /* a rank's own net may read no data */
    s->ends = *s->param;
    CT_TRY(ct_solver_end_by_epochs(&text, batch, s->n_sample, &s->ends.max_iter));
    s->ends.has_max_iter = true;
    s->param = &s->ends;
    return ct_learning_rate_check(&(ct_solver_text){ s->param, NULL });
}

/* The net would say so, too, but does not know where it stands. */
static ct_status check_precision(const ct_solver *s)
{
    const ct_solver_text text = { s->param, s->options.map };
    bool tf32 = (s->param->precision == CT__SOLVER_PARAMETER__PRECISION__TF32);
    bool fp16 = (s->param->precision == CT__SOLVER_PARAMETER__PRECISION__FP16);

    if ((s->dev->kind != CT_DEVICE_CPU) || !(tf32 || fp16)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s: precision %s is for GPUs, and this run is on the CPU: F32 or BF16 there",
                   CT_SOLVER_AT(&text, precision), tf32 ? "TF32" : "FP16");
}

/* All that a rank needs no other one for, but that sets of data are opened together. */
static ct_status make_train_net(ct_solver *s)
{
    CT_TRY(ct_solver_check(s->param, s->options.map));
    CT_TRY(ct_update_rule_find(ct_update_rule_type(s->param), &s->rule));
    CT_TRY(choose_device(s));
    CT_TRY(check_precision(s));
    CT_TRY(ct_source_map_create(&s->map));
    s->seed = (s->param->random_seed >= 0) ? (uint64_t)s->param->random_seed : draw_seed();
    s->options.env.seed = s->seed;
    if (s->options.env.global_batch_size == 0)
        s->options.env.global_batch_size = s->param->global_batch_size;
    CT_TRY(ct_solver_make_train_net(s));
    CT_TRY(ct_solver_micro_batches(s->param, s->options.map, ct_solver_whole(s), &s->iter_size));
    s->batches = s->iter_size * ct_optex_points(s->param);
    ct_net_count_rows(s->net, s->iter_size);
    return CT_OK;
}

/* A source that a program computes may give each rank what it likes. Other groups of the job may
 * train with other batches. */
static ct_status check_batch(ct_solver *s, const ct_net *net)
{
    int64_t most[2] = { net->batch_global, -net->batch_global };
    ct_status status = CT_OK;

    if (s->options.division != NULL) return CT_OK; /* some ranks read no data */
    CT_TRY(ct_group_max(&s->exchange.data, most, 2));
    if (most[0] != -most[1])
        status = CT_FAIL(CT_ERR_CONFIG,
                         "net \"%s\": by its source of samples this rank has a batch of %" PRId64
                         " on all ranks, and others have %" PRId64 " to %" PRId64
                         ": give each rank as many samples",
                         net->name, net->batch_global, -most[1], most[0]);
    return ct_solver_share_status(s, status);
}

static ct_status check_test_batches(ct_solver *s)
{
    for (int i = 0; i < s->n_test; i++) CT_TRY(check_batch(s, s->test[i]));
    return CT_OK;
}

static ct_status agree_alone(const ct_solver *s, ct_status mine)
{
    return (s->options.agree != NULL) ? s->options.agree(s->options.agree_ctx, mine) : mine;
}

static ct_status create(ct_solver *s)
{
    ct_status status = CT_OK;

    CT_TRY(agree_alone(s, make_train_net(s)));
    CT_TRY(open_exchange(s));
    CT_TRY(open_outer(s));
    CT_TRY(open_parts(s));
    if (s->exchange.job.rank == 0) status = ct_solver_check_prefix(s->param);
    CT_TRY(ct_solver_share_status(s, status));
    CT_TRY(agree_seed(s));
    CT_TRY(check_batch(s, s->net));
    s->n_sample = s->net->n_sample;
    CT_TRY(ct_group_max(&s->exchange.job, &s->n_sample, 1));
    CT_TRY(end_by_epochs(s));
    CT_TRY(open_step(s));
    CT_TRY(ct_step_fill(&s->step));
    CT_TRY(ct_solver_broadcast_weights(s));
    CT_TRY(ct_outputs_create(ct_solver_whole(s), s->net, ct_solver_writers(s), &s->outputs));
    CT_TRY(agree_alone(s, ct_solver_make_test_nets(s)));
    CT_TRY(check_test_batches(s));
    CT_TRY(ct_best_open(s));
    CT_TRY(ct_solver_open_later(s));
    for (size_t i = 0; i < s->param->n_weights; i++)
        CT_TRY(ct_solver_load_weights(s, s->param->weights[i]));
    CT_INFO("Solver scaffolding done.");
    return CT_OK;
}

ct_status ct_solver_create(const ct_solver_options *options, ct_solver **solver_p)
{
    ct_solver *s = calloc(1, sizeof(*s));

    *solver_p = NULL;
    if (s == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a solver");
    s->options = *options;
    s->param = options->param;
    s->last_snapshot = -1;
    s->start_s = s->snapshot_s = ct_clock_s();
    *solver_p = s;
    return create(s);
}

void ct_solver_destroy(ct_solver *s)
{
    if (s == NULL) return;
    ct_snapshot_later_destroy(s->later); /* its thread looks at the net */
    for (int i = 0; i < s->n_test; i++) {
        ct_outputs_destroy(&s->test_outputs[i]);
        ct_net_destroy(s->test[i]); /* before the net whose weights they share */
    }
    free(s->test);
    free(s->test_outputs);
    ct_outputs_destroy(&s->outputs);
    ct_optex_destroy(s->optex);
    ct_train_step_close(&s->step);
    ct_parts_destroy(s->parts);
    ct_state_shards_destroy(s->shards);
    ct_outer_destroy(s->outer);
    ct_net_destroy(s->net);
    for (int i = 0; i < s->n_read; i++) ct__net_parameter__free_unpacked(s->read[i], NULL);
    free(s->read);
    ct_source_map_destroy(s->map);
    free(s);
}

static bool due(int64_t iteration, int32_t interval)
{
    return (interval > 0) && (iteration % interval == 0);
}

/* The ranks meet here, so the slowest one's lag shows here: it is part of the step. */
static ct_status agree(ct_solver *s, bool finite, ct_solver_action *action_p)
{
    double start = ct_clock_s(), waited_s, traced = ct_trace_start(s->options.trace);

    CT_TRY(ct_solver_agree(s, finite, action_p));
    ct_trace_end(s->options.trace, traced, CT_TRACE_AGREE, NULL, NULL);
    waited_s = ct_clock_s() - start;
    s->tally.step_s += waited_s;
    s->tally.agree_s += waited_s;
    return CT_OK;
}

ct_status ct_solver_settle(ct_solver *s)
{
    double start = ct_clock_s();

    CT_TRY(ct_train_step_settle(&s->step));
    s->tally.step_s += ct_clock_s() - start;
    return CT_OK;
}

ct_status ct_solver_rest(ct_solver *s)
{
    CT_TRY(ct_solver_settle(s));
    return (s->outer != NULL) ? ct_outer_land(s->outer) : CT_OK;
}

static void log_multistep(const ct_solver *s)
{
    int64_t now = ct_learning_rate_step(s->param, s->iteration);

    if ((s->iteration > 0) && (strcmp(s->param->lr_policy, "multistep") == 0) &&
        (now != ct_learning_rate_step(s->param, s->iteration - 1)))
        CT_INFO("MultiStep Status: Iteration %" PRId64 ", step = %" PRId64, s->iteration, now);
}

/* One step; notes its loss and time. finite_p: this rank's loss is. */
static ct_status step(ct_solver *s, bool *finite_p)
{
    double start = ct_clock_s(), loss = 0.0;

    CT_TRY(ct_learning_rate(s->param, s->iteration, &s->rate));
    if (ct_plateau_is(s->param)) s->rate *= ct_plateau_factor(s->param, &s->plateau);
    log_multistep(s);
    if (s->optex != NULL)
        CT_TRY(ct_optex_run(s->optex, s->iteration, s->rate, &loss));
    else
        CT_TRY(ct_train_step_run(&s->step, s->iteration, s->rate, &loss));
    ct_solver_note_loss(s, loss);
    *finite_p = isfinite(loss);
    if (ct_plateau_is(s->param)) {
        double smoothed = ct_solver_smoothed_loss(s);

        CT_TRY(ct_group_sum(ct_solver_writers(s), &smoothed, 1));
        ct_plateau_note(s->param, s->iteration, smoothed, &s->plateau);
    }
    s->tally.step_s += ct_clock_s() - start;
    s->tally.iterations++;
    return CT_OK;
}

/* What keeps gradients from being all in one place before a weight changes; NULL: nothing. */
static const char *gradients_leave(const ct_solver *s)
{
    const Ct__CompressionParameter *c = s->param->compression;

    if (s->optex != NULL) return "type OptEx";
    if (s->step.several) return "several ranks";
    if (s->param->clip_gradients > 0.0f) return "clip_gradients";
    if (ct_update_waits_for_all(s->param)) return "precision FP16";
    if (s->rule->ratio != CT_UPDATE_NO_RATIO) return "type LARS or LAMB";
    if ((c != NULL) && (c->type != CT__COMPRESSION_PARAMETER__TYPE__NONE)) return "compression";
    return (s->net->options.window != NULL) ? "memory" : NULL;
}

ct_status ct_solver_watch(ct_solver *s, const ct_step_calls *calls)
{
    const char *why = (calls->gradients != NULL) ? gradients_leave(s) : NULL;

    if (why != NULL)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s and a look at gradients before the update do not go together: they are "
                       "never all there",
                       why);
    s->calls = *calls;
    s->step.gradients = calls->gradients;
    s->step.gradients_ctx = calls->ctx;
    return CT_OK;
}

/* The groups of local steps meet, and so do the statistics of all ranks. */
static ct_status meet(ct_solver *s)
{
    double start, seconds;

    if ((s->outer == NULL) || !ct_outer_is_due(s->outer, s->iteration)) return CT_OK;
    CT_TRY(ct_solver_settle(s));
    start = ct_clock_s();
    ct_solver_beat(s, "exchange of local steps");
    CT_TRY(ct_outer_meet(s->outer, s->iteration));
    CT_TRY(ct_solver_average_statistics(s));
    seconds = ct_clock_s() - start;
    s->tally.step_s += seconds;
    s->tally.agree_s += seconds;
    return CT_OK;
}

/* One iteration with all that may follow it. */
static ct_status iterate(ct_solver *s)
{
    const Ct__SolverParameter *p = s->param;
    bool finite = true;
    double traced = ct_trace_start(s->options.trace);
    ct_solver_action action;

    s->display = due(s->iteration, p->display);
    if (s->calls.start != NULL) CT_TRY(s->calls.start(s->calls.ctx));
    CT_TRY(step(s, &finite));
    if (s->display) CT_TRY(ct_solver_show(s));
    CT_TRY(agree(s, finite || !p->stop_on_nan, &action));
    CT_TRY(ct_solver_snapshot_end(s, false));
    s->iteration++;
    CT_TRY(meet(s));
    ct_report_progress(s->options.report, s->iteration, p->max_iter, s->shown_loss,
                       ct_solver_images_per_s(s));
    if (due(s->iteration, p->checksum_interval)) CT_TRY(ct_solver_check_weights(s));
    if (due(s->iteration, p->snapshot) ||
        ((action == CT_ACTION_SNAPSHOT) && (p->snapshot_prefix != NULL)))
        CT_TRY(ct_solver_snapshot(s));
    ct_trace_end(s->options.trace, traced, CT_TRACE_ITERATION, NULL, NULL);
    return (action == CT_ACTION_STOP) ? CT_STOPPED : CT_OK;
}

/* patient: or until patience is over. */
static ct_status train(ct_solver *s, int64_t end, bool patient)
{
    const Ct__SolverParameter *p = s->param;

    while (s->iteration < end) {
        ct_trace_begin(s->options.trace, s->iteration);
        if (due(s->iteration, p->test_interval) && ((s->iteration > 0) || p->test_initialization))
            CT_TRY(ct_solver_test_all(s));
        s->gave_up = patient && ct_best_gave_up(s);
        if (s->gave_up) return CT_OK;
        CT_TRY(iterate(s));
    }
    return CT_OK;
}

static ct_status stop_early(ct_solver *s)
{
    if (s->param->snapshot_prefix == NULL)
        return CT_FAIL(CT_ERR_CONFIG,
                       "stopped after %" PRId64 " iterations without a snapshot: snapshot_prefix "
                       "is not set",
                       s->iteration);
    CT_TRY(ct_solver_snapshot(s));
    CT_TRY(ct_solver_snapshot_end(s, true));
    CT_INFO("Optimization stopped early.");
    return CT_STOPPED;
}

/* The loss after the last update: one more forward, as Caffe shows it. */
static ct_status show_final(ct_solver *s)
{
    double loss = 0.0;
    ct_status status;

    s->net->pass->exec.micro_step = s->iteration * s->batches;
    s->net->pass->exec.accumulate = false;
    CT_TRY(ct_pass_forward(s->net->pass, &loss));
    if (s->optex != NULL) /* each of the points' ranks has had the batch */
        loss *= (double)ct_optex_sharers(s->param, s->exchange.data.size) / s->exchange.data.size;
    ct_solver_note_loss(s, loss);
    CT_TRY(ct_solver_sum_shown(s, &loss));
    ct_report_final_loss(s->options.report, s->iteration, loss);
    status = (isfinite(loss) || !s->param->stop_on_nan) ? CT_OK : CT_ERR_DIVERGED;
    status = ct_solver_share_status(s, status);
    if (status != CT_ERR_DIVERGED) return status;
    CT_TRY(ct_solver_snapshot_end(s, true));
    if (s->exchange.job.rank > 0) return CT_ERR_DIVERGED; /* the first one says so */
    return CT_FAIL(CT_ERR_DIVERGED,
                   "the loss after the last update, of iteration %" PRId64
                   ", is not finite (learning rate %g); stop_on_nan: false goes on",
                   s->iteration, s->rate);
}

static ct_status finish(ct_solver *s)
{
    const Ct__SolverParameter *p = s->param;

    if (p->snapshot_after_train && (p->snapshot_prefix != NULL)) CT_TRY(ct_solver_snapshot(s));
    if (due(s->iteration, p->display)) CT_TRY(show_final(s));
    if (due(s->iteration, p->test_interval) && !s->gave_up) CT_TRY(ct_solver_test_all(s));
    CT_TRY(ct_solver_snapshot_end(s, true));
    ct_best_tell(s);
    CT_INFO("Optimization Done.");
    return CT_OK;
}

static int64_t end_of(const Ct__SolverParameter *p)
{
    return ((p->stop_iter > 0) && (p->stop_iter < p->max_iter)) ? p->stop_iter : p->max_iter;
}

ct_status ct_solver_run(ct_solver *s)
{
    ct_status status;

    CT_INFO("Solving %s", s->net->name);
    CT_INFO("Learning Rate Policy: %s", s->param->lr_policy);
    ct_solver_reset_tally(s);
    s->snapshot_s = ct_clock_s();
    CT_TRY(ct_best_committed(s, s->iteration));
    status = train(s, end_of(s->param), true);
    ct_trace_stop(s->options.trace);
    if ((status == CT_OK) || (status == CT_STOPPED)) CT_TRY(ct_solver_rest(s));
    if (status == CT_OK) status = finish(s);
    if (status == CT_STOPPED) return stop_early(s);
    /* what all ranks found alike leaves the set that is on its way as good as it was */
    if ((status == CT_ERR_DIVERGED) || ((status != CT_OK) && (ct_solver_writers(s)->size == 1)))
        (void)ct_solver_snapshot_end(s, true);
    return status;
}

ct_status ct_solver_steps(ct_solver *s, int64_t n)
{
    ct_status status;

    ct_solver_reset_tally(s);
    status = train(s, s->iteration + n, false);
    if ((status == CT_OK) || (status == CT_STOPPED)) CT_TRY(ct_solver_rest(s));
    if (status == CT_OK) CT_TRY(ct_solver_snapshot_end(s, true));
    return (status == CT_STOPPED) ? stop_early(s) : status;
}

ct_status ct_solver_save(ct_solver *s)
{
    if (s->param->snapshot_prefix == NULL)
        return CT_FAIL(CT_ERR_CONFIG, "snapshot_prefix is not set, so no snapshot is written");
    CT_TRY(ct_solver_snapshot(s));
    return ct_solver_snapshot_end(s, true);
}

ct_net *ct_solver_net(ct_solver *s)
{
    return s->net;
}

bool ct_solver_has_outer(const ct_solver *s)
{
    return s->outer != NULL;
}

int ct_solver_n_test(const ct_solver *s)
{
    return s->n_test;
}

ct_net *ct_solver_test_net(ct_solver *s, int i)
{
    return s->test[i];
}

int ct_solver_iter_size(const ct_solver *s)
{
    return s->iter_size;
}

int ct_solver_batches(const ct_solver *s)
{
    return s->batches;
}

int64_t ct_solver_broken_samples(const ct_solver *s)
{
    return s->net->pass->exec.broken_samples;
}

int64_t ct_solver_iteration(const ct_solver *s)
{
    return s->iteration;
}

uint64_t ct_solver_seed(const ct_solver *s)
{
    return s->seed;
}
