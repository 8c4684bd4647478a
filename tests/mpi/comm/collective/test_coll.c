/* Every collective on every count, dtype and pretended machine, alone and with others in flight. */
#include "tests/mpi/mpi_test.h"
#include "tests/mpi/terms.h"

#include <stdlib.h>

#include "comm/collective/coll.h"
#include "comm/core/node.h"
#include "framework/base/rng.h"

enum { BIG = 1000003 };
static const int64_t counts[] = { 0, 1, 2, 3, 7, 1000, 4097, 200003, BIG };

enum { GUARD = 16, BLOCK = (BIG + 2 * GUARD) * (int)sizeof(float) };

/* Two blocks for all sums on a machine. One for each sum would take a dozen barriers more, each of
 * which takes time slices where MPI waits without giving its core away. */
typedef struct ground {
    ct_comm *c;
    char *shared, *plain;
} ground;

static int open_ground(ct_comm *c, ground *g)
{
    const ct_arena_ops *arena = ct_comm_arena(c), *plain = ct_arena_plain();
    void *p = NULL, *q = NULL;
    int fault = (arena->acquire(arena->ctx, BLOCK, "a test", &p) != CT_OK);

    fault += (plain->acquire(plain->ctx, BLOCK, "a test", &q) != CT_OK);
    *g = (ground){ .c = c, .shared = p, .plain = q };
    return mpi_verdict(fault);
}

static void close_ground(ground *g)
{
    ct_comm_arena(g->c)->release(ct_comm_arena(g->c)->ctx, g->shared);
    ct_arena_plain()->release(ct_arena_plain()->ctx, g->plain);
}

/* One allreduce by `ops` at the start of a block of `g`, with guards around it. */
static int one_sum(const ground *g, const ct_coll_ops *ops, char *block, int64_t n, ct_dtype dtype)
{
    uint64_t salt = (uint64_t)n * 31 + dtype;
    size_t size = ct_dtype_size(dtype);
    int *sum = true_sums(n, dtype, g->c->size, salt), fault = 0;

    memset(block, 0x55, (size_t)(n + 2 * GUARD) * size);
    fill(block + GUARD * size, n, dtype, g->c->rank, salt);
    fault += MPI_FAULT_UNLESS(ct_coll_run(ops, g->c, block + GUARD * size, n, dtype) == CT_OK);
    fault += count_wrong(block + GUARD * size, n, dtype, sum);
    for (size_t i = 0; i < GUARD * size; ++i) {
        fault += (block[i] != 0x55);
        fault += (block[(size_t)(n + GUARD) * size + i] != 0x55);
    }
    if (fault > 0)
        fprintf(stderr, "rank %d: %s of %lld (dtype %d, %s block) wrong\n", g->c->rank, ops->name,
                (long long)n, (int)dtype, (block == g->shared) ? "shared" : "plain");
    free(sum);
    return fault;
}

static int sums_by(const ground *g, const ct_coll_ops *ops)
{
    static const ct_dtype dtype[] = { CT_BF16, CT_I64, CT_U8, CT_F16 };
    int fault = 0;

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); ++i) {
        if ((g->c->size > 4) && (counts[i] > 5000)) continue; /* time */
        fault += one_sum(g, ops, g->plain, counts[i], CT_F32);
        if (counts[i] < BIG) fault += one_sum(g, ops, g->plain, counts[i], CT_BF16);
        if (counts[i] < BIG) fault += one_sum(g, ops, g->shared, counts[i], CT_F32);
    }
    for (int d = 0; d < 4; ++d) {
        fault += one_sum(g, ops, g->shared, 4097, dtype[d]);
        fault += one_sum(g, ops, g->shared, 200003, dtype[d]);
        if (d > 0) fault += one_sum(g, ops, g->plain, 7, dtype[d]);
        if (d > 0) fault += one_sum(g, ops, g->plain, 200003, dtype[d]);
    }
    return fault;
}

static int all_sums(ct_comm *c)
{
    ground g;
    int fault = open_ground(c, &g);

    if (fault > 0) return fault;
    for (const ct_coll_ops *const *ops = ct_coll_table; *ops != NULL; ++ops)
        fault += sums_by(&g, *ops);
    close_ground(&g);
    return fault;
}

