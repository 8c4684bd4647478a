/* Pooling: engines against the definition, Caffe's sizes and divisors, gradients, messages. */
#include "tests/test.h"
#include "tests/layer_harness.h"

#include "framework/base/memory.h"
#include "framework/base/stream.h"
#include "layers/engine/pool/pool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct pool_case {
    const char *fields;
    ct_shape x;
    int64_t oh, ow;
} pool_case;

/* Sizes by hand: ceil((in + 2 pad - kernel) / stride) + 1, less a window that starts behind the
 * padded edge. */
static const pool_case good[] = {
    { "kernel_size: 2 stride: 2", { 4, { 2, 3, 24, 24 } }, 12, 12 },
    { "kernel_size: 3 stride: 2", { 4, { 2, 3, 32, 32 } }, 16, 16 }, /* CIFAR-10 quick */
    { "kernel_size: 3 stride: 2", { 4, { 1, 5, 55, 55 } }, 27, 27 }, /* AlexNet        */
    { "kernel_size: 3 stride: 2", { 4, { 1, 2, 6, 5 } }, 3, 2 },
    { "kernel_size: 3 stride: 2 round_mode: FLOOR", { 4, { 1, 2, 6, 5 } }, 2, 2 },
    { "kernel_size: 3 stride: 1 pad: 1", { 4, { 2, 2, 5, 7 } }, 5, 7 },
    { "kernel_size: 2 stride: 2 pad: 1", { 4, { 2, 2, 5, 4 } }, 3, 3 }, /* a fourth begins at 6 */
    { "kernel_size: 3 stride: 3 pad: 2", { 4, { 2, 2, 7, 6 } }, 3, 3 },
    { "kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 3 pad_h: 1 pad_w: 0",
      { 4, { 3, 1, 8, 8 } },
      5,
      3 },
    { "global_pooling: true", { 4, { 2, 5, 7, 6 } }, 1, 1 },
    { "kernel_size: 1 stride: 1", { 4, { 1, 1, 3, 3 } }, 3, 3 },
    { "kernel_size: 4 stride: 2",
      { 4, { 1, 1, 3, 17 } },
      1,
      8 }, /* larger than the plane: clipped */
    { "kernel_size: 5 stride: 2 pad: 2", { 4, { 2, 3, 33, 35 } }, 17, 18 },
    { "kernel_size: 17 stride: 7 pad: 3", { 4, { 2, 2, 33, 35 } }, 5, 5 }, /* masks of words */
    { "kernel_h: 2 kernel_w: 9 stride: 2 pad_h: 0 pad_w: 8", { 4, { 2, 2, 4, 3 } }, 2, 6 },
    { "kernel_size: 3 stride: 1 pad: 2", { 4, { 2, 3, 19, 21 } }, 21, 23 },
    { "kernel_size: 4 stride: 1 pad: 1", { 4, { 1, 3, 12, 9 } }, 11, 8 },
    { "kernel_size: 5 stride: 1 pad: 2", { 4, { 1, 3, 13, 17 } }, 13, 17 }, /* 25 windows a place */
    { "kernel_size: 3 stride: 3 pad: 1", { 4, { 2, 3, 17, 25 } }, 6, 9 },
    { "kernel_size: 2 stride: 5 round_mode: FLOOR", { 4, { 2, 3, 22, 24 } }, 5, 5 }, /* gaps */
    { "kernel_h: 5 kernel_w: 3 stride: 2 pad_h: 1 pad_w: 1", { 4, { 2, 2, 17, 33 } }, 8, 17 },
};
enum { N_GOOD = sizeof(good) / sizeof(good[0]) };

static test_layer *make(const pool_case *c, const char *pool, const char *kernel, int n_top,
                        bool forward_only)
{
    char text[512];
    test_layer_spec spec = { .type = "Pooling",
                             .text = text,
                             .n_bottom = 1,
                             .n_top = n_top,
                             .no_top_diff = { false, true },
                             .forward_only = forward_only,
                             .bottom = { c->x } };
    test_layer *t;

    snprintf(text, sizeof(text),
             "pooling_param { %s pool: %s } ct_kernel { forward: \"%s\" backward_data: \"%s\" }",
             c->fields, pool, kernel, kernel);
    assert_int_equal(test_layer_create(&spec, &t), CT_OK);
    assert_int_equal(t->top_shape[0].ndim, 4);
    return t;
}

