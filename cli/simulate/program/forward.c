/* A forward pass that ranks share (planner/forward_pass.h): what is computed is durations, what
 * is sent goes as the real program sends it. */
#include <math.h>
#include <stdlib.h>

#include "planner/forward_pass.h"
#include "cli/simulate/program/sim.h"
#include "comm/collective/async_sum.h"
#include "comm/collective/blocking.h"
#include "framework/base/clock.h"
#include "framework/base/json_writer.h"

typedef struct forward {
    ct_sim *sim;
    ct_forward_pass pass;
    ct_sim_timer *timer;
    ct_transfers *transfers;
    void **ticket;  /* [pass.n_pair]                                                 */
    int64_t *piece; /* [pass.n_step][n_rank]: of a gather, a scatter                 */
    float *from, *to;
    double *mark;  /* [n_warmup + n_step + 1]: when each forward began              */
    double *took;  /* [pass.n_step]: of the last one                                */
    double wait_s; /* in waits so far                                               */
    double late_s; /* messages moved for so long beyond what was computed meanwhile */
} forward;

static ct_status move(void *ctx)
{
    return ct_transfers_ops.poll(((forward *)ctx)->transfers);
}

/* As the training steps do: what goes on when a layer is over is taken off the next one. */
static ct_status compute(forward *f, double seconds)
{
    double over = ct_clock_s() + seconds - f->late_s;

    if (!f->sim->thread) {
        CT_TRY(ct_sim_timer_pass(f->timer, seconds, NULL, f));
        return move(f);
    }
    CT_TRY(ct_sim_timer_pass(f->timer, seconds - f->late_s, move, f));
    f->late_s = fmax(0, ct_clock_s() - over);
    return CT_OK;
}

/* Even pieces; the first ones have one more. */
static const int64_t *cut(const forward *f, int step, int64_t n)
{
    int p = f->pass.n_rank;
    int64_t *piece = f->piece + (int64_t)step * p;

    for (int r = 0; r < p; r++) piece[r] = n / p + (r < n % p);
    return piece;
}

static ct_status begin(forward *f, int step)
{
    const ct_forward_step *s = &f->pass.step[step];
    int64_t n = (s->bytes + 3) / 4;
    ct_transfer t = { .kind = s->transfer,
                      .dtype = CT_F32,
                      .from = f->from,
                      .to = (s->transfer == CT_TRANSFER_SUM) ? f->from : f->to,
                      .n = n,
                      .piece = cut(f, step, n),
                      .unit = 1 };
    double start = ct_clock_s();

    CT_TRY(ct_transfers_ops.begin(f->transfers, &t, &f->ticket[s->pair]));
    if (f->sim->thread) f->late_s += ct_clock_s() - start;
    return CT_OK;
}

static ct_status await(forward *f, const ct_forward_step *s)
{
    double start = ct_clock_s();

    CT_TRY(ct_transfers_ops.wait(f->transfers, f->ticket[s->pair]));
    f->wait_s += ct_clock_s() - start;
    if (ct_clock_s() > start) f->late_s = 0;
    return CT_OK;
}

static ct_status run_once(forward *f)
{
    for (int i = 0; i < f->pass.n_step; i++) {
        const ct_forward_step *s = &f->pass.step[i];
        double start = ct_clock_s();

        switch (s->kind) {
        case CT_FORWARD_COMPUTE:
            CT_TRY(compute(f, s->seconds));
            break;
        case CT_FORWARD_BEGIN:
            CT_TRY(begin(f, i));
            break;
        case CT_FORWARD_WAIT:
            CT_TRY(await(f, s));
            break;
        }
        f->took[i] = ct_clock_s() - start;
    }
    return CT_OK;
}

