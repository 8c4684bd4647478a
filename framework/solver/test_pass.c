/* Test passes. */
#include <inttypes.h>
#include <string.h>

#include "framework/base/memory.h"
#include "framework/base/trace.h"
#include "framework/report/report.h"
#include "framework/solver/solver_private.h"

static void fill_exec(const ct_solver *s, ct_exec *ex)
{
    int n_transfer = ex->n_transfer; /* its own, sent and not waited for yet */

    *ex = s->net->pass->exec;
    ex->n_transfer = n_transfer;
    ex->phase = CT_TEST;
    ex->accumulate = false;
    ex->wait = NULL; /* settled */
    ex->wait_data_s = 0.0;
    ex->broken_samples = 0;
    ex->text = (ct_text_size){ 0 };
    ex->trace = NULL;                             /* one span for the whole pass */
    if ((s->outer != NULL) || (s->optex != NULL)) /* all ranks test together */
        ct_exec_set_group(ex, &s->exchange.data);
}

/* test_iter batches; outputs and, behind them, the loss as this rank's shares, and the size of the
 * text. */
static ct_status run_batches(ct_solver *s, int i, bool *stopped_p)
{
    ct_outputs *o = &s->test_outputs[i];
    ct_pass *pass = s->test[i]->pass;
    int n = s->param->test_iter[i];
    ct_solver_action action;

    fill_exec(s, &pass->exec);
    ct_outputs_begin(o);
    o->sum[o->n] = 0;
    for (int b = 0; b < n; b++) {
        double loss = 0.0;

        ct_solver_beat(s, "test");
        CT_TRY(ct_solver_agree(s, true, &action)); /* a long test must not outlive a time limit */
        if (action == CT_ACTION_SNAPSHOT) CT_TRY(ct_solver_snapshot(s));
        *stopped_p = (action == CT_ACTION_STOP);
        if (*stopped_p) return CT_OK;
        pass->exec.micro_step = b;
        CT_TRY(ct_pass_forward(pass, &loss));
        CT_TRY(ct_outputs_add(o, pass));
        o->sum[o->n] += loss;
    }
    s->test_broken = pass->exec.broken_samples;
    o->sum[o->n + 1] = pass->exec.text.tokens;
    o->sum[o->n + 2] = pass->exec.text.bytes;
    return ct_group_sum(ct_solver_writers(s), o->sum, (int)o->n + 3);
}

typedef struct placing { /* of an average in a device's memory */
    const ct_device *dev;
    float *data;
} placing;

static ct_status place(void *ctx, int64_t from, int64_t count, float *host)
{
    const placing *p = ctx;

    return p->dev->from_host(NULL, p->data + from, host, (size_t)count * sizeof(*host));
}

/* The first n floats of an average in shards. Its pieces are each one rank's: the others add zeros.
 */
static ct_status gather_average(ct_solver *s, float *average, int64_t n)
{
    const ct_net *net = s->net;
    const ct_shard *own = &s->step.shard;
    int end;

    if (s->shards != NULL) return ct_state_shards_gather(s->shards, s->step.average, average);
    memset(average, 0, (size_t)n * sizeof(*average));
    for (int k = 0; (k < own->n) && (own->piece[k].from < n); k++) {
        int64_t from = own->piece[k].from, count = own->piece[k].count;

        CT_TRY(ct_storage_get(s->step.average, from, (count < n - from) ? count : n - from,
                              average + from));
    }
    for (int i = 0; (i < net->n_param) && net->param[i].learns && (net->param[i].offset < n);
         i = end) {
        const ct_group *g = ct_step_sharers(&s->step, &net->param[i]);
        const ct_param *first = &net->param[i], *last;

        for (end = i + 1; (end < net->n_param) && net->param[end].learns; end++)
            if (ct_step_sharers(&s->step, &net->param[end]) != g) break;
        last = &net->param[end - 1];
        CT_TRY(ct_group_average(g, average + first->offset,
                                last->offset + last->count - first->offset, 1.0));
    }
    return CT_OK;
}

/* The same on the first n floats of an average of which each rank has a shard, or which comes and
 * goes, or lies elsewhere. */
static ct_status run_on_gathered(ct_solver *s, int i, int64_t n, bool *stopped_p)
{
    ct_pass *pass = s->test[i]->pass;
    void *block = NULL;
    placing p = { .dev = s->dev };
    ct_weight_set set = { s->net, NULL, n };
    ct_status status, back;

    status = s->dev->mem_acquire((size_t)n * sizeof(float), &block);
    set.arena = p.data = block;
    status = ct_group_agree(ct_solver_writers(s), status);
    if ((status == CT_OK) && s->exchange.sync.shards)
        status = gather_average(s, p.data, n);
    else if (status == CT_OK)
        status = ct_storage_each(s->step.average, 0, n, CT_STORAGE_READ, place, &p);
    if (status == CT_OK) status = ct_pass_use_weights(pass, &set);
    if (status == CT_OK) status = run_batches(s, i, stopped_p);
    back = ct_pass_use_weights(pass, NULL);
    if (block != NULL) s->dev->mem_release(block);
    return (status != CT_OK) ? status : back;
}

