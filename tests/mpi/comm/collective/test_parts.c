/* Reduce-scatters, allgathers and broadcast against MPI's own, and against allreduces bit by bit.
 */
#include "comm/collective/blocking.h"
#include "tests/mpi/mpi_test.h"
#include "tests/log_capture.h"

#include <stdlib.h>

#include "comm/collective/coll_types.h"
#include "framework/base/bf16.h"
#include "framework/base/rng.h"

enum { MOST = 200003 };
static const int64_t counts[] = { 0, 1, 5, 31, 1000, 4097, MOST };
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

/* A buffer on the ground that a machine's ranks share, or of its own; with a guard behind. */
typedef struct ground {
    ct_comm *c;
    float *v[2], *whole, *sum; /* v[0]: shared */
} ground;

static int open_ground(ct_comm *c, size_t most, ground *g)
{
    const ct_arena_ops *arena = ct_comm_arena(c);
    size_t bytes = sizeof(float) * (most + 1);
    void *p = NULL;
    int fault = (arena->acquire(arena->ctx, bytes, "a test", &p) != CT_OK);

    *g = (ground){ .c = c };
    g->v[0] = p;
    g->v[1] = malloc(bytes);
    g->whole = malloc(bytes);
    g->sum = malloc(bytes);
    return fault;
}

static void close_ground(ground *g)
{
    ct_comm_arena(g->c)->release(ct_comm_arena(g->c)->ctx, g->v[0]);
    free(g->v[1]);
    free(g->whole);
    free(g->sum);
}

static void *behind(void *v, int64_t n, ct_dtype dtype)
{
    return (char *)v + (size_t)n * ct_dtype_size(dtype);
}

enum { PERIOD = 8191 /* a prime, so that no two parts are alike; to save time */ };

/* Numbers of many magnitudes, so that the order of additions shows; or whole ones. */
static void fill(void *v, int64_t n, ct_dtype dtype, int rank, bool whole)
{
    for (int64_t i = 0; (i < n) && (i < PERIOD); ++i) {
        float x = whole ? (float)value(rank, i) : ct_rng_normal_at((uint64_t)rank, (uint64_t)i);

        if (dtype == CT_BF16)
            ((uint16_t *)v)[i] = ct_bf16_from_f32(x);
        else
            ((float *)v)[i] = x;
    }
    for (int64_t at = PERIOD; at < n; at += PERIOD)
        memcpy(behind(v, at, dtype), v,
               (size_t)((n - at < PERIOD) ? n - at : PERIOD) * ct_dtype_size(dtype));
}

static const unsigned char guard[2] = { 0x5a, 0xa5 };

static int different(const void *a, const void *b, int64_t first, int64_t n, ct_dtype dtype)
{
    size_t at = (size_t)first * ct_dtype_size(dtype), bytes = (size_t)n * ct_dtype_size(dtype);

    return memcmp((const char *)a + at, (const char *)b + at, bytes) != 0;
}

/* The half by ops, and an allgather by `gather` behind it, against `want`. */
static int one_half(ground *g, const ct_coll_ops *ops, const ct_coll_ops *gather, int64_t n,
                    ct_dtype dtype, bool whole, const void *want)
{
    int64_t first = 0, m = 0;
    int fault = (ct_coll_part(g->c, n, g->c->rank, &first, &m) != CT_OK);

    for (int k = 0; k < 2; ++k) {
        void *v = g->v[k];

        fill(v, n, dtype, g->c->rank, whole);
        memcpy(behind(v, n, dtype), guard, sizeof(guard));
        fault += (ct_coll_run(ops, g->c, v, n, dtype) != CT_OK);
        fault += different(v, want, first, m, dtype);
        fault += (memcmp(behind(v, n, dtype), guard, sizeof(guard)) != 0);
        fault += (ct_coll_run(gather, g->c, v, n, dtype) != CT_OK);
        fault += different(v, want, 0, n, dtype);
        fault += (memcmp(behind(v, n, dtype), guard, sizeof(guard)) != 0);
        if (fault > 0)
            fprintf(stderr, "rank %d: %s, then gathered by %s: %lld of dtype %d, block %d wrong\n",
                    g->c->rank, ops->name, gather->name, (long long)n, (int)dtype, k);
    }
    return fault;
}

static const ct_coll_ops *next_gather(int *at)
{
    const ct_coll_ops *ops = NULL;

    while (ops == NULL) {
        if (ct_coll_table[*at] == NULL) *at = 0;
        ops = ct_coll_table[(*at)++]->gather;
    }
    return ops;
}

