/* The solver's view: an exchange over comm/ from a net's parameters and a solver's options. */
#include "tests/mpi/mpi_test.h"
#include "tests/log_capture.h"

#include <stdlib.h>

#include "runtime/exchange/exchange_mpi.h"

enum { N_PARAM = 4, N_LEARNED = 3, COUNT = 40000 };

static const int64_t offset[N_PARAM] = { 0, 20000, 20032, COUNT - 1600 };
static const int64_t count[N_PARAM] = { 20000, 20, 18000, 1600 };
static const char *const key[N_PARAM] = { "ip[0]", "ip[1]", "conv[0]", "bn[0]" };

/* No layers: just what the exchange looks at. */
static void fake_net(ct_net *net, ct_param *param, float *arena)
{
    memset(net, 0, sizeof(*net));
    memset(param, 0, sizeof(*param) * N_PARAM);
    for (int i = 0; i < N_PARAM; ++i) {
        param[i].key = param[i].layer = key[i];
        param[i].offset = offset[i];
        param[i].count = count[i];
        param[i].learns = (i < N_LEARNED);
    }
    net->n_param = N_PARAM;
    net->param = param;
    net->grad_arena = arena;
}

static ct_status note_landed(void *ctx, int first, int n)
{
    for (int i = first; i < first + n; ++i) ((int *)ctx)[i] += 1;
    return CT_OK;
}

static int one_step(ct_exchange *x, float *arena, int64_t iteration)
{
    int landed[N_PARAM] = { 0 }, fault = 0;

    for (int i = 0; i < COUNT; ++i) arena[i] = 0;
    for (int p = 0; p < N_LEARNED; ++p) {
        for (int64_t i = 0; i < count[p]; ++i)
            arena[offset[p] + i] = (float)((i % 50 + 1) * (x->rank + 1));
    }
    fault += MPI_FAULT_UNLESS(x->begin(x->ctx, iteration, 1, 1) == CT_OK);
    for (int p = 0; p < N_PARAM; ++p) {
        fault += MPI_FAULT_UNLESS(x->ready(x->ctx, p) == CT_OK);
        fault += MPI_FAULT_UNLESS(x->poll(x->ctx) == CT_OK);
    }
    fault += MPI_FAULT_UNLESS(x->ready(x->ctx, N_PARAM) == CT_ERR_ARG);
    if (iteration % 2 == 1) { /* as the next forward does */
        double sum = 1;

        fault += MPI_FAULT_UNLESS(x->wait(x->ctx, 2, 1, note_landed, landed) == CT_OK);
        fault += MPI_FAULT_UNLESS(landed[2] == 1);
        fault += MPI_FAULT_UNLESS(x->sum(x->ctx, &sum, 1) == CT_OK && sum == x->n_rank);
        /* one that does not learn is there, and never reported */
        fault += MPI_FAULT_UNLESS(x->wait(x->ctx, 3, 1, note_landed, landed) == CT_OK);
        fault += MPI_FAULT_UNLESS(x->wait(x->ctx, N_PARAM, 1, NULL, NULL) == CT_ERR_ARG);
        fault += MPI_FAULT_UNLESS(x->wait(x->ctx, -1, 1, NULL, NULL) == CT_ERR_ARG);
    }
    fault += MPI_FAULT_UNLESS(x->finish(x->ctx, note_landed, landed) == CT_OK);
    for (int p = 0; p < N_PARAM; ++p)
        fault += MPI_FAULT_UNLESS(landed[p] == (p < N_LEARNED ? 1 : 0));
    return fault;
}

