/* Layers of language models: LayerNorm, RMSNorm, SwiGLU, Position and MatMul against their
 * definitions in double, over odd shapes, on one to three threads; edges; what they refuse. */
#include "tests/test.h"
#include "framework/base/memory.h"
#include "framework/base/stream.h"
#include "layers/types/norm.h"
#include "tests/layer_harness.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S(...) TEST_SHAPE(__VA_ARGS__)

static const double u = 0x1p-24;
static const float written_before = 0.5f; /* in gradients that are added to */

/* Runs t on one, two and three threads; the results stay those of the first run, bit by bit. */
static void pass_on_threads(test_layer *t)
{
    const ct_layer *l = &t->layer;
    float *kept[TEST_MAX_BLOB + CT_MAX_WEIGHT + 1] = { NULL };
    int before = omp_get_max_threads();

    for (int n = 1; n <= 3; n++) {
        const float *now[TEST_MAX_BLOB + CT_MAX_WEIGHT + 1] = { t->top[0] };
        int64_t count[TEST_MAX_BLOB + CT_MAX_WEIGHT + 1] = { t->top_count[0] };
        int k = 1;

        omp_set_num_threads(n);
        for (int i = 0; i < l->n_weight; i++) {
            for (int64_t j = 0; t->spec.add_weight_diff[i] && (j < t->weight_count[i]); j++)
                t->weight_diff[i][j] = written_before;
        }
        test_layer_pass(t);
        for (int i = 0; i < l->n_bottom; i++, k++)
            now[k] = t->input_diff[i], count[k] = t->input_count[i];
        for (int i = 0; i < l->n_weight; i++, k++)
            now[k] = t->weight_diff[i], count[k] = t->weight_count[i];
        for (int i = 0; i < k; i++) {
            if (now[i] == NULL) continue;
            if (n == 1) {
                kept[i] = malloc((size_t)count[i] * sizeof(float) + 1);
                memcpy(kept[i], now[i], (size_t)count[i] * sizeof(float));
            }
            test_same(now[i], kept[i], count[i], l->ops->type);
        }
    }
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) free(kept[i]);
    omp_set_num_threads(before);
}

static void near(double got, double exact, double allowed, const char *what, int64_t at)
{
    if (!(fabs(got - exact) <= allowed))
        fail_msg("%s[%lld] is %.9g, not %.9g: %.3g off, %.3g allowed", what, (long long)at, got,
                 exact, fabs(got - exact), allowed);
}

/* ---- LayerNorm and RMSNorm */

typedef struct norm_sums {
    double *scale, *shift, *size_scale,
        *size_shift; /* gradients, and the sums of their terms' sizes */
} norm_sums;

/* v = (x - mean) factor; dx = factor (g - mean g - v mean(g v)). An element of v passes three
 * roundings, a mean's error is that of a sum of up to 34 numbers in f32, and the deviation's that
 * of such a sum of squares. */
static void check_row(const test_layer *t, int64_t row, int64_t n, double eps, norm_sums *sums)
{
    bool centred = strcmp(t->layer.ops->type, "LayerNorm") == 0;
    const float *x = t->input[0] + row * n, *dy = t->top_diff[0] + row * n;
    double mean = 0, square = 0, factor, g_mean = 0, dot = 0, most = 0, widest = 1;

    for (int64_t i = 0; centred && (i < n); i++) mean += (double)x[i] / (double)n;
    for (int64_t i = 0; i < n; i++) square += ((double)x[i] - mean) * ((double)x[i] - mean);
    factor = 1 / sqrt(square / (double)n + eps);
    for (int64_t i = 0; i < n; i++) {
        double v = ((double)x[i] - mean) * factor, g = (double)dy[i] * (double)t->weight[0][i];

        if (centred) g_mean += g / (double)n;
        dot += g * v / (double)n;
        most = fmax(most, fabs(g));
        widest = fmax(widest, fabs(v));
    }
    for (int64_t i = 0; i < n; i++) {
        double v = ((double)x[i] - mean) * factor, g = (double)dy[i] * (double)t->weight[0][i];
        double shift = centred ? (double)t->weight[1][i] : 0, s = (double)t->weight[0][i];

        near((double)t->top[0][row * n + i], v * s + shift,
             64 * u * (fabs(s) * (1 + fabs(v)) + fabs(shift)), "y", i);
        near((double)t->input_diff[0][row * n + i], factor * (g - g_mean - v * dot),
             96 * u * factor * most * (1 + widest * widest), "dx", i);
        sums->scale[i] += (double)dy[i] * v,
            sums->size_scale[i] += fabs((double)dy[i]) * (1 + fabs(v));
        sums->shift[i] += (double)dy[i], sums->size_shift[i] += fabs((double)dy[i]);
    }
}