static void test_sizes(void **state)
{
    (void)state;
    for (int i = 0; i < N_GOOD; i++) {
        test_layer *t = make(&good[i], "MAX", "auto", 1, false);

        if ((t->top_shape[0].dim[2] != good[i].oh) || (t->top_shape[0].dim[3] != good[i].ow))
            fail_msg("%s: %s", good[i].fields, ct_shape_str(&t->top_shape[0]).text);
        test_layer_destroy(t);
    }
}

/* The same maxima and places; averages of n terms below 1 within (n + 2) eps. */
static void test_engines(void **state)
{
    static const char *const pool[] = { "MAX", "AVE" };

    (void)state;
    for (int i = 0; i < 2 * N_GOOD; i++) {
        const pool_case *c = &good[i / 2];
        test_layer *t[2];

        for (int v = 0; v < 2; v++) {
            t[v] = make(c, pool[i % 2], (v == 0) ? "ref" : "simd", (i % 2 == 0) ? 2 : 1, false);
            test_random(t[v]->input[0], t[v]->input_count[0], 3, -1.0f, 1.0f);
            for (int64_t k = 0; k < t[v]->input_count[0]; k++) /* many equal ones */
                t[v]->input[0][k] = roundf(t[v]->input[0][k] * 4.0f) * 0.25f;
            test_random(t[v]->top_diff[0], t[v]->top_count[0], 4, -1.0f, 1.0f);
            test_layer_pass(t[v]);
        }
        for (int k = 0; (i % 2 == 0) && (k < 2); k++)
            test_same(t[1]->top[k], t[0]->top[k], t[0]->top_count[k], c->fields);
        for (int64_t k = 0; k < t[0]->top_count[0]; k++)
            assert_true(fabsf(t[1]->top[0][k] - t[0]->top[0][k]) <= 46.0f * 0x1p-24f);
        for (int64_t k = 0; k < t[0]->input_count[0]; k++) /* at most 25 windows meet */
            assert_true(fabsf(t[1]->input_diff[0][k] - t[0]->input_diff[0][k]) <=
                        25.0f * 27.0f * 0x1p-24f);
        test_layer_destroy(t[0]), test_layer_destroy(t[1]);
    }
}

/* 2x2 windows with pad 1, stride 2 over 1..9: the corner windows hold one, two or four numbers,
 * and every divisor is 4, but the last ones': their window is cut at the padded edge. */
static void test_average_by_hand(void **state)
{
    pool_case c = { "kernel_size: 2 stride: 2 pad: 1", { 4, { 1, 1, 3, 3 } }, 2, 2 };
    pool_case wide = { "kernel_size: 3 stride: 2 pad: 1", { 4, { 1, 1, 2, 2 } }, 2, 2 };
    const float want[4] = { 0.25f, 1.25f, 2.75f, 7.0f };
    /* windows rows {-1,0,1} and {1,2}: divisors 9, 6, 6, 4 */
    const float want_wide[4] = { 10.0f / 9.0f, 6.0f / 6.0f, 7.0f / 6.0f, 4.0f / 4.0f };
    test_layer *t = make(&c, "AVE", "simd", 1, true);

    (void)state;
    for (int i = 0; i < 9; i++) t->input[0][i] = (float)(i + 1);
    assert_int_equal(test_layer_forward(t), CT_OK);
    test_same(t->top[0], want, 4, "top");
    test_layer_destroy(t);
    t = make(&wide, "AVE", "simd", 1, true);
    for (int i = 0; i < 4; i++) t->input[0][i] = (float)(i + 1);
    assert_int_equal(test_layer_forward(t), CT_OK);
    test_same(t->top[0], want_wide, 4, "top");
    test_layer_destroy(t);
}

