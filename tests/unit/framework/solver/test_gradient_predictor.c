/* Estimates of gradients against their definitions, written down again in double: systems of
 * equations by elimination with pivots, where the predictor has factors. */
#include "tests/test.h"

#include <float.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "framework/solver/gradient_predictor.h"

enum { N = 7, ROOM = 5, LONG = 200003 };

/* Repeatable numbers in -1 to 1. */
static double number(uint64_t i)
{
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;

    x ^= x >> 31;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 29;
    return (double)(x >> 11) / (double)(1ull << 52) - 1.0;
}

static void fill(float *v, int64_t n, double middle, double size, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++)
        v[i] = (float)(middle + size * number((seed << 32) + (uint64_t)i));
}

typedef struct known {
    int n;
    double w[ROOM][N], g[ROOM][N];
} known;

static double distance(const double *a, const double *b)
{
    double sum = 0;

    for (int i = 0; i < N; i++) sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sqrt(sum);
}

static double kernel_of(ct_kernel kind, double r, double length)
{
    double q = r / length;

    if (kind == CT_KERNEL_RBF) return exp(-q * q / 2);
    return (1 + sqrt(5) * q + 5 * q * q / 3) * exp(-sqrt(5) * q);
}

/* x of A x = b. */
static void eliminate(int n, double a[ROOM][ROOM], const double *b, double *x)
{
    double m[ROOM][ROOM + 1];

    for (int i = 0; i < n; i++) {
        memcpy(m[i], a[i], sizeof(a[i]));
        m[i][n] = b[i];
    }
    for (int c = 0; c < n; c++) {
        int best = c;

        for (int i = c; i < n; i++)
            if (fabs(m[i][c]) > fabs(m[best][c])) best = i;
        for (int k = 0; k <= n; k++) {
            double keep = m[c][k];

            m[c][k] = m[best][k];
            m[best][k] = keep;
        }
        for (int i = 0; i < n; i++) {
            double f = m[i][c] / m[c][c];

            for (int k = c; (i != c) && (k <= n); k++) m[i][k] -= f * m[c][k];
        }
    }
    for (int i = 0; i < n; i++) x[i] = m[i][n] / m[i][i];
}

/* Element by element: mean + k^T A^-1 (g - mean). */
static void by_kernel(const known *h, const ct_gradient_predictor *p, double length,
                      const double *z, double *want)
{
    double a[ROOM][ROOM], k[ROOM], ones[ROOM], by_one[ROOM], x[ROOM], r[ROOM];

    for (int i = 0; i < h->n; i++) {
        k[i] = kernel_of(p->kernel, distance(z, h->w[i]), length);
        ones[i] = 1;
        for (int j = 0; j < h->n; j++)
            a[i][j] = kernel_of(p->kernel, distance(h->w[i], h->w[j]), length) +
                      ((i == j) ? p->noise : 0);
    }
    eliminate(h->n, a, ones, by_one);
    for (int e = 0; e < N; e++) {
        double mean = 0, sum = 0;

        for (int i = 0; i < h->n; i++) {
            mean += by_one[i] * h->g[i][e];
            sum += by_one[i];
        }
        mean = p->constant_mean ? mean / sum : 0;
        for (int i = 0; i < h->n; i++) r[i] = h->g[i][e] - mean;
        eliminate(h->n, a, r, x);
        want[e] = mean;
        for (int i = 0; i < h->n; i++) want[e] += k[i] * x[i];
    }
}

static void by_secant(const known *h, const double *z, double *want)
{
    const double *w1 = h->w[h->n - 1], *w0 = h->w[h->n - 2];
    const double *g1 = h->g[h->n - 1], *g0 = h->g[h->n - 2];
    double up = 0, down = 0, s;

    for (int e = 0; e < N; e++) {
        up += (z[e] - w1[e]) * (w1[e] - w0[e]);
        down += (w1[e] - w0[e]) * (w1[e] - w0[e]);
    }
    s = fmax(-1, fmin(1, up / down));
    for (int e = 0; e < N; e++) want[e] = g1[e] + s * (g1[e] - g0[e]);
}

static bool add(ct_gradient_predictor *p, float *w, float *g)
{
    int added = 0;

    assert_int_equal(ct_gradient_predictor_add(p, 1, &w, &g, &added), CT_OK);
    return added == 1;
}

static void estimate(const ct_gradient_predictor *p, const float *z, float *g)
{
    double c[CT_PREDICTOR_ROOM];

    assert_int_equal(ct_gradient_predictor_weigh(p, z, c), CT_OK);
    ct_gradient_predictor_combine(p, c, g);
}

static void open_predictor(ct_gradient_predictor *p, int64_t count)
{
    p->count = count;
    p->room = ROOM;
    assert_int_equal(ct_gradient_predictor_open(p), CT_OK);
}