static int other_calls(ct_exchange *x)
{
    int64_t most = x->rank;
    double sum = x->rank + 1;
    float mean[3] = { (float)x->rank, 1, -2 };
    char text[4] = "";
    int fault = 0;

    if (x->rank == 0) strcpy(text, "abc");
    fault += MPI_FAULT_UNLESS(x->max(x->ctx, &most, 1) == CT_OK && most == x->n_rank - 1);
    fault += MPI_FAULT_UNLESS(x->sum(x->ctx, &sum, 1) == CT_OK &&
                              sum == x->n_rank * (x->n_rank + 1) / 2);
    fault += MPI_FAULT_UNLESS(x->average(x->ctx, mean, 3, 1.0 / x->n_rank) == CT_OK);
    fault += MPI_FAULT_UNLESS((mean[1] > 0.999999f) && (mean[1] < 1.000001f));
    fault += MPI_FAULT_UNLESS((mean[0] - (float)(x->n_rank - 1) / 2 < 1e-5f) &&
                              ((float)(x->n_rank - 1) / 2 - mean[0] < 1e-5f));
    fault += MPI_FAULT_UNLESS(x->broadcast(x->ctx, text, 4) == CT_OK && strcmp(text, "abc") == 0);
    fault += MPI_FAULT_UNLESS(x->barrier(x->ctx) == CT_OK);
    return fault;
}

static int dense(ct_comm *c)
{
    Ct__SolverParameter param = CT__SOLVER_PARAMETER__INIT;
    float *arena = malloc(sizeof(*arena) * COUNT);
    ct_net net;
    ct_param list[N_PARAM];
    ct_exchange x = { .ctx = NULL };
    ct_exchange_counters counters;
    int fault = 0, wrong = 0;

    fake_net(&net, list, arena);
    fault += MPI_FAULT_UNLESS(ct_exchange_mpi_open(c, &param, &net, false, &x) == CT_OK);
    if (fault > 0) return fault;
    fault += MPI_FAULT_UNLESS((x.rank == c->rank) && (x.n_rank == c->size));
    for (int s = 0; s < 2; ++s) {
        fault += one_step(&x, arena, s);
        for (int p = 0; p < N_LEARNED; ++p) {
            for (int64_t i = 0; i < count[p]; ++i)
                wrong +=
                    (arena[offset[p] + i] != (float)((i % 50 + 1) * c->size * (c->size + 1) / 2));
        }
    }
    fault += MPI_FAULT_UNLESS(wrong == 0);
    fault += MPI_FAULT_UNLESS(x.n_state(x.ctx) == 0);
    x.counters(x.ctx, &counters);
    fault += MPI_FAULT_UNLESS(counters.exposed_s >= 0);
    fault += other_calls(&x);
    ct_exchange_mpi_close(&x);
    ct_exchange_mpi_close(&x); /* twice is once */
    free(arena);
    return fault;
}

static int compressed(ct_comm *c)
{
    Ct__SolverParameter param = CT__SOLVER_PARAMETER__INIT;
    Ct__CompressionParameter topk = CT__COMPRESSION_PARAMETER__INIT;
    Ct__CommParameter comm = CT__COMM_PARAMETER__INIT;
    float *arena = malloc(sizeof(*arena) * COUNT);
    ct_net net;
    ct_param list[N_PARAM];
    ct_exchange x = { .ctx = NULL };
    ct_exchange_state state[2];
    char text[200] = "";
    int fault = 0, wrong = 0;

    topk.type = CT__COMPRESSION_PARAMETER__TYPE__TOPK;
    topk.density = 0.02f;
    topk.min_bytes = 4 * 18000;
    topk.exchange = CT__COMPRESSION_PARAMETER__EXCHANGE__KIND__ALLGATHER;
    topk.has_exchange = true;
    comm.overlap = 0;
    param.compression = &topk;
    param.comm = &comm;
    fake_net(&net, list, arena);
    fault += MPI_FAULT_UNLESS(ct_exchange_mpi_open(c, &param, &net, false, &x) == CT_OK);
    if (fault > 0) return fault;
    fault += MPI_FAULT_UNLESS(x.n_state(x.ctx) == 2);
    fault += MPI_FAULT_UNLESS(x.state(x.ctx, 0, &state[0]) == CT_OK);
    fault += MPI_FAULT_UNLESS(x.state(x.ctx, 1, &state[1]) == CT_OK);
    fault += MPI_FAULT_UNLESS((state[0].param == 0) && (state[1].param == 2));
    fault += MPI_FAULT_UNLESS((state[0].count == 20000) && (state[1].count == 18000));
    fault += MPI_FAULT_UNLESS(strcmp(state[1].name, "residual") == 0);
    fault += MPI_FAULT_UNLESS(x.state(x.ctx, 2, &state[0]) == CT_ERR_ARG);
    fault += one_step(&x, arena, 0);
    /* 1 in 50 elements is the largest, on every rank the same: exactly those went */
    for (int64_t i = 0; i < 18000; ++i) {
        int size = c->size * (c->size + 1) / 2;
        bool goes = (i % 50 == 49);

        wrong += (arena[offset[2] + i] != (goes ? (float)(50 * size) : 0.0f));
        wrong += (state[1].data[i] != (goes ? 0.0f : (float)((i % 50 + 1) * (c->rank + 1))));
    }
    fault += MPI_FAULT_UNLESS(wrong == 0);
    ct_exchange_mpi_describe(x.ctx, text, sizeof(text));
    fault += MPI_FAULT_UNLESS(strstr(text, "no gradients under way") != NULL);
    ct_exchange_mpi_close(&x);
    free(arena);
    return fault;
}

