/* Tiles that stay in a first- or second-level cache, and loops the compiler vectorises.
 *
 * Sums are taken anew for each place rather than carried along: with windows of 3 to 9 that costs
 * little next to the power, and a large value that left the window leaves no rounding behind.
 * scale is not kept: to make it again costs less than to write and to read it. beta = 0.75, which
 * every published net uses, needs neither a power nor a root. */
#include "framework/base/memory.h"
#include "framework/base/simd.h"
#include "framework/base/stream.h"
#include "layers/engine/lrn/lrn.h"

#include <math.h>

enum { TILE = 128 }; /* places of a channel that one task takes */

CT_LRN_ROOT(root, float, int32_t)

/* s^-beta, and s^-1 */
CT_SIMD_PART void power_of(bool usual, float beta, float s, float *power_p, float *inverse_p)
{
    float r;

    if (!usual) {
        *power_p = powf(s, -beta);
        *inverse_p = 1.0f / s;
        return;
    }
    root(&s, &r);
    *power_p = r * (r * r);
    *inverse_p = (r * r) * (r * r);
}

CT_SIMD_PART void add_squares(int64_t n, const float *x, float *sum)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) sum[i] += x[i] * x[i];
}

CT_SIMD_PART void add(int64_t n, const float *x, float *sum)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

/* From sums of squares to y = x scale^-beta; scale NULL: not wanted. */
CT_SIMD_PART void finish_forward(const ct_lrn_desc *d, bool usual, int64_t n, const float *sum,
                                 const float *x, float *scale, float *y)
{
    float factor = ct_lrn_factor(d), k = d->k, beta = d->beta;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float power, inverse;

        power_of(usual, beta, k + factor * sum[i], &power, &inverse);
        y[i] = x[i] * power;
    }
    if (scale == NULL) return;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) scale[i] = k + factor * sum[i];
}

/* From sums of squares to part = dy scale^-beta, ratio = part x / scale. */
CT_SIMD_PART void begin_backward(const ct_lrn_desc *d, bool usual, int64_t n, const float *sum,
                                 const float *dy, const float *x, float *ratio, float *part)
{
    float factor = ct_lrn_factor(d), k = d->k, beta = d->beta;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float power, inverse, g;

        power_of(usual, beta, k + factor * sum[i], &power, &inverse);
        g = dy[i] * power;
        part[i] = g;
        ratio[i] = g * x[i] * inverse;
    }
}

/* dx = part - 2 a beta x sum; within a channel part is dx. */
CT_SIMD_PART void finish_backward(const ct_lrn_desc *d, int64_t n, const float *sum, const float *x,
                                  const float *part, float *dx)
{
    float factor = 2.0f * ct_lrn_factor(d) * d->beta;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) dx[i] = part[i] - factor * x[i] * sum[i];
}

/* ---- across channels: `len` places of all channels of one image; pointers at channel 0 */

static inline void channel_window(const ct_lrn_desc *d, int64_t c, int64_t *lo_p, int64_t *hi_p)
{
    int64_t half = (d->size - 1) / 2;

    *lo_p = (c > half) ? c - half : 0;
    *hi_p = (c + half + 1 < d->c) ? c + half + 1 : d->c;
}

/* sum = squares of x over the window around channel c; the five of the usual window in one go */
CT_SIMD_PART void square_window(const ct_lrn_desc *d, int64_t c, int64_t len, const float *x,
                                float *sum)
{
    int64_t s = d->h * d->w, lo, hi;

    channel_window(d, c, &lo, &hi);
    x += lo * s;
    if (hi - lo != 5) {
        memset(sum, 0, (size_t)len * sizeof(float));
        for (; lo < hi; lo++, x += s) add_squares(len, x, sum);
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < len; i++) {
        const float *v = x + i;

        sum[i] = v[0] * v[0] + v[s] * v[s] + v[2 * s] * v[2 * s] + v[3 * s] * v[3 * s] +
                 v[4 * s] * v[4 * s];
    }
}

/* The same channel's places of the tile after the next: rows of a tile are short and far apart. */
CT_SIMD_PART void fetch(const float *x)
{
    for (int i = 2 * TILE; i < 3 * TILE; i += 16) __builtin_prefetch(x + i, 0, 2);
}

