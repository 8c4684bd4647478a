#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/verb.h"
#include "framework/base/clock.h"
#include "framework/report/report.h"
#include "framework/solver/solver.h"
#include "framework/solver/update_rule.h"
#include "runtime/config/exchange_config.h"
#include "runtime/exchange/exchange_mpi.h"
#include "framework/snapshot/owner.h"
#include "framework/snapshot/set_files.h"
#include "framework/snapshot/snapshot.h"
#include "planner/parallel.h"
#include "runtime/call.h"
#include "runtime/division/division.h"
#include "runtime/gpu_memory.h"
#include "runtime/job_memory.h"
#include "runtime/memory_plan.h"
#include "runtime/run_folder.h"
#include "runtime/signals.h"

_Static_assert((int)CT_SIGNAL_STOP == (int)CT_ACTION_STOP, "the solver reads the handlers' word");
_Static_assert((int)CT_SIGNAL_SNAPSHOT == (int)CT_ACTION_SNAPSHOT, "likewise");

typedef struct training {
    ct_call *call;
    const ct_options *o;
    ct_job *job;
    ct_config config;
    ct_exchange_open exchange;
    ct_exchange_window window;
    ct_job_memory memory;
    ct_trace_file trace;
    ct_report *report;
    ct_run_folder run;
    bool begun; /* the first step was reached */
    ct_solver *solver;
    ct_text provenance;
    ct_engine_plan *plan;
    char *snapshot;            /* to go on from; NULL: none */
    ct_owner *owner;           /* of snapshot_prefix, on rank 0 */
    ct_parallel *parallel;     /* --parallel; NULL: not given */
    ct_job_division *division; /* by it, where there are several ranks */
} training;

static ct_status install_signals(const ct_options *o)
{
    const char *on_int = ct_options_text(o, "sigint_effect");
    const char *on_hup = ct_options_text(o, "sighup_effect");
    ct_signal_effect int_effect, hup_effect;

    CT_TRY(ct_signals_effect((on_int != NULL) ? on_int : "stop", &int_effect));
    CT_TRY(ct_signals_effect((on_hup != NULL) ? on_hup : "snapshot", &hup_effect));
    return ct_signals_install(int_effect, hup_effect);
}

/* A stage of the start: for the watchdog. */
static void enter(training *t, const char *stage)
{
    ct_watchdog_beat(t->job->watchdog, stage);
}

/* A snapshot is a whole state: weights to start from make no sense beside it. */
static ct_status settle_weights(const ct_options *o, Ct__SolverParameter *s)
{
    const char *snapshot = ct_options_text(o, "snapshot");

    if ((snapshot == NULL) || (strcmp(snapshot, "auto") == 0)) return CT_OK;
    if (ct_options_text(o, "weights") != NULL) {
        return CT_FAIL(CT_ERR_CONFIG,
                       "give --snapshot=%s to resume or --weights to start from, "
                       "not both",
                       snapshot);
    }
    for (size_t i = 0; i < s->n_weights; i++) free(s->weights[i]);
    free(s->weights);
    s->weights = NULL;
    s->n_weights = 0;
    return CT_OK;
}

/* whole: as one rank would run it; net: this rank's, the same unless they run it together. */
static void log_net(const ct_net *whole, const ct_net *net, int64_t state_bytes, int iter_size,
                    int n_rank)
{
    const double mib = ldexp(1, 20);
    int64_t n = 0, tokens = ct_net_tokens(whole);

    for (int i = 0; i < whole->n_param; i++) n += whole->param[i].count;
    CT_INFO("net %s: %d layers, %" PRId64 " parameters, hash %016" PRIx64, whole->name,
            whole->n_layer, n, ct_net_hash(whole));
    CT_INFO("precision %s", ct_precision_text(net));
    CT_INFO("batch size %" PRId64 " on rank 0, %" PRId64 " on all %d ranks; %" PRId64
            " samples in the data set",
            net->batch_local, net->batch_global, n_rank, net->n_sample);
    if (tokens > 0)
        CT_INFO("a step has %" PRId64 " tokens: iter_size %d, %" PRId64 " samples of %" PRId64,
                iter_size * tokens, iter_size, net->batch_global, tokens / net->batch_global);
    CT_INFO("memory of a rank: activations %.1f MiB planned (%.1f MiB alive at the peak, %.1f MiB "
            "without sharing), weights and gradients %.1f MiB, the optimiser's state %.1f MiB",
            (double)net->memory.planned / mib, (double)net->memory.peak_alive / mib,
            (double)net->memory.unshared / mib, (double)net->memory.weights / mib,
            (double)state_bytes / mib);
}

