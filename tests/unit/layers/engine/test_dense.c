/* InnerProduct, ReLU and the engines of bias vectors. */
#include "tests/test.h"
#include "tests/layer_harness.h"

#include "framework/base/memory.h"
#include "framework/base/bf16.h"
#include "layers/engine/bias/bias.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void test_bias_engines(void **state)
{
    static const int64_t size[][3] = { { 1, 1, 1 },   { 5, 3, 1 }, { 64, 131, 1 }, { 3, 5, 35 },
                                       { 2, 7, 576 }, { 0, 3, 4 }, { 7, 1, 16 } };
    ct_exec ex = { .dev = ct_device_cpu() };

    (void)state;
    for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
        ct_bias_desc d = { CT_DEVICE_CPU, 3,     size[i][0], size[i][1], size[i][2], 0,
                           false,         false, CT_F32 };
        int64_t n = d.n * d.c * d.s;
        double terms = (double)(d.n * d.s) + 1.0;
        float *y[2], *db[2], *x = ct_mem_acquire((size_t)n * 4), *b = ct_mem_acquire(4096);

        test_random(x, n, 1, -1.0f, 1.0f);
        test_random(b, d.c, 2, -1.0f, 1.0f);
        for (int beta = 0; beta < 2; beta++) {
            for (int v = 0; v < 2; v++) {
                const char *name = (v == 0) ? "ref" : "simd";
                ct_bias_args a = { .bias = b, .dy = x, .beta = (float)beta };

                y[v] = a.y = ct_mem_acquire((size_t)n * 4);
                db[v] = a.dbias = ct_mem_acquire((size_t)d.c * 4);
                for (int64_t k = 0; k < n; k++) y[v][k] = NAN;
                for (int64_t k = 0; k < d.c; k++) db[v][k] = beta ? (float)k * 0.01f : NAN;
                assert_int_equal(ct_bias_find(ct_bias_fill_table, &d, name)->run(&d, &ex, &a),
                                 CT_OK);
                assert_int_equal(ct_bias_find(ct_bias_backward_table, &d, name)->run(&d, &ex, &a),
                                 CT_OK);
            }
            for (int64_t k = 0; k < n; k++) assert_true(y[0][k] == y[1][k]);
            for (int64_t k = 0; k < d.c; k++) /* lanes of at most terms / 16, then double */
                assert_true(fabsf(db[0][k] - db[1][k]) <= (terms + 4.0) * 0x1p-24 * terms);
            for (int v = 0; v < 2; v++) ct_mem_release(y[v]), ct_mem_release(db[v]);
        }
        ct_mem_release(x), ct_mem_release(b);
    }
}

/* As bf16 in place, where d has that. */
static void store(const ct_bias_desc *d, int64_t n, float *x)
{
    for (int64_t k = 0; d->bf16 && (k < n); k++) ct_num_put(x, true, k, x[k]);
}

/* With a ReLU's values, a NaN and a zero below zero among them: the same bits as masking first and
 * adding up then. */
static void test_bias_with_relu(void **state)
{
    static const int64_t size[][3] = { { 1, 1, 1 }, { 5, 19, 35 }, { 2, 33, 576 }, { 9, 16, 7 } };
    ct_exec ex = { .dev = ct_device_cpu() };

    (void)state;
    for (size_t i = 0; i < 4 * sizeof(size) / sizeof(size[0]); i++) {
        int block = (i % 2) ? 16 : 8;
        ct_bias_desc d = { CT_DEVICE_CPU,  3,     size[i / 4][0],   size[i / 4][1],
                           size[i / 4][2], block, (i / 2 % 2 == 1), false,
                           CT_F32 };
        int64_t n = d.n * ((d.c + block - 1) / block * block) * d.s;
        size_t bytes = (size_t)n * ct_num_size(d.bf16);
        const ct_bias_impl *impl = ct_bias_find(ct_bias_backward_table, &d, "auto");
        float *top = ct_mem_acquire((size_t)n * 4), *dy[2], db[2][64];

        assert_true((impl->can & CT_BIAS_CAN_RELU) != 0);
        test_random(top, n, 1, -1.0f, 1.0f);
        for (int64_t k = 0; k < n; k++) top[k] = (top[k] > 0.0f) ? top[k] : 0.0f;
        top[n / 2] = NAN, top[n / 3] = -0.0f;
        for (int v = 0; v < 2; v++) {
            ct_bias_args a = { .dbias = db[v], .beta = 0.5f };

            a.dy = dy[v] = ct_mem_acquire((size_t)n * 4);
            test_random(dy[v], n, 2, -1.0f, 1.0f);
            for (int64_t k = 0; k < d.c; k++) db[v][k] = (float)k * 0.01f;
            for (int64_t k = 0; (v == 0) && (k < n); k++) {
                if (!(top[k] > 0.0f)) dy[v][k] = 0.0f;
            }
            if (v == 1) store(&d, n, top);
            store(&d, n, dy[v]);
            if (v == 1) a.top = top, a.masked = dy[v];
            assert_int_equal(impl->run(&d, &ex, &a), CT_OK);
        }
        assert_memory_equal(dy[0], dy[1], bytes);
        assert_memory_equal(db[0], db[1], (size_t)d.c * 4);
        ct_mem_release(top), ct_mem_release(dy[0]), ct_mem_release(dy[1]);
    }
}

