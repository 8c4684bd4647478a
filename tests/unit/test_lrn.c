/* Local response normalisation: engines against the definition, gradients, messages. */
#include "tests/test.h"
#include "tests/layer_harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct lrn_case {
    const char *fields;
    ct_shape x;
} lrn_case;

static const lrn_case good[] = {
    { "", { 4, { 2, 7, 3, 5 } } },
    { "local_size: 5 alpha: 0.0001 beta: 0.75", { 4, { 2, 16, 17, 19 } } },
    { "local_size: 3 alpha: 2 beta: 0.5 k: 2", { 4, { 1, 5, 4, 4 } } },
    { "local_size: 1 alpha: 1 beta: 1.5", { 4, { 3, 2, 2, 3 } } },
    { "local_size: 9 alpha: 1 beta: 0.75", { 4, { 2, 4, 3, 3 } } }, /* wider than the channels */
    { "local_size: 3 alpha: 1 beta: 0.75 norm_region: WITHIN_CHANNEL", { 4, { 2, 3, 5, 6 } } },
    { "local_size: 5 alpha: 2 beta: 0.6 norm_region: WITHIN_CHANNEL", { 4, { 3, 2, 3, 9 } } },
    { "local_size: 7 alpha: 2 norm_region: WITHIN_CHANNEL", { 4, { 1, 2, 2, 2 } } },
    { "local_size: 5 alpha: 1 beta: 0.75", { 4, { 1, 6, 16, 33 } } }, /* several tiles */
};
enum { N_GOOD = sizeof(good) / sizeof(good[0]) };

static test_layer *make(const lrn_case *c, const char *kernel)
{
    char text[300];
    test_layer_spec spec = { .type = "LRN", .text = text, .n_bottom = 1, .bottom = { c->x } };
    test_layer *t;

    snprintf(text, sizeof(text),
             "lrn_param { %s } ct_kernel { forward: \"%s\" backward_data: \"%s\" }", c->fields,
             kernel, kernel);
    assert_int_equal(test_layer_create(&spec, &t), CT_OK);
    return t;
}

/* Per element: up to 49 squares, a power of at most 4 ulp (vector libraries) and few roundings of
 * terms not above 2: 60 eps each for y, and as much for each of the two terms of dx with windows
 * of 49 ratios. */
static void test_engines(void **state)
{
    (void)state;
    for (int i = 0; i < N_GOOD; i++) {
        test_layer *t[2];

        for (int v = 0; v < 2; v++) {
            t[v] = make(&good[i], (v == 0) ? "ref" : "simd");
            test_random(t[v]->top_diff[0], t[v]->top_count[0], 4, -1.0f, 1.0f);
            assert_int_equal(test_layer_forward(t[v]), CT_OK);
            assert_int_equal(test_layer_backward(t[v]), CT_OK);
        }
        for (int64_t k = 0; k < t[0]->top_count[0]; k++) {
            assert_true(fabsf(t[1]->top[0][k] - t[0]->top[0][k]) <= 60.0f * 0x1p-24f);
            assert_true(fabsf(t[1]->input_diff[0][k] - t[0]->input_diff[0][k]) <=
                        2.0f * 60.0f * 0x1p-24f * 4.0f);
        }
        test_layer_destroy(t[0]), test_layer_destroy(t[1]);
    }
}

/* Two channels of one place, size 3, alpha 3, beta 1, k 1: scale = 1 + x0^2 + x1^2 = 6. Within a
 * channel of one place, size 3, alpha 9: scale = 1 + x^2. */
static void test_by_hand(void **state)
{
    lrn_case across = { "local_size: 3 alpha: 3 beta: 1", { 4, { 1, 2, 1, 1 } } };
    lrn_case within = { "local_size: 3 alpha: 9 beta: 1 norm_region: WITHIN_CHANNEL",
                        { 4, { 1, 2, 1, 1 } } };

    (void)state;
    for (int v = 0; v < 2; v++) {
        test_layer *t = make(&across, v ? "simd" : "ref");

        t->input[0][0] = 1;
        t->input[0][1] = 2;
        assert_int_equal(test_layer_forward(t), CT_OK);
        assert_true(fabsf(t->top[0][0] - 1.0f / 6.0f) <= 6 * 0x1p-24f);
        assert_true(fabsf(t->top[0][1] - 2.0f / 6.0f) <= 6 * 0x1p-24f);
        test_layer_destroy(t);
        t = make(&within, v ? "simd" : "ref");
        t->input[0][0] = 1;
        t->input[0][1] = 2;
        assert_int_equal(test_layer_forward(t), CT_OK);
        assert_true(fabsf(t->top[0][0] - 1.0f / 2.0f) <= 6 * 0x1p-24f);
        assert_true(fabsf(t->top[0][1] - 2.0f / 5.0f) <= 6 * 0x1p-24f);
        test_layer_destroy(t);
    }
}

static void test_gradients(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * N_GOOD; i++) {
        test_layer *t = make(&good[i / 2], (i % 2) ? "simd" : "ref");

        test_layer_gradient(t, &(test_gradient){ .max_element = 60, .roundings = 128 });
        test_layer_destroy(t);
    }
}

static void test_refusals(void **state)
{
    test_layer_spec spec = { .type = "LRN",
                             .text = "lrn_param { local_size: 4 }",
                             .n_bottom = 1,
                             .bottom = { TEST_SHAPE(2, 3, 4, 5) } };

    (void)state;
    test_layer_refused(&spec, CT_ERR_CONFIG, "lrn_param.local_size 4 must be odd");
    spec.text = "lrn_param { local_size: 0 }";
    test_layer_refused(&spec, CT_ERR_CONFIG, "local_size 0 must be odd");
    spec.text = NULL;
    spec.bottom[0] = TEST_SHAPE(2, 3);
    test_layer_refused(&spec, CT_ERR_SHAPE, "must have 4 axes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engines),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
