/* Convolution on blocked layouts, with every instruction set of this machine: generated odd shapes
 * against the definition, forward and both gradients, and the same bits for any number of threads.
 * Channels that fill up a block hold numbers, which must not reach anything real. */
#include "tests/test.h"
#include "tests/conv_case.h"
#include "tests/layer_harness.h"

#include "framework/base/simd.h"
#include "framework/base/stream.h"

#include "framework/base/memory.h"

#include <stdlib.h>

/* Returns whether the engine takes it. */
static bool compare(ct_conv_desc d, conv_direction dir)
{
    return conv_case_compare(d, dir, "blocked", conv_case_sum_limits);
}

static bool folds(const ct_conv_desc *d)
{
    return (d->group == 1) && (d->sh == 1) && (d->sw == 1) && (d->dh == 1) && (d->dw == 1);
}

static void odd_shapes(void)
{
    conv_draw r = { 0 };

    for (int i = 0; i < 60; i++) {
        ct_conv_desc d = conv_case_draw(&r, ct_simd_block(), 7, false);

        for (conv_direction dir = CONV_FORWARD; dir < N_CONV_DIRECTION; dir++)
            assert_true(compare(d, dir));
        assert_int_equal(conv_case_compare(d, CONV_DATA, "fold", conv_case_sum_limits), folds(&d));
    }
}

/* First layers: x as it comes, few channels. */
static void first_layers(void)
{
    conv_draw r = { 1000 };
    int64_t b = ct_simd_block();

    for (int i = 0; i < 40; i++) {
        ct_conv_desc d = conv_case_draw(&r, b, 7, false);

        d.c = conv_case_between(&r, 1, 4);
        d.x_block = 0;
        d.kh = conv_case_between(&r, 1, 7), d.kw = conv_case_between(&r, 1, 11);
        d.sw = conv_case_between(&r, 1, 4);
        d.c *= d.group;
        if (!conv_case_complete(&d)) continue;
        assert_true(compare(d, CONV_FORWARD));
        assert_false(compare(d, CONV_DATA));
        assert_true(compare(d, CONV_WEIGHT));
    }
}

static void test_first_layers(void **state)
{
    (void)state;
    conv_case_each_level(first_layers);
}

static void depthwise(void)
{
    conv_draw r = { 2000 };

    for (int i = 0; i < 25; i++) {
        ct_conv_desc d = conv_case_draw(&r, ct_simd_block(), 7, false);

        if (d.c == 1) d.c = 2;
        d.group = d.m = d.c;
        assert_true(conv_case_complete(&d));
        for (conv_direction dir = CONV_FORWARD; dir < N_CONV_DIRECTION; dir++)
            assert_true(compare(d, dir));
    }
}

static void test_depthwise(void **state)
{
    (void)state;
    conv_case_each_level(depthwise);
}

/* Outputs beyond the caches are written past them; with a ReLU, as in test_relu. */
static void test_streamed(void **state)
{
    int64_t b = ct_simd_block(), m = 37, side = 470, n_y = (m + b - 1) / b * b * side * side;
    ct_conv_desc d = CONV_SHAPE(1, 1, 5, side, side, m, 1, 1, 1, 1, 0, 0, 1, 1);
    float *aligned = ct_mem_acquire((size_t)n_y * sizeof(float));

    (void)state;
    d.x_block = d.y_block = (int)b;
    assert_true(conv_case_complete(&d));
    assert_true(ct_stream_pays(aligned, (size_t)n_y * sizeof(float)));
    ct_mem_release(aligned);
    assert_true(compare(d, CONV_FORWARD));
    d.c = m, d.m = 5;
    assert_true(compare(d, CONV_DATA));
}

/* What it leaves to others; and others leave blocked layouts to it. */
static void test_refusals(void **state)
{
    int b = ct_simd_block();
    ct_conv_desc d = CONV_SHAPE(1, 2, 2 * b + 2, 5, 5, 4 * b, 3, 3, 1, 1, 0, 0, 1, 1);

    (void)state;
    d.x_block = d.y_block = b;
    assert_true(conv_case_complete(&d));
    for (conv_direction dir = CONV_FORWARD; dir < N_CONV_DIRECTION; dir++) {
        assert_null(ct_conv_find(conv_case_table_of(dir), &d, "auto")); /* groups cut blocks */
        d.c = 2 * b;
        assert_string_equal(ct_conv_find(conv_case_table_of(dir), &d, "auto")->name, "blocked");
        d.x_block = 0; /* many plain channels */
        assert_null(ct_conv_find(conv_case_table_of(dir), &d, "auto"));
        d.x_block = d.y_block = 4; /* a block that this machine does not have */
        assert_null(ct_conv_find(conv_case_table_of(dir), &d, "auto"));
        d.x_block = d.y_block = b, d.c = 2 * b + 2;
    }
}

static void test_odd_shapes(void **state)
{
    (void)state;
    conv_case_each_level(odd_shapes);
}

