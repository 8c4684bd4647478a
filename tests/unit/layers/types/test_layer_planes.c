/* Pooling, LRN, Scale and LayerNorm against their definitions in double, in shapes that devices
 * take in different ways: rows and planes that are whole fours or not, windows of the sizes that
 * have a way of their own and others, channels fewer and more than a thread walks along, rows that
 * a warp holds, that a block holds, and longer ones. */
#include "tests/test.h"
#include "tests/layer_harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define S(...) TEST_SHAPE(__VA_ARGS__)

static double *doubles(int64_t n)
{
    double *v = calloc((size_t)n + 1, sizeof(*v));

    assert_non_null(v);
    return v;
}

static void near_all(const float *got, const double *want, int64_t n, double tolerance,
                     const char *what)
{
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs((double)got[i] - want[i]) <= tolerance))
            fail_msg("%s %lld is %.9g, not %.9g", what, (long long)i, (double)got[i], want[i]);
    }
}

/* Values without ties and random gradients, run. */
static test_layer *made(const char *type, const char *text, ct_shape x)
{
    test_layer *t = test_layer_make(
        &(test_layer_spec){ .type = type, .text = text, .n_bottom = 1, .bottom = { x } });

    test_random_distinct(t->input[0], t->input_count[0], 2, -1, 1);
    test_random(t->top_diff[0], t->top_count[0], 3, -1, 1);
    for (int i = 0; i < t->layer.n_weight; i++)
        test_random(t->weight[i], t->weight_count[i], 4 + (uint64_t)i, 0.5f, 1.5f);
    test_layer_pass(t);
    return t;
}

/* ---- Pooling */

typedef struct pool_case {
    int64_t planes, h, w, kh, kw, stride, pad;
} pool_case;

static int64_t most(int64_t a, int64_t b)
{
    return (a > b) ? a : b;
}

static int64_t least(int64_t a, int64_t b)
{
    return (a < b) ? a : b;
}

/* Output o of `out`: its window [*lo, *hi) of `in`, and how long it is with the padding. */
static int64_t window(const pool_case *c, int64_t o, int64_t kernel, int64_t in, int64_t *lo,
                      int64_t *hi)
{
    int64_t from = o * c->stride - c->pad, to = least(from + kernel, in + c->pad);

    *lo = most(from, 0);
    *hi = least(to, in);
    return to - from;
}

/* A sum of at most 49 terms below 1, and a division: 50 roundings; a gradient is one of as many. */
static void check_pool(const pool_case *c, bool mean)
{
    char text[160];
    test_layer *t;
    int64_t oh, ow;
    double *y, *dx;

    snprintf(text, sizeof(text),
             "pooling_param { pool: %s kernel_h: %d kernel_w: %d stride: %d pad: %d }",
             mean ? "AVE" : "MAX", (int)c->kh, (int)c->kw, (int)c->stride, (int)c->pad);
    t = made("Pooling", text, S(1, c->planes, c->h, c->w));
    oh = t->top_shape[0].dim[2];
    ow = t->top_shape[0].dim[3];
    y = doubles(t->top_count[0]);
    dx = doubles(t->input_count[0]);
    for (int64_t i = 0; i < t->top_count[0]; i++) {
        const float *x = t->input[0] + i / (oh * ow) * c->h * c->w;
        double *back = dx + i / (oh * ow) * c->h * c->w, sum = 0;
        int64_t h0, h1, w0, w1, best, ph, pw;

        ph = window(c, i / ow % oh, c->kh, c->h, &h0, &h1);
        pw = window(c, i % ow, c->kw, c->w, &w0, &w1);
        best = h0 * c->w + w0;
        for (int64_t h = h0; h < h1; h++) {
            for (int64_t w = w0; w < w1; w++) {
                sum += (double)x[h * c->w + w];
                if (x[h * c->w + w] > x[best]) best = h * c->w + w;
                if (mean) back[h * c->w + w] += (double)t->top_diff[0][i] / (double)(ph * pw);
            }
        }
        y[i] = mean ? sum / (double)(ph * pw) : (double)x[best];
        if (!mean) back[best] += (double)t->top_diff[0][i];
    }
    near_all(t->top[0], y, t->top_count[0], mean ? 50 * 0x1p-24 : 0.0, "an output of pooling");
    near_all(t->input_diff[0], dx, t->input_count[0], 50 * 0x1p-24 * 2, "a gradient of pooling");
    free(y);
    free(dx);
    test_layer_destroy(t);
}

