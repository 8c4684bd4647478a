/* What the log and the metrics say of a run: `display`, of the iterations since the last one, and
 * at the end the memory of ranks. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "framework/base/clock.h"
#include "framework/base/json_writer.h"
#include "framework/base/trace.h"
#include "framework/report/report.h"
#include "framework/solver/solver_private.h"

/* ---- the loss as it is shown: the mean of the last average_loss iterations. It is linear, so
 * every rank keeps its own share and only what is shown is summed. */

void ct_solver_note_loss(ct_solver *s, double share)
{
    int length = s->param->average_loss;

    s->loss_window[s->next_loss] = share * ct_net_summed_part(s->net);
    if (s->n_loss < length) s->n_loss++;
    s->next_loss = (s->next_loss + 1) % length;
}

double ct_solver_smoothed_loss(const ct_solver *s)
{
    double sum = 0.0;

    for (int i = 0; i < s->n_loss; i++) sum += s->loss_window[i];
    return (s->n_loss > 0) ? sum / s->n_loss : 0.0;
}

ct_status ct_solver_loss(ct_solver *s, double *loss_p)
{
    *loss_p = ct_solver_smoothed_loss(s);
    return ct_group_sum(ct_solver_writers(s), loss_p, 1);
}

/* ---- since the last display */

static void get_stats(const ct_solver *s, ct_sync_stats *out)
{
    s->exchange.sync.ops->stats(s->exchange.sync.ctx, true, out);
    if (s->outer != NULL) out->bytes_sent += ct_outer_bytes_sent(s->outer);
    if (s->optex != NULL) out->bytes_sent += ct_optex_bytes_sent(s->optex);
}

void ct_solver_reset_tally(ct_solver *s)
{
    s->tally = (ct_tally){ .start_s = ct_clock_s(), .wait_data_s = s->net->pass->exec.wait_data_s };
    get_stats(s, &s->tally.sync);
}

double ct_solver_images_per_s(const ct_solver *s)
{
    const ct_tally *t = &s->tally;

    if (!(t->step_s > 0.0)) return 0.0;
    return (double)(t->iterations * s->batches * s->net->batch_global) / t->step_s;
}

double ct_solver_tokens_per_s(const ct_solver *s)
{
    const ct_tally *t = &s->tally;

    if (!(t->step_s > 0.0)) return 0.0;
    return (double)(t->iterations * s->batches * ct_net_tokens(ct_solver_whole(s))) / t->step_s;
}

double ct_solver_epoch(const ct_solver *s)
{
    if (s->n_sample <= 0) return NAN;
    return (double)s->iteration * s->batches * (double)s->net->batch_global / (double)s->n_sample;
}

ct_status ct_solver_sum_shown(ct_solver *s, double *loss_p)
{
    double *v = s->outputs.sum;
    int n = (int)s->outputs.n;

    v[n] = ct_solver_smoothed_loss(s);
    CT_TRY(ct_group_sum(ct_solver_writers(s), v, n + 1));
    *loss_p = v[n];
    return CT_OK;
}

/* The sum that is shown. Ranks meet here, so the slowest one's lag is part of the steps. */
static ct_status meet(ct_solver *s, double *loss_p)
{
    double start = ct_clock_s(), traced = ct_trace_start(s->options.trace), waited_s;

    CT_TRY(ct_solver_sum_shown(s, loss_p));
    ct_trace_end(s->options.trace, traced, CT_TRACE_DISPLAY, NULL, NULL);
    waited_s = ct_clock_s() - start;
    s->tally.step_s += waited_s;
    s->tally.agree_s += waited_s;
    return CT_OK;
}

