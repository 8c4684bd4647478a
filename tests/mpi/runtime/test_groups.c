/* The groups of a job: solvers of two groups of replicas in one job, each with a net of its own,
 * as ranks that hold different parts of a model will be. */
#include "tests/mpi/mpi_test.h"
#include "tests/log_capture.h"

#include <math.h>
#include <stdlib.h>

#include "framework/solver/solver.h"
#include "runtime/exchange/exchange_mpi.h"
#include "tests/solver_harness.h"

#define IP(_name, _bottom, _n)                                                                     \
    "layer { name: '" _name "' type: 'InnerProduct' bottom: '" _bottom "' top: '" _name            \
    "' inner_product_param { num_output: " _n " weight_filler { type: 'gaussian' std: 0.3 } } } "
#define NET(_hidden)                                                                               \
    "net_param { name: 'part' layer { name: 'data' type: 'DummyData' top: 'x' top: 'y' "           \
    "dummy_data_param { shape { dim: 6 dim: 5 } data_filler { type: 'gaussian' std: 1 } "          \
    "shape { dim: 6 dim: 2 } data_filler { type: 'gaussian' std: 1 } } } " IP(                     \
        "a", "x",                                                                                  \
        _hidden) "layer { name: 'bn' type: 'SyncBN' bottom: 'a' top: 'bn' } "                      \
                 "layer { name: 'norm' type: 'BatchNorm' bottom: 'bn' top: 'norm' } " IP(          \
                     "b", "norm", "2") "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'b' "   \
                                       "bottom: 'y' top: 'loss' } } "
#define SOLVER                                                                                     \
    "base_lr: 0.05 lr_policy: 'fixed' momentum: 0.9 max_iter: 6 display: 2 checksum_interval: 2 "  \
    "random_seed: 7 deterministic: true solver_mode: CPU "

/* What each group trains: nets of different sizes, so that nothing fits that strays over. */
static const char *const text[] = {
    SOLVER NET("7"),
    SOLVER NET("300") "compression { type: TOPK density: 0.05 min_bytes: 1000 } ",
};

/* The job of all ranks of `all`, of which those of `data` are replicas. */
static ct_status open_job(ct_comm *all, ct_comm *data, ct_job *job)
{
    *job = (ct_job){ .rank = all->rank, .size = all->size, .comm = all, .data_comm = data };
    return ct_job_open_groups(job);
}

static log_capture said;

typedef struct outcome {
    uint64_t weights, shared; /* of what learns; of what SyncBN counted, the same on all replicas */
    uint64_t all;             /* with BatchNorm's, which the last batches of each rank move       */
    int64_t iteration;
    ct_status status;
} outcome;

static uint64_t hash_sync_bn(const ct_net *net)
{
    uint64_t h = 14695981039346656037u;

    for (int i = 0; i < net->n_param; i++) {
        const ct_param *p = &net->param[i];
        const unsigned char *byte = (const unsigned char *)(net->weight_arena + p->offset);

        if ((strcmp(p->layer, "bn") != 0) || (p->kind != CT_WEIGHT_STATISTIC)) continue;
        for (size_t k = 0; k < sizeof(float) * (size_t)p->count; k++)
            h = (h ^ byte[k]) * 1099511628211u;
    }
    return h;
}

static int train(ct_job *job, const char *solver, bool thread, int stop_rank, outcome *out)
{
    volatile int stop = (job->rank == stop_rank) ? CT_ACTION_STOP : CT_ACTION_NONE;
    Ct__CommParameter comm = CT__COMM_PARAMETER__INIT;
    Ct__SolverParameter *param = test_solver_parse(solver);
    Ct__CommParameter *own = param->comm;
    ct_exchange_open open = { .job = job, .param = param };
    ct_solver_options o = { .param = param, .stop_signal = &stop, .provenance = "{}" };
    ct_solver *s = NULL;
    int fault = 0;

    comm.progress =
        thread ? CT__COMM_PARAMETER__PROGRESS__THREAD : CT__COMM_PARAMETER__PROGRESS__POLL;
    param->comm = &comm;
    o.env.rank = job->group.data.rank;
    o.env.n_rank = job->group.data.size;
    o.env.deterministic = true;
    o.open_exchange = ct_exchange_open_net;
    o.open_exchange_ctx = &open;
    fault += MPI_FAULT_UNLESS(ct_solver_create(&o, &s) == CT_OK);
    if (s != NULL) {
        out->status = ct_solver_run(s);
        out->iteration = ct_solver_iteration(s);
        out->weights = ct_net_checksum(ct_solver_net(s), false);
        out->all = ct_net_checksum(ct_solver_net(s), true);
        out->shared = hash_sync_bn(ct_solver_net(s));
    }
    ct_solver_destroy(s);
    ct_exchange_open_close(&open);
    param->comm = own;
    ct__solver_parameter__free_unpacked(param, NULL);
    return fault;
}

