/* Convolutions whose operands are rounded to bf16, by the instruction and without it: the rounding
 * itself; blocked engines on numbers that bf16 has, which are as exact as in f32; and that other
 * numbers give the bits of rounded ones. Winograd's are in test_conv_winograd.c. */
#include "tests/test.h"
#include "tests/conv_case.h"
#include "tests/layer_harness.h"

#include "framework/base/bf16.h"
#include "framework/base/simd.h"
#include "layers/engine/conv/blocked.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void odd_shapes(void)
{
    conv_draw r = { 3000 };
    int folded = 0;

    for (int i = 0; i < 50; i++) {
        ct_conv_desc d = conv_case_draw(&r, ct_simd_block(), 8, true);

        for (conv_direction dir = CONV_FORWARD; dir < N_CONV_DIRECTION; dir++)
            assert_true(conv_case_compare(d, dir, "blocked", conv_case_sum_limits));
        folded += conv_case_compare(d, CONV_DATA, "fold", conv_case_sum_limits);
    }
    assert_true(folded > 0);
}

static void test_odd_shapes(void **state)
{
    (void)state;
    conv_case_each_bf16(odd_shapes);
}

/* Sums in parts, planes in strips and units; many taps; depthwise stays f32. */
static void usual_shapes(void)
{
    static const int64_t shape[][9] = {
        /* n, group, c, h, w, m, kernel, stride, pad */
        { 2, 1, 300, 9, 9, 40, 3, 1, 1 },   { 1, 1, 33, 60, 57, 35, 3, 1, 1 },
        { 2, 1, 272, 14, 14, 32, 1, 1, 0 }, { 3, 1, 64, 28, 28, 72, 1, 2, 0 },
        { 1, 1, 17, 40, 40, 16, 9, 1, 4 },  { 2, 1, 48, 27, 27, 80, 5, 1, 2 },
        { 0, 1, 20, 9, 9, 40, 3, 1, 1 },    { 1, 1, 64, 14, 14, 64, 3, 2, 1 },
        { 2, 19, 19, 6, 5, 19, 3, 1, 1 },
    };

    for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
        const int64_t *s = shape[i];
        ct_conv_desc d = { .n = s[0],
                           .group = s[1],
                           .c = s[2],
                           .h = s[3],
                           .w = s[4],
                           .m = s[5],
                           .kh = s[6],
                           .kw = s[6],
                           .sh = s[7],
                           .sw = s[7],
                           .ph = s[8],
                           .pw = s[8],
                           .dh = 1,
                           .dw = 1,
                           .bf16 = true };

        d.x_block = d.y_block = ct_simd_block();
        assert_true(conv_case_complete(&d));
        for (conv_direction dir = CONV_FORWARD; dir < N_CONV_DIRECTION; dir++)
            assert_true(conv_case_compare(d, dir, "blocked", conv_case_sum_limits));
    }
}

/* Images into blocks; kernels in one part and in several, dilated, in groups. */
static void first_layers(void)
{
    static const int64_t shape[][8] = {
        /* n, group, c, size, m, kernel, stride, dilation */
        { 2, 1, 3, 23, 24, 3, 1, 1 },  { 1, 1, 3, 67, 96, 11, 4, 1 }, { 2, 1, 1, 28, 20, 5, 1, 1 },
        { 1, 1, 4, 31, 37, 3, 2, 2 },  { 1, 2, 6, 17, 32, 3, 1, 1 },  { 1, 1, 3, 112, 64, 7, 2, 1 },
        { 1, 1, 2, 300, 9, 21, 1, 1 },
    };

    for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
        const int64_t *s = shape[i];
        ct_conv_desc d = { .n = s[0],
                           .group = s[1],
                           .c = s[2],
                           .h = s[3],
                           .w = s[3] - 1,
                           .m = s[4],
                           .kh = s[5],
                           .kw = s[5],
                           .sh = s[6],
                           .sw = s[6],
                           .ph = s[5] / 2,
                           .pw = s[5] / 2,
                           .dh = s[7],
                           .dw = s[7],
                           .bf16 = true,
                           .y_block = ct_simd_block() };

        assert_true(conv_case_complete(&d));
        assert_true(conv_case_compare(d, CONV_FORWARD, "blocked", conv_case_sum_limits));
        assert_true(conv_case_compare(d, CONV_WEIGHT, "blocked", conv_case_sum_limits));
    }
}

static void test_first_layers(void **state)
{
    (void)state;
    conv_case_each_bf16(first_layers);
}

static void test_usual_shapes(void **state)
{
    (void)state;
    conv_case_each_bf16(usual_shapes);
}

static void round_all(int64_t n, float *v)
{
    for (int64_t i = 0; i < n; i++) v[i] = ct_bf16_to_f32(ct_bf16_from_f32(v[i]));
}

/* An engine's result of any numbers is, bit by bit, that of the numbers rounded: but Winograd's,
 * which rounds what it maps, not what it is given. */
