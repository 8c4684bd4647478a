/* Reproducible sums: bitwise the same whatever the placement, the algorithm, the buckets, the
 * order in which gradients get ready and the moments at which messages move. And what the
 * deterministic pipe promises: the same in every run of one plan. */
#include "tests/mpi/mpi_test.h"

#include <math.h>
#include <stdlib.h>

#include "comm/codec/codec_types.h"
#include "comm/sync/grad_pipe.h"
#include "comm/core/node.h"
#include "comm/collective/repro.h"
#include "framework/base/rng.h"

enum { N_RANGE = 9, N = 54560, STEPS = 2 };

/* Uneven, with padding between them, one empty, two large. */
static const ct_grad_range range[N_RANGE] = {
    { .key = "fc8[0]", .offset = 0, .count = 1000 },
    { .key = "fc8[1]", .offset = 1008, .count = 10 },
    { .key = "fc7[0]", .offset = 1024, .count = 20001 },
    { .key = "fc7[1]", .offset = 21040, .count = 100 },
    { .key = "none[0]", .offset = 21200, .count = 0 },
    { .key = "conv2[0]", .offset = 21200, .count = 2500 },
    { .key = "conv2[1]", .offset = 23712, .count = 33 },
    { .key = "fc6[0]", .offset = 23760, .count = 30000 },
    { .key = "conv1[0]", .offset = 53776, .count = 777 },
};

static uint64_t checksum(const void *v, size_t bytes)
{
    uint64_t h = 14695981039346656037u;

    for (size_t i = 0; i < bytes; ++i) h = (h ^ ((const unsigned char *)v)[i]) * 1099511628211u;
    return h;
}

/* Gradients of many sizes; the order of additions shows in their sums. */
static float term(int rank, int64_t step, int64_t k)
{
    uint64_t key = ct_rng_key(5, (uint64_t)rank, (uint64_t)step);
    float size = ldexpf(1, (int)(ct_rng_key(key, (uint64_t)k, 3) % 24) - 12);

    return size * ct_rng_normal_at(key, (uint64_t)k);
}

static void fill(float *arena, int rank, int64_t step)
{
    memset(arena, 0, sizeof(*arena) * N);
    for (int i = 0; i < N_RANGE; ++i) {
        for (int64_t k = range[i].offset; k < range[i].offset + range[i].count; ++k)
            arena[k] = term(rank, step, k);
    }
    if (step != 1) return;
    if (rank == 0) arena[5] = INFINITY;
    if (rank % 2 == 1) arena[5] = -INFINITY;
    if (rank == 0) arena[30000] = -INFINITY;
    if (rank == 1) arena[40000] = NAN;
}

/* One step; delays and the order of `ready` are this rank's and this run's own. */
static int step(ct_grad_pipe *gp, const ct_comm *c, int64_t iteration, uint64_t key)
{
    int fault = MPI_FAULT_UNLESS(ct_grad_pipe_begin(gp, iteration, 1, 1) == CT_OK);

    key = ct_rng_key(key, (uint64_t)c->rank, (uint64_t)iteration);
    for (uint64_t t = 0; t < N_RANGE; ++t) {
        uint64_t i = ct_rng_permute(key, t, N_RANGE);

        fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(gp, (int)i) == CT_OK);
        usleep((unsigned)(ct_rng_key(key, t, 1) % 60));
        for (uint64_t k = ct_rng_key(key, t, 2) % 4; k > 0; --k)
            fault += (ct_grad_pipe_poll(gp) != CT_OK);
    }
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(gp, NULL, NULL) == CT_OK);
    return fault;
}

/* All steps under one configuration; adds to h_p what the arena then holds. */
static int run(ct_comm *c, const ct_grad_pipe_config *config, bool shared, uint64_t key,
               uint64_t *h_p)
{
    const ct_arena_ops *mem = shared ? ct_comm_arena(c) : ct_arena_plain();
    ct_grad_pipe *gp = NULL;
    void *block = NULL;
    int fault = 0;

    fault += MPI_FAULT_UNLESS(mem->acquire(mem->ctx, sizeof(float) * N, "arena", &block) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, config, block, range, N_RANGE, &gp) == CT_OK);
    for (int64_t s = 0; (s < STEPS) && (fault == 0); ++s) {
        fill(block, c->rank, s);
        fault += step(gp, c, s, key);
        *h_p = ct_rng_key(*h_p, checksum(block, sizeof(float) * N), 0);
    }
    ct_grad_pipe_destroy(gp);
    mem->release(mem->ctx, block);
    return fault;
}

/* ---- reproducible_sum */

static struct {
    bool known;
    uint64_t h;
} expected;

static int run_reproducible(ct_comm *c, const char *allreduce, uint64_t key)
{
    static const int64_t sizes[] = { 64, 8192, 100000, 1 << 20 };
    ct_grad_pipe_config config = { .bucket_bytes = sizes[ct_rng_key(key, 0, 0) % 4],
                                   .allreduce = allreduce,
                                   .overlap = (ct_rng_key(key, 0, 1) % 2 == 0),
                                   .codec = &ct_codec_none,
                                   .reproducible = true,
                                   .deterministic = (ct_rng_key(key, 0, 2) % 2 == 0) };
    uint64_t h = 0;
    int fault = run(c, &config, ct_rng_key(key, 0, 3) % 2 == 0, key, &h);

    if (!expected.known) expected.h = h;
    expected.known = true;
    if (h != expected.h)
        fprintf(stderr, "rank %d: %s, buckets of %lld, overlap %d: other bits\n", c->rank,
                allreduce, (long long)config.bucket_bytes, config.overlap);
    return fault + (h != expected.h);
}