/* A group's replicas end with the same bits; other groups with others; and a group in a job of
 * several trains as it does in a job of its own. */
static int groups_train(ct_comm *c, int cut, bool thread)
{
    int key = 0, colour = mpi_part(cut, c->rank, c->size, &key), fault = 0;
    ct_comm *part = NULL;
    ct_job job, own;
    outcome of_job = { 0 }, alone = { 0 };
    uint64_t mine[2], *all = calloc((size_t)c->size, sizeof(mine));
    int *colours = calloc((size_t)c->size, sizeof(*colours));

    fault += MPI_FAULT_UNLESS(ct_comm_split(c, colour, key, &part) == CT_OK);
    fault += MPI_FAULT_UNLESS(open_job(c, part, &job) == CT_OK);
    fault += MPI_FAULT_UNLESS(open_job(part, part, &own) == CT_OK);
    if (mpi_verdict(fault) > 0) return fault;
    fault += train(&job, text[colour], thread, -1, &of_job);
    fault += train(&own, text[colour], thread, -1, &alone);
    fault += MPI_FAULT_UNLESS((of_job.status == CT_OK) && (of_job.iteration == 6));
    fault += MPI_FAULT_UNLESS((alone.status == CT_OK) && (alone.all == of_job.all));
    mine[0] = of_job.weights;
    mine[1] = of_job.shared;
    MPI_Allgather(mine, 2, MPI_UINT64_T, all, 2, MPI_UINT64_T, c->mpi);
    MPI_Allgather(&colour, 1, MPI_INT, colours, 1, MPI_INT, c->mpi);
    for (int r = 0; r < c->size; r++) {
        fault += MPI_FAULT_UNLESS((all[2 * r] == mine[0]) == (colours[r] == colour));
        fault += MPI_FAULT_UNLESS((all[2 * r + 1] == mine[1]) == (colours[r] == colour));
    }
    /* a stop that one rank was told ends the whole job at one step; without a snapshot, since it
     * has no prefix */
    log_capture_start(&said);
    fault += train(&job, text[colour], thread, c->size - 1, &of_job);
    log_capture_stop();
    fault += MPI_FAULT_UNLESS((of_job.status != CT_OK) && (of_job.iteration == 1));
    ct_comm_destroy(part);
    free(all);
    free(colours);
    return fault;
}

/* On the machine as it is, and on one of pretended nodes. */
static void test_training(void **state)
{
    char spec[8][32];
    int n_spec = mpi_machines(spec), fault = 0;

    (void)state;
    for (int cut = 0; cut < MPI_CUTS; cut++) {
        ct_comm *c = NULL;

        fault += MPI_FAULT_UNLESS(
            ct_comm_create(MPI_COMM_WORLD, spec[(cut % 2 == 0) ? 0 : n_spec - 1], &c) == CT_OK);
        fault += groups_train(c, cut, false);
        fault += groups_train(c, cut, true);
        ct_comm_destroy(c);
    }
    assert_int_equal(mpi_verdict(fault), 0);
}

/* More than one message's worth would take long: that a message is cut is not tested. */
static int sends(const ct_group *g)
{
    enum { N = 300000 };
    int32_t *v = malloc(N * sizeof(*v));
    int fault = 0;

    for (int from = 0; from < g->size; from++) {
        int to = g->size - 1 - from;
        bool got = (g->rank == to) || (g->rank == from);

        for (int i = 0; i < N; i++) v[i] = g->rank + i;
        fault += MPI_FAULT_UNLESS(ct_group_send(g, v, N * sizeof(*v), from, to) == CT_OK);
        for (int i = 0; i < N; i += 1009)
            fault += MPI_FAULT_UNLESS(v[i] == (got ? from : g->rank) + i);
    }
    free(v);
    return fault;
}