static void check_norm(const char *type, int64_t rows, int64_t n, float offset, bool add)
{
    test_layer *t = test_layer_make(&(test_layer_spec){
        .type = type, .n_bottom = 1, .bottom = { S(rows, n) }, .add_weight_diff = { add, add } });
    double *room = calloc((size_t)(4 * n), sizeof(*room)), before[2] = { 0 };
    norm_sums sums = { room, room + n, room + 2 * n, room + 3 * n };
    /* a block has at most 1024 rows, added up four at a time, and few blocks are added in double */
    double roundings = 64 + (double)((rows < 1024) ? rows : 1024) / 4;

    test_random(t->input[0], rows * n, 1, -3, 3);
    for (int64_t i = 0; i < rows * n; i++) t->input[0][i] += offset;
    test_random(t->top_diff[0], rows * n, 2, -1, 1);
    for (int i = 0; i < t->layer.n_weight; i++) {
        test_random(t->weight[i], n, 3 + (uint64_t)i, -2, 2);
        before[i] = add ? (double)written_before : 0;
    }
    pass_on_threads(t);
    for (int64_t r = 0; r < rows; r++) check_row(t, r, n, (double)1e-5f, &sums);
    for (int64_t i = 0; i < n; i++) {
        near((double)t->weight_diff[0][i], sums.scale[i] + before[0],
             roundings * u * (sums.size_scale[i] + before[0]), "scale", i);
        if (t->layer.n_weight > 1)
            near((double)t->weight_diff[1][i], sums.shift[i] + before[1],
                 roundings * u * (sums.size_shift[i] + before[1]), "shift", i);
    }
    free(room);
    test_layer_destroy(t);
}

static void norms(void **state)
{
    static const int64_t width[] = { 1, 7, 64, 257, 768 }, rows[] = { 1, 5, 43, 390 };

    (void)state;
    for (int k = 0; k < 2; k++) {
        const char *type = (k == 0) ? "LayerNorm" : "RMSNorm";

        for (size_t i = 0; i < 5; i++) {
            for (size_t j = 0; j < 4; j++) check_norm(type, rows[j], width[i], 0, j % 2 == 1);
        }
        check_norm(type, 30011, 7, 0, false); /* blocks of the most rows */
        check_norm(type, 3, 20011, 0, false); /* rows of many pieces     */
        check_norm(type, 7, 257, 3000, true); /* mean far above deviation */
    }
}

/* The stored numbers are the same whether dx is written over dy or not. */
static void norm_in_place(void **state)
{
    enum { ROWS = 37, N = 257 };
    static float x[ROWS * N], dy[ROWS * N], y[ROWS * N], dx[ROWS * N], scale[N], dw[2][N];
    static ct_row_stat stat[ROWS];
    ct_norm_rows r = {
        .rows = ROWS, .n = N, .centred = true, .eps = 1e-5, .x = x, .scale = scale, .stat = stat
    };
    ct_norm_back b = { .dy = dy, .dx = dx, .dscale = dw[0] };

    (void)state;
    b.part = malloc(ct_norm_rows_part_bytes(ROWS, N));
    test_random(x, ROWS * N, 1, -1, 1);
    test_random(dy, ROWS * N, 2, -1, 1);
    test_random(scale, N, 3, -1, 1);
    ct_norm_rows_forward(&r, y);
    ct_norm_rows_backward(&r, &b);
    b.dx = dy, b.dscale = dw[1];
    ct_norm_rows_backward(&r, &b);
    test_same(dy, dx, (int64_t)ROWS * N, "dx in place");
    test_same(dw[1], dw[0], N, "dscale");
    free(b.part);
}