/* A run from the start does not write over what an earlier one left, unless told. On rank 0. */
static ct_status spare_files(const training *t)
{
    const char *metrics = ct_options_text(t->o, "metrics");
    const char *prefix = t->config.solver->snapshot_prefix;
    bool overwrite = ct_options_flag(t->o, "overwrite");
    char *file = NULL;
    ct_status status = CT_OK;

    if ((metrics != NULL) && !overwrite)
        CT_TRY(ct_report_spare(metrics, ", --snapshot=auto goes on with that run"));
    if (prefix != NULL) CT_TRY(ct_snapshot_any(prefix, &file));
    if (file == NULL) return CT_OK;
    if (overwrite)
        CT_WARN("%s and earlier snapshots stay until this run writes one of the same iteration; "
                "--snapshot=auto takes the latest of all",
                file);
    else
        status = CT_FAIL(CT_ERR_CONFIG,
                         "%s is there from an earlier run: --snapshot=auto goes on with it, "
                         "--overwrite starts anew and writes over it",
                         file);
    free(file);
    return status;
}

static ct_status open_report(training *t)
{
    ct_report_options options = { .rank = t->job->rank, .progress = true };

    options.metrics = ct_options_text(t->o, "metrics");
    options.append = (ct_options_text(t->o, "snapshot") != NULL);
    return ct_report_create(&options, &t->report);
}

static const ct_net *whole_net(const training *t)
{
    return (t->division != NULL) ? t->division->division.whole : ct_solver_net(t->solver);
}

static ct_status report_run(training *t)
{
    const ct_net *net = ct_solver_net(t->solver), *whole = whole_net(t);
    ct_text fields = { 0 };
    ct_status status;

    ct_call_provenance(t->call, &t->config, &fields);
    ct_text_add(&fields,
                ",\"net_hash\":\"%016" PRIx64 "\",\"seed\":%" PRIu64 ",\"batch_size\":%" PRId64
                ",\"global_batch_size\":%" PRId64 ",\"memory_planned\":%zu",
                ct_net_hash(whole), ct_solver_seed(t->solver), net->batch_local, net->batch_global,
                net->memory.planned);
    if (ct_net_tokens(whole) > 0)
        ct_text_add(&fields, ",\"step_tokens\":%" PRId64,
                    ct_solver_iter_size(t->solver) * ct_net_tokens(whole));
    status = fields.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for the run event")
                           : ct_report_run(t->report, fields.text);
    ct_text_destroy(&fields);
    return status;
}

static ct_status report_done(training *t, ct_status how, double seconds)
{
    uint64_t checksum = 0;
    int64_t broken = ct_solver_broken_samples(t->solver);
    ct_text fields = { 0 };
    ct_status status = CT_OK;

    ct_report_broken(t->report, "training", broken);
    ct_job_memory_tell_moved(&t->memory);
    CT_TRY(ct_solver_checksum(t->solver, &checksum));
    CT_INFO("weights after iteration %" PRId64 ": checksum %016" PRIx64,
            ct_solver_iteration(t->solver), checksum);
    ct_text_add(&fields,
                "\"iter\":%" PRId64 ",\"status\":\"%s\",\"seconds\":%.3f,\"checksum\":\"%016" PRIx64
                "\"",
                ct_solver_iteration(t->solver), (how == CT_STOPPED) ? "stopped" : "finished",
                seconds, checksum);
    if (broken > 0) ct_text_add(&fields, ",\"broken_samples\":%" PRId64, broken);
    if ((t->parallel != NULL) || (t->config.solver->memory != NULL)) {
        ct_text_add(&fields, ",");
        status = ct_solver_ranks_json(t->solver, &fields);
    }
    if ((status == CT_OK) && fields.failed)
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for the done event");
    if (status == CT_OK) status = ct_report_done(t->report, fields.text);
    ct_text_destroy(&fields);
    return status;
}

