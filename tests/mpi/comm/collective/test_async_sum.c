/* Sums under way while a rank does something else: the bits of the sum that waits at once. */
#include "tests/mpi/mpi_test.h"

#include <stdlib.h>
#include <string.h>

#include "comm/collective/async_sum.h"
#include "comm/collective/blocking.h"
#include "framework/base/rng.h"

enum { N_SUM = 5, MOST = 9000 };
/* nothing; one; a layer's statistics; at two ranks up to this they are gathered; by the tree */
static const int counts[N_SUM] = { 0, 1, 129, 4096, MOST };

/* Numbers of very different size, so that another order has other bits. */
static void fill(double *v, int n, int rank, int which)
{
    uint64_t key = ct_rng_key(7, (uint64_t)rank, (uint64_t)which);

    for (int i = 0; i < n; ++i) {
        ct_rng_block b = ct_rng_philox(key, 0, (uint64_t)i);

        v[i] = ((double)b.v[0] - 2e9) * ((b.v[1] % 2 == 0) ? 1.0 : 1e-9);
    }
}

/* All begin, move a little, and end in the order in which they began. */
static int beside(ct_comm *c, bool polls)
{
    static double v[N_SUM][MOST], expected[N_SUM][MOST];
    static float f[1000];
    ct_async_sum *sum[N_SUM], *floats = NULL;
    int fault = 0, wrong = 0;

    for (int k = 0; k < N_SUM; ++k) {
        fill(v[k], counts[k], c->rank, k);
        memcpy(expected[k], v[k], sizeof(v[k]));
        fault += MPI_FAULT_UNLESS(ct_comm_sum(c, expected[k], counts[k]) == CT_OK);
    }
    for (int i = 0; i < 1000; ++i) f[i] = (float)(c->rank + i);
    for (int k = 0; k < N_SUM; ++k)
        fault += MPI_FAULT_UNLESS(ct_async_sum_begin(c, v[k], counts[k], &sum[k]) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_async_sum_begin_f32(c, f, 1000, false, &floats) == CT_OK);
    for (int i = 0; polls && (i < 100 * (c->rank + 1)); ++i)
        fault += MPI_FAULT_UNLESS(ct_async_sum_poll(c) == CT_OK);
    for (int k = 0; k < N_SUM; ++k) {
        fault += MPI_FAULT_UNLESS(ct_async_sum_end(sum[k]) == CT_OK);
        wrong += (memcmp(v[k], expected[k], (size_t)counts[k] * sizeof(double)) != 0);
    }
    fault += MPI_FAULT_UNLESS(ct_async_sum_end(floats) == CT_OK);
    for (int i = 0; i < 1000; ++i)
        wrong += (f[i] != (float)(c->size * i + c->size * (c->size - 1) / 2));
    fault += MPI_FAULT_UNLESS(c->async_sums == NULL);
    return fault + MPI_FAULT_UNLESS(wrong == 0);
}

/* Two that end the other way round. */
static int crossing(ct_comm *c)
{
    static double a[MOST], b[MOST], sum_a[MOST], sum_b[MOST];
    ct_async_sum *first = NULL, *second = NULL;
    int fault = 0;

    fill(a, MOST, c->rank, 1);
    fill(b, MOST, c->rank, 2);
    memcpy(sum_a, a, sizeof(a));
    memcpy(sum_b, b, sizeof(b));
    fault += MPI_FAULT_UNLESS(ct_async_sum_begin(c, a, MOST, &first) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_async_sum_begin(c, b, MOST, &second) == CT_OK);
    /* a blocking one between has messages of its own */
    fault += MPI_FAULT_UNLESS(ct_comm_sum(c, sum_a, MOST) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_async_sum_end(second) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_async_sum_end(first) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_comm_sum(c, sum_b, MOST) == CT_OK);
    return fault + MPI_FAULT_UNLESS((memcmp(a, sum_a, sizeof(a)) == 0) &&
                                    (memcmp(b, sum_b, sizeof(b)) == 0));
}

static int all(void)
{
    ct_comm *c = NULL;
    int fault = (ct_comm_create(MPI_COMM_WORLD, "auto", &c) != CT_OK);

    if (fault == 0) fault = beside(c, false) + beside(c, true) + crossing(c);
    ct_comm_destroy(c);
    return fault;
}

static void test_bits(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(all()), 0);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(test_bits) };

MPI_MAIN(tests, 60)