/* Element (i, j) of the window of output (r, c), by its definition; false: in the padding. */
static bool dilated_at(const int64_t *x, int64_t r, int64_t c, int i, int j, int64_t *row_p,
                       int64_t *column_p)
{
    *row_p = 2 * r - 2 + 3 * i; /* stride 2, pad 2, dilations 3 and 2 */
    *column_p = 2 * c - 2 + 2 * j;
    return (*row_p >= 0) && (*row_p < x[2]) && (*column_p >= 0) && (*column_p < x[3]);
}

/* Windows of 2 x 3 elements, 3 rows and 2 columns apart: a divisor counts those before the far
 * padded edge, or those inside alone, in double. */
static void test_dilated(void **state)
{
    enum { ROWS = 2, COLUMNS = 3, PAD = 2 };
    pool_case c = { "kernel_h: 2 kernel_w: 3 stride: 2 pad: 2 dilation: 3 dilation: 2",
                    { 4, { 2, 3, 8, 11 } },
                    5,
                    6 };
    const int64_t *x = c.x.dim;

    (void)state;
    for (int mean = 0; mean < 3; mean++) {
        test_layer *t = make(&c,
                             (mean == 2) ? "AVE avg_include_pad: false"
                             : mean      ? "AVE"
                                         : "MAX",
                             "auto", 1, false);
        double *dx = calloc((size_t)t->input_count[0], sizeof(*dx));

        assert_non_null(dx);
        assert_int_equal(t->top_shape[0].dim[2], c.oh);
        assert_int_equal(t->top_shape[0].dim[3], c.ow);
        test_random_distinct(t->input[0], t->input_count[0], 5, -1, 1);
        test_random(t->top_diff[0], t->top_count[0], 6, -1, 1);
        test_layer_pass(t);
        for (int64_t o = 0; o < t->top_count[0]; o++) {
            int64_t plane = o / (c.oh * c.ow) * x[2] * x[3], best = -1, row, column;
            int64_t r = o / c.ow % c.oh, q = o % c.ow;
            double sum = 0, n = 0;

            for (int k = 0; k < ROWS * COLUMNS; k++) {
                bool inside = dilated_at(x, r, q, k / COLUMNS, k % COLUMNS, &row, &column);
                int64_t at = plane + row * x[3] + column;

                n += (mean == 2) ? inside : (row < x[2] + PAD) && (column < x[3] + PAD);
                if (!inside) continue;
                sum += (double)t->input[0][at];
                if ((best < 0) || (t->input[0][at] > t->input[0][best])) best = at;
            }
            assert_true(best >= 0);
            for (int k = 0; k < ROWS * COLUMNS; k++) {
                if (mean && dilated_at(x, r, q, k / COLUMNS, k % COLUMNS, &row, &column))
                    dx[plane + row * x[3] + column] += (double)t->top_diff[0][o] / n;
            }
            if (!mean) dx[best] += (double)t->top_diff[0][o];
            assert_true(fabs((double)t->top[0][o] - (mean ? sum / n : (double)t->input[0][best])) <=
                        (mean ? 8 * 0x1p-24 : 0.0));
        }
        for (int64_t i = 0; i < t->input_count[0]; i++)
            assert_true(fabs((double)t->input_diff[0][i] - dx[i]) <= 16 * 0x1p-24);
        free(dx);
        test_layer_destroy(t);
    }
}

/* Intel's avg_include_pad: a mean over what is inside, in forward and backward; MAX is as it is. */
static void test_without_padding(void **state)
{
    pool_case c = { "kernel_size: 2 stride: 2 pad: 1", { 4, { 1, 1, 3, 3 } }, 2, 2 };
    const float top[4] = { 1, 2.5f, 5.5f, 7 }, most[4] = { 1, 3, 7, 9 };
    const float dx[9] = { 1, 1, 1, 1.5f, 1, 1, 1.5f, 1, 1 };

    (void)state;
    for (int mean = 0; mean < 2; mean++) {
        test_layer *t = make(&c, mean ? "AVE avg_include_pad: false" : "MAX avg_include_pad: false",
                             "auto", 1, false);

        for (int i = 0; i < 9; i++) t->input[0][i] = (float)(i + 1);
        for (int i = 0; i < 4; i++) t->top_diff[0][i] = (float)(i + 1);
        test_layer_pass(t);
        test_same(t->top[0], mean ? top : most, 4, "top");
        if (mean) test_same(t->input_diff[0], dx, 9, "bottom diff");
        test_layer_destroy(t);
    }
}