static int errors(ct_comm *c)
{
    static const float bad_mb[] = { -0.5f, -1, 1e-9f, 1e30f };
    static float arena[COUNT];
    Ct__SolverParameter param = CT__SOLVER_PARAMETER__INIT;
    Ct__CompressionParameter z = CT__COMPRESSION_PARAMETER__INIT;
    Ct__CommParameter comm = CT__COMM_PARAMETER__INIT;
    char unknown[] = "rinq";
    ct_net net;
    ct_param list[N_PARAM];
    ct_exchange x = { .ctx = NULL };
    int fault = 0;

    param.compression = &z;
    param.comm = &comm;
    fake_net(&net, list, arena);
    log_capture_start(NULL);
    for (int i = 0; i < 4; ++i) {
        comm.bucket_mb = bad_mb[i];
        fault +=
            MPI_FAULT_UNLESS(ct_exchange_mpi_open(c, &param, &net, false, &x) == CT_ERR_CONFIG);
    }
    comm.bucket_mb = 1;
    comm.allreduce = unknown;
    fault += MPI_FAULT_UNLESS(ct_exchange_mpi_open(c, &param, &net, false, &x) == CT_ERR_CONFIG);
    comm = (Ct__CommParameter)CT__COMM_PARAMETER__INIT;
    comm.progress = (Ct__CommParameter__Progress)99;
    fault += MPI_FAULT_UNLESS(ct_exchange_mpi_open(c, &param, &net, false, &x) == CT_ERR_CONFIG);
    comm.progress = CT__COMM_PARAMETER__PROGRESS__AUTO;
    for (int n = -1; n <= 10001; n += 10002) {
        comm.tune_iterations = n;
        fault +=
            MPI_FAULT_UNLESS(ct_exchange_mpi_open(c, &param, &net, false, &x) == CT_ERR_CONFIG);
    }
    comm.tune_iterations = 8;
    z.type = (Ct__CompressionParameter__Type)99;
    fault += MPI_FAULT_UNLESS(ct_exchange_mpi_open(c, &param, &net, false, &x) == CT_ERR_CONFIG);
    z.type = CT__COMPRESSION_PARAMETER__TYPE__TOPK;
    z.density = 2;
    fault += MPI_FAULT_UNLESS(ct_exchange_mpi_open(c, &param, &net, false, &x) == CT_ERR_CONFIG);
    z.density = 0.1f;
    list[0].learns = false;
    fault += MPI_FAULT_UNLESS(ct_exchange_mpi_open(c, &param, &net, false, &x) == CT_ERR_ARG);
    fault += MPI_FAULT_UNLESS(x.ctx == NULL);
    log_capture_stop();
    return fault;
}

static void test_dense(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(dense)), 0);
}

static void test_compressed(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(compressed)), 0);
}

static void test_errors(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(errors)), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_dense),
    cmocka_unit_test(test_compressed),
    cmocka_unit_test(test_errors),
};

MPI_MAIN(tests, 60)
