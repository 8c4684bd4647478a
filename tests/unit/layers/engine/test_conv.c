/* Convolution: every engine against the definition, gradients, messages. */
#include "tests/test.h"
#include "tests/conv_case.h"
#include "tests/layer_harness.h"

#include "framework/base/memory.h"
#include "layers/engine/conv/conv.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

static const ct_conv_desc shape[] = {
    CONV_SHAPE(1, 1, 1, 5, 5, 1, 3, 3, 1, 1, 0, 0, 1, 1),
    CONV_SHAPE(5, 1, 3, 7, 9, 5, 3, 3, 1, 1, 1, 1, 1, 1),
    CONV_SHAPE(2, 1, 3, 11, 8, 20, 5, 5, 1, 1, 2, 2, 1, 1),
    CONV_SHAPE(3, 2, 4, 9, 7, 6, 3, 2, 2, 1, 1, 0, 1, 1),
    CONV_SHAPE(4, 3, 6, 6, 13, 9, 1, 4, 1, 3, 0, 3, 1, 1),
    CONV_SHAPE(2, 1, 2, 13, 12, 3, 3, 3, 2, 2, 2, 1, 2, 3),
    CONV_SHAPE(3, 1, 17, 4, 5, 33, 1, 1, 1, 1, 0, 0, 1, 1),
    CONV_SHAPE(3, 5, 5, 4, 5, 5, 1, 1, 2, 2, 0, 0, 1, 1),
    CONV_SHAPE(1, 8, 8, 5, 5, 8, 3, 3, 1, 1, 1, 1, 1, 1),
    CONV_SHAPE(2, 1, 3, 19, 23, 7, 11, 11, 4, 4, 0, 0, 1, 1),
    CONV_SHAPE(2, 1, 1, 2, 2, 2, 5, 5, 1, 1, 4, 4, 1, 1), /* taps that never touch the image */
    CONV_SHAPE(0, 1, 2, 4, 4, 3, 3, 3, 1, 1, 0, 0, 1, 1),
    CONV_SHAPE(2, 1, 19, 17, 18, 41, 3, 3, 1, 1, 1, 1, 1, 1),
    CONV_SHAPE(2, 1, 33, 9, 9, 70, 5, 5, 1, 1, 2, 2, 1, 1),
};
enum { N_SHAPE = sizeof(shape) / sizeof(shape[0]) };

static ct_conv_desc complete(int i, int n_thread)
{
    ct_conv_desc d = shape[i];

    assert_true(conv_case_complete(&d));
    d.n_thread = n_thread;
    return d;
}

static float *nan_array(int64_t n)
{
    float *v = ct_mem_acquire((size_t)n * sizeof(float));

    assert_non_null(v);
    for (int64_t i = 0; i < n; i++) v[i] = NAN;
    return v;
}

/* Runs one implementation on garbage outputs and workspace; the result is the caller's. */
static float *run(const ct_conv_impl *impl, const ct_conv_desc *d, conv_direction dir,
                  const conv_tensors *t, float beta, bool with_bias, int64_t *count_p)
{
    size_t work = ct_conv_workspace(impl, d);
    int64_t count = conv_case_count(t, dir);
    float *out = nan_array(count);
    float *scratch = nan_array((int64_t)(work / sizeof(float)));
    ct_exec ex = { .dev = ct_device_cpu() };
    ct_conv_args a = { .x = t->x,
                       .weight = t->weight,
                       .bias = with_bias ? t->bias : NULL,
                       .dy = t->dy,
                       .beta = beta,
                       .work = scratch };

    if ((dir == CONV_WEIGHT) && (beta != 0.0f)) memcpy(out, t->old, (size_t)count * sizeof(float));
    if (dir == CONV_FORWARD) a.y = out;
    if (dir == CONV_DATA) a.dx = out;
    if (dir == CONV_WEIGHT) a.dweight = out;
    assert_int_equal(impl->run(d, &ex, &a), CT_OK);
    ct_mem_release(scratch);
    *count_p = count;
    return out;
}

