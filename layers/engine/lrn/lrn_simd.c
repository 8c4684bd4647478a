/* Tiles that stay in a first- or second-level cache, and loops the compiler vectorises.
 *
 * Sums are taken anew for each place rather than carried along: with windows of 3 to 9 that costs
 * little next to the power, and a large value that left the window leaves no rounding behind.
 * beta = 0.75, which every published net uses, needs two square roots instead of a power. */
#include "framework/base/memory.h"
#include "framework/base/simd.h"
#include "layers/engine/lrn/lrn_private.h"

#include <math.h>

enum { TILE = 256 }; /* places of a channel that one task takes */

/* r = scale^-beta */
static inline void powers(int64_t n, float beta, const float *scale, float *r)
{
    if (beta == 0.75f) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            float root = sqrtf(scale[i]);

            r[i] = 1.0f / (root * sqrtf(root));
        }
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) r[i] = powf(scale[i], -beta);
    }
}

static inline void add_squares(int64_t n, const float *x, float *sum)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) sum[i] += x[i] * x[i];
}

static inline void add(int64_t n, const float *x, float *sum)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

static inline void finish_forward(const ct_lrn_desc *d, int64_t n, const float *sum, const float *x,
                                  float *scale, float *y)
{
    float factor = ct_lrn_factor(d), k = d->k;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) scale[i] = k + factor * sum[i];
    powers(n, d->beta, scale, y);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] *= x[i];
}

/* dx = dy scale^-beta, ratio = dx x / scale */
static inline void begin_backward(const ct_lrn_desc *d, int64_t n, const float *dy, const float *x,
                                  const float *scale, float *ratio, float *dx)
{
    powers(n, d->beta, scale, dx);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        dx[i] *= dy[i];
        ratio[i] = dx[i] * x[i] / scale[i];
    }
}

static inline void finish_backward(const ct_lrn_desc *d, int64_t n, const float *sum,
                                   const float *x, float *dx)
{
    float factor = 2.0f * ct_lrn_factor(d) * d->beta;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) dx[i] -= factor * x[i] * sum[i];
}

/* ---- across channels: `len` places of all channels of one image; pointers at channel 0 */

static inline void channel_window(const ct_lrn_desc *d, int64_t c, int64_t *lo_p, int64_t *hi_p)
{
    int64_t half = (d->size - 1) / 2;

    *lo_p = (c > half) ? c - half : 0;
    *hi_p = (c + half + 1 < d->c) ? c + half + 1 : d->c;
}

CT_SIMD_CLONES static void across_forward(const ct_lrn_desc *d, int64_t len, const float *x,
                                          float *scale, float *y)
{
    int64_t s = d->h * d->w;
    float sum[TILE];

    for (int64_t c = 0; c < d->c; c++) {
        int64_t lo, hi;

        channel_window(d, c, &lo, &hi);
        memset(sum, 0, sizeof(sum));
        for (int64_t e = lo; e < hi; e++) add_squares(len, x + e * s, sum);
        finish_forward(d, len, sum, x + c * s, scale + c * s, y + c * s);
    }
}

CT_SIMD_CLONES static void across_backward(const ct_lrn_desc *d, int64_t len, const float *x,
                                           const float *scale, const float *dy, float *ratio,
                                           float *dx)
{
    int64_t s = d->h * d->w;
    float sum[TILE];

    for (int64_t c = 0; c < d->c; c++)
        begin_backward(d, len, dy + c * s, x + c * s, scale + c * s, ratio + c * TILE, dx + c * s);
    for (int64_t c = 0; c < d->c; c++) {
        int64_t lo, hi;

        channel_window(d, c, &lo, &hi);
        memset(sum, 0, sizeof(sum));
        for (int64_t e = lo; e < hi; e++) add(len, ratio + e * TILE, sum);
        finish_backward(d, len, sum, x + c * s, dx + c * s);
    }
}

/* ---- within a channel: one plane; box sums along the rows, then along the columns */

/* line[i][j] = sum over the row window of v (squared where `squares`) */
static inline void row_sums(const ct_lrn_desc *d, bool squares, const float *v, float *line)
{
    int64_t half = (d->size - 1) / 2;

    memset(line, 0, (size_t)(d->h * d->w) * sizeof(float));
    for (int64_t i = 0; i < d->h; i++) {
        for (int64_t q = -half; q <= half; q++) {
            int64_t lo = (q < 0) ? -q : 0, hi = (q > 0) ? d->w - q : d->w;
            const float *from = v + i * d->w + q;
            float *to = line + i * d->w;

            if (lo >= hi) continue;
            if (squares)
                add_squares(hi - lo, from + lo, to + lo);
            else
                add(hi - lo, from + lo, to + lo);
        }
    }
}

