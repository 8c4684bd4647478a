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

static int one_step(ct_exchange *e, float *arena, int64_t iteration)
{
    const ct_transport *t = &e->sync.transport;
    int landed[N_PARAM] = { 0 }, fault = 0;

    for (int i = 0; i < COUNT; ++i) arena[i] = 0;
    for (int p = 0; p < N_LEARNED; ++p) {
        for (int64_t i = 0; i < count[p]; ++i)
            arena[offset[p] + i] = (float)((i % 50 + 1) * (e->data.rank + 1));
    }
    fault += MPI_FAULT_UNLESS(e->sync.ops->begin(&e->sync, iteration, 1, 1) == CT_OK);
    for (int p = 0; p < N_LEARNED; ++p) {
        fault += MPI_FAULT_UNLESS(t->ops->ready(t->ctx, p) == CT_OK);
        fault += MPI_FAULT_UNLESS(t->ops->poll(t->ctx) == CT_OK);
    }
    fault += MPI_FAULT_UNLESS(t->ops->ready(t->ctx, N_LEARNED) == CT_ERR_ARG);
    if (iteration % 2 == 1) { /* as the next forward does */
        double sum = 1;

        fault += MPI_FAULT_UNLESS(t->ops->wait(t->ctx, 2, 1, note_landed, landed) == CT_OK);
        fault += MPI_FAULT_UNLESS(landed[2] == 1);
        fault += MPI_FAULT_UNLESS(ct_group_sum(&e->data, &sum, 1) == CT_OK && sum == e->data.size);
        fault += MPI_FAULT_UNLESS(t->ops->wait(t->ctx, N_LEARNED, 1, NULL, NULL) == CT_ERR_ARG);
        fault += MPI_FAULT_UNLESS(t->ops->wait(t->ctx, -1, 1, NULL, NULL) == CT_ERR_ARG);
    }
    fault += MPI_FAULT_UNLESS(t->ops->finish(t->ctx, note_landed, landed) == CT_OK);
    for (int p = 0; p < N_PARAM; ++p)
        fault += MPI_FAULT_UNLESS(landed[p] == (p < N_LEARNED ? 1 : 0));
    return fault;
}

static int other_calls(const ct_group *g)
{
    int64_t most = g->rank, pair[2] = { g->rank, -g->rank }, *all = calloc(2 * 64, sizeof(*all));
    double sum = g->rank + 1;
    float mean[3] = { (float)g->rank, 1, -2 };
    char text[4] = "";
    int fault = 0;

    if (g->rank == 0) strcpy(text, "abc");
    fault += MPI_FAULT_UNLESS(ct_group_max(g, &most, 1) == CT_OK && most == g->size - 1);
    fault +=
        MPI_FAULT_UNLESS(ct_group_sum(g, &sum, 1) == CT_OK && sum == g->size * (g->size + 1) / 2);
    fault += MPI_FAULT_UNLESS(ct_group_average(g, mean, 3, 1.0 / g->size) == CT_OK);
    fault += MPI_FAULT_UNLESS((mean[1] > 0.999999f) && (mean[1] < 1.000001f));
    fault += MPI_FAULT_UNLESS((mean[0] - (float)(g->size - 1) / 2 < 1e-5f) &&
                              ((float)(g->size - 1) / 2 - mean[0] < 1e-5f));
    fault += MPI_FAULT_UNLESS(ct_group_gather(g, pair, 2, all) == CT_OK);
    for (int r = 0; r < g->size; ++r)
        fault += MPI_FAULT_UNLESS((all[2 * r] == r) && (all[2 * r + 1] == -r));
    fault += MPI_FAULT_UNLESS(ct_group_broadcast(g, text, 4) == CT_OK && strcmp(text, "abc") == 0);
    fault += MPI_FAULT_UNLESS(ct_group_barrier(g) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_group_agree(g, CT_OK) == CT_OK);
    free(all);
    return fault;
}

