#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/verb.h"
#include "comm/collective/blocking.h"
#include "framework/report/report.h"
#include "runtime/call.h"

/* This rank's share of the outputs of one batch, element by element; the ranks' shares add up. */
static ct_status take_share(const ct_net *net, double *v)
{
    const ct_exec *ex = &net->pass->exec;
    double weight = (double)net->batch_local / (double)net->batch_global;

    for (int i = 0; i < net->n_output; i++) {
        const ct_output *o = &net->output[i];
        const ct_blob *b = net->pass->blob[o->blob];
        int64_t n = ct_net_output_count(net, i);
        float *host = malloc((size_t)(n + 1) * sizeof(*host));
        ct_status status;

        if (host == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for output %s", b->name);
        status = ex->dev->to_host(ex->stream, host, b->data.data, (size_t)n * sizeof(*host));
        for (int64_t k = 0; k < n; k++) *v++ = (double)host[k] * (o->is_share ? 1.0 : weight);
        free(host);
        CT_TRY(status);
    }
    return CT_OK;
}

static void log_batch(const ct_net *net, int64_t batch, const double *v)
{
    for (int i = 0; i < net->n_output; i++) {
        const ct_blob *b = net->pass->blob[net->output[i].blob];

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

static ct_status score(ct_call *call, ct_net *net, int64_t n_batch, double *mean, int64_t n,
                       ct_text_size *text, ct_report *report)
{
    double *v = calloc((size_t)n + 1, sizeof(*v));
    ct_status status = CT_OK;

    if (v == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %" PRId64 " outputs", n);
    ct_exec_fill(call, net, &net->pass->exec);
    for (int64_t i = 0; i < n_batch; i++) {
        net->pass->exec.micro_step = i;
        CT_TRY_GOTO(status, out, ct_pass_forward(net->pass, NULL));
        CT_TRY_GOTO(status, out, take_share(net, v));
        CT_TRY_GOTO(status, out, ct_group_sum(&call->job->group.data, v, (int)n));
        log_batch(net, i, v);
        for (int64_t k = 0; k < n; k++) mean[k] += v[k] / (double)n_batch;
    }
    ct_report_broken(report, "testing", net->pass->exec.broken_samples);
    *text = net->pass->exec.text;
    status = ct_group_sum(&call->job->group.data, (double *)text, 2);
out:
    free(v);
    return status;
}

static ct_status spare_metrics(const ct_call *call, const char *path)
{
    if ((path == NULL) || (call->job->rank != 0) || ct_options_flag(call->options, "overwrite"))
        return CT_OK;
    return ct_report_spare(path, "");
}

static ct_status run(ct_call *call, const ct_config *c, ct_net *net)
{
    int64_t n_batch = ct_options_count(call->options, "iterations", 50);
    int64_t n = ct_report_n_output(net);
    ct_report_options options = { .rank = call->job->rank,
                                  .metrics = ct_options_text(call->options, "metrics") };
    ct_report *report = NULL;
    double *mean = calloc((size_t)n + 1, sizeof(*mean));
    ct_text_size size = { 0 };
    ct_text text = { 0 };
    ct_status status = CT_OK;

    if (mean == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %" PRId64 " outputs", n);
    if (n_batch == 0) status = CT_FAIL(CT_ERR_CONFIG, "--iterations=0: at least 1");
    if (status != CT_OK) goto out;
    CT_TRY_GOTO(status, out, ct_job_share(call->job, spare_metrics(call, options.metrics)));
    CT_TRY_GOTO(status, out, ct_report_create(&options, &report));
    ct_call_provenance(call, c, &text);
    CT_TRY_GOTO(status, out, ct_report_run(report, text.text));
    CT_TRY_GOTO(status, out, ct_weights_load_list(ct_options_text(call->options, "weights"), net));
    CT_INFO("Running for %" PRId64 " iterations of %" PRId64 " samples.", n_batch,
            net->batch_global);
    CT_TRY_GOTO(status, out, score(call, net, n_batch, mean, n, &size, report));
    CT_TRY_GOTO(status, out, show_mean(net, mean, &size, call->job->rank == 0));
    if (options.metrics != NULL) {
        CT_TRY_GOTO(status, out, ct_report_test(report, 0, 0.0, 0, net, mean, &size));
        CT_TRY_GOTO(status, out, ct_report_done(report, "\"iter\":0"));
    }
out:
    ct_text_destroy(&text);
    ct_report_destroy(report);
    free(mean);
    return status;
}

ct_status ct_verb_test(ct_call *call)
{
    ct_net_options options;
    ct_net_state state;
    ct_config c;
    ct_net *net = NULL;
    ct_status status;

    if (ct_options_text(call->options, "weights") == NULL) {
        return CT_FAIL(CT_ERR_CONFIG, "cortado test needs --weights=FILE");
    }
    CT_TRY(ct_net_state_read(call->options, &state));
    CT_TRY(ct_call_setup(call, CT_TEST, &c));
    CT_TRY_GOTO(status, out, ct_call_connect(call, &c));
    ct_net_options_fill(call, &c, CT_TEST, &state, &options);
    options.forward_only = true;
    CT_TRY_GOTO(status, out, ct_call_device(call, &c, &options.dev));
    CT_TRY_GOTO(status, out, ct_net_create(c.net, &options, &net));
    CT_TRY_GOTO(status, out, run(call, &c, net));
out:
    ct_net_destroy(net);
    ct_config_destroy(&c);
    return status;
}