static int every_algorithm(ct_comm *c, uint64_t key)
{
    int fault = 0, n = 0;

    for (const ct_coll_ops *const *ops = ct_coll_table; *ops != NULL; ++ops)
        fault += run_reproducible(c, (*ops)->name, ct_rng_key(key, (uint64_t)n++, 0));
    return fault + run_reproducible(c, "auto", ct_rng_key(key, (uint64_t)n, 0));
}

/* Node of every rank by chance, and in every other map a switch above it. */
static void random_map(uint64_t key, int n, char *spec, size_t size)
{
    bool deep = (key % 2 == 0);
    size_t at = (size_t)snprintf(spec, size, "map:");

    for (int i = 0; deep && (i < n); ++i)
        spec[at++] = (char)('a' + ct_rng_key(key, (uint64_t)i, 1) % 2);
    if (deep) spec[at++] = '/';
    for (int i = 0; i < n; ++i) spec[at++] = (char)('0' + ct_rng_key(key, (uint64_t)i, 0) % 3);
    spec[at] = '\0';
}

static int random_placements(void)
{
    enum { PLACEMENTS = 6 };
    int fault = 0, n = 0;

    MPI_Comm_size(MPI_COMM_WORLD, &n);
    for (uint64_t p = 0; p < PLACEMENTS; ++p) {
        ct_comm *c = NULL;
        char spec[64];

        random_map(ct_rng_key(31, p, (uint64_t)n), n, spec, sizeof(spec));
        if (p == 0) snprintf(spec, sizeof(spec), "auto");
        if (ct_comm_create(MPI_COMM_WORLD, spec, &c) != CT_OK) return fault + 1;
        if (p == 1) ct_node_set_limit(c->node_memory, 0); /* no windows */
        fault += every_algorithm(c, p);
        if (fault > 0) fprintf(stderr, "rank %d: on %s\n", c->rank, spec);
        ct_comm_destroy(c);
    }
    return fault;
}

/* The sums are right: p half units of the integers and one rounding at most (repro.h). */
static int against_exact(ct_comm *c)
{
    enum { M = 4099 };
    float *v = malloc(sizeof(*v) * M);
    double *sum = calloc(M, sizeof(*sum)), top[M / 16 + 1] = { 0 };
    int fault = 0, wrong = 0;

    for (int r = 0; r < c->size; ++r) {
        for (int k = 0; k < M; ++k) {
            sum[k] += term(r, 0, k);
            top[k / 16] = fmax(top[k / 16], fabs(term(r, 0, k)));
        }
    }
    for (int k = 0; k < M; ++k) v[k] = term(c->rank, 0, k);
    fault += MPI_FAULT_UNLESS(ct_repro_run(c, "auto", v, M) == CT_OK);
    for (int k = 0; k < M; ++k)
        wrong += !(fabs(v[k] - sum[k]) <=
                   1.001 * (c->size * 0x1p-43 * top[k / 16] + 0x1p-24 * fabs(sum[k])));
    fault += MPI_FAULT_UNLESS(wrong == 0);
    fault += MPI_FAULT_UNLESS(ct_repro_run(c, "ring", v, 0) == CT_OK);
    free(v);
    free(sum);
    return fault;
}

/* What has no meaning is refused, on all ranks. */
static int refusals(ct_comm *c)
{
    ct_grad_range one = { .key = "a[0]", .offset = 0, .count = 100 };
    ct_grad_pipe_config config = {
        .bucket_bytes = 1000, .allreduce = "auto", .reproducible = true, .codec = &ct_codec_bf16
    };
    ct_grad_pipe *gp = NULL;
    float arena[256] = { 0 };
    int fault = 0;

    fault +=
        MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, &one, 1, &gp) == CT_ERR_CONFIG);
    config.codec = &ct_codec_none;
    one.offset = 8;
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, &one, 1, &gp) == CT_ERR_ARG);
    one.offset = 0;
    config.reproducible = false;
    config.deterministic = true;
    config.allreduce = "impi";
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, &one, 1, &gp) ==
                              ((c->size > 1) ? CT_ERR_CONFIG : CT_OK));
    ct_grad_pipe_destroy(gp);
    return fault;
}

/* ---- deterministic */

/* Same ranks, placement and plan: the same bits whatever the timing, and whether the arena itself
 * lies in the node's window or is staged through one. */
static int same_in_every_run(ct_comm *c)
{
    int fault = 0;

    for (const ct_coll_ops *const *ops = ct_coll_table; *ops != NULL; ++ops) {
        ct_grad_pipe_config config = { .bucket_bytes = 16384,
                                       .allreduce = (*ops)->name,
                                       .codec = &ct_codec_none,
                                       .deterministic = true };
        uint64_t first = 0;

        if ((*ops)->by_mpi) continue; /* refused */
        for (uint64_t again = 0; again < 4; ++again) {
            uint64_t h = 0;

            config.overlap = (again % 2 == 0);
            fault += run(c, &config, again < 2, again, &h);
            if (again == 0) first = h;
            if (h != first)
                fprintf(stderr, "rank %d: %s, run %d: other bits\n", c->rank, (*ops)->name,
                        (int)again);
            fault += (h != first);
        }
    }
    return fault;
}

static void test_placements(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(random_placements()), 0);
}

static void test_sums(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(against_exact)), 0);
}

static void test_refusals(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(refusals)), 0);
}

static void test_deterministic(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(same_in_every_run)), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_placements),
    cmocka_unit_test(test_sums),
    cmocka_unit_test(test_refusals),
    cmocka_unit_test(test_deterministic),
};

MPI_MAIN(tests, 120)