static void pooling(void **state)
{
    static const pool_case c[] = {
        { 3, 8, 8, 2, 2, 2, 0 },   { 5, 13, 13, 3, 3, 2, 0 }, { 2, 7, 9, 3, 3, 1, 1 },
        { 4, 6, 24, 3, 2, 3, 1 },  { 3, 5, 3, 2, 3, 1, 0 },   { 1, 1, 1, 1, 1, 1, 0 },
        { 2, 30, 31, 5, 7, 4, 2 }, { 7, 4, 4, 4, 4, 4, 0 },   { 2, 20, 20, 17, 18, 1, 0 },
        { 2, 11, 7, 1, 1, 2, 0 },  { 6, 10, 4, 7, 7, 7, 3 },  { 70, 7, 7, 7, 7, 1, 0 },
        { 5, 12, 9, 12, 9, 1, 0 }, { 2, 3, 2, 5, 4, 9, 1 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        check_pool(&c[i], false);
        check_pool(&c[i], true);
    }
}

/* ---- LRN across channels */

/* Scales are at least k = 1 and windows of at most 9 squares below 1, so y is below 1, dx below 1 +
 * 2 alpha beta 9 / size. Per element: a sum of 9, a power by roots or by powf (4 units of the last
 * place) of a scale that is off by as much as the sum is, products: 40 roundings of each term. */
static void check_lrn(ct_shape shape, int size, double beta)
{
    const double alpha = 2, eps = 0x1p-24;
    int64_t channels = shape.dim[1], plane = shape.dim[2] * shape.dim[3], half = size / 2;
    char text[120];
    test_layer *t;
    double *scale, *y, *dx;

    snprintf(text, sizeof(text), "lrn_param { local_size: %d alpha: %g beta: %g }", size, alpha,
             beta);
    t = made("LRN", text, shape);
    scale = doubles(t->top_count[0]);
    y = doubles(t->top_count[0]);
    dx = doubles(t->top_count[0]);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < t->top_count[0]; i++) {
            int64_t c = i / plane % channels, from = most(c - half, 0);
            int64_t to = least(c + half, channels - 1);
            double sum = 0, x = (double)t->input[0][i], dy = (double)t->top_diff[0][i];

            for (int64_t k = from; k <= to; k++) {
                int64_t e = i + (k - c) * plane;
                double v = (double)t->input[0][e];

                sum +=
                    (pass == 0) ? v * v : (double)t->top_diff[0][e] * v * pow(scale[e], -beta - 1);
            }
            if (pass == 0) {
                scale[i] = 1 + alpha / size * sum;
                y[i] = x * pow(scale[i], -beta);
            } else {
                dx[i] = dy * pow(scale[i], -beta) - 2 * alpha / size * beta * x * sum;
            }
        }
    }
    near_all(t->top[0], y, t->top_count[0], 40 * eps, "an output of LRN");
    near_all(t->input_diff[0], dx, t->top_count[0], 40 * eps * (1 + 2 * alpha * beta * 9 / size),
             "a gradient of LRN");
    free(scale);
    free(y);
    free(dx);
    test_layer_destroy(t);
}

static void lrn(void **state)
{
    static const int size[] = { 1, 3, 5, 7, 9 };
    static const double beta[] = { 0.75, 0.6, 0.75, 0.5 };
    const ct_shape shape[] = { S(2, 1, 3, 3),  S(1, 4, 5, 1),  S(2, 7, 2, 3),
                               S(1, 37, 2, 2), S(3, 33, 1, 5), S(2, 96, 3, 1) };

    (void)state;
    for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
        for (size_t k = 0; k < sizeof(shape) / sizeof(shape[0]); k++)
            check_lrn(shape[k], size[i], beta[k % 4]);
    }
}

/* ---- Scale along an axis, and its gradients */