/* stream: y passes the caches by */
CT_SIMD_PART void forward_tile(const ct_lrn_desc *d, bool usual, bool stream, int64_t len,
                               const float *x, float *scale, float *y)
{
    int64_t s = d->h * d->w;
    float sum[TILE], made[TILE];

    for (int64_t c = 0; c < d->c; c++) {
        fetch(x + c * s);
        square_window(d, c, len, x, sum);
        finish_forward(d, usual, len, sum, x + c * s, (scale != NULL) ? scale + c * s : NULL,
                       stream ? made : y + c * s);
        if (stream) ct_stream_copy(len, made, y + c * s);
    }
}

CT_SIMD_CLONES static void across_forward(const ct_lrn_desc *d, bool stream, int64_t len,
                                          const float *x, float *scale, float *y)
{
    if (ct_lrn_is_usual(d))
        forward_tile(d, true, stream, len, x, scale, y);
    else
        forward_tile(d, false, stream, len, x, scale, y);
}

/* Ratios of the channels of a window, in a ring of rows: channel e's in row e % size; the five of
 * the usual window in one go. */
CT_SIMD_PART void ratio_window(const ct_lrn_desc *d, int64_t c, int64_t len, const float *ring,
                               float *sum)
{
    int64_t lo, hi;

    channel_window(d, c, &lo, &hi);
    if (hi - lo == 5) {
        const float *r0 = ring + lo % d->size * TILE, *r1 = ring + (lo + 1) % d->size * TILE;
        const float *r2 = ring + (lo + 2) % d->size * TILE, *r3 = ring + (lo + 3) % d->size * TILE;
        const float *r4 = ring + (lo + 4) % d->size * TILE;

#pragma omp simd
        for (int64_t i = 0; i < len; i++) sum[i] = r0[i] + r1[i] + r2[i] + r3[i] + r4[i];
        return;
    }
    memset(sum, 0, (size_t)len * sizeof(float));
    for (int64_t e = lo; e < hi; e++) add(len, ring + e % d->size * TILE, sum);
}

/* Channel c's gradient needs ratios half a window ahead; dy scale^-beta waits for them in a second
 * ring. stream: dx passes the caches by. */
CT_SIMD_PART void backward_tile(const ct_lrn_desc *d, bool usual, bool stream, int64_t len,
                                const float *x, const float *dy, float *ring, float *dx)
{
    int64_t s = d->h * d->w, half = (d->size - 1) / 2;
    float sum[TILE], made[TILE], *parts = ring + d->size * TILE;

    for (int64_t c = 0; c < d->c + half; c++) {
        int64_t now = c - half;

        if (c < d->c) {
            fetch(x + c * s);
            fetch(dy + c * s);
            square_window(d, c, len, x, sum);
            begin_backward(d, usual, len, sum, dy + c * s, x + c * s, ring + c % d->size * TILE,
                           parts + c % d->size * TILE);
        }
        if (now < 0) continue;
        ratio_window(d, now, len, ring, sum);
        finish_backward(d, len, sum, x + now * s, parts + now % d->size * TILE,
                        stream ? made : dx + now * s);
        if (stream) ct_stream_copy(len, made, dx + now * s);
    }
}

CT_SIMD_CLONES static void across_backward(const ct_lrn_desc *d, bool stream, int64_t len,
                                           const float *x, const float *dy, float *ring, float *dx)
{
    if (ct_lrn_is_usual(d))
        backward_tile(d, true, stream, len, x, dy, ring, dx);
    else
        backward_tile(d, false, stream, len, x, dy, ring, dx);
}

/* ---- within a channel: one plane; box sums along the rows, then along the columns */

/* line[i][j] = sum over the row window of v (squared where `squares`) */
CT_SIMD_PART void row_sums(const ct_lrn_desc *d, bool squares, const float *v, float *line)
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
CT_SIMD_PART void column_sum(const ct_lrn_desc *d, int64_t i, const float *line, float *sum)
{
    int64_t half = (d->size - 1) / 2;
    int64_t lo = (i > half) ? i - half : 0, hi = (i + half + 1 < d->h) ? i + half + 1 : d->h;

    memset(sum, 0, (size_t)d->w * sizeof(float));
    for (int64_t p = lo; p < hi; p++) add(d->w, line + p * d->w, sum);
}

