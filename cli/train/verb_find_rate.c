/* A learning-rate range test: some steps at rates that rise from one to the other, and the loss of
 * each. Nothing of what is learned stays. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/file.h"
#include "framework/base/json_writer.h"
#include "cli/train/rate_curve.h"
#include "cli/verb.h"
#include "framework/base/number.h"
#include "framework/proto/message.h"
#include "runtime/training/training.h"

enum { N_STEP = 100, MOST_STEPS = 100000 };

typedef struct finding {
    ct_call *call;
    ct_config config;
    ct_training core;
    double from, to;
    int n_step;
    ct_rate_curve curve;
} finding;

static ct_status read_rate(const ct_options *o, const char *name, double otherwise, double *rate_p)
{
    const char *text = ct_options_text(o, name);
    char *end;

    *rate_p = otherwise;
    if (text == NULL) return CT_OK;
    if (ct_number_real(text, &end, rate_p) && (*end == '\0') && (*rate_p > 0.0)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "--%s=%s: expected a learning rate over 0, as 0.001", name, text);
}

static ct_status read_options(finding *f)
{
    const ct_options *o = f->call->options;
    int64_t n = ct_options_count(o, "iterations", N_STEP);

    if (ct_options_text(o, "solver") == NULL)
        return CT_FAIL(CT_ERR_CONFIG, "cortado find_rate needs --solver=FILE");
    CT_TRY(read_rate(o, "from", 1e-6, &f->from));
    CT_TRY(read_rate(o, "to", 10.0, &f->to));
    if (f->from >= f->to)
        return CT_FAIL(CT_ERR_CONFIG, "--from=%g is not below --to=%g", f->from, f->to);
    if ((n < 10) || (n > MOST_STEPS))
        return CT_FAIL(CT_ERR_CONFIG, "--iterations=%lld: expected 10 to %d steps", (long long)n,
                       MOST_STEPS);
    f->n_step = (int)n;
    return CT_OK;
}

/* A file that cannot be written is known now, not after the steps. On rank 0. */
static ct_status check_files(const ct_options *o)
{
    static const char *const option[] = { "csv", "json", "plot" };

    for (int i = 0; i < 3; i++) {
        const char *file = ct_options_text(o, option[i]);

        if (file != NULL) CT_TRY(ct_file_check_writable(file));
    }
    return CT_OK;
}

/* The solver without all that tests, keeps, shows and ends, at a rate that rises by one factor. */
static ct_status set_schedule(finding *f)
{
    static const char *const cleared[] = {
        "test_iter",    "test_interval",   "test_net",         "test_net_param",  "test_state",
        "snapshot",     "snapshot_prefix", "snapshot_minutes", "snapshot_async",  "best",
        "patience",     "max_epoch",       "max_hours",        "display",         "average",
        "average_loss", "warmup",          "warmup_iter",      "rampup_interval", "min_lr",
        "stepvalue",    "plateau_winsize", "stagelr",          "stageiter",
    };
    ProtobufCMessage *m = &f->config.solver->base;
    char text[64];

    for (size_t i = 0; i < sizeof(cleared) / sizeof(cleared[0]); i++)
        CT_TRY(ct_field_clear(
            m, protobuf_c_message_descriptor_get_field_by_name(m->descriptor, cleared[i])));
    CT_TRY(ct_prototxt_set(m, "lr_policy", "\"exp\"", "find_rate"));
    CT_TRY(ct_prototxt_set(m, "snapshot_after_train", "false", "find_rate"));
    CT_TRY(ct_prototxt_set(m, "stop_on_nan", "false", "find_rate"));
    snprintf(text, sizeof(text), "%.9g", f->from);
    CT_TRY(ct_prototxt_set(m, "base_lr", text, "find_rate"));
    snprintf(text, sizeof(text), "%.9g", pow(f->to / f->from, 1.0 / (f->n_step - 1)));
    CT_TRY(ct_prototxt_set(m, "gamma", text, "find_rate"));
    snprintf(text, sizeof(text), "%d", f->n_step);
    return ct_prototxt_set(m, "max_iter", text, "find_rate");
}

static ct_status run_steps(finding *f)
{
    bool diverged = false;

    CT_TRY(ct_rate_curve_create(f->n_step, &f->curve));
    for (int i = 0; (i < f->n_step) && !diverged; i++) {
        double rate = 0.0, loss = 0.0;

        CT_TRY(ct_learning_rate(f->config.solver, i, &rate));
        CT_TRY(ct_solver_steps(f->core.solver, 1));
        CT_TRY(ct_solver_loss(f->core.solver, &loss)); /* the same on all ranks */
        diverged = ct_rate_curve_add(&f->curve, rate, loss);
    }
    ct_rate_curve_finish(&f->curve);
    return CT_OK;
}

/* Takes over t. */
static ct_status write_text(const char *file, ct_text *t)
{
    ct_status status = t->failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for %s", file) : CT_OK;

    if (status == CT_OK) status = ct_file_write(file, t->text, t->length);
    ct_text_destroy(t);
    return status;
}

static ct_status write_json(finding *f, const char *file)
{
    ct_text t = { 0 };
    ct_json_writer w = ct_json_into(&t);

    ct_json_begin_object(&w, NULL);
    ct_call_provenance(f->call, &f->config, &w);
    ct_rate_curve_json(&f->curve, &w);
    ct_json_end(&w);
    ct_text_add(&t, "\n");
    return write_text(file, &t);
}

/* On rank 0. */
static ct_status write_results(finding *f)
{
    const ct_options *o = f->call->options;
    const char *csv = ct_options_text(o, "csv"), *json = ct_options_text(o, "json"),
               *plot = ct_options_text(o, "plot");
    ct_text t = { 0 };

    ct_rate_curve_print(&f->curve, &t);
    if (t.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for the table");
    fputs(t.text, stdout);
    fflush(stdout);
    ct_text_destroy(&t);
    if (csv != NULL) {
        ct_rate_curve_csv(&f->curve, &t);
        CT_TRY(write_text(csv, &t));
    }
    if (json != NULL) CT_TRY(write_json(f, json));
    if (plot == NULL) return CT_OK;
    ct_rate_curve_draw(&f->curve, ct_training_whole_net(&f->core)->name, &t);
    return write_text(plot, &t);
}

static ct_status find_rate(finding *f)
{
    ct_job *job = f->call->job;
    ct_training_ask ask = { .report = NULL };
    ct_status status = CT_OK;

    CT_TRY(set_schedule(f));
    CT_INFO("%d steps at rates from %g to %g; schedule, tests and snapshots of the solver rest",
            f->n_step, f->from, f->to);
    ct_watchdog_limit(job->watchdog, f->config.solver->watchdog_seconds);
    f->core = (ct_training){ .call = f->call, .config = &f->config };
    CT_TRY(ct_training_connect(&f->core));
    if (job->rank == 0) status = check_files(f->call->options);
    CT_TRY(ct_job_share(job, status));
    CT_TRY(ct_training_open(&f->core, &ask));
    CT_TRY(run_steps(f));
    if (job->rank == 0) status = write_results(f);
    return ct_job_share(job, status);
}

ct_status ct_verb_find_rate(ct_call *call)
{
    finding f = { .call = call };
    ct_status status = read_options(&f);

    if (status == CT_OK) status = ct_call_setup(call, CT_TRAIN, &f.config);
    if (status == CT_OK) status = find_rate(&f);
    if (status != CT_OK) return status; /* main ends the job */
    ct_rate_curve_destroy(&f.curve);
    ct_training_close(&f.core);
    ct_config_destroy(&f.config);
    return CT_OK;
}