/* Points a step of `size` apart about `middle`, more than there is room for. */
static void add_points(ct_gradient_predictor *p, int n, double middle, double size, known *h)
{
    float w[N], g[N];

    h->n = (n < ROOM) ? n : ROOM;
    for (int i = 0; i < n; i++) {
        fill(w, N, middle, size, 10 + (uint64_t)i);
        fill(g, N, 0.5, 1.0, 50 + (uint64_t)i);
        assert_true(add(p, w, g));
        for (int e = 0; (i >= n - h->n) && (e < N); e++) {
            h->w[i - n + h->n][e] = (double)w[e];
            h->g[i - n + h->n][e] = (double)g[e];
        }
    }
    assert_int_equal(p->n, h->n);
}

/* The lower one of those in the middle. */
static double median(const known *h)
{
    double d[ROOM * ROOM];
    int n = 0;

    for (int i = 0; i < h->n; i++)
        for (int j = i + 1; j < h->n; j++) d[n++] = distance(h->w[i], h->w[j]);
    for (int i = 0; i < n; i++) {
        int below = 0, equal = 0;

        for (int j = 0; j < n; j++) {
            below += d[j] < d[i];
            equal += d[j] == d[i];
        }
        if ((below <= (n - 1) / 2) && ((n - 1) / 2 < below + equal)) return d[i];
    }
    fail();
    return 0;
}

static void compare(ct_gradient_predictor *p, const float *z, const double *want)
{
    float got[N];

    estimate(p, z, got);
    for (int e = 0; e < N; e++)
        if (!(fabs((double)got[e] - want[e]) <= 1e-6 * (1 + fabs(want[e]))))
            fail_msg("element %d: %.9g, expected %.9g", e, (double)got[e], want[e]);
}

/* Weights far larger than their steps, too. */
static void test_kernel_is_its_definition(void **state)
{
    static const struct {
        double middle, size;
    } scale[] = { { 0.0, 1.0 }, { 1000.0, 0.25 } };

    (void)state;
    for (int c = 0; c < 2 * 2 * 2 * 2 * 3; c++) {
        ct_gradient_predictor p = { .prediction = CT_PREDICT_KERNEL,
                                    .kernel = (c & 1) ? CT_KERNEL_RBF : CT_KERNEL_MATERN52,
                                    .constant_mean = (c & 2) != 0,
                                    .noise = 0.01,
                                    .length = (c & 4) ? 0.0 : 0.75 };
        double middle = scale[(c >> 3) & 1].middle, size = scale[(c >> 3) & 1].size;
        double at[N], want[N];
        float z[N];
        known h;

        open_predictor(&p, N);
        add_points(&p, 2 + 3 * (c >> 4), middle, size, &h);
        fill(z, N, middle, size, 99);
        for (int e = 0; e < N; e++) at[e] = (double)z[e];
        by_kernel(&h, &p, (c & 4) ? median(&h) : 0.75, at, want);
        compare(&p, z, want);
        ct_gradient_predictor_close(&p);
    }
}

static void test_secant_is_its_definition(void **state)
{
    ct_gradient_predictor p = { .prediction = CT_PREDICT_SECANT };
    known h;

    (void)state;
    open_predictor(&p, N);
    add_points(&p, 7, 100.0, 0.5, &h);
    for (int c = 0; c < 40; c++) { /* behind, between and ahead of the last two, and too far */
        double at[N], want[N], share = -2.0 + 0.1 * c;
        float z[N];

        for (int e = 0; e < N; e++) {
            z[e] = (float)(h.w[4][e] + share * (h.w[4][e] - h.w[3][e]) + 0.1 * number((uint64_t)e));
            at[e] = (double)z[e];
        }
        by_secant(&h, at, want);
        compare(&p, z, want);
    }
    ct_gradient_predictor_close(&p);
}

static void test_none_and_last(void **state)
{
    ct_gradient_predictor p = { .prediction = CT_PREDICT_NONE };
    double zero[N] = { 0 };
    float z[N];
    known h;

    (void)state;
    open_predictor(&p, N);
    fill(z, N, 0, 1, 3);
    for (int k = CT_PREDICT_NONE; k <= CT_PREDICT_KERNEL; k++) {
        p.prediction = (ct_prediction)k;
        compare(&p, z, zero); /* nobody has evaluated anything */
    }
    add_points(&p, 1, 0, 1, &h);
    p.constant_mean = true;
    for (int k = CT_PREDICT_LAST; k <= CT_PREDICT_KERNEL; k++) {
        p.prediction = (ct_prediction)k;
        compare(&p, z, h.g[0]); /* of one point all but NONE know this */
    }
    add_points(&p, 6, 0, 1, &h);
    p.prediction = CT_PREDICT_LAST;
    compare(&p, z, h.g[ROOM - 1]);
    p.prediction = CT_PREDICT_NONE;
    compare(&p, z, zero);
    ct_gradient_predictor_close(&p);
}

/* Without noise the estimate at a point is what was seen there. */
static void test_points_are_met(void **state)
{
    ct_gradient_predictor p = { .prediction = CT_PREDICT_KERNEL, .constant_mean = true };
    known h;

    (void)state;
    open_predictor(&p, N);
    add_points(&p, 9, 50.0, 0.5, &h);
    for (int i = 0; i < h.n; i++) compare(&p, p.point[i], h.g[i]);
    ct_gradient_predictor_close(&p);
}

