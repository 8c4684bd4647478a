/* Least squares of the machine's figures: known figures come back, from noise nearly. */
#include "tests/test.h"

#include <math.h>

#include "framework/base/rng.h"
#include "cli/bench/fit_math.h"

enum { N = 12 };

static void make_sizes(double *bytes)
{
    for (int i = 0; i < N; ++i) bytes[i] = ldexp(4096, i);
}

static void test_line(void **state)
{
    double bytes[N], t[N];
    ct_fit_line l;

    (void)state;
    make_sizes(bytes);
    for (int i = 0; i < N; ++i) t[i] = 2e-6 + bytes[i] / 10e9;
    l = ct_fit_line_of(bytes, t, N);
    assert_true(fabs(l.alpha_s / 2e-6 - 1) < 1e-9);
    assert_true(fabs(l.beta * 10e9 - 1) < 1e-9);
    assert_true(l.residual < 1e-9);
    assert_true(fabs(ct_fit_line_s(&l, 1e6) / (2e-6 + 1e-4) - 1) < 1e-9);

    /* each time off by up to 5 %: so are the figures about, and the residual says it */
    for (int i = 0; i < N; ++i) t[i] *= 1 + 0.05 * (2 * ct_rng_uniform_at(7, (uint64_t)i) - 1);
    l = ct_fit_line_of(bytes, t, N);
    assert_true(fabs(l.alpha_s / 2e-6 - 1) < 0.05);
    assert_true(fabs(l.beta * 10e9 - 1) < 0.05);
    assert_true((l.residual > 0.005) && (l.residual < 0.05));
}

/* Times that a straight line would give a negative latency: none comes out. */
static void test_not_negative(void **state)
{
    double bytes[4] = { 1000, 2000, 3000, 4000 }, t[4] = { 1e-6, 3e-6, 5e-6, 7e-6 };
    ct_fit_line l = ct_fit_line_of(bytes, t, 4);

    (void)state;
    assert_true(l.alpha_s == 0);
    assert_true((l.beta > 1e-9) && (l.beta < 2e-9));
    assert_true(l.residual > 0.05);
}

static void test_knee(void **state)
{
    double bytes[N], t[N];
    ct_fit_knee k;

    (void)state;
    make_sizes(bytes);
    for (int i = 0; i < N; ++i) {
        double below = (bytes[i] < 786432) ? bytes[i] : 786432; /* half way between two sizes */

        t[i] = 1e-6 + below / 50e9 + (bytes[i] - below) / 12e9;
    }
    k = ct_fit_knee_of(bytes, t, N);
    assert_true(fabs(k.knee / 786432 - 1) < 1e-9);
    assert_true(fabs(k.alpha_s / 1e-6 - 1) < 1e-6);
    assert_true(fabs(k.beta * 50e9 - 1) < 1e-6);
    assert_true(fabs(k.beyond * 12e9 - 1) < 1e-6);
    assert_true(fabs(ct_fit_knee_s(&k, bytes[N - 1]) / t[N - 1] - 1) < 1e-6);
    assert_true(fabs(ct_fit_knee_s(&k, bytes[2]) / t[2] - 1) < 1e-6);

    /* no knee at all: both slopes are the line's */
    for (int i = 0; i < N; ++i) t[i] = 3e-6 + bytes[i] / 5e9;
    k = ct_fit_knee_of(bytes, t, N);
    assert_true(fabs(k.beta * 5e9 - 1) < 1e-6);
    assert_true(fabs(k.beyond * 5e9 - 1) < 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line),
        cmocka_unit_test(test_not_negative),
        cmocka_unit_test(test_knee),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