/* Every reduce-scatter against MPI's sums, which are exact of whole numbers. */
static int scatters(ct_comm *c)
{
    ground g;
    int fault = open_ground(c, MOST, &g), at = 0;

    for (int k = 0; (k < N_COUNT) && (fault == 0); ++k) {
        int64_t n = counts[k];

        if ((n == MOST) && (c->size > 4)) continue; /* time */
        fault += parts_cover(c, n);
        fill(g.sum, n, CT_F32, c->rank, true);
        MPI_Allreduce(MPI_IN_PLACE, g.sum, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; ct_coll_table[i] != NULL; ++i)
            fault +=
                one_half(&g, ct_coll_table[i]->scatter, next_gather(&at), n, CT_F32, true, g.sum);
    }
    close_ground(&g);
    return fault;
}

/* A half and an allgather, whichever it is, have the bits of the whole. */
static int same_bits(ct_comm *c)
{
    static const int64_t n[] = { 1, 31, 4097, MOST };
    static const ct_dtype dtype[] = { CT_F32, CT_BF16 };
    ground g;
    int fault = open_ground(c, MOST, &g), at = 0;

    for (int k = 0; (k < 8) && (fault == 0); ++k) {
        if ((n[k / 2] == MOST) && ((c->size > 4) || (k % 2 == 1))) continue; /* time */
        for (int i = 0; ct_coll_table[i] != NULL; ++i) {
            const ct_coll_ops *ops = ct_coll_table[i],
                              *half = ct_coll_half_of(ops, CT_COLL_REDUCE_SCATTER);

            fault += ((half == NULL) != ops->by_mpi);
            if (half == NULL) continue;
            fill(g.whole, n[k / 2], dtype[k % 2], c->rank, false);
            fault += (ct_coll_run(ops, c, g.whole, n[k / 2], dtype[k % 2]) != CT_OK);
            fault += one_half(&g, half, next_gather(&at), n[k / 2], dtype[k % 2], false, g.whole);
        }
    }
    close_ground(&g);
    return fault;
}

static int use(ct_comm *c, const ct_coll_ops *ops, ct_coll_req *r)
{
    ct_status status = ops->start(r);
    int idle = 0;

    if (status == CT_OK) status = CT_INPROGRESS;
    while (status == CT_INPROGRESS) {
        status = ops->progress(r);
        idle += 1;
        ct_comm_relax(c, &idle);
    }
    return (status != CT_OK);
}

/* hier's halves on one block, used twice: the bits of its sum. sent[2]: bytes of one use. */
static int halves_again(ground *g, float *v, int64_t n, int64_t *sent)
{
    const ct_coll_ops *half[2] = { ct_coll_hier.scatter, ct_coll_hier.gather };
    ct_coll_req r[2];
    int64_t first = 0, m = 0;
    int fault = (ct_coll_part(g->c, n, g->c->rank, &first, &m) != CT_OK);

    for (int k = 0; k < 2; ++k) {
        r[k] = (ct_coll_req){ .comm = g->c, .buf = v, .count = n, .dtype = CT_F32 };
        r[k].tag = ct_comm_take_tags(g->c, CT_COLL_TAGS);
        fault += (half[k]->prepare(&r[k]) != CT_OK);
    }
    for (int i = 0; i < 2; ++i) {
        fill(v, n, CT_F32, g->c->rank, false);
        fault += use(g->c, half[0], &r[0]) + different(v, g->whole, first, m, CT_F32);
        fault += use(g->c, half[1], &r[1]) + different(v, g->whole, 0, n, CT_F32);
    }
    for (int k = 0; k < 2; ++k) {
        sent[k] = r[k].bytes_sent / 2;
        half[k]->release(&r[k]);
    }
    return fault;
}

/* Nodes that share memory: in several chunks. Halves send less than the whole, and on nodes alike
 * whose parts are their lanes' pieces half of it. */
