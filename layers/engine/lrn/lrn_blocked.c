/* Across channels that stand in blocks: the channels of one place are gathered into a row, with
 * zeros around it, along which windows are sums of shifted vectors. */
#include "framework/base/simd.h"
#include "layers/engine/lrn/lrn_private.h"

#include <math.h>

enum { MOST_CHANNELS = 2048, MOST_SIZE = 33, ROW = MOST_CHANNELS + 2 * MOST_SIZE, PLACES = 32 };

static bool supports(const ct_lrn_desc *d)
{
    return ct_lrn_on_cpu(d) && (d->block > 0) && !d->within && (d->c <= MOST_CHANNELS - d->block) &&
           (d->size <= MOST_SIZE);
}

/* Places are taken SIDE at a time, a step of the computation each: what one step stores, the next
 * reads at other offsets, which processors do badly while it is still on its way to the cache. */
enum { SIDE = 8 };

typedef struct scratch {
    float v[SIDE][ROW]; /* a place each: [half] zeros, the channels, zeros to the block's end and
                         * [half] */
    float scale[SIDE][MOST_CHANNELS];
    float sum[MOST_CHANNELS];
} scratch;

static inline int64_t rounded(const ct_lrn_desc *d)
{
    return (d->c + d->block - 1) / d->block * d->block;
}

/* sum[i] = sum of `size` numbers of v from i on, in their order */
CT_SIMD_PART void window_sums(const ct_lrn_desc *d, const float *v, float *sum)
{
    int64_t n = rounded(d), size = d->size;

    if (size == 5) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) sum[i] = v[i] + v[i + 1] + v[i + 2] + v[i + 3] + v[i + 4];
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) sum[i] = v[i];
    for (int64_t q = 1; q < size; q++) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) sum[i] += v[i + q];
    }
}

CT_SIMD_PART void clear_edges(const ct_lrn_desc *d, float *v)
{
    int64_t half = (d->size - 1) / 2, end = rounded(d) + half;

    for (int64_t i = 0; i < half; i++) v[i] = 0.0f;
    for (int64_t i = half + d->c; i < end + half; i++) v[i] = 0.0f;
}

/* What all published nets use: beta = 3/4, and sums that are not below k. */
static inline bool is_usual(const ct_lrn_desc *d)
{
    return (d->beta == 0.75f) && (d->alpha >= 0.0f) && (d->k >= 1e-20f);
}

/* s^(-1/4) of a normal positive number: from a guess by its exponent (3 % off) by the series of
 * (1 - e)^(-1/4) twice; within 2 units of the last place. Not a number stays so. */
static inline float root(float s)
{
    union {
        float f;
        int32_t i;
    } u = { .f = s };
    float r, e;

    u.i = 0x4f586000 - (u.i >> 2);
    r = u.f;
    e = 1.0f - s * (r * r * (r * r));
    r += r * (e * (0.25f + e * (0.15625f + e * 0.1171875f)));
    e = 1.0f - s * (r * r * (r * r));
    return r + r * (e * 0.25f);
}

/* s^-beta, and s^-1 */
static inline void powers(float s, float beta, bool usual, float *power_p, float *inverse_p)
{
    float r;

    if (!usual) {
        *power_p = powf(s, -beta);
        *inverse_p = 1.0f / s;
        return;
    }
    r = root(s);
    *power_p = r * (r * r);
    *inverse_p = (r * r) * (r * r);
}

/* What fills up the last block stays finite whatever k is. */
static inline void fill_up(const ct_lrn_desc *d, int64_t step, float value, float *y)
{
    int64_t last = (d->c - 1) / d->block * step;

    for (int64_t i = (d->c - 1) % d->block + 1; i < d->block; i++) y[last + i] = value;
}

/* x: at the first of `places` of block 0; step: floats from block to block. Into r->scale. */
CT_SIMD_PART void make_scale(const ct_lrn_desc *d, int64_t step, int places, const float *x,
                             scratch *r)
{
    int64_t half = (d->size - 1) / 2, b = d->block, n = rounded(d);
    float factor = ct_lrn_factor(d), k = d->k;

    for (int p = 0; p < places; p++) {
        for (int64_t j = 0; j * b < d->c; j++) {
            float *to = r->v[p] + half + j * b;
            const float *from = x + j * step + p * b;

#pragma omp simd
            for (int64_t i = 0; i < b; i++) to[i] = from[i] * from[i];
        }
        clear_edges(d, r->v[p]);
    }
    for (int p = 0; p < places; p++) {
        float *scale = r->scale[p];

        window_sums(d, r->v[p], scale);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) scale[i] = k + factor * scale[i];
        fill_up(d, b, 1.0f, scale);
    }
}

