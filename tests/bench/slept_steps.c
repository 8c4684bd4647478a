/* Steps whose computation is replaced by sleep: gradients as large as a net's between ranks on slow
 * links.
 *
 *   slept_steps NET SECONDS ITERATIONS [TEXT...]      NET: gpt2 (124 M weights) or lstm (66 M)
 *
 * SECONDS a step sleep in place of computation (slept_net.h); AdamW and clipping are real. TEXT is
 * added to the solver: "compression { … }" or "outer { … }". For scripts/netns.sh;
 * tests/bench/slept_steps.sh compares. Prints milliseconds of an iteration in the mean, without the
 * first two (with `outer`: without all up to the first meeting), and what rank 0 sent. */
#include "tests/bench/slept_net.h"

#include <mpi.h>
#include <stdio.h>

#include "framework/solver/outer.h"
#include "framework/solver/solver_private.h"
#include "runtime/outer/outer_groups.h"

typedef struct trained {
    Ct__SolverParameter *param;
    ct_job job;
    ct_outer_groups groups;
    ct_exchange_open open;
    ct_solver *solver;
} trained;

static ct_status open_solver(trained *t, ct_comm *c)
{
    ct_solver_options o = { .provenance = "{}", .table = test_full_table(&slept) };

    t->job = (ct_job){ .rank = c->rank, .size = c->size, .comm = c, .data_comm = c };
    CT_TRY(ct_job_open_groups(&t->job));
    CT_TRY(ct_outer_groups_open(&t->job, t->param, &t->groups));
    t->open = (ct_exchange_open){ .job = &t->job,
                                  .param = t->param,
                                  .comm = ct_outer_groups_inner(&t->groups) };
    o.param = t->param;
    o.env = (ct_net_env){ .rank = c->rank, .n_rank = c->size };
    o.open_exchange = ct_exchange_open_net;
    o.open_exchange_ctx = &t->open;
    if (t->open.comm != NULL) o.outer = &t->groups.ranks;
    return ct_solver_create(&o, &t->solver);
}

static int64_t bytes_sent(const ct_solver *s)
{
    ct_sync_stats stats;

    s->exchange.sync.ops->stats(s->exchange.sync.ctx, false, &stats);
    return stats.bytes_sent + ((s->outer != NULL) ? ct_outer_bytes_sent(s->outer) : 0);
}

static ct_status time_steps(trained *t, ct_comm *c, int iterations)
{
    int before = (t->param->outer != NULL) ? t->param->outer->local_iter : 2;
    double start, seconds;
    int64_t sent;

    CT_TRY(ct_solver_steps(t->solver, before));
    CT_TRY(ct_comm_barrier(c));
    start = ct_clock_s();
    sent = bytes_sent(t->solver);
    CT_TRY(ct_solver_steps(t->solver, iterations));
    CT_TRY(ct_comm_barrier(c));
    seconds = ct_clock_s() - start;
    sent = bytes_sent(t->solver) - sent;
    if (c->rank == 0)
        printf("%.1f ms an iteration, %.3f MB sent by rank 0\n", 1e3 * seconds / iterations,
               1e-6 * (double)sent / iterations);
    return CT_OK;
}

int main(int argc, char **argv)
{
    ct_comm *c = NULL;
    ct_text text = { 0 }, more = { 0 };
    trained t = { .param = NULL };
    ct_status status;
    int level;

    if (argc < 4) {
        fprintf(stderr, "usage: slept_steps NET SECONDS ITERATIONS [TEXT...]\n");
        return 2;
    }
    ct_text_add(&more,
                "type: 'AdamW' base_lr: 1e-6 lr_policy: 'fixed' momentum: 0.9 momentum2: 0.99 "
                "weight_decay: 0.1 clip_gradients: 1 ");
    for (int i = 4; i < argc; i++) ct_text_add(&more, "%s ", argv[i]);
    ct_comm_prepare_launch();
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    status = ct_comm_create(MPI_COMM_WORLD, "auto", &c);
    if (status == CT_OK) status = slept_solver(argv[1], atof(argv[2]), more.text, &text);
    if (status == CT_OK) {
        t.param = test_solver_parse(text.text);
        status = open_solver(&t, c);
    }
    if (status == CT_OK) status = time_steps(&t, c, atoi(argv[3]));
    if (status != CT_OK) MPI_Abort(MPI_COMM_WORLD, 1);
    ct_solver_destroy(t.solver);
    ct_exchange_open_close(&t.open);
    ct_outer_groups_close(&t.groups);
    ct__solver_parameter__free_unpacked(t.param, NULL);
    ct_text_destroy(&text);
    ct_text_destroy(&more);
    ct_comm_destroy(c);
    MPI_Finalize();
    return 0;
}