/* What compression did in the whole run: into the trace and the metrics. */
static ct_status report_coding(training *t)
{
    ct_text coding = { 0 };
    ct_status status = CT_OK;

    if (t->exchange.pipe != NULL) ct_grad_pipe_coding_json(t->exchange.pipe, &coding);
    t->trace.coding = coding.failed ? NULL : coding.text;
    status = ct_trace_file_write(&t->trace); /* collective */
    t->trace.coding = NULL;
    if ((status == CT_OK) && coding.failed)
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for the report of compression");
    if ((status == CT_OK) && (coding.length > 0))
        status = ct_report_compression(t->report, coding.text);
    ct_text_destroy(&coding);
    return status;
}

/* The file behind --snapshot, on every rank: of "auto" the newest good set. */
static ct_status find_snapshot(training *t)
{
    const char *snapshot = ct_options_text(t->o, "snapshot"), *prefix;
    bool newest = (snapshot != NULL) && (strcmp(snapshot, "auto") == 0);
    ct_status status = CT_OK;
    void *text = NULL;
    size_t size = 0;

    prefix = t->config.solver->snapshot_prefix;
    if ((snapshot == NULL) || (newest && (prefix == NULL))) return CT_OK;
    if (t->job->rank == 0) {
        char *file = NULL;

        if (newest) status = ct_snapshot_newest(prefix, &file);
        text = newest ? file : strdup(snapshot);
        if ((text == NULL) && !newest) status = CT_FAIL(CT_ERR_NOMEM, "no memory for a file name");
        if (text != NULL) size = strlen(text) + 1;
        if ((text == NULL) && (status == CT_OK)) text = calloc(1, 1);
    }
    CT_TRY(ct_job_share(t->job, status));
    CT_TRY(ct_job_broadcast(t->job, &text, &size));
    if (size == 0) {
        free(text);
    } else {
        t->snapshot = text;
    }
    return CT_OK;
}

/* No other training writes to snapshot_prefix while this one runs. Collective. */
static ct_status own_prefix(training *t)
{
    const char *prefix = t->config.solver->snapshot_prefix;
    ct_owner_options options = { .waiting = ct_watchdog_beat, .ctx = t->job->watchdog };
    ct_status status = CT_OK;

    if ((prefix == NULL) || (prefix[0] == '\0')) return CT_OK;
    enter(t, "the start: the owner of snapshot_prefix");
    if (t->job->rank == 0) {
        status = ct_set_directories(prefix);
        if (status == CT_OK) status = ct_owner_take(prefix, &options, &t->owner);
    }
    return ct_job_share(t->job, status);
}

/* ---- --parallel */

static ct_status read_parallel(training *t, const char *file)
{
    CT_TRY(ct_parallel_read(file, &t->parallel));
    return ct_parallel_check_ranks(t->parallel, t->job->size, "the job");
}

static ct_status open_parallel(training *t)
{
    const char *file = ct_options_text(t->o, "parallel");
    ct_status status = CT_OK;

    if (file == NULL) return CT_OK;
    if (t->job->rank == 0) status = read_parallel(t, file);
    CT_TRY(ct_job_share(t->job, status));
    if (t->job->rank != 0) CT_TRY(read_parallel(t, file));
    CT_TRY(ct_parallel_set_batch(t->parallel, t->config.solver));
    CT_TRY(ct_parallel_set_dummy(t->parallel, t->config.net));
    CT_INFO("%s: %" PRId64 " samples a step in %" PRId64 " micro-batches", file,
            t->parallel->global_batch, t->parallel->micro_batches);
    return CT_OK;
}

static ct_status fill_parallel(training *t, ct_solver_options *o)
{
    if (t->parallel == NULL) return CT_OK;
    o->micro_batches = (int)t->parallel->micro_batches;
    if (t->parallel->n_rank > 1)
        return ct_job_division_open(t->job, t->parallel, t->config.net, o, &t->division);
    o->again = t->parallel->again;
    o->n_again = t->parallel->n_again;
    return CT_OK;
}