/* As many points as there may be, and more: the newest stay, and each is met. */
static void test_most_points(void **state)
{
    enum { MOST = CT_PREDICTOR_ROOM, ADDED = MOST + 3 };
    ct_gradient_predictor p = { .prediction = CT_PREDICT_KERNEL, .count = N, .room = MOST };
    static double seen[ADDED][N];
    float w[N], g[N];

    (void)state;
    assert_int_equal(ct_gradient_predictor_open(&p), CT_OK);
    for (int i = 0; i < ADDED; i++) {
        fill(w, N, 0, 1, 10 + (uint64_t)i);
        fill(g, N, 0.5, 1, 200 + (uint64_t)i);
        assert_true(add(&p, w, g));
        for (int e = 0; e < N; e++) seen[i][e] = (double)g[e];
    }
    assert_int_equal(p.n, MOST);
    for (int i = 0; i < MOST; i++) compare(&p, p.point[i], seen[ADDED - MOST + i]);
    ct_gradient_predictor_close(&p);
}

static void test_what_stays_out(void **state)
{
    ct_gradient_predictor p = { .prediction = CT_PREDICT_LAST };
    float w[N], g[N];
    double want[N];
    known h;

    (void)state;
    open_predictor(&p, N);
    add_points(&p, 3, 0, 1, &h);
    memcpy(w, p.point[1], sizeof(w));
    fill(g, N, 0, 1, 77);
    g[2] = NAN;
    assert_false(add(&p, w, g));
    g[2] = INFINITY;
    assert_false(add(&p, w, g));
    g[2] = 0.25f;
    w[6] = -INFINITY;
    assert_false(add(&p, w, g));
    assert_int_equal(p.n, 3);
    w[6] = p.point[1][6];
    assert_true(add(&p, w, g)); /* the same weights: the newer stays */
    assert_int_equal(p.n, 3);
    for (int e = 0; e < N; e++) want[e] = (double)g[e];
    compare(&p, w, want);
    for (int i = 0; i < 3; i++) { /* distances have moved along */
        for (int j = 0; j < 3; j++) {
            double sum = 0;

            for (int e = 0; e < N; e++)
                sum += pow((double)p.point[i][e] - (double)p.point[j][e], 2);
            assert_true(fabs(p.square[i][j] - sum) <= 1e-12);
        }
    }
    ct_gradient_predictor_close(&p);
}

/* Points that nearly are one leave the matrix singular without noise: the estimate stays finite. */
static void test_near_points(void **state)
{
    ct_gradient_predictor p = { .prediction = CT_PREDICT_KERNEL, .length = 1000.0 };
    float w[N], g[N];

    (void)state;
    open_predictor(&p, N);
    fill(w, N, 1.0, 1.0, 1);
    for (int i = 0; i < ROOM; i++) {
        w[0] = nextafterf(w[0], 10.0f);
        fill(g, N, 0.5, 0.25, 5);
        assert_true(add(&p, w, g));
    }
    assert_int_equal(p.n, ROOM);
    estimate(&p, w, g);
    for (int e = 0; e < N; e++) assert_true(fabs((double)g[e] - (double)p.gradient[0][e]) < 0.01);
    ct_gradient_predictor_close(&p);
}

/* A norm of 50 and steps of 0.01: float products of weights would lose the distances. */
static void test_long_vectors(void **state)
{
    static float w[LONG], g[LONG], got[2][LONG];
    static double before[LONG];
    int threads = omp_get_max_threads();

    (void)state;
    for (int run = 0; run < 2; run++) {
        ct_gradient_predictor p = { .prediction = CT_PREDICT_KERNEL, .noise = 0.001 };

        omp_set_num_threads(run ? 3 : 1);
        open_predictor(&p, LONG);
        fill(w, LONG, 0, 0.2, 1);
        for (int i = 0; i < 4; i++) {
            double sum = 0;

            for (int64_t e = 0; e < LONG; e++) {
                before[e] = (double)w[e];
                w[e] += (float)(4e-5 * number(((uint64_t)i << 40) + (uint64_t)e));
                sum += pow((double)w[e] - before[e], 2);
            }
            fill(g, LONG, 0, 1, 20 + (uint64_t)i);
            assert_true(add(&p, w, g));
            if (i > 0) assert_true(fabs(p.square[i][i - 1] / sum - 1.0) < 1e-9);
        }
        estimate(&p, w, got[run]);
        ct_gradient_predictor_close(&p);
    }
    omp_set_num_threads(threads);
    assert_memory_equal(got[0], got[1], sizeof(got[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernel_is_its_definition),
        cmocka_unit_test(test_secant_is_its_definition),
        cmocka_unit_test(test_none_and_last),
        cmocka_unit_test(test_points_are_met),
        cmocka_unit_test(test_most_points),
        cmocka_unit_test(test_what_stays_out),
        cmocka_unit_test(test_near_points),
        cmocka_unit_test(test_long_vectors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
