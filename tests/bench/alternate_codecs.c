/* Ways to compress, step by step in turn, in one process: what chance does to one it does to all.
 *
 *   alternate_codecs NET SECONDS ROUNDS STEPS WAY...     WAY: "compression { … }", or ""
 *
 * NET's computation is replaced by sleep (slept_net.h), a rule with momentum is real. One solver
 * has an exchange of its own for each way; all use its weights, gradients and momentum. Each way
 * first takes steps of its own: as many as AUTO needs to decide. A round gives each way STEPS steps
 * behind one step that is not timed, the order turned by one each round. For scripts/netns.sh;
 * tests/bench/alternate_codecs.py compares. Rank 0 prints "ROUND WAY MILLISECONDS". */
#include "tests/bench/slept_net.h"

#include <mpi.h>
#include <stdio.h>

#include "framework/solver/solver_private.h"

enum { MOST_WAYS = 12, FIRST_STEPS = 3 };

typedef struct way {
    Ct__SolverParameter *param;
    ct_exchange_open open;
    ct_exchange exchange;
} way;

typedef struct ways {
    int n;
    way way[MOST_WAYS];
    ct_job job;
    ct_solver *solver;
} ways;

static ct_status open_solver(ways *w, ct_comm *c)
{
    ct_solver_options o = { .provenance = "{}", .table = test_full_table(&slept) };

    w->job = (ct_job){ .rank = c->rank, .size = c->size, .comm = c, .data_comm = c };
    CT_TRY(ct_job_open_groups(&w->job));
    for (int k = 0; k < w->n; k++)
        w->way[k].open = (ct_exchange_open){ .job = &w->job, .param = w->way[k].param };
    o.param = w->way[0].param;
    o.env = (ct_net_env){ .rank = c->rank, .n_rank = c->size };
    o.open_exchange = ct_exchange_open_net;
    o.open_exchange_ctx = &w->way[0].open;
    CT_TRY(ct_solver_create(&o, &w->solver));
    w->way[0].exchange = w->solver->exchange;
    for (int k = 1; k < w->n; k++) {
        CT_TRY(ct_exchange_open_net(&w->way[k].open, w->solver->net, &w->way[k].exchange));
        w->way[k].exchange.sync.momentum = w->solver->exchange.sync.momentum;
    }
    return CT_OK;
}

/* Nothing of the other way is under way. */
static ct_status take(ways *w, int *now, int k)
{
    CT_TRY(ct_solver_settle(w->solver));
    w->way[*now].exchange = w->solver->exchange;
    w->solver->exchange = w->way[k].exchange;
    *now = k;
    return CT_OK;
}

static ct_status time_steps(ways *w, ct_comm *c, int steps, double *ms_p)
{
    double start;

    CT_TRY(ct_solver_steps(w->solver, 1));
    CT_TRY(ct_comm_barrier(c));
    start = ct_clock_s();
    CT_TRY(ct_solver_steps(w->solver, steps));
    CT_TRY(ct_solver_settle(w->solver));
    CT_TRY(ct_comm_barrier(c));
    *ms_p = 1e3 * (ct_clock_s() - start) / steps;
    return CT_OK;
}

static ct_status alternate(ways *w, ct_comm *c, int rounds, int steps)
{
    int now = 0;
    double ms;

    for (int k = 0; k < w->n; k++) {
        CT_TRY(take(w, &now, k));
        CT_TRY(ct_solver_steps(w->solver, FIRST_STEPS + w->way[k].exchange.sync.n_trial));
    }
    for (int r = 0; r < rounds; r++) {
        for (int k = 0; k < w->n; k++) {
            int turn = (k + r) % w->n;

            CT_TRY(take(w, &now, turn));
            CT_TRY(time_steps(w, c, steps, &ms));
            if (c->rank == 0) printf("%d %d %.2f\n", r, turn, ms);
            fflush(stdout);
        }
    }
    return take(w, &now, 0);
}

static ct_status read_ways(ways *w, char **argv)
{
    for (int k = 0; k < w->n; k++) {
        ct_text more = { 0 }, text = { 0 };
        ct_status status;

        ct_text_add(&more, "base_lr: 1e-6 lr_policy: 'fixed' momentum: 0.9 %s", argv[5 + k]);
        status = slept_solver(argv[1], atof(argv[2]), more.text, &text);
        if (status == CT_OK) w->way[k].param = test_solver_parse(text.text);
        ct_text_destroy(&more);
        ct_text_destroy(&text);
        CT_TRY(status);
    }
    return CT_OK;
}

int main(int argc, char **argv)
{
    ct_comm *c = NULL;
    ways w = { .n = argc - 5 };
    ct_status status;
    int level;

    if ((w.n < 1) || (w.n > MOST_WAYS)) {
        fprintf(stderr, "usage: alternate_codecs NET SECONDS ROUNDS STEPS WAY... (at most %d)\n",
                MOST_WAYS);
        return 2;
    }
    ct_comm_prepare_launch();
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    status = ct_comm_create(MPI_COMM_WORLD, "auto", &c);
    if (status == CT_OK) status = read_ways(&w, argv);
    if (status == CT_OK) status = open_solver(&w, c);
    if (status == CT_OK) status = alternate(&w, c, atoi(argv[3]), atoi(argv[4]));
    if (status != CT_OK) MPI_Abort(MPI_COMM_WORLD, 1);
    ct_solver_destroy(w.solver);
    for (int k = 0; k < w.n; k++) {
        ct_exchange_open_close(&w.way[k].open);
        ct__solver_parameter__free_unpacked(w.way[k].param, NULL);
    }
    ct_comm_destroy(c);
    MPI_Finalize();
    return 0;
}
