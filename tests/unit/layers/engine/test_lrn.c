/* Local response normalisation: engines against the definition, gradients, messages. */
#include "tests/test.h"
#include "framework/base/memory.h"
#include "framework/base/stream.h"
#include "layers/engine/lrn/lrn.h"
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
            test_layer_pass(t[v]);
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

/* Floats of an array, of whole blocks where there are some. */
static int64_t stored(const ct_lrn_desc *d)
{
    int64_t b = (d->block > 0) ? d->block : 1;

    return d->n * ((d->c + b - 1) / b * b) * d->h * d->w;
}

/* Whether element i of such an array is a channel that there is. */
static bool is_real(const ct_lrn_desc *d, int64_t i)
{
    int64_t n_block = (d->c + d->block - 1) / d->block, row = d->h * d->w * d->block;

    return i / row % n_block * d->block + i % d->block < d->c;
}

typedef struct arrays {
    float *x, *dy, *y[2], *dx[2], *scale;
} arrays;

static arrays make_arrays(int64_t n)
{
    arrays a = { .x = ct_mem_acquire((size_t)n * sizeof(float)),
                 .dy = ct_mem_acquire((size_t)n * sizeof(float)),
                 .scale = ct_mem_acquire((size_t)n * sizeof(float)) };

    for (int v = 0; v < 2; v++) {
        a.y[v] = ct_mem_acquire((size_t)n * sizeof(float));
        a.dx[v] = ct_mem_acquire((size_t)n * sizeof(float));
        assert_true((a.y[v] != NULL) && (a.dx[v] != NULL));
    }
    assert_true((a.x != NULL) && (a.dy != NULL) && (a.scale != NULL));
    test_random(a.x, n, 7, -1.0f, 1.0f);
    test_random(a.dy, n, 8, -1.0f, 1.0f);
    return a;
}

static void free_arrays(arrays *a)
{
    ct_mem_release(a->x), ct_mem_release(a->dy), ct_mem_release(a->scale);
    for (int v = 0; v < 2; v++) ct_mem_release(a->y[v]), ct_mem_release(a->dx[v]);
}

/* Both directions by the reference into [0], by the blocked engine into [1]. */
static void run_both(const ct_lrn_desc *d, arrays *a)
{
    ct_exec ex = { 0 };

    for (int v = 0; v < 2; v++) {
        const ct_lrn_impl *f = (v == 0) ? &ct_lrn_ref_forward : &ct_lrn_blocked_forward;
        const ct_lrn_impl *b = (v == 0) ? &ct_lrn_ref_backward : &ct_lrn_blocked_backward;
        float *scale = (v == 0) ? a->scale : NULL;

        assert_true(f->supports(d) && b->supports(d));
        assert_int_equal(f->run(d, &ex, &(ct_lrn_args){ .x = a->x, .y = a->y[v], .scale = scale }),
                         CT_OK);
        assert_int_equal(
            b->run(d, &ex,
                   &(ct_lrn_args){ .x = a->x, .scale = scale, .dy = a->dy, .dx = a->dx[v] }),
            CT_OK);
    }
}

/* |x|, |dy| <= 1 and scale >= k >= 1, so powers are at most 1: y has the roundings of `size`
 * squares and of the power (8 ulp), dx those of two such terms, the second of 2 alpha beta / size
 * times at most `size` ratios. */
static void compare_blocked(const ct_lrn_desc *d)
{
    arrays a = make_arrays(stored(d));
    float of_y = ((float)d->size + 12.0f) * 0x1p-24f;
    float of_dx = of_y * (1.0f + 2.0f * d->alpha * d->beta * 2.0f);

    run_both(d, &a);
    for (int64_t i = 0; i < stored(d); i++) {
        if (is_real(d, i)) {
            assert_true(fabsf(a.y[1][i] - a.y[0][i]) <= of_y);
            assert_true(fabsf(a.dx[1][i] - a.dx[0][i]) <= of_dx);
        } else {
            assert_true(isfinite(a.y[1][i]) && isfinite(a.dx[1][i]));
        }
    }
    free_arrays(&a);
}

/* Windows below, of and beyond the usual ones, up to a block to each side; channels below, of and
 * beyond blocks; planes below, of and beyond a piece. */
static void test_blocked(void **state)
{
    static const int64_t size[] = { 1, 3, 5, 7, 9, 17 }, channels[] = { 1, 3, 8, 16, 17, 35, 48 };
    static const int64_t plane[][2] = { { 1, 1 }, { 3, 5 }, { 4, 8 }, { 5, 13 } };

    (void)state;
    for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
        for (size_t k = 0; k < sizeof(channels) / sizeof(channels[0]); k++) {
            for (int v = 0; v < 8; v++) {
                ct_lrn_desc d = { .device = CT_DEVICE_CPU,
                                  .n_thread = 2,
                                  .n = 1 + v % 3,
                                  .c = channels[k],
                                  .h = plane[v / 2][0],
                                  .w = plane[v / 2][1],
                                  .block = (v % 2) ? 16 : 8,
                                  .size = size[i],
                                  .alpha = 1.5f,
                                  .beta = ((v + (int)k) % 3 == 0) ? 0.6f : 0.75f,
                                  .k = (v < 4) ? 1.0f : 2.0f };

                compare_blocked(&d);
            }
        }
    }
}

/* Arrays beyond the caches are written past them: the same numbers as image by image. */
static void test_streamed(void **state)
{
    ct_lrn_desc whole = { .device = CT_DEVICE_CPU,
                          .n_thread = 2,
                          .n = 9,
                          .c = 61,
                          .h = 128,
                          .w = 131,
                          .size = 5,
                          .alpha = 1e-4f,
                          .beta = 0.75f,
                          .k = 1.0f };
    ct_exec ex = { 0 };

    (void)state;
    for (int block = 0; block <= 16; block += 8) {
        const ct_lrn_impl *forward = (block > 0) ? &ct_lrn_blocked_forward : &ct_lrn_simd_forward;
        const ct_lrn_impl *backward =
            (block > 0) ? &ct_lrn_blocked_backward : &ct_lrn_simd_backward;
        ct_lrn_desc one;
        arrays a;
        size_t bytes;
        void *work;

        whole.block = block;
        one = whole;
        one.n = 1;
        work = ct_mem_acquire(ct_lrn_workspace(backward, &whole) + 1);
        a = make_arrays(stored(&whole));
        bytes = (size_t)stored(&whole) * sizeof(float);
        assert_true(ct_stream_pays(a.y[1], bytes));
        assert_false(ct_stream_pays(a.y[1], bytes / 9));
        for (int v = 0; v < 2; v++) {
            const ct_lrn_desc *d = (v == 0) ? &one : &whole;

            for (int64_t n = 0; n < ((v == 0) ? whole.n : 1); n++) {
                int64_t at = n * stored(&one);
                ct_lrn_args f = { .x = a.x + at, .y = a.y[v] + at, .work = work };
                ct_lrn_args b = {
                    .x = a.x + at, .dy = a.dy + at, .dx = a.dx[v] + at, .work = work
                };

                assert_int_equal(forward->run(d, &ex, &f), CT_OK);
                assert_int_equal(backward->run(d, &ex, &b), CT_OK);
            }
        }
        assert_memory_equal(a.y[0], a.y[1], bytes);
        assert_memory_equal(a.dx[0], a.dx[1], bytes);
        free_arrays(&a);
        ct_mem_release(work);
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
        cmocka_unit_test(test_engines),   cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_gradients), cmocka_unit_test(test_blocked),
        cmocka_unit_test(test_streamed),  cmocka_unit_test(test_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