/* Arrays that are written past the caches have the bits of those that are not. */
static void norm_past_the_caches(void **state)
{
    enum { ROWS = 11000, N = 768, FEW = 50 };
    int64_t all = (int64_t)ROWS * N;
    size_t bytes = sizeof(float) * (size_t)all;
    float *x = ct_mem_acquire(bytes), *dy = ct_mem_acquire(bytes), *out = ct_mem_acquire(bytes);
    float *few = ct_mem_acquire(sizeof(float) * FEW * N);
    ct_row_stat *stat = ct_mem_acquire(ROWS * sizeof(*stat));
    ct_norm_rows r = { .rows = ROWS, .n = N, .centred = true, .eps = 1e-5, .x = x, .stat = stat };

    (void)state;
    assert_true((x != NULL) && (dy != NULL) && (out != NULL) && (few != NULL) && (stat != NULL));
    assert_true(ct_stream_pays(out, bytes));
    test_random(x, all, 1, -1, 1);
    test_random(dy, all, 2, -1, 1);
    for (int back = 0; back < 2; back++) {
        if (back == 0)
            ct_norm_rows_forward(&r, out);
        else
            ct_norm_rows_backward(&r, &(ct_norm_back){ .dy = dy, .dx = out });
        for (int64_t at = 0; at < ROWS; at += 2750) {
            int64_t n = (at + FEW <= ROWS) ? FEW : ROWS - at;
            ct_norm_rows part = {
                .rows = n, .n = N, .centred = true, .eps = 1e-5, .x = x + at * N, .stat = stat + at
            };

            if (back == 0)
                ct_norm_rows_forward(&part, few);
            else
                ct_norm_rows_backward(&part, &(ct_norm_back){ .dy = dy + at * N, .dx = few });
            test_same(out + at * N, few, n * N, (back == 0) ? "y" : "dx");
        }
    }
    ct_mem_release(x), ct_mem_release(dy), ct_mem_release(out), ct_mem_release(few);
    ct_mem_release(stat);
}

/* Squares beyond the range of floats; rows of one value; numbers that are none. */
static void norm_edges(void **state)
{
    for (int k = 0; k < 2; k++) {
        bool centred = k == 0;
        test_layer *t = test_layer_make(&(test_layer_spec){
            .type = centred ? "LayerNorm" : "RMSNorm", .n_bottom = 1, .bottom = { S(4, 4) } });
        const float *y = t->top[0];

        (void)state;
        for (int i = 0; i < 4; i++) {
            t->input[0][i] = (i < 2) ? 1e25f : -1e25f;
            t->input[0][4 + i] = 3;
            t->input[0][8 + i] = (i == 2) ? NAN : 1;
            t->input[0][12 + i] = (i % 2 == 0) ? 3e38f : -3e38f;
        }
        for (int i = 0; i < 16; i++) t->top_diff[0][i] = (float)(i % 3);
        test_layer_pass(t);
        for (int i = 0; i < 4; i++) {
            near((double)y[i], (i < 2) ? 1 : -1, 8 * u, "huge", i);
            near((double)y[4 + i], centred ? 0 : 3 / sqrt(9 + 1e-5), 8 * u, "one value", i);
            assert_true(isnan(y[8 + i]));
            near((double)y[12 + i], (i % 2 == 0) ? 1 : -1, 1e-6, "largest", i);
            assert_true(isfinite(t->input_diff[0][i]) && isfinite(t->input_diff[0][4 + i]));
        }
        assert_int_equal(t->layer.n_weight, centred ? 2 : 1);
        assert_true((t->weight_count[0] == 4) && (t->weight[0][3] == 1));
        test_layer_destroy(t);
    }
}

/* ---- SwiGLU */

static void check_swiglu(int64_t rows, int64_t c, bool packed, float size)
{
    ct_shape half = S(rows, c), whole = S(rows, 2 * c);
    test_layer *t = test_layer_make(&(test_layer_spec){
        .type = "SwiGLU", .n_bottom = packed ? 1 : 2, .bottom = { packed ? whole : half, half } });

    test_random(t->input[0], t->input_count[0], 1, -size, size);
    if (!packed) test_random(t->input[1], rows * c, 2, -2, 2);
    test_random(t->top_diff[0], rows * c, 3, -1, 1);
    assert_true(ct_shape_equal(&t->top_shape[0], &half));
    pass_on_threads(t);
    for (int64_t i = 0; i < rows * c; i++) {
        int64_t at = packed ? i / c * 2 * c + i % c : i;
        const float *up = packed ? t->input[0] + c : t->input[1];
        const float *d_up = packed ? t->input_diff[0] + c : t->input_diff[1];
        double g = (double)t->input[0][at], v = (double)up[at], d = (double)t->top_diff[0][i];
        double s = 1 / (1 + exp(-g)), most = 12 * u * (1 + fabs(g));

        near((double)t->top[0][i], g * s * v, most * fabs(v), "y", i);
        near((double)d_up[at], d * g * s, most, "d up", i);
        near((double)t->input_diff[0][at], d * v * (s + g * s * (1 - s)), most * fabs(v), "d gate",
             i);
    }
    test_layer_destroy(t);
}

