#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/file.h"
#include "framework/base/json_writer.h"
#include "cli/train/box_report.h"
#include "cli/train/test_report.h"
#include "cli/verb.h"
#include "framework/report/report.h"
#include "framework/snapshot/parts.h"
#include "framework/snapshot/snapshot.h"
#include "framework/solver/outputs.h"
#include "runtime/call.h"
#include "runtime/division/division.h"
#include "runtime/memory_plan.h"
#include "runtime/run_folder.h"

typedef struct testing {
    ct_call *call;
    ct_config config;
    ct_parallel *parallel;     /* --parallel; NULL: not given */
    ct_job_division *division; /* by it                       */
    ct_net *net;               /* this rank's                 */
    const ct_net *whole;       /* … of this one: the same where it runs it alone */
    ct_outputs outputs;
    double *mean;    /* [outputs.n] */
    ct_parts *parts; /* its weights; NULL: all of them */
    ct_report *report;
    int crops;               /* --crops; 0: not given     */
    ct_test_report *classes; /* --report or --crops; NULL: neither */
    ct_box_report *boxes;    /* --report of a net that finds boxes */
    ct_once once;            /* of a net of tokens        */
} testing;

static const ct_group *testers(const testing *t)
{
    return (t->division != NULL) ? &t->call->job->group.job : &t->call->job->group.data;
}

static void log_batch(const ct_net *net, int64_t batch, const double *v)
{
    for (int i = 0; i < net->n_output; i++) {
        const ct_blob *b = net->pass->blob[net->output[i].blob];

        if (ct_net_output_evaluates(net, i)) { /* it is of all batches */
            v++;
            continue;
        }
        for (int64_t k = 0; k < ct_net_output_count(net, i); k++) {
            CT_INFO("Batch %" PRId64 ", %s = %g", batch, b->name, *v++);
        }
    }
}