static const char *const ip_fields[] = {
    "num_output: 5",
    "num_output: 5 bias_term: false",
    "num_output: 3 transpose: true",
    "num_output: 1 axis: 2",
    "num_output: 4 axis: -1 transpose: true",
};
enum { N_IP = sizeof(ip_fields) / sizeof(ip_fields[0]) };

static test_layer *make_ip(const char *fields, const char *kernel, ct_shape x)
{
    char text[512];
    test_layer_spec spec = { .type = "InnerProduct", .text = text, .n_bottom = 1, .bottom = { x } };
    test_layer *t;

    snprintf(text, sizeof(text),
             "inner_product_param { %s weight_filler { type: \"gaussian\" std: 0.5 } bias_filler { "
             "type: \"gaussian\" std: 1 } } ct_kernel { forward: \"%s\" backward_data: \"%s\" "
             "backward_weight: \"%s\" }",
             fields, kernel, kernel, kernel);
    assert_int_equal(test_layer_create(&spec, &t), CT_OK);
    return t;
}

static void test_ip_gradients(void **state)
{
    static const char *const kernel[] = { "auto", "packed", "blas", "ref" };

    (void)state;
    for (int i = 0; i < 4 * N_IP; i++) {
        test_layer *t = make_ip(ip_fields[i / 4], kernel[i % 4], TEST_SHAPE(3, 2, 4));

        test_layer_gradient(t, &(test_gradient){ .roundings = 32 });
        test_layer_destroy(t);
    }
}

/* [1 2; 3 4] x^T + b, and the same weights transposed; axis keeps the axes before it. */
static void test_ip_by_hand(void **state)
{
    static const float plain[4] = { 1, 2, 3, 4 }, transposed[4] = { 1, 3, 2, 4 };
    static const float want[4] = { 5 + 1, 11 + 10, 11 + 1, 25 + 10 };
    static const char *const kernel[] = { "packed", "blas", "ref" };

    (void)state;
    for (int v = 0; v < 6; v++) {
        test_layer *t =
            make_ip((v & 1) ? "num_output: 2 transpose: true axis: 2" : "num_output: 2 axis: 2",
                    kernel[v / 2], TEST_SHAPE(2, 1, 2));

        memcpy(t->weight[0], (v & 1) ? transposed : plain, sizeof(plain));
        t->weight[1][0] = 1;
        t->weight[1][1] = 10;
        for (int i = 0; i < 4; i++) t->input[0][i] = (float)(i + 1);
        assert_int_equal(test_layer_forward(t), CT_OK);
        assert_true(ct_shape_equal(&t->top_shape[0], &TEST_SHAPE(2, 1, 2)));
        test_same(t->top[0], want, 4, "top");
        test_layer_destroy(t);
    }
}

