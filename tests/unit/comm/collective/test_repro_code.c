/* Floats as integers: exact where promised, within the bound elsewhere, and what no number is. */
#include "tests/test.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "comm/collective/repro.h"
#include "framework/base/rng.h"

enum { MOST = 1000, BLOCKS = (MOST + CT_REPRO_BLOCK - 1) / CT_REPRO_BLOCK };

/* The sum over `ranks` lists x[r * n + i] as an allreduce would make it; the ranks in this order or
 * the opposite one. */
static void sum_of(const float *x, int ranks, int64_t n, bool backwards, int n_thread, float *out)
{
    uint8_t top[BLOCKS] = { 0 }, odd[BLOCKS] = { 0 }, t[BLOCKS], o[BLOCKS];
    int64_t *q = malloc(sizeof(*q) * (size_t)(n + 1)), blocks = ct_repro_blocks(n);
    uint64_t *sum = calloc((size_t)n + 1, sizeof(*sum));

    for (int r = 0; r < ranks; ++r) {
        ct_repro_scan(x + r * n, n, t, o, n_thread);
        for (int64_t b = 0; b < blocks; ++b) {
            top[b] = (t[b] > top[b]) ? t[b] : top[b];
            odd[b] = (o[b] > odd[b]) ? o[b] : odd[b];
        }
    }
    for (int k = 0; k < ranks; ++k) {
        int r = backwards ? ranks - 1 - k : k;

        ct_repro_encode(x + r * n, n, top, odd, ranks, q, n_thread);
        for (int64_t i = 0; i < n; ++i) sum[i] += (uint64_t)q[i];
    }
    memcpy(q, sum, sizeof(*q) * (size_t)n);
    ct_repro_decode(q, n, top, odd, ranks, out, n_thread);
    free(q);
    free(sum);
}

/* A float of 24 random bits and an exponent in [low, high]. */
static float draw(uint64_t key, uint64_t at, int low, int high)
{
    uint64_t bits = ct_rng_key(key, at, 1);
    double m = 1.0 + (double)(bits & 0x7fffff) / 8388608.0;
    int e = low + (int)((bits >> 24) % (uint64_t)(high - low + 1));

    return (float)ldexp(((bits >> 60) & 1) ? -m : m, e);
}

/* Exponents within 19 of each other: every sum is the exact one, rounded once. A double holds it
 * exactly: 24 + 19 bits, and 9 for the ranks. */
static void test_exact(void **state)
{
    static const int ranks[] = { 1, 2, 3, 8, 64, 300 };
    static const int64_t counts[] = { 0, 1, 15, 16, 17, 333 };
    float *x = malloc(sizeof(*x) * 300 * MOST), out[MOST], back[MOST];

    (void)state;
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); ++c) {
        for (size_t p = 0; p < sizeof(ranks) / sizeof(ranks[0]); ++p) {
            int64_t n = counts[c];
            int middle = (int)(p * 40) - 130; /* down to where sums are subnormal */

            for (int64_t i = 0; i < ranks[p] * n; ++i)
                x[i] = draw(c * 100 + p, (uint64_t)i, middle, middle + 19);
            sum_of(x, ranks[p], n, false, 1, out);
            sum_of(x, ranks[p], n, true, 4, back);
            for (int64_t i = 0; i < n; ++i) {
                double exact = 0;

                for (int r = 0; r < ranks[p]; ++r) exact += x[r * n + i];
                assert_true(out[i] == (float)exact);
                assert_memory_equal(&out[i], &back[i], sizeof(out[i]));
            }
        }
    }
    free(x);
}