static int all_sums_without_windows(ct_comm *c)
{
    ground g;
    int fault = 0;

    ct_node_set_limit(c->node_memory, 0);
    fault = open_ground(c, &g);
    if (fault > 0) return fault;
    for (const ct_coll_ops *const *ops = ct_coll_table; *ops != NULL; ++ops) {
        fault += one_sum(&g, *ops, g.shared, 0, CT_F32);
        fault += one_sum(&g, *ops, g.shared, 1, CT_F32);
        fault += one_sum(&g, *ops, g.shared, 4097, CT_F32);
        fault += one_sum(&g, *ops, g.shared, 200003, CT_BF16);
        fault += one_sum(&g, *ops, g.shared, 200003, CT_F32);
    }
    close_ground(&g);
    return fault;
}

enum { N_FLIGHT = 8, ROUNDS = 3 };

/* Progresses the requests in an order of this rank's own until all are done. */
static int drive(ct_coll_req *r, const ct_coll_ops *const *ops, uint64_t key)
{
    bool done[N_FLIGHT] = { false };
    int left = N_FLIGHT, fault = 0, idle = 0;

    for (uint64_t t = 0; left > 0; ++t) {
        int i = (int)(ct_rng_philox(key, 0, t).v[0] % N_FLIGHT);
        ct_status status = CT_OK;

        if (done[i]) continue;
        status = ops[i]->progress(&r[i]);
        idle += 1;
        if (status == CT_INPROGRESS) {
            ct_comm_relax(r->comm, &idle);
            continue;
        }
        fault += (status != CT_OK);
        done[i] = true;
        left -= 1;
        idle = 0;
    }
    return fault;
}

/* Requests of all algorithms at once, three times over with the same state, some in shared and
 * some in plain memory, started and progressed in another order on every rank (impi in one). */
static int many_sums(ct_comm *c)
{
    static const int64_t n[N_FLIGHT] = { 70001, 5, 4097, 300007, 1000, 0, 65536, 12345 };
    ct_coll_req r[N_FLIGHT] = { { .comm = NULL } };
    const ct_coll_ops *ops[N_FLIGHT];
    const ct_arena_ops *arena[N_FLIGHT];
    int n_ops = 0, fault = 0, tag = ct_comm_take_tags(c, N_FLIGHT * CT_COLL_TAGS);

    while (ct_coll_table[n_ops] != NULL) n_ops += 1;
    for (int i = 0; i < N_FLIGHT; ++i) {
        void *p = NULL;

        ops[i] = ct_coll_table[i % n_ops];
        arena[i] = (i / n_ops % 2 == 0) ? ct_comm_arena(c) : ct_arena_plain();
        fault += (arena[i]->acquire(arena[i]->ctx, (size_t)n[i] * 8 + 8, "a test", &p) != CT_OK);
        r[i] = (ct_coll_req){ .comm = c, .buf = p, .count = n[i], .tag = tag + i * CT_COLL_TAGS };
        r[i].dtype = (i == 2) ? CT_BF16 : (i == 4) ? CT_U8 : (i == 6) ? CT_I64 : CT_F32;
        fault += (ops[i]->prepare(&r[i]) != CT_OK);
    }
    for (uint64_t round = 0; (round < ROUNDS) && (fault == 0); ++round) {
        uint64_t key = ct_rng_key(11, (uint64_t)c->rank, round);

        for (int i = 0; i < N_FLIGHT; ++i)
            fill(r[i].buf, n[i], r[i].dtype, c->rank, round * 100 + (uint64_t)i);
        for (int i = 0; i < N_FLIGHT; ++i) {
            if (ops[i]->by_mpi) fault += (ops[i]->start(&r[i]) != CT_OK);
        }
        for (uint64_t t = 0; t < N_FLIGHT; ++t) {
            int i = (int)ct_rng_permute(key, t, N_FLIGHT);

            if (!ops[i]->by_mpi) fault += (ops[i]->start(&r[i]) != CT_OK);
        }
        fault += drive(r, ops, key);
        for (int i = 0; i < N_FLIGHT; ++i) {
            int *sum = true_sums(n[i], r[i].dtype, c->size, round * 100 + (uint64_t)i);
            int wrong = count_wrong(r[i].buf, n[i], r[i].dtype, sum);

            if (wrong > 0)
                fprintf(stderr, "rank %d: %s of %lld in flight with others: %d wrong\n", c->rank,
                        ops[i]->name, (long long)n[i], wrong);
            fault += wrong;
            free(sum);
        }
    }
    for (int i = 0; i < N_FLIGHT; ++i) {
        ops[i]->release(&r[i]);
        arena[i]->release(arena[i]->ctx, r[i].buf);
    }
    return fault;
}