/* Products of values below 1: a sum of k of them is off by at most (k + 2) k eps (Higham 3.1),
 * once more for partial sums of workers; the reference by less. */
static double tolerance_of(const ct_conv_desc *d, conv_direction dir)
{
    double taps = (double)(d->kh * d->kw);
    double k = taps * (double)(d->c / d->group) + 1.0;

    if (dir == CONV_DATA) k = taps * (double)(d->m / d->group);
    if (dir == CONV_WEIGHT) k = (double)(d->n * d->oh * d->ow) + 1.0;
    return (k + 8.0) * (k + 1.0) * 0x1p-24;
}

static void compare(const ct_conv_desc *d, conv_direction dir, const ct_conv_impl *impl,
                    const conv_tensors *t, float beta, bool with_bias)
{
    int64_t n;
    const ct_conv_impl *ref = ct_conv_find(conv_case_table_of(dir), d, "ref");
    float *got = run(impl, d, dir, t, beta, with_bias, &n);
    float *want = run(ref, d, dir, t, beta, with_bias, &n);
    double tolerance = tolerance_of(d, dir);

    for (int64_t i = 0; i < n; i++) {
        if (!(fabs((double)got[i] - want[i]) <= tolerance))
            fail_msg("%s direction %d batch %d threads %d: element %lld is %.9g, not %.9g",
                     impl->name, (int)dir, (int)d->n, d->n_thread, (long long)i, got[i], want[i]);
    }
    ct_mem_release(got), ct_mem_release(want);
}

static void test_engines(void **state)
{
    int n_compared = 0;

    (void)state;
    for (int i = 0; i < N_SHAPE; i++) {
        for (int threads = 1; threads <= 3; threads++) {
            ct_conv_desc d = complete(i, threads);
            conv_tensors t = conv_case_make_tensors(&d, false);

            for (conv_direction dir = CONV_FORWARD; dir < N_CONV_DIRECTION; dir++) {
                const ct_conv_impl *const *table = conv_case_table_of(dir);

                for (int k = 0; strcmp(table[k]->name, "ref") != 0; k++) {
                    if (!table[k]->supports(&d)) continue;
                    compare(&d, dir, table[k], &t, 0.0f, true);
                    compare(&d, dir, table[k], &t, 1.0f, false);
                    n_compared++;
                }
            }
            conv_case_release(&t);
        }
    }
    assert_true(n_compared >= 3 * 3 * N_SHAPE);
}

/* A worker is a number: what threads the run time gives does not change a bit. */
static void test_same_for_any_team(void **state)
{
    ct_conv_desc d = complete(1, 3);
    conv_tensors t = conv_case_make_tensors(&d, false);
    int64_t n;

    (void)state;
    for (conv_direction dir = CONV_FORWARD; dir < N_CONV_DIRECTION; dir++) {
        const ct_conv_impl *impl = conv_case_table_of(dir)[0];
        float *a = run(impl, &d, dir, &t, 0.0f, true, &n), *b = NULL;

#pragma omp parallel num_threads(2)
#pragma omp single
        b = run(impl, &d, dir, &t, 0.0f, true, &n); /* nested: one thread does all */
        assert_memory_equal(a, b, (size_t)n * sizeof(float));
        ct_mem_release(a), ct_mem_release(b);
    }
    conv_case_release(&t);
}

/* y[0][0] of a 2x2 kernel over 1..9 in rows of 3, by hand: 1*1 + 2*2 + 3*4 + 4*5 + bias 10. */
static void test_by_hand(void **state)
{
    test_layer_spec spec = { .type = "Convolution",
                             .text = "convolution_param { num_output: 1 kernel_size: 2 }",
                             .n_bottom = 1,
                             .bottom = { TEST_SHAPE(1, 1, 3, 3) } };
    const float want[4] = { 47, 57, 77, 87 };
    test_layer *t;

    (void)state;
    assert_int_equal(test_layer_create(&spec, &t), CT_OK);
    for (int i = 0; i < 9; i++) t->input[0][i] = (float)(i + 1);
    for (int i = 0; i < 4; i++) t->weight[0][i] = (float)(i + 1);
    t->weight[1][0] = 10.0f;
    assert_int_equal(test_layer_forward(t), CT_OK);
    assert_true(ct_shape_equal(&t->top_shape[0], &TEST_SHAPE(1, 1, 2, 2)));
    test_same(t->top[0], want, 4, "top");
    test_layer_destroy(t);
}