/* Of equal elements the first in row-major order; the second top holds its place. */
static void test_ties(void **state)
{
    pool_case c = { "kernel_size: 2 stride: 1", { 4, { 1, 2, 2, 3 } }, 1, 2 };
    const float x[12] = { 1, 5, 5, 5, 5, 0, -1, -1, -1, -1, -1, -1 };
    const float top[4] = { 5, 5, -1, -1 }, place[4] = { 1, 1, 0, 1 };
    const float dx[12] = { 0, 3, 0, 0, 0, 0, 3, 4, 0, 0, 0, 0 };

    (void)state;
    for (int v = 0; v < 2; v++) {
        test_layer *t = make(&c, "MAX", (v == 0) ? "ref" : "simd", 2, false);

        memcpy(t->input[0], x, sizeof(x));
        for (int i = 0; i < 4; i++) t->top_diff[0][i] = (float)(i + 1);
        test_layer_pass(t);
        test_same(t->top[0], top, 4, "top");
        test_same(t->top[1], place, 4, "places");
        test_same(t->input_diff[0], dx, 12, "bottom diff");
        test_layer_destroy(t);
    }
}

/* A NaN wins wherever it stands in a window, so that a diverged net shows; -inf is a number. */
static void test_not_a_number(void **state)
{
    pool_case c = { "kernel_size: 2 stride: 2", { 4, { 1, 1, 4, 4 } }, 2, 2 };

    (void)state;
    for (int v = 0; v < 2 * 4; v++) {
        test_layer *t = make(&c, "MAX", (v % 2 == 0) ? "ref" : "simd", 1, true);
        const int corner[] = { 0, 1, 4, 5 };

        for (int i = 0; i < 16; i++) t->input[0][i] = (i / 4 < 2) ? (float)i : -INFINITY;
        t->input[0][corner[v / 2]] = NAN;
        assert_int_equal(test_layer_forward(t), CT_OK);
        assert_true(isnan(t->top[0][0]));
        assert_true((t->top[0][1] == 7.0f) && (t->top[0][2] == -INFINITY));
        test_layer_destroy(t);
    }
}

/* Nothing is larger than -inf: the first place inside of each window, as in the reference. */
static void test_least(void **state)
{
    (void)state;
    for (int i = 0; i < N_GOOD; i++) {
        test_layer *t[2];

        for (int v = 0; v < 2; v++) {
            t[v] = make(&good[i], "MAX", (v == 0) ? "ref" : "simd", 2, true);
            for (int64_t k = 0; k < t[v]->input_count[0]; k++)
                t[v]->input[0][k] = (k % 11 == 0) ? -3e38f : -INFINITY;
            assert_int_equal(test_layer_forward(t[v]), CT_OK);
        }
        for (int k = 0; k < 2; k++)
            test_same(t[1]->top[k], t[0]->top[k], t[0]->top_count[k], good[i].fields);
        test_layer_destroy(t[0]), test_layer_destroy(t[1]);
    }
}

static void test_gradients(void **state)
{
    (void)state;
    for (int i = 0; i < 4 * N_GOOD; i++) {
        test_layer *t =
            make(&good[i / 4], (i & 1) ? "AVE" : "MAX", (i & 2) ? "ref" : "simd", 1, false);

        /* numbers so far apart that a step never makes another one the largest */
        test_random_distinct(t->input[0], t->input_count[0], 5, 0.0f,
                             0.1f * (float)t->input_count[0]);
        test_layer_gradient(t, &(test_gradient){ .max_element = 40, .roundings = 64 });
        test_layer_destroy(t);
    }
}