static int chunks_of_nodes(ct_comm *c)
{
    int64_t lanes = ct_topo_min_node_size(c->topo), n[] = { 4096, 2 * lanes * (256 << 10) + 12347 };
    bool alike = (lanes == 2) && (c->topo->n_node == 2) && (c->size == 4);
    ground g;
    int fault = 0;

    if ((c->size > 4) || (c->topo->n_node == 1)) return 0;
    if (!c->node_shares || (ct_topo_max_node_size(c->topo) == 1)) return 0;
    fault = open_ground(c, (size_t)n[1], &g);
    for (int k = 0; k < 2; ++k) {
        ct_coll_req r = { .comm = c, .buf = g.whole, .count = n[k], .dtype = CT_F32 };
        int64_t sent[3] = { 0 };

        fill(g.whole, n[k], CT_F32, c->rank, false);
        fault += (ct_coll_begin(&ct_coll_hier, &r) != CT_OK);
        fault += (ct_coll_end(&ct_coll_hier, &r) != CT_OK);
        for (int i = 0; i < 2; ++i) {
            fault += halves_again(&g, g.v[i], n[k], sent);
            sent[2] = r.bytes_sent;
            MPI_Allreduce(MPI_IN_PLACE, sent, 3, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
            fault += MPI_FAULT_UNLESS(sent[0] < sent[2]);
            if (alike && (k == 0)) fault += MPI_FAULT_UNLESS(2 * sent[0] == sent[2]);
            if (alike && (k == 0) && (i == 0)) fault += MPI_FAULT_UNLESS(2 * sent[1] == sent[2]);
        }
    }
    close_ground(&g);
    return fault;
}

/* Bytes: each rank's part filled with what names it, everything else with rubbish. */
static int gathers_by(ct_comm *c, const ct_coll_ops *ops, char *v, int64_t n)
{
    int64_t first = 0, m = 0;
    int fault = (ct_coll_part(c, n, c->rank, &first, &m) != CT_OK);

    memset(v, 0x55, (size_t)n + 1);
    memset(v + first, c->rank + 1, (size_t)m);
    fault += (ct_coll_run(ops, c, v, n, CT_U8) != CT_OK);
    for (int r = 0; r < c->size; ++r) {
        fault += (ct_coll_part(c, n, r, &first, &m) != CT_OK);
        for (int64_t i = first; i < first + m; ++i) fault += (v[i] != r + 1);
    }
    fault += (v[n] != 0x55);
    if (fault > 0)
        fprintf(stderr, "rank %d: %s gathers %lld wrong\n", c->rank, ops->name, (long long)n);
    return fault;
}

static int gathers(ct_comm *c)
{
    ground g;
    int fault = open_ground(c, MOST, &g);

    for (int k = 0; (k < N_COUNT) && (fault == 0); ++k) {
        for (int i = 0; ct_coll_table[i] != NULL; ++i) {
            const ct_coll_ops *ops = ct_coll_table[i]->gather;

            if ((ops == NULL) || ((counts[k] == MOST) && (c->size > 4))) continue;
            fault += gathers_by(c, ops, (char *)g.v[0], counts[k]);
            fault += gathers_by(c, ops, (char *)g.v[1], counts[k]);
        }
    }
    close_ground(&g);
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
    const ct_coll_ops *ops = NULL;
    int fault = 0;

    log_capture_start(NULL);
    fault += MPI_FAULT_UNLESS(ct_coll_broadcast.prepare(&r) == CT_ERR_ARG);
    r.root = -1;
    fault += MPI_FAULT_UNLESS(ct_coll_broadcast.prepare(&r) == CT_ERR_ARG);
    fault += MPI_FAULT_UNLESS(ct_coll_part(c, 10, c->size, &first, &n) == CT_ERR_ARG);
    fault += MPI_FAULT_UNLESS(ct_coll_choose_kind(c, CT_COLL_REDUCE_SCATTER, 1, CT_I32, "auto",
                                                  false, &ops) == CT_ERR_CONFIG);
    fault += MPI_FAULT_UNLESS(
        ct_coll_choose_kind(c, CT_COLL_ALLGATHER, 1, CT_I32, NULL, true, &ops) == CT_OK);
    fault += MPI_FAULT_UNLESS((ops->kind == CT_COLL_ALLGATHER) && !ops->by_mpi);
    fault += MPI_FAULT_UNLESS(ct_coll_choose_kind(c, CT_COLL_ALLGATHER, 1, CT_F32, "swing", false,
                                                  &ops) == CT_ERR_CONFIG);
    log_capture_stop();
    return fault;
}

static void test_scatter(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(scatters)), 0);
}

static void test_bits(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(same_bits)), 0);
}

static void test_nodes(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(chunks_of_nodes)), 0);
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
    cmocka_unit_test(test_scatter),   cmocka_unit_test(test_bits),   cmocka_unit_test(test_gather),
    cmocka_unit_test(test_broadcast), cmocka_unit_test(test_errors), cmocka_unit_test(test_nodes),
};

MPI_MAIN(tests, 60)