static uint64_t checksum(const void *data, size_t bytes)
{
    uint64_t h = 14695981039346656037u;

    for (size_t i = 0; i < bytes; ++i) h = (h ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    return h;
}

/* Random numbers, where the order of additions shows: the same bits on every rank and in every
 * run, and within p roundings of the sum in double. */
static int same_bits(ct_comm *c)
{
    enum { N = 50021 };
    float *v = malloc(sizeof(*v) * N);
    double *sum = malloc(sizeof(*sum) * N), *magnitude = malloc(sizeof(*magnitude) * N);
    int fault = 0;

    for (int i = 0; i < N; ++i) {
        sum[i] = ct_rng_normal_at((uint64_t)c->rank, (uint64_t)i);
        magnitude[i] = (sum[i] < 0) ? -sum[i] : sum[i];
    }
    MPI_Allreduce(MPI_IN_PLACE, sum, N, MPI_DOUBLE, MPI_SUM, c->mpi);
    MPI_Allreduce(MPI_IN_PLACE, magnitude, N, MPI_DOUBLE, MPI_SUM, c->mpi);
    for (const ct_coll_ops *const *ops = ct_coll_table; *ops != NULL; ++ops) {
        uint64_t first = 0;

        for (int run = 0; run < 4; ++run) {
            uint64_t h = 0, least = 0, most = 0;

            for (int i = 0; i < N; ++i) v[i] = ct_rng_normal_at((uint64_t)c->rank, (uint64_t)i);
            if (run == 2) usleep(2000 * (unsigned)c->rank); /* another timing */
            fault += (ct_coll_run(*ops, c, v, N, CT_F32) != CT_OK);
            for (int i = 0; i < N; ++i) {
                double off = (double)v[i] - sum[i];

                fault += !(((off < 0) ? -off : off) <= c->size * 0x1p-24 * 1.01 * magnitude[i]);
            }
            h = checksum(v, sizeof(*v) * N);
            MPI_Allreduce(&h, &least, 1, MPI_UINT64_T, MPI_MIN, c->mpi);
            MPI_Allreduce(&h, &most, 1, MPI_UINT64_T, MPI_MAX, c->mpi);
            if (least != most) fprintf(stderr, "%s: ranks differ\n", (*ops)->name);
            fault += (least != most);
            /* impi: the library promises nothing */
            if (run == 0) first = h;
            if ((h != first) && !(*ops)->by_mpi) {
                fprintf(stderr, "%s: runs differ\n", (*ops)->name);
                fault += 1;
            }
        }
    }
    free(v);
    free(sum);
    free(magnitude);
    return fault;
}

static void test_every_count(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(all_sums)), 0);
}

static void test_without_windows(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(all_sums_without_windows)), 0);
}

static void test_in_flight(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(many_sums)), 0);
}

static void test_same_bits(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(same_bits)), 0);
}

/* The same of parts of the job, which work at the same time. */
static void test_parts(void **state)
{
    int size = 0;

    (void)state;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if ((size == 6) || (size > 7)) return; /* time */
    assert_int_equal(mpi_verdict(mpi_on_parts(all_sums_without_windows)), 0);
    assert_int_equal(mpi_verdict(mpi_on_parts(many_sums)), 0);
    assert_int_equal(mpi_verdict(mpi_on_parts(same_bits)), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_parts),           cmocka_unit_test(test_every_count),
    cmocka_unit_test(test_without_windows), cmocka_unit_test(test_in_flight),
    cmocka_unit_test(test_same_bits),
};

MPI_MAIN(tests, 120)