ct_status ct_solver_show(ct_solver *s)
{
    const ct_tally *t = &s->tally;
    double steps = (t->iterations > 0) ? (double)t->iterations : 1.0, loss;
    ct_sync_stats now;
    ct_report_train_event e;

    CT_TRY(meet(s, &loss));
    e = (ct_report_train_event){
        .loss = loss,
        .iteration = s->iteration,
        .max_iteration = s->param->max_iter,
        .epoch = ct_solver_epoch(s),
        .rate = s->rate,
        .seconds = ct_clock_s() - t->start_s,
        .iterations = t->iterations,
        .images_per_s = ct_solver_images_per_s(s),
        .tokens_per_s = ct_solver_tokens_per_s(s),
        .net = ct_solver_whole(s),
        .output = s->outputs.sum,
    };
    get_stats(s, &now);
    ct_codec_totals_add(&now.codec, &t->sync.codec, -1);
    e.iterations_per_s = (e.seconds > 0.0) ? (double)t->iterations / e.seconds : 0.0;
    e.wait_data_ms = 1e3 * (s->net->pass->exec.wait_data_s - t->wait_data_s) / steps;
    e.comm_exposed_ms = 1e3 * (now.exposed_s - t->sync.exposed_s + t->agree_s) / steps;
    e.compute_ms = 1e3 * t->step_s / steps - e.wait_data_ms - e.comm_exposed_ms;
    e.bytes_sent = (now.bytes_sent - t->sync.bytes_sent) / (int64_t)steps;
    e.broken_samples = s->net->pass->exec.broken_samples;
    e.codec = now.codec;
    s->shown_loss = e.loss;
    CT_TRY(ct_report_train(s->options.report, &e));
    if (s->optex != NULL) ct_optex_tell(s->optex, s->iteration + 1);
    ct_solver_reset_tally(s);
    return CT_OK;
}

/* ---- memory of ranks */

int64_t ct_solver_state_bytes(const ct_solver *s)
{
    size_t bytes = s->step.weights.bytes + s->step.kept.bytes;

    for (int i = 0; i < s->step.n_history; i++) bytes += s->step.history[i].bytes;
    if (s->outer != NULL) bytes += (size_t)ct_outer_bytes(s->outer);
    if (s->optex != NULL) bytes += (size_t)ct_optex_bytes(s->optex);
    return (int64_t)bytes;
}

enum { STAGE, PLANNED, ALLOCATED, RESIDENT, N_NUMBER };

static void measure(const ct_solver *s, int64_t *v)
{
    const ct_division *d = s->options.division;
    const ct_memory *m = &s->net->memory;

    v[STAGE] = (d != NULL) ? d->stage : 0;
    v[PLANNED] = (int64_t)(m->planned + m->weights) +
                 (((s->param->memory != NULL) || (s->optex != NULL))
                      ? ct_solver_state_bytes(s)
                      : ct_update_rule_state_bytes(s->param, s->net->grad_count));
    v[ALLOCATED] = (int64_t)m->allocated + ct_solver_state_bytes(s);
    v[RESIDENT] = ct_memory_resident();
}

ct_status ct_solver_ranks_json(ct_solver *s, ct_json_writer *w)
{
    const ct_group *job = &s->exchange.job;
    int64_t mine[N_NUMBER], *all = calloc((size_t)job->size * N_NUMBER, sizeof(*all));
    ct_status status;

    if (all == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for numbers of %d ranks", job->size);
    measure(s, mine);
    status = ct_group_gather(job, mine, N_NUMBER, all);
    ct_json_begin_list(w, "ranks");
    for (int r = 0; (status == CT_OK) && (r < job->size); r++) {
        const int64_t *v = all + r * N_NUMBER;

        ct_json_begin_object(w, NULL);
        ct_json_add_integer(w, "rank", r);
        ct_json_add_integer(w, "stage", v[STAGE]);
        ct_json_add_integer(w, "memory_bytes", v[PLANNED]);
        ct_json_add_integer(w, "allocated_bytes", v[ALLOCATED]);
        ct_json_add_integer(w, "resident_bytes", v[RESIDENT]);
        ct_json_end(w);
    }
    ct_json_end(w);
    free(all);
    return status;
}