static void test_ip_accumulates(void **state)
{
    test_layer *t = make_ip("num_output: 3", "auto", TEST_SHAPE(2, 5));
    float first[15], bias[3];

    (void)state;
    test_random(t->top_diff[0], 6, 3, -1.0f, 1.0f);
    test_layer_pass(t);
    memcpy(first, t->weight_diff[0], sizeof(first));
    memcpy(bias, t->weight_diff[1], sizeof(bias));
    t->ex.accumulate = true;
    assert_int_equal(test_layer_backward(t), CT_OK);
    for (int i = 0; i < 15; i++) /* two products and a sum of numbers below 4 */
        assert_true(fabs(t->weight_diff[0][i] - 2.0 * first[i]) <= 4.0 * 4.0 * 0x1p-24);
    for (int i = 0; i < 3; i++)
        assert_true(fabs(t->weight_diff[1][i] - 2.0 * bias[i]) <= 4.0 * 4.0 * 0x1p-24);
    test_layer_destroy(t);
}

static void ip_refused(const char *text, ct_status status, const char *part)
{
    test_layer_refused(
        &(test_layer_spec){
            .type = "InnerProduct", .text = text, .n_bottom = 1, .bottom = { TEST_SHAPE(2, 3) } },
        status, part);
}

static void test_ip_refusals(void **state)
{
    (void)state;
    ip_refused("", CT_ERR_CONFIG, "num_output is missing");
    ip_refused("inner_product_param { num_output: 0 }", CT_ERR_CONFIG,
               "num_output is missing or 0");
    ip_refused("inner_product_param { num_output: 2 axis: 2 }", CT_ERR_CONFIG,
               "axis 2 is outside a bottom of 2 axes");
    ip_refused("inner_product_param { num_output: 2 } ct_kernel { forward: \"gemm\" }",
               CT_ERR_CONFIG, "there are: packed, blas, ref");
}

/* The weights stay as they were made when the bottom's shape changes. */
static void test_ip_reshape_checks(void **state)
{
    test_layer *t = make_ip("num_output: 2", "auto", TEST_SHAPE(2, 3));
    ct_status status;

    (void)state;
    ct_blob_set_shape(t->instance.bottom[0], &TEST_SHAPE(2, 4));
    test_log_start();
    status = t->layer.ops->reshape(&t->layer, &t->instance);
    assert_non_null(strstr(test_log_stop(), "4 inputs from axis 1 on, but the weights were made "
                                            "for 3"));
    assert_int_equal(status, CT_ERR_SHAPE);
    test_layer_destroy(t);
}

static test_layer *make_relu(float slope, bool in_place, const char *kernel, int64_t n)
{
    char text[200];
    test_layer_spec spec = { .type = "ReLU",
                             .text = text,
                             .n_bottom = 1,
                             .in_place = in_place,
                             .bottom = { TEST_SHAPE(1, n) } };
    test_layer *t;

    snprintf(
        text, sizeof(text),
        "relu_param { negative_slope: %g } ct_kernel { forward: \"%s\" backward_data: \"%s\" }",
        (double)slope, kernel, kernel);
    assert_int_equal(test_layer_create(&spec, &t), CT_OK);
    return t;
}

static void test_relu_values(void **state)
{
    const float x[6] = { -2, -0.0f, 0, 3, -INFINITY, NAN };
    const float dx_clip[6] = { 0, 0, 0, 4, 0, 0 }, dx_leak[6] = { 0.5f, 1, 1.5f, 4, 2.5f, 3 };

    (void)state;
    for (int v = 0; v < 8; v++) {
        bool leak = (v & 1) != 0;
        test_layer *t = make_relu(leak ? 0.5f : 0.0f, (v & 2) != 0, (v & 4) ? "ref" : "simd", 6);

        memcpy(t->input[0], x, sizeof(x));
        for (int i = 0; i < 6; i++) t->top_diff[0][i] = (float)(i + 1);
        assert_int_equal(test_layer_forward(t), CT_OK);
        assert_true(t->top[0][0] == (leak ? -1.0f : 0.0f));
        assert_true((t->top[0][1] == 0.0f) && (t->top[0][2] == 0.0f) && (t->top[0][3] == 3.0f));
        assert_true(t->top[0][4] == (leak ? -INFINITY : 0.0f));
        assert_true(isnan(t->top[0][5])); /* a diverged net must show */
        assert_int_equal(test_layer_backward(t), CT_OK);
        for (int i = 0; i < 6; i++)
            assert_true(t->input_diff[0][i] == (leak ? dx_leak[i] : dx_clip[i]));
        test_layer_destroy(t);
    }
}