static void gradient(const char *fields, ct_shape x, int n_bottom, const char *kernel)
{
    char text[512];
    test_layer_spec spec = { .type = "Convolution",
                             .text = text,
                             .n_bottom = n_bottom,
                             .n_top = n_bottom,
                             .bottom = { x, x, x } };
    test_layer *t;

    snprintf(text, sizeof(text),
             "convolution_param { %s weight_filler { type: \"gaussian\" std: 0.5 } "
             "bias_filler { type: \"gaussian\" std: 0.5 } } ct_kernel { forward: \"%s\" "
             "backward_data: \"%s\" backward_weight: \"%s\" }",
             fields, kernel, kernel, kernel);
    assert_int_equal(test_layer_create(&spec, &t), CT_OK);
    test_layer_gradient(t, &(test_gradient){ .roundings = 128, .max_element = 60 });
    test_layer_destroy(t);
}

static void test_gradients(void **state)
{
    static const char *const kernel[] = { "auto", "gemm", "ref" };

    (void)state;
    for (int k = 0; k < 3; k++) {
        gradient("num_output: 3 kernel_size: 3", TEST_SHAPE(1, 2, 5, 6), 1, kernel[k]);
        gradient("num_output: 4 kernel_size: 3 stride: 2 pad: 1 group: 2", TEST_SHAPE(3, 2, 7, 6),
                 1, kernel[k]);
        gradient("num_output: 2 kernel_h: 2 kernel_w: 3 stride_h: 2 stride_w: 1 pad_h: 1 pad_w: 2",
                 TEST_SHAPE(2, 3, 5, 4), 1, kernel[k]);
        gradient("num_output: 2 kernel_size: 3 dilation: 2 pad: 2", TEST_SHAPE(2, 2, 6, 7), 1,
                 kernel[k]);
        gradient("num_output: 5 kernel_size: 1 bias_term: false", TEST_SHAPE(5, 3, 3, 4), 1,
                 kernel[k]);
        gradient("num_output: 2 kernel_size: [3, 2] dilation: [1, 2] pad: [0, 1]",
                 TEST_SHAPE(2, 2, 5, 5), 3, kernel[k]);
    }
}

/* Rules of weight diffs: overwrite, add, several bottoms, none wanted. */
static void test_weight_diff_rules(void **state)
{
    test_layer_spec spec = { .type = "Convolution",
                             .text = "convolution_param { num_output: 3 kernel_size: 3 pad: 1 "
                                     "weight_filler { type: \"gaussian\" std: 1 } }",
                             .n_bottom = 1,
                             .bottom = { TEST_SHAPE(4, 2, 5, 5) } };
    float first[3 * 2 * 9];
    test_layer *t;

    (void)state;
    assert_int_equal(test_layer_create(&spec, &t), CT_OK);
    test_random(t->top_diff[0], t->top_count[0], 9, -1.0f, 1.0f);
    test_layer_pass(t);
    memcpy(first, t->weight_diff[0], sizeof(first));
    t->ex.accumulate = true;
    test_layer_pass(t);
    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) /* sums of 100 terms below 1 */
        assert_true(fabs(t->weight_diff[0][i] - 2.0 * first[i]) <= 110.0 * 100.0 * 0x1p-24);
    test_layer_destroy(t);

    spec.no_weight_diff[0] = true;
    spec.no_propagate[0] = true;
    assert_int_equal(test_layer_create(&spec, &t), CT_OK);
    test_layer_pass(t);
    assert_null(t->weight_diff[0]);
    assert_non_null(t->weight_diff[1]);
    test_layer_destroy(t);
}

