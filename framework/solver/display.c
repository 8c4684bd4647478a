/* `display`: what the log and the metrics say of the iterations since the last one. */
#include <math.h>

#include "framework/base/clock.h"
#include "framework/base/trace.h"
#include "framework/report/report.h"
#include "framework/solver/solver_private.h"

void ct_solver_reset_tally(ct_solver *s)
{
    s->tally = (ct_tally){ .start_s = ct_clock_s(), .wait_data_s = s->net->pass->exec.wait_data_s };
    s->exchange.counters(s->exchange.ctx, &s->tally.counters);
    if (s->exchange.coding != NULL) s->exchange.coding(s->exchange.ctx, &s->tally.coding);
}

double ct_solver_images_per_s(const ct_solver *s)
{
    const ct_tally *t = &s->tally;

    if (!(t->step_s > 0.0)) return 0.0;
    return (double)(t->iterations * s->param->iter_size * s->net->batch_global) / t->step_s;
}

double ct_solver_epoch(const ct_solver *s)
{
    const ct_net *net = s->net;

    if (net->n_sample <= 0) return NAN;
    return (double)s->iteration * s->param->iter_size * (double)net->batch_global /
           (double)net->n_sample;
}

ct_status ct_solver_sum_shown(ct_solver *s, double *loss_p)
{
    double *v = s->outputs.sum;
    int n = (int)s->outputs.n;

    v[n] = ct_solver_smoothed_loss(s);
    CT_TRY(s->exchange.sum(s->exchange.ctx, v, n + 1));
    *loss_p = v[n];
    return CT_OK;
}

/* What compression did a step since the last display. */
static void coding_since(const ct_solver *s, double steps, ct_report_coding *out)
{
    const ct_exchange_coding *old = &s->tally.coding;
    double elements = 1, ms = 1e3 / steps;
    ct_exchange_coding now;

    s->exchange.coding(s->exchange.ctx, &now);
    if (now.elements > old->elements) elements = (double)(now.elements - old->elements);
    *out = (ct_report_coding){
        .n_coded = now.n_coded,
        .bytes_dense = (now.bytes_dense - old->bytes_dense) / (int64_t)steps,
        .bytes_coded = (now.bytes_coded - old->bytes_coded) / (int64_t)steps,
        .density = (double)(now.selected - old->selected) / elements,
        .filled = (double)(now.filled - old->filled) / elements,
        .select_ms = ms * (now.select_s - old->select_s),
        .pack_ms = ms * (now.pack_s - old->pack_s),
        .exchange_ms = ms * (now.exchange_s - old->exchange_s),
        .unpack_ms = ms * (now.unpack_s - old->unpack_s),
        .saved_ms = ms * (now.saved_s - old->saved_s),
        .residual_norm = now.residual_norm,
    };
}

ct_status ct_solver_show(ct_solver *s)
{
    const ct_tally *t = &s->tally;
    double steps = (t->iterations > 0) ? (double)t->iterations : 1.0;
    double traced = ct_trace_start(s->options.trace);
    ct_exchange_counters now;
    ct_report_train_event e = {
        .iteration = s->iteration,
        .max_iteration = s->param->max_iter,
        .epoch = ct_solver_epoch(s),
        .rate = s->rate,
        .seconds = ct_clock_s() - t->start_s,
        .iterations = t->iterations,
        .images_per_s = ct_solver_images_per_s(s),
        .net = s->net,
        .output = s->outputs.sum,
    };

    CT_TRY(ct_solver_sum_shown(s, &e.loss));
    ct_trace_end(s->options.trace, traced, CT_TRACE_DISPLAY, NULL, NULL);
    s->exchange.counters(s->exchange.ctx, &now);
    e.iterations_per_s = (e.seconds > 0.0) ? (double)t->iterations / e.seconds : 0.0;
    e.wait_data_ms = 1e3 * (s->net->pass->exec.wait_data_s - t->wait_data_s) / steps;
    e.comm_exposed_ms = 1e3 * (now.exposed_s - t->counters.exposed_s + t->agree_s) / steps;
    e.compute_ms = 1e3 * t->step_s / steps - e.wait_data_ms - e.comm_exposed_ms;
    e.bytes_sent = (now.bytes_sent - t->counters.bytes_sent) / (int64_t)steps;
    e.broken_samples = s->net->pass->exec.broken_samples;
    if (s->exchange.coding != NULL) coding_since(s, steps, &e.coding);
    s->shown_loss = e.loss;
    CT_TRY(ct_report_train(s->options.report, &e));
    ct_solver_reset_tally(s);
    return CT_OK;
}