/* Rank a sends a + 3 b + 1 floats to rank b, of which rank 0 gets none. */
static int exchanges(const ct_group *g)
{
    enum { MOST = 64, LONG = MOST * 4 };
    static float out[MOST][LONG], in[MOST][LONG];
    const float *from[MOST] = { NULL };
    float *to[MOST] = { NULL };
    int64_t out_n[MOST] = { 0 }, in_n[MOST] = { 0 };
    int fault = 0;

    for (int r = 0; r < g->size; r++) {
        from[r] = out[r];
        to[r] = in[r];
        out_n[r] = (r == 0) ? 0 : g->rank + 3 * r + 1;
        in_n[r] = (g->rank == 0) ? 0 : r + 3 * g->rank + 1;
        for (int i = 0; i < LONG; i++) {
            out[r][i] = (float)(1000 * g->rank + 10 * r + i);
            in[r][i] = -1;
        }
    }
    fault += MPI_FAULT_UNLESS(ct_group_exchange(g, from, out_n, to, in_n) == CT_OK);
    for (int r = 0; r < g->size; r++)
        for (int i = 0; (r != g->rank) && (i < LONG); i++)
            fault += MPI_FAULT_UNLESS(in[r][i] ==
                                      ((i < in_n[r]) ? (float)(1000 * r + 10 * g->rank + i) : -1));
    return fault;
}

/* Sums, maxima and means are each group's own, and each knows where its ranks are. */
static int operations(ct_comm *c)
{
    int key = 0, colour = mpi_part(1, c->rank, c->size, &key), fault = 0;
    int first = (colour == 0) ? 0 : c->size / 2, n = (colour == 0) ? c->size / 2 : 0;
    double sum = c->rank, want = 0;
    float mean[2] = { (float)c->rank, 8 };
    int64_t most = c->rank, least = -c->rank, near = -c->rank;
    ct_comm *part = NULL;
    ct_job job;

    if (n == 0) n = c->size - first;
    if (c->size == 1) colour = first = 0; /* halves of one: it is the second */
    for (int r = first; r < first + n; r++) want += r;
    fault += MPI_FAULT_UNLESS(ct_comm_split(c, colour, key, &part) == CT_OK);
    fault += MPI_FAULT_UNLESS(open_job(c, part, &job) == CT_OK);
    if (mpi_verdict(fault) > 0) return fault;
    fault += MPI_FAULT_UNLESS((job.group.job.size == c->size) && (job.group.data.size == n));
    fault += MPI_FAULT_UNLESS(job.group.data.rank == c->rank - first);
    fault += MPI_FAULT_UNLESS(job.group.job.topo->n_rank == c->size);
    fault += MPI_FAULT_UNLESS(job.group.data.topo->n_rank == n);
    fault += MPI_FAULT_UNLESS(job.group.node.topo->n_node == 1);
    fault += MPI_FAULT_UNLESS(ct_group_sum(&job.group.data, &sum, 1) == CT_OK && (sum == want));
    fault += MPI_FAULT_UNLESS(ct_group_average(&job.group.data, mean, 2, 1.0 / n) == CT_OK);
    fault += MPI_FAULT_UNLESS(fabs((double)mean[0] - want / n) < 1e-5);
    fault += MPI_FAULT_UNLESS(fabs((double)mean[1] - 8) < 1e-5);
    fault += MPI_FAULT_UNLESS(ct_group_max(&job.group.job, &most, 1) == CT_OK);
    fault += MPI_FAULT_UNLESS(most == c->size - 1);
    fault += MPI_FAULT_UNLESS(ct_group_max(&job.group.data, &least, 1) == CT_OK);
    fault += MPI_FAULT_UNLESS(least == -first);
    fault += MPI_FAULT_UNLESS(ct_group_broadcast(&job.group.node, &near, sizeof(near)) == CT_OK);
    fault += MPI_FAULT_UNLESS(-near == first + part->node_member[0]);
    fault += sends(&job.group.job);
    fault += sends(&job.group.data);
    fault += exchanges(&job.group.job);
    fault += exchanges(&job.group.data);
    fault += MPI_FAULT_UNLESS(ct_group_barrier(&job.group.job) == CT_OK);
    ct_comm_destroy(part);
    return fault;
}

static void test_operations(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(operations)), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_operations),
    cmocka_unit_test(test_training),
};

MPI_MAIN(tests, 120)