/* sum[j] = sum over the column window around row i of line */
static inline void column_sum(const ct_lrn_desc *d, int64_t i, const float *line, float *sum)
{
    int64_t half = (d->size - 1) / 2;
    int64_t lo = (i > half) ? i - half : 0, hi = (i + half + 1 < d->h) ? i + half + 1 : d->h;

    memset(sum, 0, (size_t)d->w * sizeof(float));
    for (int64_t p = lo; p < hi; p++) add(d->w, line + p * d->w, sum);
}

CT_SIMD_CLONES static void within_forward(const ct_lrn_desc *d, const float *x, float *line,
                                          float *sum, float *scale, float *y)
{
    row_sums(d, true, x, line);
    for (int64_t i = 0; i < d->h; i++) {
        column_sum(d, i, line, sum);
        finish_forward(d, d->w, sum, x + i * d->w, scale + i * d->w, y + i * d->w);
    }
}

CT_SIMD_CLONES static void within_backward(const ct_lrn_desc *d, const float *x, const float *scale,
                                           const float *dy, float *line, float *sum, float *ratio,
                                           float *dx)
{
    begin_backward(d, d->h * d->w, dy, x, scale, ratio, dx);
    row_sums(d, false, ratio, line);
    for (int64_t i = 0; i < d->h; i++) {
        column_sum(d, i, line, sum);
        finish_backward(d, d->w, sum, x + i * d->w, dx + i * d->w);
    }
}

/* ---- tasks: (image, tile) across, planes within. Workers are numbers: each its own scratch. */

static int64_t scratch_of_worker(const ct_lrn_desc *d, bool backward)
{
    int64_t n = 0;

    if (d->within)
        n = (backward ? 2 : 1) * d->h * d->w + d->w;
    else if (backward)
        n = d->c * TILE;
    return (int64_t)ct_align_up((size_t)n * sizeof(float)) / (int64_t)sizeof(float);
}

static size_t forward_workspace(const ct_lrn_desc *d)
{
    return (size_t)(d->n_thread * scratch_of_worker(d, false)) * sizeof(float);
}

static size_t backward_workspace(const ct_lrn_desc *d)
{
    return (size_t)(d->n_thread * scratch_of_worker(d, true)) * sizeof(float);
}

static void run_task(const ct_lrn_desc *d, const ct_lrn_args *a, int64_t task, float *scratch)
{
    int64_t s = d->h * d->w, n_tile = (s + TILE - 1) / TILE;
    int64_t from = d->within ? 0 : task % n_tile * TILE;
    int64_t at = d->within ? task * s : task / n_tile * d->c * s + from;
    int64_t len = (s - from < TILE) ? s - from : TILE;
    float *sum = scratch + s, *ratio = sum + d->w;

    if (d->within && (a->dx == NULL))
        within_forward(d, a->x + at, scratch, sum, a->scale + at, a->y + at);
    else if (d->within)
        within_backward(d, a->x + at, a->scale + at, a->dy + at, scratch, sum, ratio, a->dx + at);
    else if (a->dx == NULL)
        across_forward(d, len, a->x + at, a->scale + at, a->y + at);
    else
        across_backward(d, len, a->x + at, a->scale + at, a->dy + at, scratch, a->dx + at);
}

static ct_status run(const ct_lrn_desc *d, ct_exec *ex, const ct_lrn_args *a)
{
    int64_t n_task = d->within ? d->n * d->c : d->n * ((d->h * d->w + TILE - 1) / TILE);
    int64_t step = scratch_of_worker(d, a->dx != NULL);
    int64_t nw = d->n_thread;
    ct_status polled = CT_OK;

#pragma omp parallel for num_threads(d->n_thread) schedule(static, 1)
    for (int64_t v = 0; v < nw; v++) {
        float *scratch = (step > 0) ? (float *)a->work + v * step : NULL;

        for (int64_t t = n_task * v / nw; t < n_task * (v + 1) / nw; t++) {
            run_task(d, a, t, scratch);
            ct_engine_poll(ex, &polled);
        }
    }
    return polled;
}

static bool supports(const ct_lrn_desc *d)
{
    return ct_lrn_on_cpu(d) && (d->block == 0);
}

const ct_lrn_impl ct_lrn_simd_forward = {
    .name = "simd", .supports = supports, .workspace = forward_workspace, .run = run
};
const ct_lrn_impl ct_lrn_simd_backward = {
    .name = "simd", .supports = supports, .workspace = backward_workspace, .run = run
};
