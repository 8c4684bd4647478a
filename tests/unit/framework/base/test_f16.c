/* Every f16 there and back, and the rounding of f32 against a slow, exact way. */
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>

#include "framework/base/f16.h"
#include "comm/core/reduce.h"
#include "framework/base/rng.h"

/* By definition of binary16. */
static double exact(uint16_t h)
{
    int e = (h >> 10) & 31, m = h & 1023;
    double v = (e == 0) ? ldexp(m, -24) : ldexp(1024 + m, e - 25);

    if (e == 31) v = (m == 0) ? INFINITY : NAN;
    return (h & 0x8000) ? -v : v;
}

static void test_all_values(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; ++h) {
        float f = ct_f16_to_f32((uint16_t)h);
        double v = exact((uint16_t)h);

        if (isnan(v)) {
            assert_true(isnan(f));
            assert_true(isnan(ct_f16_to_f32(ct_f16_from_f32(f))));
            continue;
        }
        assert_true((double)f == v);
        assert_true(!signbit(f) == !signbit(v));
        assert_int_equal(ct_f16_from_f32(f), h);
    }
}

static void expect_nearest(float f)
{
    uint16_t h = ct_f16_from_f32(f), below = h, above = h;
    double here = exact(h), off = fabs(here - (double)f);

    if (fabs((double)f) >= 65520) {
        assert_true(isinf(here) && (!signbit(here) == !signbit(f)));
        return;
    }
    assert_false(isinf(here));
    if ((h & 0x7fff) != 0) below = (uint16_t)(h - 1);
    if ((h & 0x7fff) != 0x7bff) above = (uint16_t)(h + 1);
    assert_true(off <= fabs(exact(below) - (double)f));
    assert_true(off <= fabs(exact(above) - (double)f));
    /* a tie goes to the even one */
    if ((below != h) && (off == fabs(exact(below) - (double)f))) assert_true((h & 1) == 0);
    if ((above != h) && (off == fabs(exact(above) - (double)f))) assert_true((h & 1) == 0);
}

static void test_rounding(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 300000; ++i) {
        uint32_t bits = ct_rng_philox(1, 0, i).v[0];
        float f;

        memcpy(&f, &bits, sizeof(f));
        if (isnan(f))
            assert_true(isnan(ct_f16_to_f32(ct_f16_from_f32(f))));
        else
            expect_nearest(f);
        /* exponents that matter: 2^-27 … 2^16 */
        bits = (bits & 0x807fffffu) | ((100 + bits % 44) << 23);
        memcpy(&f, &bits, sizeof(f));
        expect_nearest(f);
    }
    for (uint32_t h = 0; h < 0x7bff; ++h) { /* ties, and their neighbours */
        float tie = (float)((exact((uint16_t)h) + exact((uint16_t)(h + 1))) / 2);

        expect_nearest(tie);
        expect_nearest(nextafterf(tie, INFINITY));
        expect_nearest(-nextafterf(tie, 0));
    }
    expect_nearest(65519.996f);
    expect_nearest(65520);
    expect_nearest(-1e30f);
}

/* Sums in f32, rounded once where many are added, at each addition where two are. */
static void test_sums(void **state)
{
    enum { N = 5003, K = 5 };
    uint16_t *x[K], *out = malloc(sizeof(*out) * N), *y = malloc(sizeof(*y) * N);
    const void *src[K];
    void *dst[1] = { out };

    (void)state;
    for (int k = 0; k < K; ++k) {
        x[k] = malloc(sizeof(*x[k]) * N);
        src[k] = x[k];
        for (int i = 0; i < N; ++i)
            x[k][i] = ct_f16_from_f32(ct_rng_normal_at((uint64_t)k, (uint64_t)i));
    }
    memcpy(y, x[0], sizeof(*y) * N);
    ct_reduce_add(CT_F16, N, x[1], y, 1);
    ct_reduce_many(CT_F16, N, src, K, dst, 1, 1);
    for (int i = 0; i < N; ++i) {
        float two = ct_f16_to_f32(x[0][i]) + ct_f16_to_f32(x[1][i]), all = ct_f16_to_f32(x[0][i]);

        for (int k = 1; k < K; ++k) all += ct_f16_to_f32(x[k][i]);
        assert_int_equal(y[i], ct_f16_from_f32(two));
        assert_int_equal(out[i], ct_f16_from_f32(all));
    }
    for (int k = 0; k < K; ++k) free(x[k]);
    free(out);
    free(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_values),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_sums),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
