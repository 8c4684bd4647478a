/* Eltwise against its formulas and by differences. */
#include "tests/test.h"
#include "tests/layer_harness.h"

#include <math.h>

static test_layer *make(const char *text, int n_bottom, ct_shape shape)
{
    test_layer_spec spec = { .type = "Eltwise", .text = text, .n_bottom = n_bottom };
    test_layer *t;

    for (int k = 0; k < n_bottom; k++) spec.bottom[k] = shape;
    assert_int_equal(test_layer_create(&spec, &t), CT_OK);
    return t;
}

static void test_sum(void **state)
{
    static const double coeff[3] = { 0.5, -2, 1.25 };
    test_layer *t = make("eltwise_param { coeff: [0.5, -2, 1.25] }", 3, TEST_SHAPE(3, 5, 7, 1));

    (void)state;
    assert_int_equal(test_layer_forward(t), CT_OK);
    for (int i = 0; i < 105; i++) {
        double sum = 0, size = 0;

        for (int k = 0; k < 3; k++) {
            sum += coeff[k] * (double)t->input[k][i];
            size += fabs(coeff[k] * (double)t->input[k][i]);
        }
        /* a rounding for each product and each sum: at most 5 of numbers up to size */
        assert_true(fabs((double)t->top[0][i] - sum) <= 5 * 0x1p-24 * size);
    }
    test_layer_gradient(t, NULL);
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 105; i++)
            assert_true(t->input_diff[k][i] == (float)coeff[k] * t->top_diff[0][i]);
    test_layer_destroy(t);
}

static void test_sum_default(void **state)
{
    test_layer *t = make(NULL, 2, TEST_SHAPE(101, 97)); /* over the threshold of threads */

    (void)state;
    assert_int_equal(test_layer_forward(t), CT_OK);
    for (int i = 0; i < 101 * 97; i++) assert_true(t->top[0][i] == t->input[0][i] + t->input[1][i]);
    test_layer_gradient(t, &(test_gradient){ .max_element = 20 });
    test_layer_destroy(t);
}

static void check_prod(const char *text)
{
    test_layer *t = make(text, 3, TEST_SHAPE(4, 9));

    for (int k = 0; k < 3; k++) { /* away from 0, where the unstable form divides */
        test_random(t->input[k], 36, 40 + (uint64_t)k, 0.25f, 1.0f);
        for (int i = k; i < 36; i += 3) t->input[k][i] *= -1;
    }
    assert_int_equal(test_layer_forward(t), CT_OK);
    for (int i = 0; i < 36; i++) {
        double y = (double)t->input[0][i] * (double)t->input[1][i] * (double)t->input[2][i];

        assert_true(fabs((double)t->top[0][i] - y) <= 2 * 0x1p-24 * fabs(y));
    }
    test_layer_gradient(t, NULL);
    test_layer_destroy(t);
}

static void test_prod(void **state)
{
    (void)state;
    check_prod("eltwise_param { operation: PROD }");
    check_prod("eltwise_param { operation: PROD stable_prod_grad: false }");
}

/* The stable gradient has no division: with a zero factor the others' product is still right. */
static void test_prod_zero(void **state)
{
    test_layer *t = make("eltwise_param { operation: PROD }", 2, TEST_SHAPE(2));

    (void)state;
    t->input[0][0] = 0.0f;
    t->input[1][0] = 3.0f;
    t->top_diff[0][0] = 2.0f;
    test_layer_pass(t);
    assert_true((t->input_diff[0][0] == 6.0f) && (t->input_diff[1][0] == 0.0f));
    test_layer_destroy(t);
}

static void test_max(void **state)
{
    enum { N = 5 * 11 };
    test_layer *t = make("eltwise_param { operation: MAX }", 4, TEST_SHAPE(5, 11));
    float all[4 * N];

    (void)state;
    test_random_distinct(all, 4 * N, 77, -4, 4); /* distances over 8/220 > 2 steps: no kinks */
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < N; i++) t->input[k][i] = all[4 * i + k];
    assert_int_equal(test_layer_forward(t), CT_OK);
    for (int i = 0; i < N; i++) {
        float best = -INFINITY;

        for (int k = 0; k < 4; k++) best = fmaxf(best, t->input[k][i]);
        assert_true(t->top[0][i] == best);
    }
    test_layer_gradient(t, NULL);
    test_layer_destroy(t);
}

/* Caffe's order: of equal values the second of the first two bottoms gets the gradient. */
static void test_max_ties(void **state)
{
    test_layer *t = make("eltwise_param { operation: MAX }", 3, TEST_SHAPE(1));

    (void)state;
    for (int k = 0; k < 3; k++) t->input[k][0] = 1.5f;
    t->top_diff[0][0] = 1.0f;
    test_layer_pass(t);
    for (int k = 0; k < 3; k++) assert_true(t->input_diff[k][0] == ((k == 1) ? 1.0f : 0.0f));
    test_layer_destroy(t);
}

static void refused(const char *text, ct_shape second, ct_status expected, const char *part)
{
    test_layer_refused(&(test_layer_spec){ .type = "Eltwise",
                                           .text = text,
                                           .n_bottom = 2,
                                           .bottom = { TEST_SHAPE(2, 3), second } },
                       expected, part);
}

static void test_refused(void **state)
{
    (void)state;
    refused("eltwise_param { coeff: 1 }", TEST_SHAPE(2, 3), CT_ERR_CONFIG, "1 coeff for 2 bottoms");
    refused("eltwise_param { operation: PROD coeff: [1, 1] }", TEST_SHAPE(2, 3), CT_ERR_CONFIG,
            "SUM only");
    refused(NULL, TEST_SHAPE(3, 2), CT_ERR_SHAPE, "bottom 1 has shape 3 2 (6)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum),     cmocka_unit_test(test_sum_default),
        cmocka_unit_test(test_prod),    cmocka_unit_test(test_prod_zero),
        cmocka_unit_test(test_max),     cmocka_unit_test(test_max_ties),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