/* A line of the result: of rank 0, into the log and to standard output, where programs take it. */
__attribute__((format(printf, 2, 3))) static void show(bool speaks, const char *fmt, ...)
{
    char line[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    CT_INFO("%s", line);
    if (speaks) puts(line);
}

static void show_text(const ct_net *net, int i, double loss, const ct_text_size *text, bool speaks)
{
    if (!ct_report_is_of_words(net, i)) return;
    show(speaks, "perplexity = %g (e^%s)", exp(loss), net->pass->blob[net->output[i].blob]->name);
    if (text->bytes > 0) show(speaks, "bits_per_byte = %g", ct_report_bits_per_byte(loss, text));
}

static ct_status show_mean(const ct_net *net, const double *v, const ct_text_size *text,
                           bool speaks)
{
    const double *at = v;
    double loss = 0;

    for (int i = 0; i < net->n_output; i++) {
        int64_t n = ct_net_output_count(net, i);

        for (int64_t k = 0; k < n; k++) loss += (double)net->output[i].loss_weight * *at++;
    }
    show(speaks, "Loss: %g", loss);
    for (int i = 0; i < net->n_output; i++) {
        const ct_blob *b = net->pass->blob[net->output[i].blob];
        double w = (double)net->output[i].loss_weight;

        for (int64_t k = 0; k < ct_net_output_count(net, i); k++, v++) {
            if (w != 0) {
                show(speaks, "%s = %g (* %g = %g loss)", b->name, *v, w, w * *v);
            } else {
                show(speaks, "%s = %g", b->name, *v);
            }
        }
        show_text(net, i, v[-1], text, speaks);
    }
    if ((fflush(stdout) != 0) || ferror(stdout))
        return CT_FAIL(CT_ERR_IO, "cannot write the result to standard output: %s",
                       strerror(errno));
    return CT_OK;
}

/* ---- weights */

/* On rank 0: each of the files into what all ranks have. */
static ct_status load_parts(void *ctx, ct_storage *whole)
{
    const testing *t = ctx;
    char *list = strdup(ct_options_text(t->call->options, "weights"));
    ct_status status = CT_OK;

    if (list == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a file name");
    for (char *rest = list, *at; (status == CT_OK) && ((at = strsep(&rest, ",")) != NULL);)
        status = ct_weights_load_parts(at, t->parts, whole);
    free(list);
    return status;
}

static ct_status load_weights(testing *t)
{
    ct_storage weights;

    if (t->division == NULL)
        return ct_weights_load_list(ct_options_text(t->call->options, "weights"), t->net);
    CT_TRY(ct_parts_create(t->whole, t->net, testers(t), &t->parts));
    weights = ct_parts_weights(t->parts);
    CT_TRY(ct_parts_run(t->parts, &(ct_storage *){ &weights }, 1, load_parts, t));
    ct_net_weights_changed(t->net);
    return CT_OK;
}

/* The mean over the batches. Where each sample counts once, they weigh what targets they have. */
static ct_status score(testing *t, int64_t n_batch, ct_text_size *text)
{
    const Ct__SolverParameter *p = t->config.solver;
    ct_outputs *o = &t->outputs;
    ct_exec *ex = &t->net->pass->exec;
    ct_ap_version version;
    double all = 0;

    ct_exec_fill(t->call, t->net, ex);
    if (t->division != NULL) ct_job_division_fill_exec(t->division, ex);
    ex->once = t->once;
    for (int64_t i = 0; i < n_batch; i++) {
        double weight;

        ex->micro_step = i;
        ex->targets = 0;
        CT_TRY(ct_pass_forward(t->net->pass, NULL));
        memset(o->sum, 0, (size_t)o->n * sizeof(*o->sum));
        CT_TRY(ct_outputs_add(o, t->net->pass));
        o->sum[o->n] = ex->targets;
        CT_TRY(ct_group_sum(testers(t), o->sum, (int)o->n + 1));
        log_batch(t->whole, i, o->sum);
        weight = (t->once.samples > 0) ? o->sum[o->n] : 1.0;
        all += weight;
        for (int64_t k = 0; k < o->n; k++) t->mean[k] += o->sum[k] * weight;
    }
    for (int64_t k = 0; (k < o->n) && (all > 0); k++) t->mean[k] /= all;
    (void)ct_ap_version_is((p != NULL) ? p->ap_version : NULL, &version);
    CT_TRY(ct_outputs_evaluate(o, testers(t), version, (p != NULL) && p->show_per_class_result,
                               t->mean));
    ct_report_broken(t->report, "testing", ex->broken_samples);
    *text = ex->text;
    return ct_group_sum(testers(t), (double *)text, 2);
}

static ct_status spare_metrics(const ct_call *call, const char *path)
{
    if ((path == NULL) || (call->job->rank != 0) || ct_options_flag(call->options, "overwrite"))
        return CT_OK;
    return ct_report_spare(path, "");
}

static ct_status open_report(testing *t, const char *metrics)
{
    ct_report_options options = { .rank = t->call->job->rank, .metrics = metrics };
    ct_text text = { 0 };
    ct_json_writer w = ct_json_members_into(&text);
    ct_status status;

    CT_TRY(ct_job_share(t->call->job, spare_metrics(t->call, metrics)));
    CT_TRY(ct_report_create(&options, &t->report));
    ct_call_provenance(t->call, &t->config, &w);
    status = text.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for the run event")
                         : ct_report_run(t->report, text.text);
    ct_text_destroy(&text);
    return status;
}

static ct_status report_done(const testing *t)
{
    ct_text text = { 0 };
    ct_json_writer w = ct_json_members_into(&text);
    ct_status status;

    ct_json_add_integer(&w, "iter", 0);
    status = text.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for the done event")
                         : ct_report_done(t->report, text.text);
    ct_text_destroy(&text);
    return status;
}

/* Whether a run says which set it is, or a report is of all of it. */
static bool is_of_set(const ct_options *o)
{
    return (ct_options_text(o, "run") != NULL) || (ct_options_text(o, "report") != NULL);
}

/* Caffe's 50, or where a run says which set it is, or a report is of all of it, as many as have
 * each sample of it. */
static int64_t count_batches(const testing *t)
{
    const ct_options *o = t->call->options;
    int64_t batch = t->whole->batch_global, all = t->whole->n_sample;
    bool whole_set = is_of_set(o) && (all > 0) && (batch > 0);

    return ct_options_count(o, "iterations", whole_set ? (all + batch - 1) / batch : 50);
}

/* --report of a net of texts: the loss of its words. */
static ct_status report_text(const testing *t, const ct_text_size *size)
{
    const char *file = ct_options_text(t->call->options, "report");
    const double *v = t->mean;
    ct_status status = CT_OK;
    int i = 0;

    if (file == NULL) return CT_OK;
    for (; (i < t->whole->n_output) && !ct_report_is_of_words(t->whole, i); i++)
        v += ct_net_output_count(t->whole, i);
    if (i == t->whole->n_output)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: --report needs the SoftmaxWithLoss of words in phase TEST, and the net "
                       "has none",
                       t->config.file);
    if (t->call->job->rank == 0)
        status = ct_test_report_write_text(file, t->whole->n_sample, *v, size);
    return ct_job_share(t->call->job, status);
}

static ct_status run(testing *t)
{
    const ct_options *o = t->call->options;
    const char *metrics = ct_options_text(o, "metrics");
    int64_t n_batch = count_batches(t);
    ct_text_size size = { 0 };

    CT_TRY(ct_outputs_create(t->whole, t->net, testers(t), &t->outputs));
    t->mean = calloc((size_t)t->outputs.n + 1, sizeof(*t->mean));
    if (t->mean == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %" PRId64 " outputs", t->outputs.n);
    if (n_batch == 0) return CT_FAIL(CT_ERR_CONFIG, "--iterations=0: at least 1");
    CT_TRY(open_report(t, metrics));
    CT_TRY(load_weights(t));
    CT_INFO("Running for %" PRId64 " iterations of %" PRId64 " samples.", n_batch,
            t->whole->batch_global);
    CT_TRY(score(t, n_batch, &size));
    CT_TRY(show_mean(t->whole, t->mean, &size, t->call->job->rank == 0));
    CT_TRY(report_text(t, &size));
    if (metrics == NULL) return CT_OK;
    CT_TRY(ct_report_test(t->report, 0, 0.0, 0, t->whole, t->mean, &size));
    return report_done(t);
}

/* --report: of classes or boxes, over the whole set. */
static ct_status run_report(testing *t)
{
    const char *file = ct_options_text(t->call->options, "report");
    ct_status status = CT_OK;

    CT_TRY(load_weights(t));
    if (t->boxes != NULL)
        CT_TRY(ct_box_report_run(t->boxes, t->call, t->net));
    else
        CT_TRY(ct_test_report_run(t->classes, t->call, t->net));
    if (t->call->job->rank == 0)
        status = (t->boxes != NULL) ? ct_box_report_write(t->boxes, file)
                                    : ct_test_report_write(t->classes, file);
    return ct_job_share(t->call->job, status);
}

static ct_status open_counting(testing *t)
{
    const char *file = ct_options_text(t->call->options, "report");
    ct_status status = CT_OK;

    t->crops = (int)ct_options_count(t->call->options, "crops", 0);
    if ((file == NULL) && (t->crops == 0)) return CT_OK;
    if ((t->call->job->rank == 0) && (file != NULL)) status = ct_file_check_writable(file);
    CT_TRY(ct_job_share(t->call->job, status));
    if ((t->crops == 0) && ct_box_report_is_of(t->config.net))
        return ct_box_report_create(t->call, &t->config, &t->boxes);
    if ((t->crops > 0) || !ct_test_report_is_of_text(t->config.net))
        return ct_test_report_create(t->call, &t->config, t->crops, &t->classes);
    if (ct_options_text(t->call->options, "iterations") == NULL) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "--report is of the whole test set: leave out --iterations");
}

/* Where the whole set is tested, each window of tokens counts once. Before the net is made. */
static ct_status count_once(testing *t, bool *once_p)
{
    const ct_options *o = t->call->options;

    *once_p = false;
    if (!is_of_set(o) || (ct_options_text(o, "iterations") != NULL)) return CT_OK;
    return ct_test_once_prepare(t->config.net, &t->once.label, once_p);
}

/* This rank's net, of all of them where --parallel says so. */
static ct_status make_net(testing *t)
{
    const char *file = ct_options_text(t->call->options, "parallel");
    const Ct__NetParameter *param = t->config.net;
    ct_net_options options;
    ct_net_state state;
    bool once;

    CT_TRY(count_once(t, &once));
    CT_TRY(ct_net_state_read(t->call->options, &state));
    ct_net_options_fill(t->call, &t->config, CT_TEST, &state, &options);
    options.forward_only = true;
    options.env.crops = t->crops;
    CT_TRY(ct_call_device(t->call, &t->config, &options.dev));
    if (file != NULL) {
        CT_TRY(ct_parallel_read(file, &t->parallel));
        CT_TRY(ct_job_division_open_net(t->call->job, t->parallel, t->config.solver, &param,
                                        &options, &t->division));
    }
    CT_TRY(ct_memory_plan_test(t->call->job, t->config.solver, param, &options));
    CT_TRY(ct_net_create(param, &options, &t->net));
    t->whole = (t->division != NULL) ? t->division->whole.test[0] : t->net;
    if (once) t->once.samples = t->whole->n_sample;
    return CT_OK;
}

ct_status ct_verb_test(ct_call *call)
{
    testing t = { .call = call };
    ct_status status;

    CT_TRY(ct_run_folder_take(call, CT_RUN_NET));
    if (ct_options_text(call->options, "weights") == NULL) {
        return CT_FAIL(CT_ERR_CONFIG, "cortado test needs --weights=FILE, or --run=DIR");
    }
    CT_TRY(ct_call_setup(call, CT_TEST, &t.config));
    status = ct_call_connect(call, &t.config);
    if (status == CT_OK) status = open_counting(&t);
    if (status == CT_OK) status = make_net(&t);
    if (status == CT_OK)
        status = ((t.classes != NULL) || (t.boxes != NULL)) ? run_report(&t) : run(&t);
    if (status == CT_OK) status = ct_report_close(t.report);
    ct_test_report_destroy(t.classes);
    ct_box_report_destroy(t.boxes);
    ct_report_destroy(t.report);
    ct_outputs_destroy(&t.outputs);
    free(t.mean);
    ct_parts_destroy(t.parts);
    ct_net_destroy(t.net);
    ct_job_division_close(t.division);
    ct_parallel_destroy(t.parallel);
    ct_config_destroy(&t.config);
    return status;
}