/* scale NULL: not wanted */
CT_SIMD_CLONES static void within_forward(const ct_lrn_desc *d, const float *x, float *line,
                                          float *sum, float *scale, float *y)
{
    bool usual = ct_lrn_is_usual(d);

    row_sums(d, true, x, line);
    for (int64_t i = 0; i < d->h; i++, x += d->w, y += d->w) {
        float *keep = (scale != NULL) ? scale + i * d->w : NULL;

        column_sum(d, i, line, sum);
        if (usual)
            finish_forward(d, true, d->w, sum, x, keep, y);
        else
            finish_forward(d, false, d->w, sum, x, keep, y);
    }
}

CT_SIMD_CLONES static void within_backward(const ct_lrn_desc *d, const float *x, const float *dy,
                                           float *line, float *sum, float *ratio, float *dx)
{
    bool usual = ct_lrn_is_usual(d);

    row_sums(d, true, x, line);
    for (int64_t i = 0, at = 0; i < d->h; i++, at += d->w) {
        column_sum(d, i, line, sum);
        if (usual)
            begin_backward(d, true, d->w, sum, dy + at, x + at, ratio + at, dx + at);
        else
            begin_backward(d, false, d->w, sum, dy + at, x + at, ratio + at, dx + at);
    }
    row_sums(d, false, ratio, line);
    for (int64_t i = 0, at = 0; i < d->h; i++, at += d->w) {
        column_sum(d, i, line, sum);
        finish_backward(d, d->w, sum, x + at, dx + at, dx + at);
    }
}

/* ---- tasks: (image, tile) across, planes within. Workers are numbers: each its own scratch. */

static int64_t scratch_of_worker(const ct_lrn_desc *d, bool backward)
{
    int64_t n = 0;

    if (d->within)
        n = (backward ? 2 : 1) * d->h * d->w + d->w;
    else if (backward)
        n = 2 * d->size * TILE;
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

static void run_task(const ct_lrn_desc *d, const ct_lrn_args *a, int64_t task, bool stream,
                     float *scratch)
{
    int64_t s = d->h * d->w, n_tile = (s + TILE - 1) / TILE;
    int64_t from = d->within ? 0 : task % n_tile * TILE;
    int64_t at = d->within ? task * s : task / n_tile * d->c * s + from;
    int64_t len = (s - from < TILE) ? s - from : TILE;
    float *sum = d->within ? scratch + s : NULL, *ratio = d->within ? sum + d->w : NULL;
    float *scale = (a->scale != NULL) ? a->scale + at : NULL;

    if (d->within && (a->dx == NULL))
        within_forward(d, a->x + at, scratch, sum, scale, a->y + at);
    else if (d->within)
        within_backward(d, a->x + at, a->dy + at, scratch, sum, ratio, a->dx + at);
    else if (a->dx == NULL)
        across_forward(d, stream, len, a->x + at, scale, a->y + at);
    else
        across_backward(d, stream, len, a->x + at, a->dy + at, scratch, a->dx + at);
}

static ct_status run(const ct_lrn_desc *d, ct_exec *ex, const ct_lrn_args *a)
{
    int64_t n_task = d->within ? d->n * d->c : d->n * ((d->h * d->w + TILE - 1) / TILE);
    int64_t step = scratch_of_worker(d, a->dx != NULL);
    bool stream = ct_stream_pays((a->dx != NULL) ? a->dx : a->y,
                                 (size_t)(d->n * d->c * d->h * d->w) * sizeof(float));
    int64_t nw = d->n_thread;
    ct_status polled = CT_OK;

#pragma omp parallel for num_threads(d->n_thread) schedule(static, 1)
    for (int64_t v = 0; v < nw; v++) {
        float *scratch = (step > 0) ? (float *)a->work + v * step : NULL;

        for (int64_t t = n_task * v / nw; t < n_task * (v + 1) / nw; t++) {
            run_task(d, a, t, stream, scratch);
            ct_engine_poll(ex, &polled);
        }
        if (stream) ct_stream_end();
    }
    return polled;
}

static bool supports(const ct_lrn_desc *d)
{
    return ct_lrn_on_cpu(d) && (d->block == 0);
}

const ct_lrn_impl ct_lrn_simd_forward = { .name = "simd",
                                          .supports = supports,
                                          .workspace = forward_workspace,
                                          .run = run,
                                          .can = CT_LRN_CAN_REMAKE };
const ct_lrn_impl ct_lrn_simd_backward = { .name = "simd",
                                           .supports = supports,
                                           .workspace = backward_workspace,
                                           .run = run,
                                           .can = CT_LRN_CAN_REMAKE };