/* The file is for the net that there is now. */
static ct_status bind_parallel(const training *t)
{
    int passes = ct_solver_iter_size(t->solver);

    if (t->parallel == NULL) return CT_OK;
    if (t->division == NULL)
        CT_TRY(ct_parallel_bind(t->parallel, t->config.net, ct_solver_net(t->solver)));
    if (passes % t->parallel->micro_batches == 0) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s: micro_batches is %" PRId64 ", but batch_tokens %" PRId64
                   " makes %d of them a step, which is no whole number of steps of the file",
                   t->parallel->file, t->parallel->micro_batches, t->config.solver->batch_tokens,
                   passes);
}

/* What the nets take of a GPU. */
static ct_status plan_nets(void *ctx, const ct_net_window *window, double *bytes_p,
                           int64_t *learned_p)
{
    ct_solver_options options = *(const ct_solver_options *)ctx;
    ct_whole_nets w;

    options.window = window;
    if (options.env.global_batch_size > 0) /* this rank's share, at most */
        options.env.global_batch_size =
            (options.env.global_batch_size + options.env.n_rank - 1) / options.env.n_rank;
    CT_TRY(ct_whole_nets_make(&options, &w));
    *bytes_p = (double)w.train->memory.planned + (double)w.train->memory.weights;
    for (int i = 0; i < w.n_test; i++) *bytes_p += (double)w.test[i]->memory.planned;
    *learned_p = w.train->grad_count;
    ct_whole_nets_destroy(&w);
    return CT_OK;
}

/* Where weights and states lie, and how they come. */
static ct_status open_memory(training *t, ct_solver_options *options)
{
    const ct_job_memory_ask ask = { .param = t->config.solver,
                                    .stage = ct_options_text(t->o, "stage"),
                                    .dev = options->dev,
                                    .comm = t->job->data_comm,
                                    .divided = (t->parallel != NULL) };
    const ct_gpu_memory_ask fits = { .param = t->config.solver,
                                     .dev = options->dev,
                                     .comm = t->job->data_comm,
                                     .capacity = t->job->gpu_bytes,
                                     .planned = plan_nets,
                                     .ctx = options };

    const ct_memory_groups groups = ct_job_division_memory(t->division);
    const ct_memory_job how = { .stage = ask.stage,
                                .parallel = (t->parallel != NULL),
                                .groups = (t->division != NULL) ? &groups : NULL };

    CT_TRY(ct_memory_plan_job(t->job, t->config.solver, &how, options));
    if (t->parallel == NULL) CT_TRY(ct_gpu_memory_choose(&fits));
    CT_TRY(ct_job_memory_open(&ask, &t->memory));
    options->window = (t->division != NULL)
                          ? ct_job_division_window(t->division, options->dev)
                          : ct_exchange_window_open(&t->window, t->job->data_comm, options->dev,
                                                    t->config.solver);
    options->open_state = t->memory.open_state;
    options->open_state_ctx = t->memory.open_state_ctx;
    options->open_weights = t->memory.open_weights;
    options->open_weights_ctx = t->memory.open_weights_ctx;
    options->on_host = t->memory.on_host;
    options->host_piece = t->memory.host_piece;
    return CT_OK;
}

static void fill_env(const training *t, ct_net_env *env)
{
    const Ct__SolverParameter *s = t->config.solver;

    env->rank = t->job->group.data.rank;
    env->n_rank = t->job->group.data.size;
    env->group = t->job->reading;
    env->global_batch_size = s->global_batch_size;
    env->deterministic = (s->deterministic != 0);
    env->winograd = s->winograd;
    env->precision = s->precision;
    env->plan = t->plan;
}