/* All exponents mixed: within the bound of the header. */
static void test_bound(void **state)
{
    enum { P = 5, N = 640 };
    float *x = malloc(sizeof(*x) * P * N), out[N];
    int rounded = 0;

    (void)state;
    for (int i = 0; i < P * N; ++i) x[i] = draw(7, (uint64_t)i, -60, 60);
    sum_of(x, P, N, false, 1, out);
    for (int i = 0; i < N; ++i) {
        int e = -200;
        long double exact = 0, error;
        double bound;

        for (int r = 0; r < P; ++r) {
            exact += (long double)x[r * N + i];
            for (int k = i / 16 * 16; k < i / 16 * 16 + 16; ++k) {
                int ex;

                (void)frexpf(x[r * N + k], &ex);
                e = (ex > e) ? ex : e;
            }
        }
        error = fabsl((long double)out[i] - exact);
        bound = P * ldexp(1, e - 44) + ldexp(1, -24) * fabs((double)exact);
        assert_true((double)error <= bound * 1.0001);
        rounded += (error > 0);
    }
    assert_true(rounded > 0); /* else nothing was tried */
    free(x);
}

/* Normal numbers, as gradients have them: nearer to the true sums than adding floats in a row. */
static void test_better_than_f32(void **state)
{
    enum { P = 16, N = 960 };
    float *x = malloc(sizeof(*x) * P * N), out[N];
    double ours = 0, plain = 0;

    (void)state;
    for (int i = 0; i < P * N; ++i) x[i] = ct_rng_normal_at(3, (uint64_t)i);
    sum_of(x, P, N, false, 1, out);
    for (int i = 0; i < N; ++i) {
        double exact = 0;
        float sum = 0;

        for (int r = 0; r < P; ++r) {
            exact += x[r * N + i];
            sum += x[r * N + i];
        }
        ours += (out[i] - exact) * (out[i] - exact);
        plain += (sum - exact) * (sum - exact);
    }
    /* one rounding against P - 1 of them: variances 1 to 8 or so, partial sums being smaller */
    assert_true(ours * 4 < plain);
    free(x);
}

/* Where a bucket is cut, at block boundaries, changes nothing; nor do threads. */
static void test_cuts(void **state)
{
    enum { N = 3 * 65536 + 5, CUT = 16 * 1001 };
    float *x = malloc(sizeof(*x) * N);
    int64_t blocks = ct_repro_blocks(N), cut = CUT / CT_REPRO_BLOCK;
    uint8_t *top = malloc((size_t)blocks * 4), *odd = top + blocks, *t = odd + blocks;
    uint8_t *o = t + blocks;
    int64_t *q = malloc(sizeof(*q) * N), *p = malloc(sizeof(*p) * N);

    (void)state;
    for (int i = 0; i < N; ++i) x[i] = draw(1, (uint64_t)i, -10, 10);
    x[70000] = INFINITY;
    ct_repro_scan(x, N, top, odd, 3);
    ct_repro_scan(x, CUT, t, o, 1);
    ct_repro_scan(x + CUT, N - CUT, t + cut, o + cut, 1);
    assert_memory_equal(top, t, (size_t)blocks);
    assert_memory_equal(odd, o, (size_t)blocks);
    assert_int_equal(odd[70000 / 16], 1);
    ct_repro_encode(x, N, top, odd, 6, q, 3);
    ct_repro_encode(x, CUT, top, odd, 6, p, 1);
    ct_repro_encode(x + CUT, N - CUT, top + cut, odd + cut, 6, p + CUT, 1);
    assert_memory_equal(q, p, sizeof(*q) * N);
    free(x);
    free(top);
    free(q);
    free(p);
}