static void test_refusals(void **state)
{
    static const struct {
        const char *text, *part;
        ct_status status;
    } bad[] = {
        { "", "convolution_param is missing", CT_ERR_CONFIG },
        { "convolution_param { kernel_size: 3 }", "num_output is missing", CT_ERR_CONFIG },
        { "convolution_param { num_output: 0 kernel_size: 3 }", "num_output", CT_ERR_CONFIG },
        { "convolution_param { num_output: 3 }", "kernel_size is missing", CT_ERR_CONFIG },
        { "convolution_param { num_output: 3 kernel_size: 0 }",
          "kernel_size 0 x 0 must be positive", CT_ERR_CONFIG },
        { "convolution_param { num_output: 3 kernel_size: 3 kernel_h: 3 kernel_w: 3 }",
          "kernel_size and also its _h or _w form", CT_ERR_CONFIG },
        { "convolution_param { num_output: 3 kernel_h: 3 }", "for one axis only", CT_ERR_CONFIG },
        { "convolution_param { num_output: 3 kernel_size: [1, 2, 3] }", "has 3 values",
          CT_ERR_CONFIG },
        { "convolution_param { num_output: 3 kernel_size: 3 stride: 0 }", "stride 0 x 0",
          CT_ERR_CONFIG },
        { "convolution_param { num_output: 3 kernel_size: 3 stride: 1 stride_h: 1 stride_w: 1 }",
          "stride and also", CT_ERR_CONFIG },
        { "convolution_param { num_output: 3 kernel_size: 3 pad: 1 pad_w: 1 }", "pad and also",
          CT_ERR_CONFIG },
        { "convolution_param { num_output: 3 kernel_size: 3 dilation: 0 }", "dilation 0 x 0",
          CT_ERR_CONFIG },
        { "convolution_param { num_output: 3 kernel_size: 3 group: 2 }",
          "group 2 must divide num_output 3 and the 4 channels", CT_ERR_CONFIG },
        { "convolution_param { num_output: 3 kernel_size: 3 group: 0 }", "group is 0",
          CT_ERR_CONFIG },
        { "convolution_param { num_output: 3 kernel_size: 3 axis: 4 }", "axis 4 is outside",
          CT_ERR_CONFIG },
        { "convolution_param { num_output: 3 kernel_h: 3 kernel_w: 3 axis: 2 }",
          "which are for two spatial axes; this bottom has 1", CT_ERR_CONFIG },
        { "convolution_param { num_output: 3 kernel_size: 7 }",
          "kernel 7 x 7 (dilation 1 x 1) is larger than the input 6 x 5", CT_ERR_SHAPE },
        { "convolution_param { num_output: 3 kernel_size: 3 dilation: 4294967295 }", "is larger",
          CT_ERR_SHAPE },
        { "convolution_param { num_output: 3 kernel_size: 3 } ct_kernel { forward: \"magic\" }",
          "ct_kernel.forward: \"magic\" cannot run", CT_ERR_CONFIG },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        test_layer_spec spec = { .type = "Convolution",
                                 .text = bad[i].text,
                                 .n_bottom = 1,
                                 .bottom = { TEST_SHAPE(2, 4, 6, 5) } };

        test_layer_refused(&spec, bad[i].status, bad[i].part);
    }
    test_layer_refused(
        &(test_layer_spec){ .type = "Convolution",
                            .text = "convolution_param { num_output: 3 "
                                    "kernel_size: 1 }",
                            .n_bottom = 2,
                            .n_top = 2,
                            .bottom = { TEST_SHAPE(1, 2, 3, 3), TEST_SHAPE(1, 2, 3, 4) } },
        CT_ERR_SHAPE, "bottom 1 has the shape 1 2 3 4 (24)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engines),           cmocka_unit_test(test_same_for_any_team),
        cmocka_unit_test(test_by_hand),           cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_weight_diff_rules), cmocka_unit_test(test_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