static ct_status create_solver(training *t)
{
    ct_solver_options options = { .param = t->config.solver, .map = t->config.map };
    const ct_group *data = &t->job->group.data;
    ct_text fields = { 0 };

    ct_call_provenance(t->call, &t->config, &fields);
    ct_text_add(&t->provenance, "{%s}", (fields.text != NULL) ? fields.text : "");
    ct_text_destroy(&fields);
    CT_TRY(ct_call_device(t->call, &t->config, &options.dev));
    if ((data->size > 1) && (options.dev->kind == CT_DEVICE_CPU))
        options.grad_arena = ct_exchange_arena(t->job->data_comm, t->config.solver);
    options.memory_limit = ct_memory_limit() / t->job->group.node.size;
    fill_env(t, &options.env);
    options.report = t->report;
    options.send_rows = ct_exchange_sends_rows(t->config.solver);
    t->exchange = (ct_exchange_open){ .job = t->job, .param = t->config.solver };
    t->exchange.trace = &t->trace;
    options.trace = t->trace.trace;
    options.open_exchange = ct_exchange_open_net;
    options.open_exchange_ctx = &t->exchange;
    options.stop_signal = ct_signals_request();
    options.provenance = t->provenance.text;
    options.heartbeat = ct_watchdog_beat;
    options.heartbeat_ctx = t->job->watchdog;
    CT_TRY(fill_parallel(t, &options));
    CT_TRY(open_memory(t, &options));
    CT_TRY(ct_solver_create(&options, &t->solver));
    ct_job_memory_tell(&t->memory);
    return CT_OK;
}

/* All that comes before the first step. */
static ct_status get_ready(training *t)
{
    const char *snapshot = ct_options_text(t->o, "snapshot");
    ct_status status = CT_OK;

    CT_TRY(settle_weights(t->o, t->config.solver));
    CT_TRY(open_parallel(t));
    CT_TRY(own_prefix(t)); /* before the watchdog's limit of steps: it may wait for a minute */
    ct_watchdog_limit(t->job->watchdog, t->config.solver->watchdog_seconds);
    enter(t, "the start: communicators");
    CT_TRY(ct_call_connect(t->call, &t->config));
    CT_TRY(ct_trace_file_open(t->call, &t->trace));
    if ((snapshot == NULL) && (t->job->rank == 0)) status = spare_files(t);
    CT_TRY(ct_job_share(t->job, status));
    CT_TRY(open_report(t));
    enter(t, "the start: the newest snapshot");
    CT_TRY(find_snapshot(t));
    CT_TRY(ct_call_plan_open(t->call, &t->config, t->snapshot, false, &t->plan));
    enter(t, "the start: the net");
    CT_TRY(create_solver(t));
    CT_TRY(bind_parallel(t));
    CT_TRY(ct_call_plan_close(t->call, &t->config, t->plan));
    log_net(whole_net(t), ct_solver_net(t->solver), ct_solver_state_bytes(t->solver),
            ct_solver_iter_size(t->solver), t->job->group.data.size);
    enter(t, "the start: reading the snapshot");
    if (snapshot != NULL)
        CT_TRY(ct_solver_restore(t->solver, (t->snapshot != NULL) ? t->snapshot : snapshot));
    CT_TRY(ct_run_folder_describe(t->call, &t->run, &t->config, t->provenance.text));
    return report_run(t);
}

static ct_status train(training *t)
{
    double start = ct_clock_s();
    ct_status status;

    CT_TRY(get_ready(t));
    ct_signals_begin();
    enter(t, "the first step");
    t->begun = true;
    status = ct_solver_run(t->solver);
    if ((status == CT_OK) || (status == CT_STOPPED)) {
        CT_TRY(report_coding(t));
        CT_TRY(report_done(t, status, ct_clock_s() - start));
    }
    return status;
}

ct_status ct_verb_train(ct_call *call)
{
    training t = { .call = call, .o = call->options, .job = call->job };
    ct_status status;

    CT_TRY(install_signals(call->options)); /* again: MPI may have put its own in their place */
    enter(&t, "the start: reading the solver");
    status = ct_run_folder_open(call, &t.run);
    if (status == CT_OK) status = ct_call_setup(call, CT_TRAIN, &t.config);
    if (status == CT_OK) status = train(&t);
    ct_owner_release(t.owner);
    ct_run_folder_close(&t.run, t.begun);
    if ((status != CT_OK) && (status != CT_STOPPED)) return status; /* main ends the job */
    ct_report_destroy(t.report);
    ct_solver_destroy(t.solver);
    ct_job_memory_close(&t.memory);
    ct_job_division_close(t.division);
    ct_exchange_open_close(&t.exchange);
    ct_trace_file_close(&t.trace);
    ct_engine_plan_destroy(t.plan);
    free(t.snapshot);
    ct_text_destroy(&t.provenance);
    ct_parallel_destroy(t.parallel); /* after the nets, which have names of it */
    ct_config_destroy(&t.config);
    return status;
}