static void test_not_finite(void **state)
{
    const float inf = INFINITY, nan = NAN;
    static const int ranks[] = { 2, 3, 17, 200, 1000 };
    float x[1000 * 20], out[20];

    (void)state;
    for (size_t p = 0; p < sizeof(ranks) / sizeof(ranks[0]); ++p) {
        int n = ranks[p], last = n - 1;

        for (int i = 0; i < n * 20; ++i) x[i] = (float)(i % 20);
        x[0] = inf;
        x[last * 20 + 1] = -inf;
        x[2] = nan;
        x[3] = inf;
        x[last * 20 + 3] = -inf;
        for (int r = 0; r < n; ++r) x[r * 20 + 4] = inf; /* on all ranks */
        for (int r = 0; r < n; ++r) x[r * 20 + 5] = -inf;
        for (int r = 0; r < n; ++r) x[r * 20 + 6] = nan;
        x[7] = -nan;
        x[last * 20 + 7] = inf;
        x[8] = -1e-30f;
        sum_of(x, n, 20, false, 1, out);
        assert_true(out[0] == inf && out[1] == -inf && isnan(out[2]) && isnan(out[3]));
        assert_true(out[4] == inf && out[5] == -inf && isnan(out[6]) && isnan(out[7]));
        /* neighbours, and those of another block: even the 31 bits at 1000 ranks hold them */
        for (int i = 9; i < 20; ++i) assert_true(out[i] == (float)(i * n));
        assert_true(out[8] == (float)(8 * last));
    }
}

static void test_edges(void **state)
{
    float x[3 * 4] = { 0,       FLT_MAX,   -FLT_MAX, 0x1p-149f, -0.0f, FLT_MAX,
                       FLT_MAX, 0x1p-149f, 0,        -FLT_MAX,  1,     0x1p-149f };
    float tiny[2 * 2] = { 0x1p-149f, -0x1p-126f, 0x1p-149f, 0x1p-149f }, out[4];

    (void)state;
    sum_of(x, 3, 4, false, 1, out);
    assert_true((out[0] == 0) && !signbit(out[0]));
    assert_true(out[1] == FLT_MAX); /* in a row, the sum of the first two overflows */
    assert_true(out[2] == 0);       /* 1 is far below half a unit of FLT_MAX's integer */
    assert_true(out[3] == 0);
    sum_of(tiny, 2, 2, false, 1, out);
    assert_true((out[0] == 0x1p-148f) && (out[1] == -0x1p-126f + 0x1p-149f));
    for (int i = 0; i < 12; ++i) x[i] = FLT_MAX;
    sum_of(x, 3, 4, false, 1, out);
    assert_true(isinf(out[0]));
}

/* 2^20 ranks with the largest values: no sum of integers leaves 63 bits. */
static void test_most_ranks(void **state)
{
    const int ranks = 1 << CT_REPRO_LOG_RANKS;
    float x[4] = { 0x1.fffffep0f, -0x1.fffffep0f, 1, INFINITY }, out[4];
    int64_t q[4], sum[4];
    uint8_t top[1], odd[1];

    (void)state;
    ct_repro_scan(x, 3, top, odd, 1);
    assert_int_equal(top[0], 127);
    ct_repro_encode(x, 3, top, odd, ranks, q, 1);
    for (int i = 0; i < 3; ++i) assert_false(__builtin_mul_overflow(q[i], (int64_t)ranks, &sum[i]));
    ct_repro_decode(sum, 3, top, odd, ranks, out, 1);
    for (int i = 0; i < 3; ++i) assert_true(out[i] == x[i] * 0x1p20f);
    ct_repro_scan(x, 4, top, odd, 1);
    assert_int_equal(odd[0], 1);
    ct_repro_encode(x, 4, top, odd, ranks, q, 1);
    for (int i = 0; i < 4; ++i) sum[i] = (int64_t)((uint64_t)q[i] << CT_REPRO_LOG_RANKS);
    ct_repro_decode(sum, 4, top, odd, ranks, out, 1);
    assert_true(isinf(out[3]) && (out[3] > 0));
    for (int i = 0; i < 3; ++i) /* one bit is left */
        assert_true(fabsf(out[i] - x[i] * 0x1p20f) <= 0x1p20f);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),           cmocka_unit_test(test_bound),
        cmocka_unit_test(test_better_than_f32), cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_not_finite),      cmocka_unit_test(test_edges),
        cmocka_unit_test(test_most_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