static void swiglu(void **state)
{
    static const int64_t width[] = { 1, 7, 64, 257, 768, 4099 };

    (void)state;
    for (size_t i = 0; i < 6; i++) {
        check_swiglu(1, width[i], false, 4);
        check_swiglu(13, width[i], false, 30);
        check_swiglu(13, width[i], true, 4);
        check_swiglu(1, width[i], true, 120);
    }
}

/* One half without a gradient leaves the other's bits. */
static void swiglu_one_gradient(void **state)
{
    test_layer *t[3];

    (void)state;
    for (int k = 0; k < 3; k++) {
        t[k] = test_layer_make(&(test_layer_spec){ .type = "SwiGLU",
                                                   .n_bottom = 2,
                                                   .bottom = { S(3, 37), S(3, 37) },
                                                   .no_propagate = { k == 1, k == 2 } });
        for (int i = 0; i < 2; i++) test_random(t[k]->input[i], 111, 1 + (uint64_t)i, -2, 2);
        test_random(t[k]->top_diff[0], 111, 3, -1, 1);
        test_layer_pass(t[k]);
    }
    assert_true((t[1]->input_diff[0] == NULL) && (t[2]->input_diff[1] == NULL));
    test_same(t[1]->input_diff[1], t[0]->input_diff[1], 111, "d up alone");
    test_same(t[2]->input_diff[0], t[0]->input_diff[0], 111, "d gate alone");
    for (int k = 0; k < 3; k++) test_layer_destroy(t[k]);
}

/* ---- Position */

/* Row p of the table is added at position p; its gradient is the sum over the tokens that are
 * there, in the order of the batch, as by hand. */
static void check_position(int64_t n, int64_t t_len, int64_t c, bool given, bool in_place)
{
    char text[96];
    int64_t rows = t_len + 3;
    float *dw = calloc((size_t)(rows * c), sizeof(*dw)), *at;
    test_layer *t;

    snprintf(text, sizeof(text),
             "position_param { max_length: %lld weight_filler { type: 'gaussian' } }",
             (long long)rows);
    t = test_layer_make(&(test_layer_spec){ .type = "Position",
                                            .text = text,
                                            .n_bottom = given ? 2 : 1,
                                            .bottom = { S(n, t_len, c), S(n, t_len) },
                                            .in_place = in_place });
    test_random(t->input[0], n * t_len * c, 1, -1, 1);
    test_random(t->top_diff[0], n * t_len * c, 2, -1, 1);
    at = malloc((size_t)(n * t_len) * sizeof(*at));
    for (int64_t i = 0; i < n * t_len; i++)
        at[i] = given ? (float)(i * i % rows) : (float)(i % t_len);
    if (given) memcpy(t->input[1], at, (size_t)(n * t_len) * sizeof(*at));
    pass_on_threads(t);
    for (int64_t i = 0; i < n * t_len * c; i++) {
        int64_t place = (int64_t)at[i / c] * c + i % c;

        assert_true(t->top[0][i] == t->input[0][i] + t->weight[0][place]);
        assert_true(t->input_diff[0][i] == t->top_diff[0][i]);
        dw[place] += t->top_diff[0][i];
    }
    test_same(t->weight_diff[0], dw, rows * c, "gradient of the table");
    free(dw), free(at);
    test_layer_destroy(t);
}

static void positions(void **state)
{
    static const int64_t width[] = { 1, 7, 64, 257, 768 };

    (void)state;
    for (size_t i = 0; i < 5; i++) {
        for (int k = 0; k < 4; k++) {
            check_position(1, 1, width[i], k % 2 == 1, k > 1);
            check_position(3, 17, width[i], k % 2 == 1, k > 1);
        }
    }
}

static void sines(void **state)
{
    test_layer *t =
        test_layer_make(&(test_layer_spec){ .type = "Position",
                                            .text = "position_param { type: SINUSOIDAL }",
                                            .n_bottom = 1,
                                            .bottom = { S(2, 300, 7) } });

    (void)state;
    assert_int_equal(t->layer.n_weight, 0);
    memset(t->input[0], 0, 4200 * sizeof(float));
    pass_on_threads(t);
    for (int i = 0; i < 4200; i++) {
        int p = i / 7 % 300, c = i % 7;
        double angle = p / pow(10000, (c - c % 2) / 7.0);

        near((double)t->top[0][i], (c % 2 == 0) ? sin(angle) : cos(angle), u, "sine", i);
    }
    test_layer_destroy(t);
}