static ct_status prepare(forward *f)
{
    ct_sim *sim = f->sim;
    int64_t most = 4;

    if (f->pass.n_rank != sim->comm->size)
        return CT_FAIL(CT_ERR_CONFIG, "%s is of %d ranks, but %d run: --nodes, --ranks_per_node",
                       ct_options_text(sim->options, "pass"), f->pass.n_rank, sim->comm->size);
    for (int i = 0; i < f->pass.n_step; i++)
        if (f->pass.step[i].bytes > most) most = f->pass.step[i].bytes;
    f->ticket = calloc((size_t)f->pass.n_pair + 1, sizeof(*f->ticket));
    f->piece = calloc((size_t)f->pass.n_step * (size_t)f->pass.n_rank, sizeof(*f->piece));
    f->mark = calloc((size_t)(sim->n_warmup + sim->n_step) + 1, sizeof(*f->mark));
    f->took = calloc((size_t)f->pass.n_step + 1, sizeof(*f->took));
    f->from = ct_mem_acquire((size_t)most + 4);
    f->to = ct_mem_acquire((size_t)most + 4);
    if ((f->ticket == NULL) || (f->piece == NULL) || (f->mark == NULL) || (f->took == NULL) ||
        (f->from == NULL) || (f->to == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a forward pass");
    CT_TRY(ct_sim_timer_create(sim->comm, &f->timer));
    return ct_transfers_create(sim->comm, sim->comm, &f->transfers);
}

/* What ran, in the order in which it did, with simulated times. */
static void add_steps(const forward *f, ct_json_writer *w)
{
    static const char *const name[] = {
        [CT_FORWARD_COMPUTE] = "compute", [CT_FORWARD_BEGIN] = "begin", [CT_FORWARD_WAIT] = "wait"
    };

    ct_json_begin_list(w, "steps");
    for (int i = 0; i < f->pass.n_step; i++) {
        ct_json_break(w);
        ct_json_begin_object(w, NULL);
        ct_json_add_text(w, "step", name[f->pass.step[i].kind]);
        ct_json_add_text(w, "layer", f->pass.step[i].layer);
        ct_json_add_number(w, "ms", 1e3 * f->took[i]);
        ct_json_end(w);
    }
    ct_json_end(w);
}

static ct_status run(forward *f, ct_json_writer *w)
{
    const ct_sim *sim = f->sim;
    int n = sim->n_warmup + sim->n_step;
    double waited = 0, compute_s = 0, all_s;

    CT_TRY(prepare(f));
    CT_TRY(ct_comm_barrier(sim->comm));
    f->mark[0] = ct_clock_s();
    for (int i = 0; i < n; i++) {
        if (i == sim->n_warmup) waited = f->wait_s;
        CT_TRY(run_once(f));
        f->mark[i + 1] = ct_clock_s();
    }
    for (int i = 0; i < f->pass.n_step; i++) compute_s += f->pass.step[i].seconds;
    all_s = (f->mark[n] - f->mark[sim->n_warmup]) / sim->n_step;
    ct_json_add_integer(w, "iterations", sim->n_step);
    ct_json_add_text(w, "progress", sim->thread ? "thread" : "poll");
    ct_json_begin_list(w, "forward_ms");
    for (int i = sim->n_warmup; i < n; i++)
        ct_json_add_number(w, NULL, 1e3 * (f->mark[i + 1] - f->mark[i]));
    ct_json_end(w);
    ct_json_add_number(w, "mean_forward_ms", 1e3 * all_s);
    ct_json_add_number(w, "compute_ms", 1e3 * compute_s);
    ct_json_add_number(w, "exposed_ms", 1e3 * (f->wait_s - waited) / sim->n_step);
    add_steps(f, w);
    return CT_OK;
}

ct_status ct_sim_forward(ct_sim *sim, ct_json_writer *w)
{
    forward f = { .sim = sim };
    ct_status status = ct_forward_pass_read(ct_options_text(sim->options, "pass"), &f.pass);

    sim->comm->prompt = sim->thread;
    if (status == CT_OK) status = run(&f, w);
    ct_transfers_destroy(f.transfers);
    ct_sim_timer_destroy(f.timer);
    ct_forward_pass_destroy(&f.pass);
    ct_mem_release(f.from);
    ct_mem_release(f.to);
    free(f.ticket);
    free(f.piece);
    free(f.mark);
    free(f.took);
    return status;
}