static void rounds(void)
{
    ct_conv_desc d = { .n = 2,
                       .group = 1,
                       .c = 21,
                       .h = 9,
                       .w = 11,
                       .m = 35,
                       .kh = 3,
                       .kw = 3,
                       .sh = 1,
                       .sw = 1,
                       .ph = 1,
                       .pw = 1,
                       .dh = 1,
                       .dw = 1 };
    static const char *const engine[] = { "blocked", "gemm" };

    for (int i = 0; i < 2 * N_CONV_DIRECTION; i++) {
        conv_direction dir = (conv_direction)(i / 2);
        const ct_conv_impl *impl;
        conv_tensors t;
        float *any, *rounded, *f32;
        int64_t n, differ = 0;

        d.x_block = d.y_block = (i % 2 == 0) ? ct_simd_block() : 0;
        assert_true(conv_case_complete(&d));
        impl = ct_conv_find(conv_case_table_of(dir), &d, engine[i % 2]);
        assert_non_null(impl);
        assert_true((impl->can & CT_CONV_CAN_BF16) != 0);
        d.bf16 = false;
        t = conv_case_make_tensors(&d, false);
        n = (dir == CONV_FORWARD) ? t.n_y : (dir == CONV_DATA) ? t.n_x : t.n_weight;
        f32 = conv_case_run(impl, &d, dir, &t);
        d.bf16 = true;
        any = conv_case_run(impl, &d, dir, &t);
        round_all(t.n_x, t.x), round_all(t.n_weight, t.weight), round_all(t.n_y, t.dy);
        rounded = conv_case_run(impl, &d, dir, &t);
        assert_memory_equal(any, rounded, (size_t)n * sizeof(float));
        for (int64_t k = 0; k < n; k++) differ += (any[k] != f32[k]);
        assert_true(differ > n / 2);
        free(any), free(rounded), free(f32);
        conv_case_release(&t);
    }
}

/* The same of first layers: images of three channels, kernels of odd and even width. */
static void first_layer_rounds(void)
{
    for (int i = 0; i < 8; i++) {
        ct_conv_desc d = { .n = 2,
                           .group = 1,
                           .c = 3,
                           .h = 19,
                           .w = 22,
                           .m = 35,
                           .kh = 3,
                           .kw = 4 + i / 2 % 2,
                           .sh = 2,
                           .sw = 1 + i / 4,
                           .ph = 1,
                           .pw = 2,
                           .dh = 1,
                           .dw = 1,
                           .y_block = ct_simd_block() };
        conv_direction dir = (i % 2 == 0) ? CONV_FORWARD : CONV_WEIGHT;
        const ct_conv_impl *impl;
        conv_tensors t;
        float *any, *rounded, *f32;
        int64_t n, differ = 0;

        assert_true(conv_case_complete(&d));
        impl = ct_conv_find(conv_case_table_of(dir), &d, "blocked");
        assert_non_null(impl);
        t = conv_case_make_tensors(&d, false);
        n = (dir == CONV_FORWARD) ? t.n_y : t.n_weight;
        f32 = conv_case_run(impl, &d, dir, &t);
        d.bf16 = true;
        any = conv_case_run(impl, &d, dir, &t);
        round_all(t.n_x, t.x), round_all(t.n_weight, t.weight), round_all(t.n_y, t.dy);
        rounded = conv_case_run(impl, &d, dir, &t);
        assert_memory_equal(any, rounded, (size_t)n * sizeof(float));
        for (int64_t k = 0; k < n; k++) differ += (any[k] != f32[k]);
        assert_true(differ > n / 2);
        free(any), free(rounded), free(f32);
        conv_case_release(&t);
    }
}

static void test_rounds(void **state)
{
    (void)state;
    conv_case_each_bf16(rounds);
    conv_case_each_bf16(first_layer_rounds);
}

/* Halves, ties, what rounds up into another exponent or to infinity, signs; NaN stays one. */
static void words(void)
{
    enum { N = 48 };
    static const float special[] = { 0.0f,           -0.0f,          1.0f,       0x1.01p0f,
                                     0x1.03p0f,      0x1.02p0f,      -0x1.01p0f, 0x1.ffp5f,
                                     0x1.0100002p0f, 3.4e38f,        -3.4e38f,   INFINITY,
                                     -INFINITY,      0x1.fefffep-3f, 1e-30f,     NAN };
    const ct_narrow *way = ct_narrow_pick();
    float a[N], b[N], along[N], across[N];
    uint16_t half[2 * N];

    test_random(a, N, 5, -2.0f, 2.0f);
    test_random(b, N, 6, -1e-3f, 1e3f);
    memcpy(a, special, sizeof(special));
    assert_int_equal(way->pair, ct_simd_has_bf16() ? 2 : 1);
    way->along(2, N / 2, a, N / 2, along, N / 2 / way->pair);
    way->across(3, N / 3, a, b, N / 3, across, N / 3);
    if (way->pair == 1) {
        for (int i = 0; i < N; i++) {
            float want = ct_bf16_to_f32(ct_bf16_from_f32(a[i]));

            assert_memory_equal(&along[i], &want, sizeof(want));
            assert_memory_equal(&across[i], &want, sizeof(want));
        }
        return;
    }
    memcpy(half, along, N * sizeof(half[0]));
    for (int i = 0; i < N; i++) assert_int_equal(half[i], ct_bf16_from_f32(a[i]));
    memcpy(half, across, sizeof(half));
    for (int i = 0; i < N; i++) {
        assert_int_equal(half[2 * i], ct_bf16_from_f32(a[i]));
        assert_int_equal(half[2 * i + 1], ct_bf16_from_f32(b[i]));
    }
    way->across(1, 8, a, NULL, 0, across, 0);
    memcpy(half, across, sizeof(half));
    for (int i = 0; i < 8; i++) {
        assert_int_equal(half[2 * i], ct_bf16_from_f32(a[i]));
        assert_int_equal(half[2 * i + 1], 0);
    }
}

static void test_words(void **state)
{
    (void)state;
    conv_case_each_bf16(words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_odd_shapes),   cmocka_unit_test(test_usual_shapes),
        cmocka_unit_test(test_first_layers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
