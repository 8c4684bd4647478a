/* Sigmoid and TanH: against the C library's functions in double, gradients, in place. Sizes above
 * and below what runs on one thread. */
#include "tests/test.h"
#include "tests/layer_harness.h"

#include <math.h>

static double exact(bool is_tanh, double x)
{
    return is_tanh ? tanh(x) : 1 / (1 + exp(-x));
}

static void check(bool is_tanh, bool in_place, int64_t n)
{
    test_layer_spec spec = { .type = is_tanh ? "TanH" : "Sigmoid",
                             .n_bottom = 1,
                             .bottom = { TEST_SHAPE(n, 3) },
                             .in_place = in_place };
    test_layer *t;

    assert_int_equal(test_layer_create(&spec, &t), CT_OK);
    for (int64_t i = 0; i < t->input_count[0]; i++) t->input[0][i] *= 6.0f;
    for (int64_t i = 0; i < t->top_count[0]; i++) t->top_diff[0][i] = (float)(i % 7) - 3.0f;
    test_layer_pass(t);
    for (int64_t i = 0; i < t->top_count[0]; i++) {
        double y = exact(is_tanh, (double)t->input[0][i]), dy = (double)t->top_diff[0][i];
        double dx = dy * (is_tanh ? 1 - y * y : y * (1 - y));

        /* y to 4 units; 1 - y y loses what y has, at most 2 * 4 units of 1, times dy */
        assert_true(fabs((double)t->top[0][i] - y) <= 4 * 0x1p-23 * fabs(y));
        assert_true(fabs((double)t->input_diff[0][i] - dx) <= 12 * 0x1p-23 * fabs(dy));
    }
    if (n < 100) test_layer_gradient(t, &(test_gradient){ .roundings = 16 });
    test_layer_destroy(t);
}

static void test_both(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        check(k & 1, k & 2, 7);
        check(k & 1, k & 2, 5003);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_both) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