/* The same on the last exchanged weights, while groups of local steps are apart. */
static ct_status run_on_exchanged(ct_solver *s, int i, bool *stopped_p)
{
    ct_pass *pass = s->test[i]->pass;
    float *v = ct_mem_acquire((size_t)(s->net->grad_count + 1) * sizeof(*v));
    ct_weight_set set = { s->net, v, s->net->grad_count };
    ct_status status, back;

    status = (v != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for the weights of a test");
    status = ct_group_agree(&s->exchange.data, status);
    if (status == CT_OK) status = ct_outer_weights(s->outer, v);
    if (status == CT_OK) status = ct_pass_use_weights(pass, &set);
    if (status == CT_OK) status = run_batches(s, i, stopped_p);
    back = ct_pass_use_weights(pass, NULL);
    ct_mem_release(v);
    return (status != CT_OK) ? status : back;
}

/* The batches on the average of the weights, where there is one; statistics are the net's. */
static ct_status run_on_average(ct_solver *s, int i, bool *stopped_p)
{
    ct_pass *pass = s->test[i]->pass;
    int64_t n = s->net->grad_count;
    ct_storage_range average;
    ct_weight_set set;
    ct_status status, back;

    if (ct_solver_is_apart(s)) return run_on_exchanged(s, i, stopped_p);
    if (!ct_solver_has_average(s)) return run_batches(s, i, stopped_p);
    if (ct_step_has_visits(&s->step)) {
        s->step.visit_from = s->step.average;
        status = (s->step.n_staying > 0) ? run_on_gathered(s, i, s->step.n_staying, stopped_p)
                                         : run_batches(s, i, stopped_p);
        s->step.visit_from = &s->step.weights;
        ct_net_weights_changed(s->test[i]);
        return status;
    }
    if (s->exchange.sync.shards || !s->step.average->ops->fixed || (s->step.average->dev != s->dev))
        return run_on_gathered(s, i, n, stopped_p);
    CT_TRY(ct_storage_want(s->step.average, NULL, 0, n, CT_STORAGE_READ, &average));
    set = (ct_weight_set){ s->net, average.data, n };
    status = ct_pass_use_weights(pass, &set);
    if (status == CT_OK) status = run_batches(s, i, stopped_p);
    back = ct_pass_use_weights(pass, NULL);
    if (status == CT_OK) status = back;
    back = ct_storage_done(&average, NULL);
    return (status != CT_OK) ? status : back;
}

ct_status ct_solver_test(ct_solver *s, int i, double *output, int n_output)
{
    ct_outputs *o;
    ct_ap_version version;
    bool stopped = false;

    if ((i < 0) || (i >= s->n_test) || (n_output < s->test_outputs[i].n))
        return CT_FAIL(CT_ERR_ARG, "test net %d of %d, room for %d outputs", i, s->n_test,
                       n_output);
    o = &s->test_outputs[i];
    CT_TRY(ct_solver_settle(s));
    CT_TRY(ct_solver_average_statistics(s));
    ct_net_weights_changed(s->test[i]);
    CT_TRY(run_on_average(s, i, &stopped));
    if (stopped) return CT_STOPPED;
    for (int64_t k = 0; k <= o->n; k++) o->sum[k] /= s->param->test_iter[i];
    (void)ct_ap_version_is(s->param->ap_version, &version); /* config.c has checked it */
    CT_TRY(ct_outputs_evaluate(o, ct_solver_writers(s), version, s->param->show_per_class_result,
                               o->sum));
    if (s->param->test_compute_loss) CT_INFO("Test loss: %g", o->sum[o->n]);
    if (output != o->sum) memcpy(output, o->sum, (size_t)o->n * sizeof(*output));
    return CT_OK;
}

ct_status ct_solver_test_all(ct_solver *s)
{
    double traced = ct_trace_start(s->options.trace);

    for (int i = 0; i < s->n_test; i++) {
        ct_outputs *o = &s->test_outputs[i];
        ct_status status;

        CT_TRY(ct_report_test_start(s->options.report, s->iteration, i));
        status = ct_solver_test(s, i, o->sum, (int)o->n);
        if (status == CT_STOPPED) CT_INFO("Test interrupted.");
        CT_TRY(status);
        CT_TRY(ct_report_test(s->options.report, s->iteration, ct_solver_epoch(s), i,
                              ct_solver_whole_test(s, i), o->sum,
                              &(ct_text_size){ o->sum[o->n + 1], o->sum[o->n + 2] }));
        ct_report_broken(s->options.report, "testing", s->test_broken);
        CT_TRY(ct_best_note(s, i, o->sum));
    }
    ct_trace_end(s->options.trace, traced, CT_TRACE_TEST, NULL, NULL);
    return CT_OK;
}
