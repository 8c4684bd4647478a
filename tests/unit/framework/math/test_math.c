/* Every operation of ct_math_cpu against ct_math_ref. Values are uniform in [-1, 1), so that a sum
 * of k products computed in any order differs from the exact one by at most
 * (k + 2) eps (|alpha| k + |beta|), eps = 2^-24 (Higham, Accuracy and Stability, section 3.1). */
#include "tests/test.h"

#include "framework/base/memory.h"
#include "framework/base/rng.h"
#include "framework/math/math.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

static const double EPS = 0x1p-24;

static float *make(int64_t n, uint64_t key)
{
    float *v = ct_mem_acquire((size_t)n * sizeof(float));

    assert_non_null(v);
    for (int64_t i = 0; i < n; i++) v[i] = 2.0f * ct_rng_uniform_at(key, (uint64_t)i) - 1.0f;
    return v;
}

static void assert_near(const float *a, const float *b, int64_t n, double tolerance)
{
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs((double)a[i] - b[i]) <= tolerance))
            fail_msg("element %lld: %.9g, expected %.9g, tolerance %g", (long long)i, a[i], b[i],
                     tolerance);
    }
}

typedef struct gemm_case {
    bool ta, tb;
    int64_t m, n, k, pad; /* pad: how much longer than a row the strides are */
    float alpha, beta;
    int64_t limit;
} gemm_case;

static void check_gemm(const gemm_case *g)
{
    int64_t lda = (g->ta ? g->m : g->k) + g->pad, rows_a = g->ta ? g->k : g->m;
    int64_t ldb = (g->tb ? g->k : g->n) + g->pad, rows_b = g->tb ? g->n : g->k;
    int64_t ldc = g->n + g->pad, count = g->m * ldc;
    float *a = make(rows_a * lda + 1, 1), *b = make(rows_b * ldb + 1, 2);
    float *c = make(count, 3), *want = make(count, 3);
    double k = (double)g->k;

    if (g->beta == 0.0f) { /* whatever stands there is overwritten, between the rows nothing */
        for (int64_t i = 0; i < g->m; i++) {
            for (int64_t j = 0; j < g->n; j++) c[i * ldc + j] = NAN;
        }
    }
    assert_int_equal(ct_math_ref.gemm(NULL, g->ta, g->tb, g->m, g->n, g->k, g->alpha, a, lda, b,
                                      ldb, g->beta, want, ldc),
                     CT_OK);
    assert_int_equal(ct_cpu_gemm(g->limit, g->ta, g->tb, g->m, g->n, g->k, g->alpha, a, lda, b, ldb,
                                 g->beta, c, ldc),
                     CT_OK);
    assert_near(c, want, count,
                (k + 4.0) * EPS * (fabs((double)g->alpha) * k + fabs((double)g->beta) + 1.0));
    ct_mem_release(a), ct_mem_release(b), ct_mem_release(c), ct_mem_release(want);
}

static void test_gemm(void **state)
{
    static const int64_t size[][3] = { { 1, 1, 1 },    { 1, 7, 3 },  { 5, 1, 9 },    { 3, 5, 1 },
                                       { 17, 33, 65 }, { 20, 5, 0 }, { 13, 100, 31 } };
    static const float factor[][2] = { { 1, 0 }, { 1, 1 }, { -0.5f, 0.25f }, { 0, 0 }, { 0, 2 } };

    (void)state;
    for (size_t s = 0; s < sizeof(size) / sizeof(size[0]); s++) {
        for (size_t f = 0; f < sizeof(factor) / sizeof(factor[0]); f++) {
            for (int v = 0; v < 16; v++) {
                gemm_case g = { .ta = (v & 1) != 0,
                                .tb = (v & 2) != 0,
                                .m = size[s][0],
                                .n = size[s][1],
                                .k = size[s][2],
                                .pad = (v & 4) ? 3 : 0,
                                .alpha = factor[f][0],
                                .beta = factor[f][1],
                                .limit = (v & 8) ? 7 : 1 << 30 };

                check_gemm(&g);
            }
        }
    }
}