/* Two sums under way at a time. */
static int sums_beside(const ct_group *g)
{
    static float a[5000], b[3];
    void *first = NULL, *second = NULL;
    int fault = 0, wrong = 0, total = g->size * (g->size + 1) / 2;

    if (g->size == 1) return 0; /* such a group has no operations of its own to begin */
    for (int i = 0; i < 5000; ++i) a[i] = (float)((g->rank + 1) * (i % 100));
    for (int i = 0; i < 3; ++i) b[i] = (float)(g->rank + 1);
    fault += MPI_FAULT_UNLESS(g->ops->sum_begin(g->ctx, a, 5000, &first) == CT_OK);
    fault += MPI_FAULT_UNLESS(g->ops->sum_begin(g->ctx, b, 3, &second) == CT_OK);
    fault += MPI_FAULT_UNLESS(g->ops->sum_wait(g->ctx, first) == CT_OK);
    fault += MPI_FAULT_UNLESS(g->ops->sum_wait(g->ctx, second) == CT_OK);
    for (int i = 0; i < 5000; ++i) wrong += (a[i] != (float)(total * (i % 100)));
    for (int i = 0; i < 3; ++i) wrong += (b[i] != (float)total);
    return fault + MPI_FAULT_UNLESS(wrong == 0);
}

static int dense(ct_comm *c)
{
    Ct__SolverParameter param = CT__SOLVER_PARAMETER__INIT;
    float *arena = malloc(sizeof(*arena) * COUNT);
    ct_net net;
    ct_param list[N_PARAM];
    ct_exchange x = { .data = { .size = 0 } };
    ct_exchange_mpi *mpi = NULL;
    ct_sync_stats stats;
    ct_sync_state kept;
    int fault = 0, wrong = 0;

    fake_net(&net, list, arena);
    fault +=
        MPI_FAULT_UNLESS(ct_exchange_mpi_create(c, &param, &net, NULL, false, &mpi, &x) == CT_OK);
    if (fault > 0) return fault;
    fault += MPI_FAULT_UNLESS((x.data.rank == c->rank) && (x.data.size == c->size));
    for (int s = 0; s < 2; ++s) {
        fault += one_step(&x, arena, s);
        for (int p = 0; p < N_LEARNED; ++p) {
            for (int64_t i = 0; i < count[p]; ++i)
                wrong +=
                    (arena[offset[p] + i] != (float)((i % 50 + 1) * c->size * (c->size + 1) / 2));
        }
    }
    fault += MPI_FAULT_UNLESS(wrong == 0);
    fault += MPI_FAULT_UNLESS(!ct_sync_states_get(&x.states, 0, 0, &kept));
    x.sync.ops->stats(x.sync.ctx, true, &stats);
    fault += MPI_FAULT_UNLESS((stats.exposed_s >= 0) && (stats.codec.n_coded == 0));
    fault += other_calls(&x.data);
    fault += sums_beside(&x.data);
    ct_exchange_mpi_destroy(mpi);
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
    ct_exchange x = { .data = { .size = 0 } };
    ct_exchange_mpi *mpi = NULL;
    ct_sync_state state[2];
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
    fault +=
        MPI_FAULT_UNLESS(ct_exchange_mpi_create(c, &param, &net, NULL, false, &mpi, &x) == CT_OK);
    if (fault > 0) return fault;
    fault += MPI_FAULT_UNLESS(ct_sync_states_get(&x.states, 0, 0, &state[0]));
    fault += MPI_FAULT_UNLESS(!ct_sync_states_get(&x.states, 1, 0, &state[1]));
    fault += MPI_FAULT_UNLESS(ct_sync_states_get(&x.states, 2, 0, &state[1]));
    fault += MPI_FAULT_UNLESS((state[0].param == 0) && (state[1].param == 2));
    fault += MPI_FAULT_UNLESS((state[0].count == 20000) && (state[1].count == 18000));
    fault += MPI_FAULT_UNLESS(strcmp(state[1].name, "residual") == 0);
    fault += MPI_FAULT_UNLESS(!ct_sync_states_get(&x.states, 2, 1, &state[0]));
    fault += MPI_FAULT_UNLESS(!ct_sync_states_get(&x.states, 3, 0, &state[0]));
    ct_sync_states_get(&x.states, 0, 0, &state[0]);
    fault += one_step(&x, arena, 0);
    /* 1 in 50 elements is the largest, on every rank the same: exactly those went */
    for (int64_t i = 0; i < 18000; ++i) {
        int size = c->size * (c->size + 1) / 2;
        bool goes = (i % 50 == 49);

        wrong += (arena[offset[2] + i] != (goes ? (float)(50 * size) : 0.0f));
        wrong += (state[1].data[i] != (goes ? 0.0f : (float)((i % 50 + 1) * (c->rank + 1))));
    }
    fault += MPI_FAULT_UNLESS(wrong == 0);
    ct_exchange_mpi_describe(mpi, text, sizeof(text));
    fault += MPI_FAULT_UNLESS(strstr(text, "no gradients under way") != NULL);
    ct_exchange_mpi_destroy(mpi);
    free(arena);
    return fault;
}

