/* Layers against numbers recorded from PyTorch (tests/golden/make_layers_golden.py).
 *
 * Tolerance: the inputs are floats below 4 in size, and no element passes more than 16 roundings
 * of numbers up to 4 (sums run in double), so 64 units of 2^-24 bound every result. */
#include "tests/test.h"
#include "tests/golden/layers_golden.h"
#include "tests/layer_harness.h"

#include <stdlib.h>

static const double tolerance = 64 * 0x1p-24;

#define COUNT(_a) ((int64_t)(sizeof(_a) / sizeof((_a)[0])))

/* Three steps whose statistics move, then the test phase with those statistics. */
static void check_batch_norm(bool in_place)
{
    static const double *const x[3] = { bn_x0, bn_x1, bn_x2 }, *const y[3] = { bn_y0, bn_y1,
                                                                               bn_y2 };
    static const double *const dy[3] = { bn_dy0, bn_dy1, bn_dy2 };
    static const double *const dx[3] = { bn_dx0, bn_dx1, bn_dx2 };
    test_layer_spec spec = { .type = "BatchNorm",
                             .text = "batch_norm_param { moving_average_fraction: 0.75 eps: 1e-3 }",
                             .n_bottom = 1,
                             .bottom = { TEST_SHAPE(4, 3, 2, 5) },
                             .in_place = in_place };
    const int64_t n = COUNT(bn_x0);
    test_layer *t = test_layer_make(&spec), *test;

    for (int step = 0; step < 3; step++) {
        test_set(t->input[0], x[step], n);
        test_set(t->top_diff[0], dy[step], n);
        test_layer_pass(t);
        test_near_golden(t, TEST_FORWARD, t->top[0], y[step], n, tolerance, "y");
        test_near_golden(t, TEST_BACKWARD, t->input_diff[0], dx[step], n, tolerance, "dx");
        for (int i = 0; i < 3; i++) /* what a net's arena would hold now */
            for (int64_t k = 0; k < t->weight_count[i]; k++)
                t->weight[i][k] = t->weight_after[i][k];
    }
    test_near_golden(t, TEST_FORWARD, t->weight[0], bn_mean, 3, tolerance, "mean");
    test_near_golden(t, TEST_FORWARD, t->weight[1], bn_var, 3, tolerance, "variance");
    test_near_golden(t, TEST_FORWARD, t->weight[2], bn_factor, 1, tolerance, "factor");
    spec.phase = CT_TEST;
    test = test_layer_make(&spec);
    for (int i = 0; i < 3; i++)
        for (int64_t k = 0; k < t->weight_count[i]; k++) test->weight[i][k] = t->weight[i][k];
    test_set(test->input[0], bn_x_test, n);
    test_set(test->top_diff[0], bn_dy_test, n);
    test_layer_pass(test);
    test_near_golden(test, TEST_FORWARD, test->top[0], bn_y_test, n, tolerance,
                     "y of the test phase");
    test_near_golden(test, TEST_BACKWARD, test->input_diff[0], bn_dx_test, n, tolerance,
                     "dx of the test phase");
    for (int i = 0; i < 3; i++)
        test_same(test->weight_after[i], test->weight[i], test->weight_count[i], "statistics");
    test_layer_destroy(t);
    test_layer_destroy(test);
}

static void test_batch_norm(void **state)
{
    (void)state;
    check_batch_norm(false);
    check_batch_norm(true);
}

static void test_softmax(void **state)
{
    const int64_t n = COUNT(softmax_x);

    (void)state;
    for (int in_place = 0; in_place < 2; in_place++) {
        test_layer *t = test_layer_make(&(test_layer_spec){ .type = "Softmax",
                                                            .n_bottom = 1,
                                                            .bottom = { TEST_SHAPE(3, 7, 2, 3) },
                                                            .in_place = in_place });

        test_set(t->input[0], softmax_x, n);
        test_set(t->top_diff[0], softmax_dy, n);
        test_layer_pass(t);
        test_near_golden(t, TEST_FORWARD, t->top[0], softmax_y, n, tolerance, "y");
        test_near_golden(t, TEST_BACKWARD, t->input_diff[0], softmax_dx, n, tolerance, "dx");
        test_layer_destroy(t);
    }
}

static void check_loss(const char *text, const double *loss, const double *dx)
{
    test_layer *t = test_layer_make(
        &(test_layer_spec){ .type = "SoftmaxWithLoss",
                            .text = text,
                            .n_bottom = 2,
                            .n_top = 2,
                            .bottom = { TEST_SHAPE(3, 7, 2, 3), TEST_SHAPE(3, 1, 2, 3) } });

    test_set(t->input[0], loss_x, COUNT(loss_x));
    test_set(t->input[1], loss_label, COUNT(loss_label));
    test_layer_pass(t);
    assert_int_equal(t->top_shape[0].ndim, 0);
    test_near_golden(t, TEST_FORWARD, t->top[0], loss, 1, tolerance, "loss");
    test_near_golden(t, TEST_BACKWARD, t->input_diff[0], dx, COUNT(loss_x), tolerance, "dx");
    test_layer_destroy(t);
}

static void test_softmax_loss(void **state)
{
    (void)state;
    check_loss("loss_param { ignore_label: 5 }", loss_valid, loss_dx_valid);
    check_loss(NULL, loss_all, loss_dx_all);
    check_loss("loss_param { normalize: true }", loss_all, loss_dx_all);
    check_loss("loss_param { normalization: FULL }", loss_all, loss_dx_all);
    check_loss("loss_param { normalize: false }", loss_batch, loss_dx_batch);
    check_loss("loss_param { normalize: true normalization: BATCH_SIZE }", loss_batch,
               loss_dx_batch);
    check_loss("loss_param { ignore_label: 5 normalization: NONE }", loss_none, loss_dx_none);
}

static void test_euclidean(void **state)
{
    test_layer *t =
        test_layer_make(&(test_layer_spec){ .type = "EuclideanLoss",
                                            .n_bottom = 2,
                                            .bottom = { TEST_SHAPE(5, 3, 2), TEST_SHAPE(5, 6) } });

    (void)state;
    test_set(t->input[0], euclidean_a, 30);
    test_set(t->input[1], euclidean_b, 30);
    test_layer_pass(t);
    test_near_golden(t, TEST_FORWARD, t->top[0], euclidean_loss, 1, tolerance, "loss");
    test_near_golden(t, TEST_BACKWARD, t->input_diff[0], euclidean_da, 30, tolerance, "da");
    test_near_golden(t, TEST_BACKWARD, t->input_diff[1], euclidean_db, 30, tolerance, "db");
    test_layer_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch_norm),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_softmax_loss),
        cmocka_unit_test(test_euclidean),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