static void test_gemv(void **state)
{
    static const int64_t size[][2] = {
        { 1, 1 }, { 1, 9 }, { 9, 1 }, { 33, 65 }, { 0, 5 }, { 5, 0 }
    };
    static const float factor[][2] = { { 1, 0 }, { 1, 1 }, { -0.5f, 0.25f }, { 0, 0 } };

    (void)state;
    for (size_t s = 0; s < sizeof(size) / sizeof(size[0]); s++) {
        for (size_t f = 0; f < sizeof(factor) / sizeof(factor[0]); f++) {
            for (int v = 0; v < 4; v++) {
                bool trans = (v & 1) != 0;
                int64_t m = size[s][0], n = size[s][1], lda = n + 2, out = trans ? n : m;
                double k = (double)(trans ? m : n);
                float *a = make(m * lda + 1, 4), *x = make(trans ? m : n, 5);
                float *y = make(out, 6), *want = make(out, 6);

                for (int64_t i = 0; (factor[f][1] == 0.0f) && (i < out); i++) y[i] = NAN;
                ct_math_ref.gemv(NULL, trans, m, n, factor[f][0], a, lda, x, factor[f][1], want);
                ct_cpu_gemv((v & 2) ? 7 : 1 << 30, trans, m, n, factor[f][0], a, lda, x,
                            factor[f][1], y);
                assert_near(y, want, out, (k + 4.0) * EPS * (k + 2.0));
                ct_mem_release(a), ct_mem_release(x), ct_mem_release(y), ct_mem_release(want);
            }
        }
    }
}

/* Below and above a block and the size from which a team works. */
static const int64_t length[] = { 0, 1, 7, 31, 8193, 65536, 200003 };
enum { N_LENGTH = sizeof(length) / sizeof(length[0]) };

/* No operation contracts or reorders: element by element the results are the same bits. */
static void test_elementwise(void **state)
{
    const ct_math_ops *ops[2] = { &ct_math_ref, &ct_math_cpu };

    (void)state;
    for (int l = 0; l < N_LENGTH; l++) {
        int64_t n = length[l];
        float *x = make(n, 7), *z = make(n, 8), *y[2], *h[2];

        for (int v = 0; v < 2; v++) {
            y[v] = make(n + 1, 9);
            h[v] = make(n, 10);
            assert_int_equal(ops[v]->scale(NULL, n, 1.25f, y[v]), CT_OK);
            assert_int_equal(ops[v]->axpy(NULL, n, -0.3f, x, y[v]), CT_OK);
            assert_int_equal(ops[v]->axpby(NULL, n, 0.7f, z, 0.9f, y[v]), CT_OK);
            if (n > 3) y[v][3] = 0.0f; /* sign(0) */
            assert_int_equal(ops[v]->sgd(NULL, n, 0.5f, 0.1f, 0.9f, 0.01f, 0.0f, x, h[v], y[v]),
                             CT_OK);
            assert_int_equal(ops[v]->sgd(NULL, n, 0.5f, 0.1f, 0.9f, 0.0f, 0.02f, z, h[v], y[v]),
                             CT_OK);
        }
        assert_memory_equal(y[0], y[1], (size_t)(n + 1) * sizeof(float));
        if (n > 0) assert_memory_equal(h[0], h[1], (size_t)n * sizeof(float));
        for (int v = 0; v < 2; v++) {
            for (int64_t i = 0; i < n; i++) y[v][i] = NAN;
            assert_int_equal(ops[v]->axpby(NULL, n, 2.0f, x, 0.0f, y[v]), CT_OK);
        }
        assert_memory_equal(y[0], y[1], (size_t)(n + 1) * sizeof(float));
        for (int v = 0; v < 2; v++) assert_int_equal(ops[v]->mul(NULL, n, x, z, y[v]), CT_OK);
        assert_memory_equal(y[0], y[1], (size_t)(n + 1) * sizeof(float));
        for (int v = 0; v < 2; v++) assert_int_equal(ops[v]->set(NULL, n, -3.5f, y[v]), CT_OK);
        assert_memory_equal(y[0], y[1], (size_t)(n + 1) * sizeof(float));
        if (n > 0) assert_true((y[1][0] == -3.5f) && (y[1][n - 1] == -3.5f));
        for (int v = 0; v < 2; v++) ct_mem_release(y[v]), ct_mem_release(h[v]);
        ct_mem_release(x), ct_mem_release(z);
    }
}

static void test_sgd_by_hand(void **state)
{
    float w = -2.0f, h = 1.0f, g = 4.0f;

    (void)state;
    /* g' = 0.5 * 4 + 0.25 * -2 = 1.5; h = 0.5 * 1 + 0.5 * 1.5 = 1.25; w = -3.25 */
    ct_math_cpu.sgd(NULL, 1, 0.5f, 0.5f, 0.5f, 0.25f, 0.0f, &g, &h, &w);
    assert_true((h == 1.25f) && (w == -3.25f) && (g == 4.0f));
    /* g' = 2 - 0.25 = 1.75; h = 0.625 + 0.875 = 1.5; w = -4.75 */
    ct_math_cpu.sgd(NULL, 1, 0.5f, 0.5f, 0.5f, 0.0f, 0.25f, &g, &h, &w);
    assert_true((h == 1.5f) && (w == -4.75f));
}