/* One bit of what TOPK leaves behind changes between two steps, here on all ranks: each says so,
 * and the step ends. Steps without such a thing, and one after numbers from outside, go on. */
static int verified(ct_comm *c)
{
    Ct__SolverParameter param = CT__SOLVER_PARAMETER__INIT;
    Ct__CompressionParameter topk = CT__COMPRESSION_PARAMETER__INIT;
    Ct__CommParameter comm = CT__COMM_PARAMETER__INIT;
    float *arena = malloc(sizeof(*arena) * COUNT);
    ct_net net;
    ct_param list[N_PARAM];
    ct_exchange x = { .data = { .size = 0 } };
    ct_exchange_mpi *mpi = NULL;
    ct_sync_state v;
    const ct_transport *t;
    ct_status status = CT_OK;
    int fault = 0, landed[N_PARAM] = { 0 };

    topk.type = CT__COMPRESSION_PARAMETER__TYPE__TOPK;
    topk.density = 0.02f;
    topk.min_bytes = 4 * 18000;
    topk.exchange = CT__COMPRESSION_PARAMETER__EXCHANGE__KIND__ALLGATHER;
    topk.has_exchange = true;
    comm.overlap = 0;
    param.compression = &topk;
    param.comm = &comm;
    param.verify_memory = 1;
    fake_net(&net, list, arena);
    fault +=
        MPI_FAULT_UNLESS(ct_exchange_mpi_create(c, &param, &net, NULL, false, &mpi, &x) == CT_OK);
    if (fault > 0) return fault;
    fault += one_step(&x, arena, 0);
    fault += one_step(&x, arena, 1);
    fault += MPI_FAULT_UNLESS(ct_sync_states_get(&x.states, 0, 0, &v));
    v.data[17] += 1.0f;
    fault += MPI_FAULT_UNLESS(x.states.restored(x.states.ctx) == CT_OK);
    fault += one_step(&x, arena, 2);
    ((uint32_t *)(void *)v.data)[17] ^= 1u;
    t = &x.sync.transport;
    fault += MPI_FAULT_UNLESS(x.sync.ops->begin(&x.sync, 3, 1, 1) == CT_OK);
    for (int p = 0; (p < N_LEARNED) && (status == CT_OK); ++p) status = t->ops->ready(t->ctx, p);
    if (status == CT_OK) status = t->ops->finish(t->ctx, note_landed, landed);
    fault += MPI_FAULT_UNLESS(status == CT_ERR_DIVERGED);
    fault += MPI_FAULT_UNLESS(landed[0] == 0);
    ct_exchange_mpi_destroy(mpi); /* the first bucket has not left, nor has any other */
    free(arena);
    return fault;
}

/* A device's library that sums at once. */
static int n_added;

static bool is_there(void)
{
    return true;
}

static ct_status make_id(void *id)
{
    memset(id, 1, CT_DEVICE_SUM_ID); /* by rank 0 alone */
    return CT_OK;
}

