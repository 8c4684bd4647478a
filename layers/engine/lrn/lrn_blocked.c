/* Across channels that stand in blocks: the channels of one place are gathered into a row, with
 * zeros around it, along which windows are sums of shifted vectors. */
#include "framework/base/simd.h"
#include "layers/engine/lrn/lrn_private.h"

#include <math.h>

enum { MOST_CHANNELS = 4096, MOST_SIZE = 33, ROW = MOST_CHANNELS + 2 * MOST_SIZE, PLACES = 32 };

static bool supports(const ct_lrn_desc *d)
{
    return ct_lrn_on_cpu(d) && (d->block > 0) && !d->within && (d->c <= MOST_CHANNELS - d->block) &&
           (d->size <= MOST_SIZE);
}

/* One place's channels: [half] zeros, the channels, zeros to the end of the block and [half]. */
typedef struct row {
    float v[ROW], sum[MOST_CHANNELS], scale[MOST_CHANNELS];
} row;

static inline int64_t rounded(const ct_lrn_desc *d)
{
    return (d->c + d->block - 1) / d->block * d->block;
}

/* sum[i] = sum of `size` numbers of v from i on */
static inline void window_sums(const ct_lrn_desc *d, row *r)
{
    int64_t n = rounded(d), size = d->size;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) r->sum[i] = r->v[i];
    for (int64_t q = 1; q < size; q++) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) r->sum[i] += r->v[i + q];
    }
}

static inline void clear_edges(const ct_lrn_desc *d, row *r)
{
    int64_t half = (d->size - 1) / 2, end = rounded(d) + half;

    for (int64_t i = 0; i < half; i++) r->v[i] = 0.0f;
    for (int64_t i = half + d->c; i < end + half; i++) r->v[i] = 0.0f;
}

static inline float power(float scale, float beta, bool usual)
{
    float root;

    if (!usual) return powf(scale, -beta);
    root = sqrtf(scale);
    return 1.0f / (root * sqrtf(root));
}

/* What fills up the last block stays finite whatever k is. */
static inline void fill_up(const ct_lrn_desc *d, int64_t step, float value, float *y)
{
    int64_t last = (d->c - 1) / d->block * step;

    for (int64_t i = (d->c - 1) % d->block + 1; i < d->block; i++) y[last + i] = value;
}

/* x: at a place of block 0; step: floats from block to block. Into r->scale. */
static inline void make_scale(const ct_lrn_desc *d, int64_t step, const float *x, row *r)
{
    int64_t half = (d->size - 1) / 2, b = d->block, n = rounded(d);
    float factor = ct_lrn_factor(d), k = d->k;

    for (int64_t j = 0; j * b < d->c; j++) {
        float *to = r->v + half + j * b;
        const float *from = x + j * step;

#pragma omp simd
        for (int64_t i = 0; i < b; i++) to[i] = from[i] * from[i];
    }
    clear_edges(d, r);
    window_sums(d, r);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) r->scale[i] = k + factor * r->sum[i];
    fill_up(d, b, 1.0f, r->scale);
}

/* x, scale (NULL: not wanted), y: at a place of block 0 */
static inline void forward_place(const ct_lrn_desc *d, int64_t step, bool usual, const float *x,
                                 row *r, float *scale, float *y)
{
    int64_t b = d->block;
    float beta = d->beta;

    make_scale(d, step, x, r);
    for (int64_t j = 0; j * b < d->c; j++) {
        const float *from = x + j * step, *s = r->scale + j * b;
        float *to = y + j * step;

#pragma omp simd
        for (int64_t i = 0; i < b; i++) to[i] = from[i] * power(s[i], beta, usual);
        if (scale != NULL) memcpy(scale + j * step, s, (size_t)b * sizeof(float));
    }
    fill_up(d, step, 0.0f, y);
}

static inline void backward_place(const ct_lrn_desc *d, int64_t step, bool usual, const float *x,
                                  const float *scale, const float *dy, row *r, float *dx)
{
    int64_t half = (d->size - 1) / 2, b = d->block;
    float factor = 2.0f * ct_lrn_factor(d) * d->beta, beta = d->beta;
    int64_t s_step = (scale != NULL) ? step : b;

    if (scale == NULL) make_scale(d, step, x, r);
    if (scale == NULL) scale = r->scale;
    for (int64_t j = 0; j * b < d->c; j++) {
        const float *from = x + j * step, *s = scale + j * s_step, *up = dy + j * step;
        float *to = r->v + half + j * b, *down = dx + j * step;

#pragma omp simd
        for (int64_t i = 0; i < b; i++) {
            down[i] = up[i] * power(s[i], beta, usual);
            to[i] = down[i] * from[i] / s[i];
        }
    }
    clear_edges(d, r);
    window_sums(d, r);
    for (int64_t j = 0; j * b < d->c; j++) {
        const float *from = x + j * step, *sum = r->sum + j * b;
        float *down = dx + j * step;

#pragma omp simd
        for (int64_t i = 0; i < b; i++) down[i] -= factor * from[i] * sum[i];
    }
}

CT_SIMD_CLONES static void run_places(const ct_lrn_desc *d, const ct_lrn_args *a, int64_t at,
                                      int64_t n, row *r)
{
    int64_t step = d->h * d->w * d->block;
    bool usual = (d->beta == 0.75f);

    for (int64_t s = 0; s < n; s++, at += d->block) {
        float *scale = (a->scale != NULL) ? a->scale + at : NULL;

        if (a->dx == NULL)
            forward_place(d, step, usual, a->x + at, r, scale, a->y + at);
        else
            backward_place(d, step, usual, a->x + at, scale, a->dy + at, r, a->dx + at);
    }
}

static ct_status run(const ct_lrn_desc *d, ct_exec *ex, const ct_lrn_args *a)
{
    int64_t s = d->h * d->w, n_piece = (s + PLACES - 1) / PLACES;
    ct_status polled = CT_OK;

#pragma omp parallel num_threads(d->n_thread)
    {
        row r;

#pragma omp for schedule(static)
        for (int64_t t = 0; t < d->n * n_piece; t++) {
            int64_t first = t % n_piece * PLACES, n = (s - first < PLACES) ? s - first : PLACES;

            run_places(d, a, t / n_piece * rounded(d) * s + first * d->block, n, &r);
            ct_engine_poll(ex, &polled);
        }
    }
    return polled;
}

const ct_lrn_impl ct_lrn_blocked_forward = {
    .name = "blocked", .supports = supports, .run = run, .can = CT_LRN_CAN_REMAKE
};
const ct_lrn_impl ct_lrn_blocked_backward = {
    .name = "blocked", .supports = supports, .run = run, .can = CT_LRN_CAN_REMAKE
};
