/* int8 and int4 over the ranks: the definition written down once more, bit for bit, on machines of
 * one and of several ranks a node; the bytes that travel; NaN; and what error feedback keeps. */
#include "tests/mpi/mpi_test.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/codec/codec_types.h"
#include "framework/base/rng.h"

enum { MOST = 20001, BLOCK = 256, TABLE = 1 << 14 };

static const int sizes[] = { 1, 255, 256, 257, 1025, 2999, 8192, MOST };
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static float table[TABLE];

static void fill_table(void)
{
    for (int i = 0; i < TABLE; ++i) table[i] = roundf(200 * ct_rng_normal_at(7, (uint64_t)i)) / 64;
}

/* Multiples of 1/64, so that a node's sum is exact in any order. */
static float gradient(int r, int64_t s, int i)
{
    return table[(i * 7 + r * 977 + s * 131) % TABLE];
}

typedef struct one {
    ct_comm *comm;
    const ct_codec_ops *ops;
    ct_codec_config config;
    float *grad;
    void *obj;
} one;

static int open_one(one *x, ct_comm *c, const ct_codec_ops *ops, int n, bool feedback)
{
    const ct_arena_ops *mem = ct_comm_arena(c);
    void *block = NULL;

    *x = (one){ .comm = c, .ops = ops, .config = { .error_feedback = feedback } };
    if (mem->acquire(mem->ctx, sizeof(float) * MOST, "arena", &block) != CT_OK) return 1;
    x->grad = block;
    return MPI_FAULT_UNLESS(ct_codec_create(ops,
                                            &(ct_codec_setup){ .comm = c,
                                                               .config = &x->config,
                                                               .key = "w",
                                                               .n = n,
                                                               .rows = 1,
                                                               .grad = x->grad,
                                                               .tag = CT_COLL_TAGS },
                                            &x->obj) == CT_OK);
}

static void close_one(one *x)
{
    const ct_arena_ops *mem = ct_comm_arena(x->comm);

    if (x->obj != NULL) x->ops->destroy(x->obj);
    mem->release(mem->ctx, x->grad);
}

static int step_one(one *x, int64_t s)
{
    ct_codec_step step = { .iteration = s, .scale = 1, .clip = 1, .rate = 1 };
    ct_status status = x->ops->start(x->obj, &step);

    while (status == CT_OK) {
        status = x->ops->progress(x->obj);
        if (status != CT_INPROGRESS) break;
        status = CT_OK;
    }
    return MPI_FAULT_UNLESS(status == CT_OK);
}

/* ---- the definition */

static int part_at(int n, int parts, int j)
{
    int blocks = (n + BLOCK - 1) / BLOCK, first = (int)((int64_t)blocks * j / parts) * BLOCK;

    return (first < n) ? first : n;
}

/* What comes back of x[n]; of one block after the other. */
static void round_blocks(int bits, const float *x, int n, float *y)
{
    for (int first = 0; first < n; first += BLOCK) {
        int end = (first + BLOCK < n) ? first + BLOCK : n;
        float most = 0, scale = 0;

        for (int i = first; i < end; ++i) most = fmaxf(most, fabsf(x[i]));
        scale = most / ((bits == 8) ? 127.0f : 7.0f);
        for (int i = first; i < end; ++i)
            y[i] = (scale < FLT_MIN) ? 0 : scale * rintf(x[i] * (1.0f / scale));
    }
}

/* Node `v` of the topology's order: its sum of [first, first + n). */
static void sum_of_node(const ct_topo *t, int v, int64_t s, int first, int n, float *to)
{
    int at = -1;

    memset(to, 0, sizeof(*to) * (size_t)n);
    for (int k = 0; k < t->n_rank; ++k) {
        int r = t->order[k];

        if ((k == 0) || (t->node[t->order[k - 1]] != t->node[r])) at += 1;
        for (int i = 0; (at == v) && (i < n); ++i) to[i] += gradient(r, s, first + i);
    }
}

/* A slice of each lane, a part of it each node: the owner's own term exact, the others' rounded,
 * the next node's sum last; and the sum rounded once more. */
static void define(const ct_topo *t, int bits, int n, int64_t s, float *out)
{
    static float own[MOST], term[MOST];
    int lanes = ct_topo_min_node_size(t), p = t->n_node;

    for (int l = 0; l < lanes; ++l) {
        int first = part_at(n, lanes, l), length = part_at(n, lanes, l + 1) - first;

        for (int j = 0; j < p; ++j) {
            int at = first + part_at(length, p, j);
            int count = first + part_at(length, p, j + 1) - at;

            sum_of_node(t, j, s, at, count, own);
            for (int shift = 1; shift < p; ++shift) {
                sum_of_node(t, (j - shift + p) % p, s, at, count, term);
                round_blocks(bits, term, count, term);
                for (int i = 0; i < count; ++i) own[i] += term[i];
            }
            if (p > 1) round_blocks(bits, own, count, own);
            memcpy(out + at, own, sizeof(*out) * (size_t)count);
        }
    }
}

/* Every node sends (p - 1) / p of the payload twice. Blocks are dealt to nodes whole, so where they
 * do not divide a rank sends a block more or less; all together send exactly that. */