static ct_status open_library(const ct_device *dev, void *comm, const void *id, int rank,
                              int n_rank, void **group_p)
{
    const char *mark = id;
    const ct_comm *c = comm;
    int mine = -1;

    (void)dev;
    MPI_Comm_rank(MPI_COMM_WORLD, &mine);
    *group_p = &n_added;
    /* rank 0's */
    return ((mark[CT_DEVICE_SUM_ID - 1] == 1) && (rank == mine) && (n_rank == c->size))
               ? CT_OK
               : CT_ERR_ARG;
}

static void close_library(void *group)
{
    (void)group;
}

static ct_status add_now(void *group, ct_stream st, float *data, int64_t n, void **ticket_p)
{
    (void)st;
    *ticket_p = group;
    n_added += 1;
    MPI_Allreduce(MPI_IN_PLACE, data, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return CT_OK;
}

static ct_status has_added(void *group, ct_stream st, void *ticket)
{
    (void)st;
    return (ticket == group) ? CT_OK : CT_ERR_ARG;
}

static ct_status add_there(void *group, ct_stream st, double *data, int64_t n)
{
    if ((group != &n_added) || (st != &n_added)) return CT_ERR_ARG;
    MPI_Allreduce(MPI_IN_PLACE, data, (int)n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return CT_OK;
}

static const ct_device_sum_ops adding = { .name = "adding",
                                          .there = is_there,
                                          .make_id = make_id,
                                          .open = open_library,
                                          .close = close_library,
                                          .begin = add_now,
                                          .follow = has_added,
                                          .sum = add_there };

static int one_device_step(ct_exchange *x, float *arena, int64_t iteration, bool there)
{
    ct_transport *t = &x->sync.transport;
    int landed[N_PARAM] = { 0 }, before = n_added, fault = 0;

    for (int i = 0; i < COUNT; ++i) arena[i] = (i % 50 == 49) ? 50.0f : 0.0f;
    fault += MPI_FAULT_UNLESS(x->sync.ops->begin(&x->sync, iteration, 1, 1) == CT_OK);
    for (int p = 0; p < N_LEARNED; ++p)
        fault += MPI_FAULT_UNLESS(t->ops->ready(t->ctx, p) == CT_OK);
    fault += MPI_FAULT_UNLESS(t->ops->finish(t->ctx, note_landed, landed) == CT_OK);
    for (int p = 0; p < N_LEARNED; ++p) fault += MPI_FAULT_UNLESS(landed[p] == 1);
    /* they travel by any codec */
    fault += MPI_FAULT_UNLESS(arena[49] == (float)(50 * x->data.size));
    return fault + MPI_FAULT_UNLESS((n_added > before) == there);
}

/* Which transport has a step: a pipe that compresses keeps it, one that does not leaves it to the
 * device. */
static int on_device(ct_comm *c)
{
    Ct__SolverParameter param = CT__SOLVER_PARAMETER__INIT;
    Ct__CompressionParameter topk = CT__COMPRESSION_PARAMETER__INIT;
    Ct__CommParameter comm = CT__COMM_PARAMETER__INIT;
    float *arena = malloc(sizeof(*arena) * COUNT);
    int fault = 0;

    topk.type = CT__COMPRESSION_PARAMETER__TYPE__TOPK;
    topk.density = 0.02f;
    topk.min_bytes = 4 * 18000;
    topk.exchange = CT__COMPRESSION_PARAMETER__EXCHANGE__KIND__ALLGATHER;
    topk.has_exchange = true;
    comm.overlap = 0;
    param.comm = &comm;
    for (int how = 0; how < 3; ++how) { /* nothing compressed, compressed, all on the device */
        ct_exchange_mpi *mpi = NULL;
        ct_exchange x;
        ct_net net;
        ct_param list[N_PARAM];
        ct_sync_stats stats;
        char text[200] = "";
        double number = 1;

        fake_net(&net, list, arena);
        net.options.dev = ct_device_cpu();
        param.compression = (how == 1) ? &topk : NULL;
        fault += MPI_FAULT_UNLESS(
            ct_exchange_mpi_create(c, &param, &net, NULL, how < 2, &mpi, &x) == CT_OK);
        if (fault > 0) break;
        fault += MPI_FAULT_UNLESS(ct_exchange_mpi_on_device(mpi, &net, &adding, 0, how == 2, &x) ==
                                  CT_OK);
        fault += MPI_FAULT_UNLESS(x.data.sums_there && !x.sync.transport.records);
        fault += MPI_FAULT_UNLESS(
            x.data.ops->sum_there(x.data.ctx, &n_added, &number, 1) == CT_OK && number == c->size);
        for (int64_t s = 0; s < 2; ++s) fault += one_device_step(&x, arena, s, how != 1);
        x.sync.ops->stats(x.sync.ctx, false, &stats);
        if (how != 1) fault += MPI_FAULT_UNLESS(stats.bytes_sent == 2 * 4 * (20032 + 18000));
        ct_exchange_mpi_describe(mpi, text, sizeof(text));
        fault += MPI_FAULT_UNLESS((strstr(text, "by adding: one of") != NULL) == (how != 1));
        ct_exchange_mpi_destroy(mpi);
    }
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
    ct_exchange_mpi *mpi = NULL;
    ct_exchange x = { .data = { .size = 0 } };
    int fault = 0;

    param.compression = &z;
    param.comm = &comm;
    fake_net(&net, list, arena);
    log_capture_start(NULL);
    for (int i = 0; i < 4; ++i) {
        comm.bucket_mb = bad_mb[i];
        fault += MPI_FAULT_UNLESS(ct_exchange_mpi_create(c, &param, &net, NULL, false, &mpi, &x) ==
                                  CT_ERR_CONFIG);
    }
    comm.bucket_mb = 1;
    comm.allreduce = unknown;
    fault += MPI_FAULT_UNLESS(ct_exchange_mpi_create(c, &param, &net, NULL, false, &mpi, &x) ==
                              CT_ERR_CONFIG);
    comm = (Ct__CommParameter)CT__COMM_PARAMETER__INIT;
    comm.progress = (Ct__CommParameter__Progress)99;
    fault += MPI_FAULT_UNLESS(ct_exchange_mpi_create(c, &param, &net, NULL, false, &mpi, &x) ==
                              CT_ERR_CONFIG);
    comm.progress = CT__COMM_PARAMETER__PROGRESS__AUTO;
    for (int n = -1; n <= 10001; n += 10002) {
        comm.tune_iterations = n;
        fault += MPI_FAULT_UNLESS(ct_exchange_mpi_create(c, &param, &net, NULL, false, &mpi, &x) ==
                                  CT_ERR_CONFIG);
    }
    comm.tune_iterations = 8;
    z.type = (Ct__CompressionParameter__Type)99;
    fault += MPI_FAULT_UNLESS(ct_exchange_mpi_create(c, &param, &net, NULL, false, &mpi, &x) ==
                              CT_ERR_CONFIG);
    z.type = CT__COMPRESSION_PARAMETER__TYPE__TOPK;
    z.density = 2;
    fault += MPI_FAULT_UNLESS(ct_exchange_mpi_create(c, &param, &net, NULL, false, &mpi, &x) ==
                              CT_ERR_CONFIG);
    z.density = 0.1f;
    list[0].learns = false;
    fault += MPI_FAULT_UNLESS(ct_exchange_mpi_create(c, &param, &net, NULL, false, &mpi, &x) ==
                              CT_ERR_ARG);
    fault += MPI_FAULT_UNLESS(mpi == NULL);
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

static void test_verified(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(verified)), 0);
}

static void test_errors(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(errors)), 0);
}

static void test_on_device(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(on_device)), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_dense),     cmocka_unit_test(test_compressed),
    cmocka_unit_test(test_errors),    cmocka_unit_test(test_verified),
    cmocka_unit_test(test_on_device),
};

MPI_MAIN(tests, 60)