static void test_refusals(void **state)
{
    static const struct {
        const char *text, *part;
        ct_status status;
    } bad[] = {
        { "", "pooling_param is missing", CT_ERR_CONFIG },
        { "pooling_param { pool: MAX }", "kernel_size, or kernel_h and kernel_w, is missing",
          CT_ERR_CONFIG },
        { "pooling_param { kernel_size: 0 }", "kernel must be positive", CT_ERR_CONFIG },
        { "pooling_param { kernel_size: 2 kernel_h: 2 kernel_w: 2 }", "kernel 2 and also",
          CT_ERR_CONFIG },
        { "pooling_param { kernel_h: 2 }", "one axis only", CT_ERR_CONFIG },
        { "pooling_param { kernel_size: 2 stride: 0 }", "stride 0 x 0", CT_ERR_CONFIG },
        { "pooling_param { kernel_size: 2 stride: 1 stride_h: 1 stride_w: 1 }", "stride 1 and also",
          CT_ERR_CONFIG },
        { "pooling_param { kernel_size: 2 pad: 2 }", "pad 2 x 2 must be smaller", CT_ERR_CONFIG },
        { "pooling_param { global_pooling: true kernel_size: 2 }", "global_pooling takes",
          CT_ERR_CONFIG },
        { "pooling_param { global_pooling: true stride: 2 }", "global_pooling needs pad 0",
          CT_ERR_CONFIG },
        { "pooling_param { kernel_size: 2 pool: STOCHASTIC pad: 1 }", "STOCHASTIC goes without",
          CT_ERR_CONFIG },
        { "pooling_param { kernel_size: 2 ceil_mode: false round_mode: CEIL }", "disagree",
          CT_ERR_CONFIG },
        { "pooling_param { kernel_size: 1 stride: 3 }",
          "kernel 1 and stride 3 the last window lies outside height 6", CT_ERR_CONFIG },
        { "pooling_param { kernel_size: 9 stride: 2 }", "kernel 9 is too large for height 6",
          CT_ERR_SHAPE },
        { "pooling_param { kernel_size: 2 } ct_kernel { backward_data: \"no\" }",
          "ct_kernel.backward_data: \"no\"", CT_ERR_CONFIG },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        test_layer_spec spec = { .type = "Pooling",
                                 .text = bad[i].text,
                                 .n_bottom = 1,
                                 .bottom = { TEST_SHAPE(2, 4, 6, 5) } };

        test_layer_refused(&spec, bad[i].status, bad[i].part);
    }
    test_layer_refused(&(test_layer_spec){ .type = "Pooling",
                                           .text = "pooling_param { kernel_size: 2 pool: AVE }",
                                           .n_bottom = 1,
                                           .n_top = 2,
                                           .bottom = { TEST_SHAPE(2, 4, 6, 5) } },
                       CT_ERR_CONFIG, "second top");
    test_layer_refused(&(test_layer_spec){ .type = "Pooling",
                                           .text = "pooling_param { kernel_size: 2 }",
                                           .n_bottom = 1,
                                           .bottom = { TEST_SHAPE(2, 4) } },
                       CT_ERR_SHAPE, "must have 4 axes");
}

/* ---- in blocks of planes, engine by engine */

typedef struct pool_arrays {
    float *x, *dy, *y[2], *dx[2];
    uint8_t *mask[2];
    void *work;
} pool_arrays;

static ct_pool_desc blocked_desc(ct_pool_method method, int64_t planes, int block, int64_t h,
                                 int64_t w, int64_t kernel, int64_t stride, int64_t pad)
{
    return (ct_pool_desc){ .device = CT_DEVICE_CPU,
                           .n_thread = 2,
                           .method = method,
                           .planes = planes,
                           .block = block,
                           .h = h,
                           .w = w,
                           .oh = (h + 2 * pad - kernel) / stride + 1,
                           .ow = (w + 2 * pad - kernel) / stride + 1,
                           .kh = kernel,
                           .kw = kernel,
                           .sh = stride,
                           .sw = stride,
                           .ph = pad,
                           .pw = pad };
}

static const ct_pool_impl *engine_of(const ct_pool_desc *d, bool back)
{
    if (d->block > 0) return back ? &ct_pool_blocked_backward : &ct_pool_blocked_forward;
    return back ? &ct_pool_simd_backward : &ct_pool_simd_forward;
}