/* x, scale (NULL: not wanted), y: at the first of the places of block 0 */
CT_SIMD_PART void forward_places(const ct_lrn_desc *d, int64_t step, bool usual, int places,
                                 const float *x, scratch *r, float *scale, float *y)
{
    int64_t b = d->block;
    float beta = d->beta;

    make_scale(d, step, places, x, r);
    for (int p = 0; p < places; p++) {
        for (int64_t j = 0; j * b < d->c; j++) {
            const float *from = x + j * step + p * b, *s = r->scale[p] + j * b;
            float *to = y + j * step + p * b;

#pragma omp simd
            for (int64_t i = 0; i < b; i++) {
                float power, inverse;

                powers(s[i], beta, usual, &power, &inverse);
                to[i] = from[i] * power;
            }
            if (scale != NULL) memcpy(scale + j * step + p * b, s, (size_t)b * sizeof(float));
        }
        fill_up(d, step, 0.0f, y + p * b);
    }
}

CT_SIMD_PART void backward_places(const ct_lrn_desc *d, int64_t step, bool usual, int places,
                                  const float *x, const float *scale, const float *dy, scratch *r,
                                  float *dx)
{
    int64_t half = (d->size - 1) / 2, b = d->block;
    float factor = 2.0f * ct_lrn_factor(d) * d->beta, beta = d->beta;

    if (scale == NULL) make_scale(d, step, places, x, r);
    for (int p = 0; p < places; p++) {
        for (int64_t j = 0; j * b < d->c; j++) {
            int64_t at = j * step + p * b;
            const float *from = x + at, *up = dy + at;
            const float *s = (scale != NULL) ? scale + at : r->scale[p] + j * b;
            float *to = r->v[p] + half + j * b, *down = dx + at;

#pragma omp simd
            for (int64_t i = 0; i < b; i++) {
                float power, inverse;

                powers(s[i], beta, usual, &power, &inverse);
                down[i] = up[i] * power;
                to[i] = down[i] * from[i] * inverse;
            }
        }
        clear_edges(d, r->v[p]);
    }
    for (int p = 0; p < places; p++) {
        window_sums(d, r->v[p], r->sum);
        for (int64_t j = 0; j * b < d->c; j++) {
            const float *from = x + j * step + p * b, *sum = r->sum + j * b;
            float *down = dx + j * step + p * b;

#pragma omp simd
            for (int64_t i = 0; i < b; i++) down[i] -= factor * from[i] * sum[i];
        }
    }
}

CT_SIMD_PART void run_cases(const ct_lrn_desc *d, const ct_lrn_args *a, bool usual, int64_t at,
                            int64_t n, scratch *r)
{
    int64_t step = d->h * d->w * d->block;

    for (int64_t s = 0; s < n; s += SIDE, at += SIDE * d->block) {
        int places = (n - s < SIDE) ? (int)(n - s) : SIDE;
        float *scale = (a->scale != NULL) ? a->scale + at : NULL;

        if (a->dx == NULL)
            forward_places(d, step, usual, places, a->x + at, r, scale, a->y + at);
        else
            backward_places(d, step, usual, places, a->x + at, scale, a->dy + at, r, a->dx + at);
    }
}

CT_SIMD_CLONES static void run_places(const ct_lrn_desc *d, const ct_lrn_args *a, int64_t at,
                                      int64_t n, scratch *r)
{
    if (is_usual(d))
        run_cases(d, a, true, at, n, r);
    else
        run_cases(d, a, false, at, n, r);
}

static ct_status run(const ct_lrn_desc *d, ct_exec *ex, const ct_lrn_args *a)
{
    int64_t s = d->h * d->w, n_piece = (s + PLACES - 1) / PLACES;
    ct_status polled = CT_OK;

#pragma omp parallel num_threads(d->n_thread)
    {
        scratch r;

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