static int bytes_are(const one *x, int bits, int n)
{
    int64_t p = x->comm->size, blocks = (n + BLOCK - 1) / BLOCK;
    int64_t payload = 4 * blocks + ((bits == 8) ? n : (n + 1) / 2), all = 0;
    ct_codec_stats stats;
    int fault = 0;

    x->ops->stats(x->obj, &stats);
    MPI_Allreduce(&stats.bytes_sent, &all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (ct_topo_max_node_size(x->comm->topo) > 1) return 0;
    fault += MPI_FAULT_UNLESS(all == 2 * (p - 1) * payload);
    if ((blocks % p == 0) && (n % BLOCK == 0))
        fault += MPI_FAULT_UNLESS(stats.bytes_sent == 2 * (p - 1) * payload / p);
    return fault;
}

static int defined(ct_comm *c)
{
    static float expected[MOST];
    static const struct {
        const ct_codec_ops *ops;
        int bits;
    } kind[] = { { &ct_codec_int8, 8 }, { &ct_codec_int4, 4 } };
    int fault = 0;

    for (int k = 0; k < 2 * SIZES; ++k) {
        int n = sizes[k / 2], wrong = 0;
        one x;

        fault += open_one(&x, c, kind[k % 2].ops, n, false);
        for (int64_t s = 0; (fault == 0) && (s < 2); ++s) {
            for (int i = 0; i < n; ++i) x.grad[i] = gradient(c->rank, s, i);
            fault += step_one(&x, s);
            define(c->topo, kind[k % 2].bits, n, s, expected);
            for (int i = 0; i < n; ++i) wrong += (x.grad[i] != expected[i]);
            if (s == 0) fault += bytes_are(&x, kind[k % 2].bits, n);
        }
        fault += MPI_FAULT_UNLESS(wrong == 0);
        close_one(&x);
        fault = mpi_verdict(fault);
    }
    return fault;
}

static void test_defined(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(defined)), 0);
}

/* ---- NaN and infinity of one rank reach all, in their block */

static int carries(ct_comm *c)
{
    enum { N = 2999, AT = 700 };
    static const float bad[] = { NAN, INFINITY };
    int fault = 0;

    for (int k = 0; k < 4; ++k) {
        one x;
        int wrong = 0;

        fault += open_one(&x, c, (k % 2 == 0) ? &ct_codec_int8 : &ct_codec_int4, N, false);
        for (int i = 0; i < N; ++i) x.grad[i] = gradient(c->rank, 3, i);
        if (c->rank == c->size - 1) x.grad[AT] = bad[k / 2];
        fault += step_one(&x, 0);
        wrong += isfinite(x.grad[AT]) ? 1 : 0;
        for (int i = 0; i < N; ++i) wrong += !isfinite(x.grad[i]) && (abs(i - AT) >= BLOCK);
        fault += MPI_FAULT_UNLESS(wrong == 0);
        close_one(&x);
    }
    return fault;
}

static void test_carries(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(carries)), 0);
}

/* ---- error feedback: what has arrived and what is kept are what was given. A step rounds V three
 * times on each rank, and the sum once a node. */

static int keeps(ct_comm *c)
{
    enum { N = 2999, STEPS = 50 };
    static double sum[N], kept[N];
    int fault = 0;

    for (int k = 0; k < 2; ++k) {
        one x;
        ct_codec_state state;
        int wrong = 0;
        double most = 0;

        fault += open_one(&x, c, (k == 0) ? &ct_codec_int8 : &ct_codec_int4, N, true);
        memset(sum, 0, sizeof(sum));
        for (int64_t s = 0; (fault == 0) && (s < STEPS); ++s) {
            for (int i = 0; i < N; ++i) x.grad[i] = gradient(c->rank, s, i);
            for (int i = 0; i < N; ++i)
                for (int r = 0; r < c->size; ++r) sum[i] += (double)gradient(r, s, i);
            fault += step_one(&x, s);
            for (int i = 0; i < N; ++i) sum[i] -= (double)x.grad[i];
            for (int i = 0; i < N; ++i) most = fmax(most, fabs((double)x.grad[i]));
        }
        fault += MPI_FAULT_UNLESS(x.ops->state(x.obj, 0, &state) && (state.count == N));
        fault += MPI_FAULT_UNLESS(!x.ops->state(x.obj, 1, &state));
        (void)x.ops->state(x.obj, 0, &state);
        for (int i = 0; (fault == 0) && (i < N); ++i) kept[i] = (double)state.data[i];
        MPI_Allreduce(MPI_IN_PLACE, kept, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < N; ++i)
            wrong += !(fabs(kept[i] - sum[i]) <= 4.0 * STEPS * (c->size + 1) * 0x1p-24 * most);
        fault += MPI_FAULT_UNLESS(wrong == 0);
        close_one(&x);
        fault = mpi_verdict(fault);
    }
    return fault;
}

static void test_keeps(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(keeps)), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_defined),
                                        cmocka_unit_test(test_carries),
                                        cmocka_unit_test(test_keeps) };

    fill_table();
    return mpi_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]), 120);
}