/* x of few different numbers, so that many are equal, zeros of both signs among them. */
static pool_arrays make_arrays(const ct_pool_desc *d)
{
    int64_t in = d->planes * d->h * d->w, out = d->planes * d->oh * d->ow;
    size_t work = ct_pool_workspace(engine_of(d, false), d);
    pool_arrays a;

    if (ct_pool_workspace(engine_of(d, true), d) > work)
        work = ct_pool_workspace(engine_of(d, true), d);
    a.x = ct_mem_acquire((size_t)in * sizeof(float));
    a.dy = ct_mem_acquire((size_t)out * sizeof(float));
    for (int v = 0; v < 2; v++) {
        a.y[v] = ct_mem_acquire((size_t)out * sizeof(float));
        a.dx[v] = ct_mem_acquire((size_t)in * sizeof(float));
        a.mask[v] = ct_mem_acquire((size_t)out);
    }
    a.work = ct_mem_acquire(work);
    test_random(a.x, in, 5, -1.0f, 1.0f);
    for (int64_t i = 0; i < in; i++) a.x[i] = truncf(a.x[i] * 4.0f) * 0.25f;
    test_random(a.dy, out, 6, -1.0f, 1.0f);
    return a;
}

static void free_arrays(pool_arrays *a)
{
    for (int v = 0; v < 2; v++)
        ct_mem_release(a->y[v]), ct_mem_release(a->dx[v]), ct_mem_release(a->mask[v]);
    ct_mem_release(a->x), ct_mem_release(a->dy), ct_mem_release(a->work);
}

/* Numbers and places of the definition; means within their roundings: 9 terms below 1. */
static void compare_forward(const ct_pool_desc *d, const pool_arrays *a)
{
    int64_t out = d->planes * d->oh * d->ow;
    float most = (d->method == CT_POOL_MAX) ? 0.0f : 10.0f * 0x1p-24f;
    ct_exec ex = { 0 };

    for (int v = 0; v < 2; v++) {
        const ct_pool_impl *e = (v == 0) ? &ct_pool_ref_forward : engine_of(d, false);
        ct_pool_args f = { .x = a->x, .y = a->y[v], .mask = a->mask[v], .work = a->work };

        if (d->method == CT_POOL_AVE) f.mask = NULL;
        assert_true(e->supports(d));
        assert_int_equal(e->run(d, &ex, &f), CT_OK);
    }
    for (int64_t k = 0; k < out; k++) {
        float y = a->y[0][k], other = a->y[1][k];
        bool same = (fabsf(y - other) <= most) || (y == other) || (isnan(y) && isnan(other));

        if (!same || ((d->method == CT_POOL_MAX) && (a->mask[0][k] != a->mask[1][k])))
            fail_msg("%lld x %lld, pad %lld, block %d, output %lld: %g and %g, places %d and %d",
                     (long long)d->h, (long long)d->w, (long long)d->pw, d->block, (long long)k,
                     (double)y, (double)other, a->mask[0][k], a->mask[1][k]);
    }
    if (d->method == CT_POOL_AVE) return;
    memset(a->y[0], 0, (size_t)out * sizeof(float));
    assert_int_equal(engine_of(d, false)->run(
                         d, &ex, &(ct_pool_args){ .x = a->x, .y = a->y[0], .work = a->work }),
                     CT_OK); /* no places wanted */
    assert_memory_equal(a->y[0], a->y[1], (size_t)out * sizeof(float));
}

/* Nine terms below 1, eight additions. */
static void compare_backward(const ct_pool_desc *d, const pool_arrays *a)
{
    ct_exec ex = { 0 };

    for (int v = 0; v < 2; v++) {
        const ct_pool_impl *e = (v == 0) ? &ct_pool_ref_backward : engine_of(d, true);
        ct_pool_args b = { .dy = a->dy, .dx = a->dx[v], .mask = a->mask[1], .work = a->work };

        assert_int_equal(e->run(d, &ex, &b), CT_OK);
    }
    for (int64_t k = 0; k < d->planes * d->h * d->w; k++) {
        if (fabsf(a->dx[0][k] - a->dx[1][k]) > 2.0f * 72.0f * 0x1p-24f)
            fail_msg("%lld x %lld, pad %lld, block %d, place %lld: %g and %g", (long long)d->h,
                     (long long)d->w, (long long)d->pw, d->block, (long long)k, (double)a->dx[0][k],
                     (double)a->dx[1][k]);
    }
}