static void test_relu_engines(void **state)
{
    (void)state;
    for (int v = 0; v < 3; v++) {
        const float slope[] = { 0.0f, 0.1f, -0.25f };
        test_layer *a = make_relu(slope[v], false, "ref", 20011);
        test_layer *b = make_relu(slope[v], false, "simd", 20011);

        test_random(a->top_diff[0], 20011, 3, -1.0f, 1.0f);
        memcpy(b->top_diff[0], a->top_diff[0], 20011 * sizeof(float));
        test_layer_forward(a), test_layer_forward(b);
        test_layer_backward(a), test_layer_backward(b);
        test_same(b->top[0], a->top[0], 20011, "top");
        test_same(b->input_diff[0], a->input_diff[0], 20011, "bottom diff");
        test_layer_destroy(a), test_layer_destroy(b);
    }
}

static void test_relu_gradients(void **state)
{
    (void)state;
    for (int v = 0; v < 5; v++) {
        const float slope[] = { 0.0f, 0.2f, 0.0f, 0.2f, -0.5f };
        test_layer *t = make_relu(slope[v], (v == 2) || (v == 3), "auto", 77);

        for (int i = 0; i < 77; i++) t->input[0][i] += copysignf(0.1f, t->input[0][i]);
        test_layer_gradient(t, &(test_gradient){ .step = 1e-2f });
        test_layer_destroy(t);
    }
}

static void test_relu_refusal(void **state)
{
    (void)state;
    test_layer_refused(&(test_layer_spec){ .type = "ReLU",
                                           .text = "relu_param { negative_slope: -1 }",
                                           .n_bottom = 1,
                                           .in_place = true,
                                           .bottom = { TEST_SHAPE(3) } },
                       CT_ERR_CONFIG, "negative_slope -1 is below 0");
}

/* Gradients in blocks: what fills up the last one counts for nothing. */
static void test_bias_in_blocks(void **state)
{
    static const int64_t size[][3] = { { 1, 1, 1 }, { 3, 19, 35 }, { 9, 300, 5 }, { 2, 32, 576 } };
    ct_exec ex = { .dev = ct_device_cpu() };

    (void)state;
    for (size_t i = 0; i < 2 * sizeof(size) / sizeof(size[0]); i++) {
        const int64_t *of = size[i / 2];
        ct_bias_desc d = { CT_DEVICE_CPU,         3,     of[0], of[1], of[2],
                           (i % 2 == 0) ? 8 : 16, false, false, CT_F32 };
        int64_t n = d.n * ((d.c + d.block - 1) / d.block * d.block) * d.s;
        double terms = (double)(d.n * d.s) + 1.0;
        float *x = ct_mem_acquire((size_t)n * 4), db[2][300];

        test_random(x, n, 1, -1.0f, 1.0f);
        assert_null(ct_bias_find(ct_bias_backward_table, &d, "simd"));
        for (int v = 0; v < 2; v++) {
            const char *name = (v == 0) ? "ref" : "auto";
            ct_bias_args a = { .dy = x, .beta = 0.5f, .dbias = db[v] };

            for (int64_t k = 0; k < d.c; k++) db[v][k] = (float)k * 0.01f;
            assert_int_equal(ct_bias_find(ct_bias_backward_table, &d, name)->run(&d, &ex, &a),
                             CT_OK);
        }
        for (int64_t k = 0; k < d.c; k++) /* sums in double, then two roundings */
            assert_true(fabsf(db[0][k] - db[1][k]) <= 4.0 * 0x1p-24 * (terms + 3.0));
        ct_mem_release(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bias_engines),      cmocka_unit_test(test_bias_in_blocks),
        cmocka_unit_test(test_ip_gradients),      cmocka_unit_test(test_ip_by_hand),
        cmocka_unit_test(test_ip_accumulates),    cmocka_unit_test(test_ip_refusals),
        cmocka_unit_test(test_ip_reshape_checks), cmocka_unit_test(test_relu_values),
        cmocka_unit_test(test_relu_engines),      cmocka_unit_test(test_relu_gradients),
        cmocka_unit_test(test_relu_refusal),      cmocka_unit_test(test_bias_with_relu),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
