/* Test passes. */
#include <inttypes.h>
#include <string.h>

#include "framework/base/trace.h"
#include "framework/report/report.h"
#include "framework/solver/solver_private.h"

static void fill_exec(const ct_solver *s, ct_exec *ex)
{
    *ex = s->net->pass->exec;
    ex->phase = CT_TEST;
    ex->accumulate = false;
    ex->wait = NULL; /* settled */
    ex->wait_data_s = 0.0;
    ex->broken_samples = 0;
    ex->trace = NULL; /* one span for the whole pass */
}

/* test_iter batches; outputs and, behind them, the loss as this rank's shares. */
static ct_status run_batches(ct_solver *s, int i, bool *stopped_p)
{
    ct_outputs *o = &s->test_outputs[i];
    ct_pass *pass = s->test[i]->pass;
    int n = s->param->test_iter[i];
    ct_solver_action action;

    fill_exec(s, &pass->exec);
    memset(o->sum, 0, (size_t)(o->n + 1) * sizeof(*o->sum));
    for (int b = 0; b < n; b++) {
        double loss = 0.0;

        ct_solver_beat(s, "test");
        CT_TRY(ct_solver_agree(s, true, &action)); /* a long test must not outlive a time limit */
        if (action == CT_ACTION_SNAPSHOT) CT_TRY(ct_solver_snapshot(s));
        *stopped_p = (action == CT_ACTION_STOP);
        if (*stopped_p) return CT_OK;
        pass->exec.micro_step = b;
        CT_TRY(ct_pass_forward(pass, &loss));
        CT_TRY(ct_outputs_add(o));
        o->sum[o->n] += loss;
    }
    s->test_broken = pass->exec.broken_samples;
    return ct_group_sum(&s->exchange.group, o->sum, (int)o->n + 1);
}

ct_status ct_solver_test(ct_solver *s, int i, double *output, int n_output)
{
    ct_outputs *o;
    bool stopped = false;
    ct_status status;

    if ((i < 0) || (i >= s->n_test) || (n_output < s->test_outputs[i].n))
        return CT_FAIL(CT_ERR_ARG, "test net %d of %d, room for %d outputs", i, s->n_test,
                       n_output);
    o = &s->test_outputs[i];
    CT_TRY(ct_solver_settle(s));
    CT_TRY(ct_solver_average_statistics(s));
    CT_TRY(ct_solver_take_average(s, true));
    ct_net_weights_changed(s->test[i]);
    status = run_batches(s, i, &stopped);
    CT_TRY(ct_solver_take_average(s, false));
    CT_TRY(status);
    if (stopped) return CT_STOPPED;
    for (int64_t k = 0; k <= o->n; k++) o->sum[k] /= s->param->test_iter[i];
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
        CT_TRY(ct_report_test(s->options.report, s->iteration, ct_solver_epoch(s), i, s->test[i],
                              o->sum));
        ct_report_broken(s->options.report, "testing", s->test_broken);
    }
    ct_trace_end(s->options.trace, traced, CT_TRACE_TEST, NULL, NULL);
    return CT_OK;
}