static void bad_positions(void **state)
{
    static const float bad[] = { -1, 4, 0.5f, NAN };
    test_layer *t = test_layer_make(&(test_layer_spec){ .type = "Position",
                                                        .text = "position_param { max_length: 4 }",
                                                        .n_bottom = 2,
                                                        .bottom = { S(3, 2, 5), S(3, 2) } });

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        const char *said;
        char part[64];

        for (int k = 0; k < 6; k++) t->input[1][k] = (k == 5) ? bad[i] : 3;
        t->ex.batch_first = 10;
        test_log_start();
        assert_int_equal(test_layer_forward(t), CT_ERR_DATA);
        said = test_log_stop();
        snprintf(part, sizeof(part), "position %g of token 1 of sample 12", (double)bad[i]);
        if (strstr(said, part) == NULL) fail_msg("\"%s\" is not in: %s", part, said);
    }
    test_layer_destroy(t);
}

/* ---- MatMul */

static void check_matmul(int64_t count, int64_t m, int64_t n, int64_t k, int turn, const char *by)
{
    bool ta = turn % 2 == 1, tb = turn / 2 == 1;
    const float alpha = 0.75f;
    char text[160];
    test_layer *t;

    snprintf(text, sizeof(text),
             "matmul_param { transpose_a: %s transpose_b: %s alpha: 0.75 } ct_kernel { forward: "
             "'%s' backward_data: '%s' backward_weight: '%s' }",
             ta ? "true" : "false", tb ? "true" : "false", by, by, by);
    t = test_layer_make(&(test_layer_spec){
        .type = "MatMul",
        .text = text,
        .n_bottom = 2,
        .bottom = { ta ? S(count, k, m) : S(count, m, k), tb ? S(count, n, k) : S(count, k, n) } });
    test_random(t->top_diff[0], count * m * n, 3, -1, 1);
    if (strcmp(by, "blas") == 0)
        test_layer_pass(t);
    else
        pass_on_threads(t);
    for (int64_t q = 0; q < count; q++) {
        const float *a = t->input[0] + q * m * k, *b = t->input[1] + q * k * n;
        const float *d = t->top_diff[0] + q * m * n;
        const float *da = t->input_diff[0] + q * m * k, *db = t->input_diff[1] + q * k * n;

#define A(_i, _p) ((ta) ? (_p)*m + (_i) : (_i)*k + (_p))
#define B(_p, _j) ((tb) ? (_j)*k + (_p) : (_p)*n + (_j))
        for (int64_t i = 0; i < m; i++) {
            for (int64_t j = 0; j < n; j++) {
                double sum = 0;

                for (int64_t p = 0; p < k; p++) sum += (double)a[A(i, p)] * (double)b[B(p, j)];
                near((double)t->top[0][(q * m + i) * n + j], (double)alpha * sum,
                     (double)(k + 2) * u * (double)k, "C", i * n + j);
            }
            for (int64_t p = 0; p < k; p++) {
                double sum = 0;

                for (int64_t j = 0; j < n; j++) sum += (double)d[i * n + j] * (double)b[B(p, j)];
                near((double)da[A(i, p)], (double)alpha * sum, (double)(n + 2) * u * (double)n,
                     "dA", A(i, p));
            }
        }
        for (int64_t p = 0; p < k; p++) {
            for (int64_t j = 0; j < n; j++) {
                double sum = 0;

                for (int64_t i = 0; i < m; i++) sum += (double)d[i * n + j] * (double)a[A(i, p)];
                near((double)db[B(p, j)], (double)alpha * sum, (double)(m + 2) * u * (double)m,
                     "dB", B(p, j));
            }
        }
    }
    test_layer_destroy(t);
}

static void matmul(void **state)
{
    static const char *const by[] = { "auto", "packed", "blas", "ref" };
    static const int64_t size[][4] = {
        { 1, 1, 1, 1 }, { 3, 7, 1, 64 }, { 2, 64, 65, 7 }, { 5, 33, 257, 64 }, { 1, 130, 70, 257 }
    };

    (void)state;
    for (size_t i = 0; i < 5; i++) {
        for (int turn = 0; turn < 4; turn++) {
            for (int e = 0; e < 4; e++)
                check_matmul(size[i][0], size[i][1], size[i][2], size[i][3], turn, by[e]);
        }
    }
}

