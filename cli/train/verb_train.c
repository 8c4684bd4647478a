#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/verb.h"
#include "framework/base/clock.h"
#include "framework/base/json_writer.h"
#include "framework/report/report.h"
#include "framework/snapshot/owner.h"
#include "framework/snapshot/set_files.h"
#include "framework/snapshot/snapshot.h"
#include "runtime/run_folder.h"
#include "runtime/signals.h"
#include "runtime/training/training.h"

_Static_assert((int)CT_SIGNAL_STOP == (int)CT_ACTION_STOP, "the solver reads the handlers' word");
_Static_assert((int)CT_SIGNAL_SNAPSHOT == (int)CT_ACTION_SNAPSHOT, "likewise");

typedef struct training {
    ct_call *call;
    const ct_options *o;
    ct_job *job;
    ct_config config;
    ct_training core;
    ct_report *report;
    ct_run_folder run;
    bool begun;      /* the first step was reached */
    char *snapshot;  /* to go on from; NULL: none */
    ct_owner *owner; /* of snapshot_prefix, on rank 0 */
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

/* A run from the start does not write over what an earlier one left, unless told. On rank 0. */
static ct_status spare_files(const training *t)
{
    const char *metrics = ct_options_text(t->o, "metrics");
    const char *events = ct_options_text(t->o, "tensorboard");
    const char *prefix = t->config.solver->snapshot_prefix;
    bool overwrite = ct_options_flag(t->o, "overwrite");
    char *file = NULL;
    ct_status status = CT_OK;

    if ((metrics != NULL) && !overwrite)
        CT_TRY(ct_report_spare(metrics, ", --snapshot=auto goes on with that run"));
    if ((events != NULL) && !overwrite)
        CT_TRY(ct_report_spare_events(events, ", --snapshot=auto goes on with that run"));
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
    options.events = ct_options_text(t->o, "tensorboard");
    options.append = (ct_options_text(t->o, "snapshot") != NULL);
    return ct_report_create(&options, &t->report);
}

static ct_status report_run(training *t)
{
    const ct_net *net = ct_solver_net(t->core.solver), *whole = ct_training_whole_net(&t->core);
    ct_text fields = { 0 };
    ct_json_writer w = ct_json_members_into(&fields);
    ct_status status;

    ct_call_provenance(t->call, &t->config, &w);
    ct_json_add_hash(&w, "net_hash", ct_net_hash(whole));
    ct_json_add_unsigned(&w, "seed", ct_solver_seed(t->core.solver));
    ct_json_add_integer(&w, "batch_size", net->batch_local);
    ct_json_add_integer(&w, "global_batch_size", net->batch_global);
    ct_json_add_unsigned(&w, "memory_planned", net->memory.planned);
    if (ct_net_tokens(whole) > 0)
        ct_json_add_integer(&w, "step_tokens",
                            ct_solver_batches(t->core.solver) * ct_net_tokens(whole));
    status = fields.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for the run event")
                           : ct_report_run(t->report, fields.text);
    ct_text_destroy(&fields);
    return status;
}

static ct_status report_done(training *t, ct_status how, double seconds)
{
    uint64_t checksum = 0;
    int64_t broken = ct_solver_broken_samples(t->core.solver);
    ct_text fields = { 0 };
    ct_json_writer w = ct_json_members_into(&fields);
    ct_status status = CT_OK;

    ct_report_broken(t->report, "training", broken);
    ct_job_memory_tell_moved(&t->core.memory);
    CT_TRY(ct_solver_checksum(t->core.solver, &checksum));
    CT_INFO("weights after iteration %" PRId64 ": checksum %016" PRIx64,
            ct_solver_iteration(t->core.solver), checksum);
    ct_json_add_integer(&w, "iter", ct_solver_iteration(t->core.solver));
    ct_json_add_text(&w, "status", (how == CT_STOPPED) ? "stopped" : "finished");
    ct_json_add_decimals(&w, "seconds", seconds, 3);
    ct_json_add_hash(&w, "checksum", checksum);
    ct_solver_best_json(t->core.solver, &w);
    if (broken > 0) ct_json_add_integer(&w, "broken_samples", broken);
    if ((t->core.parallel != NULL) || (t->config.solver->memory != NULL))
        status = ct_solver_ranks_json(t->core.solver, &w);
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
    ct_json_writer w = ct_json_members_into(&coding);
    ct_status status = CT_OK;

    if (t->core.exchange.pipe != NULL) ct_grad_pipe_coding_json(t->core.exchange.pipe, &w);
    t->core.trace.coding = coding.failed ? NULL : coding.text;
    status = ct_trace_file_write(&t->core.trace); /* collective */
    t->core.trace.coding = NULL;
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
    status = ct_job_share(t->job, status);
    if (status == CT_OK) status = ct_job_broadcast(t->job, &text, &size);
    if ((status != CT_OK) || (size == 0)) {
        free(text);
    } else {
        t->snapshot = text;
    }
    return status;
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

/* All that comes before the first step. */
static ct_status get_ready(training *t)
{
    const char *snapshot = ct_options_text(t->o, "snapshot");
    ct_training_ask ask = { .stop_signal = ct_signals_request() };
    ct_status status = CT_OK;

    CT_TRY(settle_weights(t->o, t->config.solver));
    CT_TRY(own_prefix(t)); /* before the watchdog's limit of steps: it may wait for a minute */
    ct_watchdog_limit(t->job->watchdog, t->config.solver->watchdog_seconds);
    t->core = (ct_training){ .call = t->call, .config = &t->config };
    CT_TRY(ct_training_connect(&t->core));
    if ((snapshot == NULL) && (t->job->rank == 0)) status = spare_files(t);
    CT_TRY(ct_job_share(t->job, status));
    CT_TRY(open_report(t));
    enter(t, "the start: the newest snapshot");
    CT_TRY(find_snapshot(t));
    ask.report = t->report;
    ask.snapshot = t->snapshot;
    CT_TRY(ct_training_open(&t->core, &ask));
    enter(t, "the start: reading the snapshot");
    if (snapshot != NULL)
        CT_TRY(ct_solver_restore(t->core.solver, (t->snapshot != NULL) ? t->snapshot : snapshot));
    CT_TRY(ct_run_folder_describe(t->call, &t->run, &t->config, t->core.provenance.text));
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
    status = ct_solver_run(t->core.solver);
    if ((status == CT_OK) || (status == CT_STOPPED)) {
        CT_TRY(report_coding(t));
        CT_TRY(report_done(t, status, ct_clock_s() - start));
        CT_TRY(ct_report_close(t->report));
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
    ct_training_close(&t.core);
    free(t.snapshot);
    ct_config_destroy(&t.config);
    return status;
}