/* From a fifth of x on: in all places, in every third, or three in all. */
static void put_nans(const ct_pool_desc *d, int how, float *x)
{
    int64_t n = d->planes * d->h * d->w;
    const int64_t apart[] = { 1, 3, n / 3 + 1 };

    for (int64_t k = n / 5; k < n; k += apart[how % 3]) x[k] = NAN;
}

/* Windows of 3 x 3 and step 1, of planes in blocks and in plain order, narrower and wider than a
 * vector, as many rows as are taken at once and some more; NaNs among them, and ReLU. */
static void test_step1(void **state)
{
    static const int64_t side[] = { 3, 4, 5, 17, 33, 130 };
    static const int block[] = { 16, 8, 0 };

    (void)state;
    for (int i = 0; i < 6 * 6 * 3 * 3 * 6; i++) {
        int b = block[i / 36 % 3], kind = i / 324;
        ct_pool_desc d = blocked_desc((kind < 4) ? CT_POOL_MAX : CT_POOL_AVE, (b > 0) ? 2 * b : 3,
                                      b, side[i % 6], side[i / 6 % 6], 3, 1, i / 108 % 3);
        pool_arrays a;

        d.relu = (kind == 1) || (kind == 3);
        a = make_arrays(&d);
        if ((kind == 2) || (kind == 3)) put_nans(&d, i / 6 + i, a.x);
        compare_forward(&d, &a);
        compare_backward(&d, &a);
        free_arrays(&a);
    }
}

/* Windows two apart in plain order, of 2 and 3 columns and as many rows or more; the last ones cut
 * by the edge or not; rows of outputs shorter than a vector, and of vectors that overlap; past the
 * caches, where planes are many; NaNs among them, and ReLU. */
static void test_step2(void **state)
{
    static const int64_t width[] = { 5, 16, 17, 18, 19, 35, 48, 112 };

    (void)state;
    for (int i = 0; i < 8 * 2 * 2 * 2 * 4 + 4; i++) {
        bool many = i >= 256, cut = (i / 32 % 2 == 1) || many;
        int64_t kernel = 2 + i / 8 % 2, pad = many ? i % 2 : i / 16 % 2;
        ct_pool_desc d = blocked_desc(CT_POOL_MAX, many ? 720 : 3, 0, many ? 112 : 11,
                                      many ? 112 : width[i % 8], kernel, 2, pad);
        pool_arrays a;

        if (many && (i >= 258)) d.w = d.h = 111;
        if (i % 5 == 0) d.kh = 4;
        d.oh = (d.h + 2 * pad - d.kh + cut) / 2 + 1; /* up, if cut */
        d.ow = (d.w + 2 * pad - kernel + cut) / 2 + 1;
        while ((d.oh - 1) * 2 >= d.h + pad) d.oh--;
        while ((d.ow - 1) * 2 >= d.w + pad) d.ow--;
        d.relu = (i / 64 % 2 == 1);
        a = make_arrays(&d);
        assert_true(!many ||
                    ct_stream_pays(a.dx[1], (size_t)(d.planes * d.h * d.w) * sizeof(float)));
        if (i / 128 == 1) put_nans(&d, i / 6 + i, a.x);
        compare_forward(&d, &a);
        compare_backward(&d, &a);
        free_arrays(&a);
    }
}

/* Other windows in plain order: those with a loop of their own, and others. */
static void test_nans(void **state)
{
    static const int64_t window[][3] = { { 3, 1, 0 }, { 3, 2, 1 }, { 2, 2, 0 },
                                         { 5, 3, 2 }, { 4, 1, 3 }, { 9, 1, 0 } };

    (void)state;
    for (int i = 0; i < 6 * 3 * 2; i++) {
        const int64_t *w = window[i % 6];
        ct_pool_desc d = blocked_desc(CT_POOL_MAX, 5, 0, 9, 23, w[0], w[1], w[2]);
        pool_arrays a;

        d.relu = (i >= 18);
        a = make_arrays(&d);
        put_nans(&d, i / 6, a.x);
        compare_forward(&d, &a);
        free_arrays(&a);
    }
}