/* What math.h promises of the order of a sum. b == NULL: of |a|. */
static double sum_in_order(int64_t n, const float *a, const float *b)
{
    int64_t part = ((n + 255) / 256 > 8192) ? (n + 255) / 256 : 8192;
    double all = 0;

    for (int64_t from = 0; from < n; from += part) {
        int64_t end = (from + part < n) ? from + part : n;
        double beside[16] = { 0 }, sum = 0;

        for (int64_t i = from; i < end; i++)
            beside[(i - from) % 16] += (b != NULL) ? (double)a[i] * b[i] : fabs((double)a[i]);
        for (int k = 0; k < 16; k++) sum += beside[k];
        all += sum;
    }
    return all;
}

/* Sums of doubles of n terms below 1: n eps_double n; and the same bits, whatever the vectors of
 * this machine, for any team: ranks compare norms with limits, and must all find the same. */
static void test_reductions(void **state)
{
    enum { LARGE = 256 * 8192 + 4099 }; /* parts are longer than their least length */
    int most = omp_get_max_threads();

    (void)state;
    for (int l = 0; l <= N_LENGTH; l++) {
        int64_t n = (l < N_LENGTH) ? length[l] : LARGE;
        float *x = make(n, 11), *z = make(n, 12);
        double tolerance = (double)n * (double)n * 0x1p-52, got[3], want[3];
        double order[3] = { sum_in_order(n, x, z), sum_in_order(n, x, x),
                            sum_in_order(n, x, NULL) };

        ct_math_ref.dot(NULL, n, x, z, &want[0]);
        ct_math_ref.sumsq(NULL, n, x, &want[1]);
        ct_math_ref.asum(NULL, n, x, &want[2]);
        for (int team = 1; team <= 4; team++) {
            omp_set_num_threads(team);
            ct_math_cpu.dot(NULL, n, x, z, &got[0]);
            ct_math_cpu.sumsq(NULL, n, x, &got[1]);
            ct_math_cpu.asum(NULL, n, x, &got[2]);
            for (int v = 0; v < 3; v++) assert_true(fabs(got[v] - want[v]) <= tolerance);
            assert_memory_equal(got, order, sizeof(got));
        }
        omp_set_num_threads(most);
        ct_mem_release(x), ct_mem_release(z);
    }
}

/* Layers call these from inside a parallel region: one image a thread. */
static void test_nested(void **state)
{
    enum { N = 48 };
    float *a = make(N * N, 13), *b = make(N * N, 14), *c = make(8 * N * N, 15);
    double sum[8], want_sum;
    int bad = 0;

    (void)state;
#pragma omp parallel for num_threads(4) schedule(static, 1)
    for (int t = 0; t < 8; t++) {
        ct_math_cpu.gemm(NULL, false, true, N, N, N, 1.0f, a, N, b, N, 0.0f, c + t * N * N, N);
        ct_math_cpu.dot(NULL, N * N, a, b, &sum[t]);
    }
    ct_math_cpu.dot(NULL, N * N, a, b, &want_sum);
    for (int t = 0; t < 8; t++) {
        bad += (memcmp(c, c + t * N * N, N * N * sizeof(float)) != 0);
        bad += (sum[t] != want_sum);
    }
    assert_int_equal(bad, 0);
    ct_mem_release(a), ct_mem_release(b), ct_mem_release(c);
}

static void ignore_log(void *ctx, const char *text)
{
    strncpy(ctx, text, 255);
}

static void test_device(void **state)
{
    const ct_device *dev = NULL;
    char text[256] = "";
    float host[3] = { 1, 2, 3 }, back[3] = { 0, 0, 0 };
    void *data;

    (void)state;
    assert_int_equal(ct_device_open("cpu", 0, &dev), CT_OK);
    assert_ptr_equal(dev, ct_device_cpu());
    assert_int_equal(dev->mem_acquire(sizeof(host), &data), CT_OK);
    assert_int_equal((uintptr_t)data % CT_ALIGN, 0);
    assert_int_equal(dev->from_host(NULL, data, host, sizeof(host)), CT_OK);
    assert_int_equal(dev->to_host(NULL, back, data, sizeof(host)), CT_OK);
    assert_memory_equal(host, back, sizeof(host));
    assert_int_equal(dev->zero(NULL, data, sizeof(host)), CT_OK);
    assert_true(((float *)data)[2] == 0.0f);
    assert_int_equal(dev->sync(NULL), CT_OK);
    dev->mem_release(data);
    ct_log_set_sink(ignore_log, text);
    assert_int_equal(ct_device_open("tpu", 0, &dev), CT_ERR_CONFIG);
    ct_log_set_sink(NULL, NULL);
    assert_non_null(strstr(text, "unknown device \"tpu\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm),        cmocka_unit_test(test_gemv),
        cmocka_unit_test(test_elementwise), cmocka_unit_test(test_sgd_by_hand),
        cmocka_unit_test(test_reductions),  cmocka_unit_test(test_nested),
        cmocka_unit_test(test_device),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
