/* Long layers let communication move while they run, and pass its errors on. */
#include "tests/test.h"
#include "tests/layer_harness.h"

#include <math.h>
#include <stdio.h>

#include "framework/base/clock.h"

static ct_status count(void *ctx)
{
    (*(int *)ctx)++;
    return CT_OK;
}

static ct_status refuse(void *ctx)
{
    (*(int *)ctx)++;
    return CT_ERR_COMM;
}

static void test_not_too_often(void **state)
{
    int polls = 0;
    ct_exec ex = { .poll = count, .poll_ctx = &polls };
    double start = ct_clock_s();

    (void)state;
    assert_int_equal(ct_exec_poll(&ex), CT_OK);
    assert_int_equal(polls, 1); /* the first at once */
    /* then every half a millisecond at most, however late others leave us the core */
    while ((polls < 5) && (ct_clock_s() - start < 10)) assert_int_equal(ct_exec_poll(&ex), CT_OK);
    assert_int_equal(polls, 5);
    assert_true(polls <= 1 + (int)((ct_clock_s() - start) / 0.5e-3));
    assert_int_equal(polls, ex.n_poll);
    ex = (ct_exec){ .poll = NULL };
    assert_int_equal(ct_exec_poll(&ex), CT_OK);
    assert_int_equal(ex.n_poll, 1); /* where it would have been, for profiles */
    ex = (ct_exec){ .poll = refuse, .poll_ctx = &polls };
    assert_int_equal(ct_exec_poll(&ex), CT_ERR_COMM);
}

/* Polls in a second of a clock that goes on by 10 us at a time. */
static int polls_a_second(double step_s, int n_sum)
{
    ct_exec ex = { .step_s = &step_s, .n_sum = n_sum };
    int n = 0;

    for (int i = 1; i <= 100000; i++) n += ct_exec_poll_is_due(&ex, 1e-5 * i);
    assert_int_equal(n, ex.n_poll);
    return n;
}

/* Four a step of what is under way, within bounds; one more or less by rounding of the clock. */
static void test_as_often_as_worth(void **state)
{
    (void)state;
    assert_in_range(polls_a_second(0, 0), 1960, 2001);    /* nothing known: 0.5 ms  */
    assert_in_range(polls_a_second(4e-3, 0), 990, 1001);  /* 1 ms                   */
    assert_in_range(polls_a_second(1e-5, 0), 4760, 5001); /* a fast network: 0.2 ms */
    assert_in_range(polls_a_second(1.0, 0), 495, 501);    /* a slow one: 2 ms       */
    assert_in_range(polls_a_second(1.0, 1), 4760, 5001);  /* a layer's sum: 0.2 ms  */
    assert_true(ct_poll_interval_s(4e-3) == 1e-3);
    assert_true(ct_poll_interval_s(1e-9) == 0.2e-3);
    assert_true(ct_poll_interval_s(1e9) == 2e-3);
    assert_true(ct_poll_interval_s(0) == 0.5e-3);
}

/* What is under way may change between two looks. */
static void test_follows_what_is_under_way(void **state)
{
    double step_s = 1.0;
    ct_exec ex = { .step_s = &step_s };

    (void)state;
    assert_true(ct_exec_poll_is_due(&ex, 10.0));
    assert_false(ct_exec_poll_is_due(&ex, 10.0015));
    step_s = 4e-3; /* a quicker bucket has left */
    assert_true(ct_exec_poll_is_due(&ex, 10.0015));
    assert_false(ct_exec_poll_is_due(&ex, 10.0020));
    step_s = 0;
    assert_true(ct_exec_poll_is_due(&ex, 10.0021));
}

static const struct {
    const char *name, *type, *text;
    ct_shape bottom;
    bool backward; /* polls there, too */
} layers[] = {
    { "direct convolution",
      "Convolution",
      "convolution_param { num_output: 8 kernel_size: 3 }",
      { 4, { 4, 8, 12, 12 } },
      true },
    { "gemm convolution",
      "Convolution",
      "convolution_param { num_output: 8 kernel_size: 3 } ct_kernel { forward: 'gemm' "
      "backward_data: 'gemm' backward_weight: 'gemm' }",
      { 4, { 4, 8, 12, 12 } },
      true },
    { "one image",
      "Convolution",
      "convolution_param { num_output: 8 kernel_size: 3 } ct_kernel { forward: 'gemm' "
      "backward_data: 'gemm' backward_weight: 'gemm' }",
      { 4, { 1, 8, 12, 12 } },
      true },
    { "max pooling",
      "Pooling",
      "pooling_param { pool: MAX kernel_size: 3 stride: 2 }",
      { 4, { 4, 8, 12, 12 } },
      true },
    { "average pooling",
      "Pooling",
      "pooling_param { pool: AVE kernel_size: 3 stride: 2 }",
      { 4, { 4, 8, 12, 12 } },
      true },
    { "LRN across", "LRN", "lrn_param { local_size: 5 }", { 4, { 4, 8, 12, 12 } }, true },
    { "LRN within",
      "LRN",
      "lrn_param { local_size: 3 norm_region: WITHIN_CHANNEL }",
      { 4, { 4, 8, 12, 12 } },
      true },
    { "ReLU", "ReLU", "", { 4, { 4, 8, 12, 12 } }, true },
    { "inner product",
      "InnerProduct",
      "inner_product_param { num_output: 8 }",
      { 2, { 4, 30 } },
      true },
    { "BatchNorm", "BatchNorm", "", { 4, { 4, 8, 12, 12 } }, false },
};