/* A row that is longer than what is taken at once. */
static void test_long_row(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        ct_pool_desc d = blocked_desc((i == 0) ? CT_POOL_MAX : CT_POOL_AVE, 3, 0, 4, 3001, 3, 1, 1);
        pool_arrays a = make_arrays(&d);

        compare_forward(&d, &a);
        compare_backward(&d, &a);
        free_arrays(&a);
    }
}

/* Arrays beyond the caches are written past them: the same numbers as block by block. */
static void test_streamed(void **state)
{
    static const int blocks[] = { 16, 8, 0 };

    (void)state;
    for (int i = 0; i < 12; i++) {
        int block = blocks[i % 3], planes = (block > 0) ? block : 16;
        int64_t stride = 1 + i / 6;
        ct_pool_desc whole = blocked_desc((i / 3 % 2 == 0) ? CT_POOL_MAX : CT_POOL_AVE, 5 * planes,
                                          block, 333, (planes == 16) ? 349 : 697, 3, stride, 1);
        ct_pool_desc one = whole;
        pool_arrays a = make_arrays(&whole);
        int64_t in = planes * whole.h * whole.w, out = planes * whole.oh * whole.ow;
        ct_exec ex = { 0 };

        one.planes = planes;
        assert_true(ct_stream_pays(a.dx[1], (size_t)(5 * in) * sizeof(float)));
        assert_int_equal(ct_stream_pays(a.y[1], (size_t)(5 * out) * sizeof(float)), stride == 1);
        assert_false(ct_stream_pays(a.dx[0], (size_t)in * sizeof(float)));
        for (int64_t k = 0; k <= 5; k++) {
            int v = (k == 5) ? 1 : 0;
            int64_t p = (k == 5) ? 0 : k;
            const ct_pool_desc *d = (k == 5) ? &whole : &one;
            ct_pool_args f = { .x = a.x + p * in, .y = a.y[v] + p * out, .work = a.work };
            ct_pool_args b = { .dy = a.dy + p * out, .dx = a.dx[v] + p * in, .work = a.work };

            f.mask = b.mask = a.mask[v] + p * out;
            assert_int_equal(engine_of(d, false)->run(d, &ex, &f), CT_OK);
            assert_int_equal(engine_of(d, true)->run(d, &ex, &b), CT_OK);
        }
        assert_memory_equal(a.y[0], a.y[1], (size_t)(5 * out) * sizeof(float));
        assert_memory_equal(a.dx[0], a.dx[1], (size_t)(5 * in) * sizeof(float));
        if (whole.method == CT_POOL_MAX)
            assert_memory_equal(a.mask[0], a.mask[1], (size_t)(5 * out));
        free_arrays(&a);
    }
}

/* Copies past the caches: any length from and to any address, nothing beside it. */
static void test_stream_copy(void **state)
{
    uint8_t *from = ct_mem_acquire(1024), *to = ct_mem_acquire(1024);

    (void)state;
    for (int i = 0; i < 1024; i++) from[i] = (uint8_t)(i * 7 + 1);
    for (int64_t at = 0; at < 70; at++) {
        for (int64_t n = 0; n < 300; n += 1 + n / 40) {
            memset(to, 0, 1024);
            ct_stream_bytes(n, from + at / 3, to + at);
            ct_stream_end();
            for (int64_t i = 0; i < 400; i++) {
                bool in = (i >= at) && (i < at + n);

                assert_int_equal(to[i], in ? from[at / 3 + i - at] : 0);
            }
        }
    }
    ct_mem_release(from), ct_mem_release(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),        cmocka_unit_test(test_engines),
        cmocka_unit_test(test_dilated),      cmocka_unit_test(test_without_padding),
        cmocka_unit_test(test_ties),         cmocka_unit_test(test_average_by_hand),
        cmocka_unit_test(test_gradients),    cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_not_a_number), cmocka_unit_test(test_least),
        cmocka_unit_test(test_step1),        cmocka_unit_test(test_long_row),
        cmocka_unit_test(test_streamed),     cmocka_unit_test(test_stream_copy),
        cmocka_unit_test(test_nans),         cmocka_unit_test(test_step2),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