/* Kernels as nets have them, whose tiles are whole. */
static void usual_shapes(void)
{
    static const ct_conv_desc shape[] = {
        CONV_SHAPE(2, 1, 40, 28, 28, 48, 3, 3, 1, 1, 1, 1, 1, 1),
        CONV_SHAPE(2, 1, 64, 14, 14, 64, 3, 3, 2, 2, 1, 1, 1, 1),
        CONV_SHAPE(2, 1, 32, 7, 7, 64, 3, 3, 1, 1, 1, 1, 1, 1),
        CONV_SHAPE(2, 1, 33, 27, 27, 80, 5, 5, 1, 1, 2, 2, 1, 1),
        CONV_SHAPE(2, 1, 272, 14, 14, 32, 1, 1, 1, 1, 0, 0, 1, 1),
        CONV_SHAPE(2, 1, 64, 28, 28, 72, 1, 1, 2, 2, 0, 0, 1, 1),
        CONV_SHAPE(2, 1, 32, 40, 40, 16, 7, 7, 1, 1, 3, 3, 1, 1),
    };

    for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
        ct_conv_desc d = shape[i];

        if (i == 0) d.n = 0; /* no image is a case, too */
        d.x_block = d.y_block = ct_simd_block();
        assert_true(conv_case_complete(&d));
        for (conv_direction dir = CONV_FORWARD; dir < N_CONV_DIRECTION; dir++)
            assert_true(compare(d, dir));
        assert_int_equal(conv_case_compare(d, CONV_DATA, "fold", conv_case_sum_limits), folds(&d));
    }
}

static void test_usual_shapes(void **state)
{
    (void)state;
    conv_case_each_level(usual_shapes);
}

/* A ReLU asked for is the ReLU of what comes without. */
static void check_relu(const ct_conv_desc *d, const char *engine)
{
    const ct_conv_impl *e = ct_conv_find(ct_conv_forward_table, d, engine);
    int64_t b = ct_simd_block(), c = (d->c + b - 1) / b * b, m = (d->m + b - 1) / b * b;
    int64_t n_x = d->n * c * d->h * d->w, n_y = d->n * m * d->oh * d->ow;
    int64_t n_w = d->m * (d->c / d->group) * d->kh * d->kw, below = 0;
    float *x = malloc((size_t)n_x * sizeof(float)), *w = malloc((size_t)n_w * sizeof(float));
    float *bias = malloc((size_t)d->m * sizeof(float));
    float *y = malloc((size_t)n_y * sizeof(float)), *z = malloc((size_t)n_y * sizeof(float));
    ct_exec ex = { .dev = ct_device_cpu() };
    ct_conv_args a = { .x = x, .weight = w, .bias = bias, .y = y };

    assert_non_null(e);
    assert_true((e->can & CT_CONV_CAN_RELU) != 0);
    test_random(x, n_x, 1, -1, 1), test_random(w, n_w, 2, -1, 1);
    test_random(bias, d->m, 3, -1, 1);
    a.work = ct_mem_acquire(ct_conv_workspace(e, d) + 64);
    assert_int_equal(e->run(d, &ex, &a), CT_OK);
    a.y = z;
    a.relu = true;
    assert_int_equal(e->run(d, &ex, &a), CT_OK);
    for (int64_t j = 0; j < n_y; j++) {
        below += (y[j] < 0);
        if (y[j] < 0) y[j] = 0.0f;
    }
    assert_true(below > 0);
    test_same(z, y, n_y, "rectified");
    ct_mem_release(a.work);
    free(x), free(w), free(bias), free(y), free(z);
}

/* Sums in one and in several parts (channels; tap rows, some of which meet no row), strips, few
 * channels (in plain order), depthwise, strides; and tiles. */
static void test_relu(void **state)
{
    static const struct {
        ct_conv_desc d;
        const char *engine;
    } shape[] = { { CONV_SHAPE(2, 1, 130, 5, 6, 37, 3, 3, 1, 1, 1, 1, 1, 1), "blocked" },
                  { CONV_SHAPE(1, 1, 20, 3, 4, 18, 7, 7, 1, 1, 5, 5, 1, 1), "blocked" },
                  { CONV_SHAPE(1, 1, 33, 9, 17, 16, 5, 5, 2, 2, 2, 2, 1, 1), "blocked" },
                  { CONV_SHAPE(2, 1, 40, 7, 7, 50, 1, 1, 1, 1, 0, 0, 1, 1), "blocked" },
                  { CONV_SHAPE(2, 1, 3, 11, 9, 21, 11, 11, 4, 4, 5, 5, 1, 1), "blocked" },
                  { CONV_SHAPE(2, 19, 19, 6, 5, 19, 3, 3, 1, 1, 1, 1, 1, 1), "blocked" },
                  { CONV_SHAPE(2, 1, 40, 9, 7, 50, 1, 1, 2, 2, 0, 0, 1, 1), "blocked" },
                  { CONV_SHAPE(1, 1, 20, 9, 11, 40, 3, 3, 1, 1, 1, 1, 1, 1), "winograd" },
                  { CONV_SHAPE(1, 1, 20, 2, 1, 40, 3, 3, 1, 1, 1, 1, 1, 1), "winograd" } };

    (void)state;
    for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
        ct_conv_desc d = shape[i].d;

        assert_true(conv_case_complete(&d));
        d.n_thread = 2;
        d.winograd = 4;
        d.y_block = ct_simd_block();
        d.x_block = (d.c > 4) ? d.y_block : 0;
        check_relu(&d, shape[i].engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_odd_shapes),   cmocka_unit_test(test_first_layers),
        cmocka_unit_test(test_depthwise),    cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_usual_shapes), cmocka_unit_test(test_relu),
        cmocka_unit_test(test_streamed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
