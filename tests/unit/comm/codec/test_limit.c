/* The limit of a norm: one factor for any number of threads, the update's scale in place of a
 * gradient that is written again. */
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/codec/select.h"
#include "framework/base/rng.h"
#include "framework/math/math.h"
#include "framework/tensor/device.h"

static const int64_t size[] = { 1, 15, 16, 8193, 65535, 65536, 300001 };
enum { SIZES = (int)(sizeof(size) / sizeof(size[0])) };

static float *numbers(int64_t n, uint64_t key)
{
    float *x = malloc(sizeof(*x) * (size_t)n);

    assert_non_null(x);
    for (int64_t i = 0; i < n; ++i) x[i] = ct_rng_normal_at(key, (uint64_t)i);
    return x;
}

/* The bits of math.h's order, which ranks with other teams and vectors find, too. */
static void test_square(void **state)
{
    (void)state;
    for (int s = 0; s < SIZES; ++s) {
        float *x = numbers(size[s], 3);
        double want = 0;

        assert_int_equal(ct_device_cpu()->math->sumsq(NULL, size[s], x, &want), CT_OK);
        for (int n_thread = 1; n_thread <= 4; ++n_thread)
            assert_true(ct_momentum_correction_square(x, size[s], n_thread) == want);
        free(x);
    }
}

static void test_factor(void **state)
{
    const float infinite[3] = { 1, INFINITY, 1 }, nan[3] = { 1, NAN, 1 }, zero[3] = { 0 };

    (void)state;
    for (int s = 0; s < SIZES; ++s) {
        float *x = numbers(size[s], 4);
        double norm = sqrt(ct_momentum_correction_square(x, size[s], 1));

        for (int n_thread = 1; n_thread <= 3; ++n_thread) {
            assert_true(ct_momentum_correction_limit(x, size[s], norm, n_thread) == 1);
            assert_true(ct_momentum_correction_limit(x, size[s], 2 * norm, n_thread) == 1);
            assert_true(ct_momentum_correction_limit(x, size[s], norm / 4, n_thread) == 0.25f);
            assert_true(ct_momentum_correction_limit(x, size[s], norm / 3, n_thread) ==
                        (float)(1.0 / 3));
        }
        free(x);
    }
    assert_true(ct_momentum_correction_limit(infinite, 3, 1, 1) ==
                1); /* the codec says what is wrong */
    assert_true(ct_momentum_correction_limit(nan, 3, 1, 1) == 1);
    assert_true(ct_momentum_correction_limit(zero, 3, 1, 1) == 1);
}

static void test_scale(void **state)
{
    (void)state;
    for (int s = 0; s < SIZES; ++s) {
        for (int n_thread = 1; n_thread <= 3; ++n_thread) {
            float *x = numbers(size[s], 5), *y = numbers(size[s], 5);

            ct_momentum_correction_scale(x, size[s], 0.3f, n_thread);
            for (int64_t i = 0; i < size[s]; ++i) assert_true(x[i] == 0.3f * y[i]);
            free(x);
            free(y);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_square),
        cmocka_unit_test(test_factor),
        cmocka_unit_test(test_scale),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