static void check_scale(ct_shape x, const char *text)
{
    test_layer *t = made("Scale", text, x);
    int64_t mid = t->weight_count[0], inner = ct_shape_count(&x, 2, -1), n = t->top_count[0];
    double *y = doubles(n), *dx = doubles(n), *dw = doubles(mid), *db = doubles(mid);

    for (int64_t i = 0; i < n; i++) {
        int64_t d = i / inner % mid;
        double v = (double)t->input[0][i], dy = (double)t->top_diff[0][i];

        y[i] = v * (double)t->weight[0][d] + (double)t->weight[1][d];
        dx[i] = dy * (double)t->weight[0][d];
        dw[d] += dy * v;
        db[d] += dy;
    }
    near_all(t->top[0], y, n, 4 * 0x1p-24 * 3, "an output of Scale");
    near_all(t->input_diff[0], dx, n, 2 * 0x1p-24 * 1.5, "a gradient of Scale");
    /* sums in double, rounded once, and at most as large as there are terms */
    near_all(t->weight_diff[0], dw, mid, 2 * 0x1p-24 * (double)(n / mid), "a scale's gradient");
    near_all(t->weight_diff[1], db, mid, 2 * 0x1p-24 * (double)(n / mid), "a bias's gradient");
    free(y);
    free(dx);
    free(dw);
    free(db);
    test_layer_destroy(t);
}

static void scale(void **state)
{
    static const char text[] = "scale_param { bias_term: true }";

    (void)state;
    check_scale(S(3, 5, 4, 8), text);
    check_scale(S(2, 3, 5, 5), text);
    check_scale(S(70, 8), text);
    check_scale(S(9, 7), text);
    check_scale(S(5, 64, 1, 1), text);
    check_scale(S(1, 1, 6, 6), text);
    check_scale(S(40, 2, 2), text);
}

/* ---- LayerNorm */

/* Values below 1 of a row have a deviation of 0.3 at least unless there are few, so what is normal
 * is below 4, and eps 0.1 bounds it for the others: sums run in double, and each result is rounded
 * a few times. Gradients of weights: sums in double of terms below 4. */
static void check_rows(int64_t rows, int64_t n)
{
    test_layer *t = made("LayerNorm", "layer_norm_param { eps: 0.1 }", S(rows, n));
    double *y = doubles(rows * n), *dx = doubles(rows * n), *dw = doubles(n), *db = doubles(n);

    for (int64_t r = 0; r < rows; r++) {
        const float *x = t->input[0] + r * n, *dy = t->top_diff[0] + r * n;
        double mean = 0, variance = 0, g = 0, dot = 0, factor;

        for (int64_t i = 0; i < n; i++) mean += (double)x[i] / (double)n;
        for (int64_t i = 0; i < n; i++)
            variance += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)n;
        factor = 1 / sqrt(variance + 0.1);
        for (int64_t i = 0; i < n; i++) {
            double normal = ((double)x[i] - mean) * factor,
                   d = (double)dy[i] * (double)t->weight[0][i];

            y[r * n + i] = normal * (double)t->weight[0][i] + (double)t->weight[1][i];
            dw[i] += (double)dy[i] * normal;
            db[i] += (double)dy[i];
            g += d / (double)n;
            dot += d * normal / (double)n;
        }
        for (int64_t i = 0; i < n; i++)
            dx[r * n + i] = ((double)dy[i] * (double)t->weight[0][i] - g -
                             ((double)x[i] - mean) * factor * dot) *
                            factor;
    }
    near_all(t->top[0], y, rows * n, 4 * 0x1p-24 * 8, "an output of LayerNorm");
    near_all(t->input_diff[0], dx, rows * n, 8 * 0x1p-24 * 16, "a gradient of LayerNorm");
    near_all(t->weight_diff[0], dw, n, 4 * 0x1p-24 * 4 * (double)rows, "a scale's gradient");
    near_all(t->weight_diff[1], db, n, 2 * 0x1p-24 * (double)rows, "a shift's gradient");
    free(y);
    free(dx);
    free(dw);
    free(db);
    test_layer_destroy(t);
}

static void rows(void **state)
{
    static const int64_t n[] = { 1, 2, 4, 31, 60, 64, 65, 68, 127, 200, 512, 513, 516, 700, 4100 };

    (void)state;
    for (size_t i = 0; i < sizeof(n) / sizeof(n[0]); i++) {
        check_rows(1, n[i]);
        check_rows(11, n[i]);
    }
    check_rows(300, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pooling),
        cmocka_unit_test(lrn),
        cmocka_unit_test(scale),
        cmocka_unit_test(rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