/* The clock starts anew before each pass, so that short layers have a poll due as well. */
static void test_layers_poll(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(layers) / sizeof(layers[0]); i++) {
        test_layer_spec spec = { .type = layers[i].type,
                                 .text = layers[i].text,
                                 .n_bottom = 1,
                                 .bottom = { layers[i].bottom } };
        test_layer *t = NULL;
        int polls = 0;

        print_message("%s\n", layers[i].name);
        assert_int_equal(test_layer_create(&spec, &t), CT_OK);
        t->ex.poll = count;
        t->ex.poll_ctx = &polls;
        t->ex.polled_s = 0;
        assert_int_equal(test_layer_forward(t), CT_OK);
        assert_true(polls >= 1);
        t->ex.poll = refuse;
        t->ex.polled_s = 0;
        assert_int_equal(test_layer_forward(t), CT_ERR_COMM);
        t->ex.poll = count;
        assert_int_equal(test_layer_forward(t), CT_OK);
        if (layers[i].backward) {
            polls = 0;
            t->ex.polled_s = 0;
            assert_int_equal(test_layer_backward(t), CT_OK);
            assert_true(polls >= 1);
            t->ex.poll = refuse;
            t->ex.polled_s = 0;
            assert_int_equal(test_layer_backward(t), CT_ERR_COMM);
        }
        test_layer_destroy(t);
    }
}

/* Products so long that they run in pieces, against the plain loops. Values of x, w and dy are at
 * most 1 in size: two sums of k of their products differ by no more than 2 k (k u); a wrong place
 * makes a difference of the size of sqrt(k). */
static void test_pieces(void **state)
{
    static const char *const text[] = {
        "inner_product_param { num_output: 2100 weight_filler { type: 'uniform' min: -1 max: 1 } }",
        "inner_product_param { num_output: 2100 transpose: true weight_filler { type: 'uniform' "
        "min: -1 max: 1 } }"
    };
    enum { M = 40, K = 2500, N = 2100 };

    (void)state;
    for (int v = 0; v < 2; v++) {
        test_layer *t[2];
        char plain[256];

        for (int e = 0; e < 2; e++) {
            test_layer_spec spec = { .type = "InnerProduct", .n_bottom = 1 };

            spec.bottom[0] = TEST_SHAPE(M, K);
            snprintf(plain, sizeof(plain),
                     "%s ct_kernel { forward: '%s' backward_data: '%s' "
                     "backward_weight: '%s' }",
                     text[v], e ? "ref" : "blas", e ? "ref" : "blas", e ? "ref" : "blas");
            spec.text = plain;
            assert_int_equal(test_layer_create(&spec, &t[e]), CT_OK);
            for (int64_t i = 0; i < t[e]->top_count[0]; i++)
                t[e]->top_diff[0][i] = (float)sin((double)(i % 1000));
            test_layer_pass(t[e]);
        }
        for (int64_t i = 0; i < M * N; i++)
            assert_true(fabsf(t[0]->top[0][i] - t[1]->top[0][i]) <= (float)K * K * 0x1p-23f);
        for (int64_t i = 0; i < M * K; i++)
            assert_true(fabsf(t[0]->input_diff[0][i] - t[1]->input_diff[0][i]) <=
                        (float)N * N * 0x1p-23f);
        for (int64_t i = 0; i < (int64_t)N * K; i++)
            assert_true(fabsf(t[0]->weight_diff[0][i] - t[1]->weight_diff[0][i]) <=
                        (float)M * M * 0x1p-23f);
        for (int e = 0; e < 2; e++) test_layer_destroy(t[e]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_not_too_often),
        cmocka_unit_test(test_as_often_as_worth),
        cmocka_unit_test(test_follows_what_is_under_way),
        cmocka_unit_test(test_layers_poll),
        cmocka_unit_test(test_pieces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