/* ---- what they refuse */

static void refused(void **state)
{
    static const struct {
        const char *type, *text;
        int n_bottom;
        ct_shape bottom[2];
        ct_status status;
        const char *message;
    } c[] = {
        { "RMSNorm",
          "rms_norm_param { eps: 0 }",
          1,
          { S(2, 3) },
          CT_ERR_CONFIG,
          "rms_norm_param.eps 0 must be above 0" },
        { "RMSNorm",
          "rms_norm_param { axis: 3 }",
          1,
          { S(2, 3) },
          CT_ERR_CONFIG,
          "axis 3 is outside" },
        { "RMSNorm",
          "rms_norm_param { axis: 0 }",
          1,
          { S(2, 3) },
          CT_ERR_CONFIG,
          "rms_norm_param.axis 0 would mix the samples" },
        { "SwiGLU",
          NULL,
          2,
          { S(2, 3), S(2, 4) },
          CT_ERR_SHAPE,
          "bottom 0 (gate) has shape 2 3 (6), bottom 1 (up) 2 4 (8)" },
        { "SwiGLU", NULL, 1, { S(2, 3) }, CT_ERR_SHAPE, "must be even; its shape is 2 3 (6)" },
        { "Position", NULL, 1, { S(2, 3, 4) }, CT_ERR_CONFIG, "max_length, the rows of" },
        { "Position",
          "position_param { max_length: 3000000000 }",
          1,
          { S(2, 3, 4) },
          CT_ERR_CONFIG,
          "max_length 3000000000 is too large" },
        { "Position",
          "position_param { max_length: 8 }",
          1,
          { S(2, 9, 4) },
          CT_ERR_CONFIG,
          "sequences of 9 tokens, but the table has 8 rows" },
        { "Position",
          "position_param { type: SINUSOIDAL max_length: 67108865 }",
          1,
          { S(2, 9, 4) },
          CT_ERR_CONFIG,
          "sines of 67108865 positions of 4 channels is too large" },
        { "Position",
          "position_param { type: SINUSOIDAL max_length: 8 }",
          1,
          { S(2, 9, 4) },
          CT_ERR_CONFIG,
          "sequences of 9 tokens, but the table has 8 rows" },
        { "Position",
          "position_param { max_length: 8 }",
          1,
          { S(2, 9) },
          CT_ERR_SHAPE,
          "N x T x C is needed" },
        { "Position",
          "position_param { max_length: 8 }",
          2,
          { S(2, 9, 4), S(2, 8) },
          CT_ERR_SHAPE,
          "bottom 1 (positions) has shape 2 8" },
        { "MatMul", NULL, 2, { S(4), S(4) }, CT_ERR_SHAPE, "matrices are needed" },
        { "MatMul",
          NULL,
          2,
          { S(2, 3, 4), S(3, 4, 5) },
          CT_ERR_SHAPE,
          "all axes but the last two must agree" },
        { "MatMul",
          "matmul_param { transpose_b: true }",
          2,
          { S(2, 3, 4), S(2, 4, 5) },
          CT_ERR_SHAPE,
          "2 4 5 (40), transposed: 4 columns, but 5 rows" },
        { "MatMul",
          "matmul_param { alpha: nan }",
          2,
          { S(3, 4), S(4, 5) },
          CT_ERR_CONFIG,
          "matmul_param.alpha is nan" },
        { "MatMul",
          "ct_kernel { forward: 'best' }",
          2,
          { S(3, 4), S(4, 5) },
          CT_ERR_CONFIG,
          "packed, blas, ref" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++)
        test_layer_refused(&(test_layer_spec){ .type = c[i].type,
                                               .text = c[i].text,
                                               .n_bottom = c[i].n_bottom,
                                               .bottom = { c[i].bottom[0], c[i].bottom[1] } },
                           c[i].status, c[i].message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms),
        cmocka_unit_test(norm_in_place),
        cmocka_unit_test(norm_past_the_caches),
        cmocka_unit_test(norm_edges),
        cmocka_unit_test(swiglu),
        cmocka_unit_test(swiglu_one_gradient),
        cmocka_unit_test(positions),
        cmocka_unit_test(sines),
        cmocka_unit_test(bad_positions),
        cmocka_unit_test(matmul),
        cmocka_unit_test(refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
