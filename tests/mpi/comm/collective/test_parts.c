/* Reduce-scatter, allgather and broadcast against MPI's own. */
#include "comm/collective/blocking.h"
#include "tests/mpi/mpi_test.h"
#include "tests/log_capture.h"

#include <stdlib.h>

#include "comm/collective/coll.h"
#include "framework/base/rng.h"

static const int64_t counts[] = { 0, 1, 5, 31, 1000, 4097, 700001 };
enum { N_COUNT = sizeof(counts) / sizeof(counts[0]) };

static int value(int rank, int64_t i)
{
    return (int)(ct_rng_philox(9, (uint64_t)rank, (uint64_t)i).v[0] % 200) - 100;
}

/* The parts of all ranks cover the buffer once. */
static int parts_cover(const ct_comm *c, int64_t n)
{
    int64_t sum = 0;
    int fault = 0;

    for (int r = 0; r < c->size; ++r) {
        int64_t first = -1, m = -1, other = 0, k = 0;

        fault += (ct_coll_part(c, n, r, &first, &m) != CT_OK) + (m < 0) + (first < 0);
        sum += m;
        for (int q = 0; q < r; ++q) {
            fault += (ct_coll_part(c, n, q, &other, &k) != CT_OK);
            fault += (k > 0) && (m > 0) && (first < other + k) && (other < first + m);
        }
    }
    return fault + (sum != n);
}

static int scatters(ct_comm *c)
{
    int fault = 0;

    for (int k = 0; k < N_COUNT; ++k) {
        int64_t n = counts[k], first = 0, m = 0;
        float *v = malloc(sizeof(*v) * (size_t)(n + 1)),
              *sum = malloc(sizeof(*sum) * (size_t)(n + 1));

        fault += parts_cover(c, n) + (ct_coll_part(c, n, c->rank, &first, &m) != CT_OK);
        for (int64_t i = 0; i < n; ++i) v[i] = sum[i] = (float)value(c->rank, i);
        v[n] = 77;
        MPI_Allreduce(MPI_IN_PLACE, sum, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        fault += (ct_coll_run(&ct_coll_reduce_scatter, c, v, n, CT_F32) != CT_OK);
        for (int64_t i = first; i < first + m; ++i) fault += (v[i] != sum[i]);
        fault += (v[n] != 77);
        /* and from there to everyone, which makes an allreduce */
        fault += (ct_coll_run(&ct_coll_allgather, c, v, n, CT_F32) != CT_OK);
        for (int64_t i = 0; i < n; ++i) fault += (v[i] != sum[i]);
        fault += (v[n] != 77);
        free(v);
        free(sum);
    }
    return fault;
}

/* Bytes: each rank's part filled with what names it, everything else with rubbish. */
static int gathers(ct_comm *c)
{
    int fault = 0;

    for (int k = 0; k < N_COUNT; ++k) {
        int64_t n = counts[k], first = 0, m = 0;
        char *v = malloc((size_t)n + 1);

        memset(v, 0x55, (size_t)n + 1);
        fault += (ct_coll_part(c, n, c->rank, &first, &m) != CT_OK);
        memset(v + first, c->rank + 1, (size_t)m);
        fault += (ct_coll_run(&ct_coll_allgather, c, v, n, CT_U8) != CT_OK);
        for (int r = 0; r < c->size; ++r) {
            fault += (ct_coll_part(c, n, r, &first, &m) != CT_OK);
            for (int64_t i = first; i < first + m; ++i) fault += (v[i] != r + 1);
        }
        fault += (v[n] != 0x55);
        free(v);
    }
    return fault;
}

static int broadcasts(ct_comm *c)
{
    static const int64_t n[] = { 0, 1, 100, 65537, 6000001 };
    int fault = 0;

    for (int k = 0; k < 5; ++k) {
        for (int root = 0; root < c->size; root += (k < 4) ? 1 : c->size - 1 + (c->size == 1)) {
            ct_coll_req r = { .comm = c, .count = n[k], .dtype = CT_U8, .root = root };
            unsigned char *v = malloc((size_t)n[k] + 1), *want = malloc((size_t)n[k] + 1);
            ct_status status = CT_INPROGRESS;
            int idle = 0;

            for (int64_t i = 0; i < n[k]; ++i)
                want[i] = v[i] = (unsigned char)(7 * i + i / 251 + c->rank);
            v[n[k]] = 77;
            MPI_Bcast(want, (int)n[k], MPI_BYTE, root, MPI_COMM_WORLD);
            r.buf = v;
            fault += (ct_coll_broadcast.prepare(&r) != CT_OK);
            fault += (ct_coll_broadcast.start(&r) != CT_OK);
            while (status == CT_INPROGRESS) {
                status = ct_coll_broadcast.progress(&r);
                idle += 1;
                ct_comm_relax(c, &idle);
            }
            ct_coll_broadcast.release(&r);
            fault += (status != CT_OK) + (memcmp(v, want, (size_t)n[k]) != 0) + (v[n[k]] != 77);
            free(v);
            free(want);
        }
    }
    return fault;
}

/* What the weights travel by: small through MPI, large through ours. */
static int whole_broadcasts(ct_comm *c)
{
    static const size_t n[] = { 0, 3, (1 << 20) - 1, (1 << 20) + 13 };
    int fault = 0;

    for (int k = 0; k < 4; ++k) {
        unsigned char *v = malloc(n[k] + 1);
        size_t wrong = 0;

        for (size_t i = 0; i < n[k]; ++i)
            v[i] = (unsigned char)(i * 31 + i / 1000 + (size_t)c->rank);
        fault += (ct_comm_broadcast(c, v, n[k]) != CT_OK);
        for (size_t i = 0; i < n[k]; ++i) wrong += (v[i] != (unsigned char)(i * 31 + i / 1000));
        fault += (wrong != 0);
        free(v);
    }
    return fault;
}

static int errors(ct_comm *c)
{
    ct_coll_req r = { .comm = c, .root = c->size, .dtype = CT_F32 };
    int64_t first = 0, n = 0;
    int fault = 0;

    log_capture_start(NULL);
    fault += MPI_FAULT_UNLESS(ct_coll_broadcast.prepare(&r) == CT_ERR_ARG);
    r.root = -1;
    fault += MPI_FAULT_UNLESS(ct_coll_broadcast.prepare(&r) == CT_ERR_ARG);
    fault += MPI_FAULT_UNLESS(ct_coll_part(c, 10, c->size, &first, &n) == CT_ERR_ARG);
    fault += MPI_FAULT_UNLESS(!ct_coll_reduce_scatter.supports(c, 1, CT_I32));
    fault += MPI_FAULT_UNLESS(ct_coll_allgather.supports(c, 1, CT_I32));
    log_capture_stop();
    return fault;
}

static void test_scatter(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(scatters)), 0);
}

static void test_gather(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(gathers)), 0);
}

static void test_broadcast(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(broadcasts)), 0);
    assert_int_equal(mpi_verdict(mpi_on_machines(whole_broadcasts)), 0);
}

static void test_errors(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(errors)), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_scatter),
    cmocka_unit_test(test_gather),
    cmocka_unit_test(test_broadcast),
    cmocka_unit_test(test_errors),
};

MPI_MAIN(tests, 60)
