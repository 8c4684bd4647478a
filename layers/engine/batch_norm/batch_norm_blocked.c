/* Batch normalisation of channels in blocks: a block's channels stand side by side, so that sums
 * and maps run along the memory whatever the size of the image. Statistics take one pass, with
 * E x^2 - (E x)^2 in double: the squares of floats are exact there. */
#include "layers/engine/batch_norm/batch_norm.h"

#include <string.h>

#include "framework/base/simd.h"
#include "layers/blocked.h"
#include "layers/layer_util.h"

static bool supports(const ct_batch_norm_desc *d)
{
    return (d->device == CT_DEVICE_CPU) && (d->block > 0) && (d->block <= CT_BLOCK_MAX);
}

static ct_blocked view_of(const ct_batch_norm_desc *d)
{
    return (ct_blocked){ d->n, d->channels, d->spatial, d->block };
}

static int64_t end_of(const ct_blocked *v, int64_t from)
{
    int64_t n = ct_blocked_n(v);

    return (from + CT_BLOCKED_GROUP < n) ? from + CT_BLOCKED_GROUP : n;
}

/* ---- statistics */

static inline void square_rows(int64_t inner, int block, const float *x, double *sum,
                               double *square)
{
    double s[CT_BLOCK_MAX], q[CT_BLOCK_MAX];

    for (int i = 0; i < block; i++) {
        s[i] = sum[i];
        q[i] = square[i];
    }
    for (int64_t r = 0; r < inner; r++) {
#pragma omp simd
        for (int i = 0; i < block; i++) {
            double v = (double)x[r * block + i];

            s[i] += v;
            q[i] += v * v;
        }
    }
    for (int i = 0; i < block; i++) {
        sum[i] = s[i];
        square[i] = q[i];
    }
}

CT_SIMD_CLONES static void square_block(int64_t inner, int block, const float *x, double *sum,
                                        double *square)
{
    if (block == 16)
        square_rows(inner, 16, x, sum, square);
    else if (block == 8)
        square_rows(inner, 8, x, sum, square);
    else
        square_rows(inner, block, x, sum, square);
}

static void add_squares(const void *ctx, int64_t k, int64_t at, int64_t inner, int block,
                        double *first, double *second)
{
    (void)k;
    square_block(inner, block, (const float *)ctx + at, first, second);
}

static void statistics(const ct_batch_norm_desc *d, const float *x, float *mean, float *var)
{
    ct_blocked v = view_of(d);
    double m = (double)(d->n * d->spatial);
    double sum[CT_BLOCKED_GROUP * CT_BLOCK_MAX], square[CT_BLOCKED_GROUP * CT_BLOCK_MAX];

    for (int64_t k = 0; k < ct_blocked_n(&v); k += CT_BLOCKED_GROUP) {
        ct_blocked_sums(&v, k, end_of(&v, k), add_squares, x, sum, square);
        for (int64_t c = k * d->block; (c < end_of(&v, k) * d->block) && (c < d->channels); c++) {
            double e = sum[c - k * d->block] / m;
            double variance = square[c - k * d->block] / m - e * e;

            mean[c] = (float)e;
            /* a NaN stays one */
            var[c] = (variance < 0) ? 0.0f : (float)variance;
        }
    }
}

/* ---- normalise */

static inline void normal_rows(int64_t inner, int block, const float *x, const float *mean,
                               const float *inv_std, float *y)
{
    for (int64_t r = 0; r < inner; r++) {
#pragma omp simd
        for (int i = 0; i < block; i++)
            y[r * block + i] = (x[r * block + i] - mean[i]) * inv_std[i];
    }
}

CT_SIMD_CLONES static void normal_block(int64_t inner, int block, const float *x, const float *mean,
                                        const float *inv_std, float *y)
{
    if (block == 16)
        normal_rows(inner, 16, x, mean, inv_std, y);
    else if (block == 8)
        normal_rows(inner, 8, x, mean, inv_std, y);
    else
        normal_rows(inner, block, x, mean, inv_std, y);
}

static void normalise(const ct_batch_norm_desc *d, const float *x, const float *mean,
                      const float *inv_std, float *y, float *normal)
{
    ct_blocked v = view_of(d);
    int64_t n = ct_blocked_n(&v), row = d->spatial * d->block;

#pragma omp parallel for schedule(static) if (d->n * n * row >= CT_PARALLEL_MIN)
    for (int64_t r = 0; r < d->n * n; r++) {
        float m[CT_BLOCK_MAX], s[CT_BLOCK_MAX];

        ct_blocked_pick(&v, r % n, mean, 0.0f, m);
        ct_blocked_pick(&v, r % n, inv_std, 0.0f, s);
        normal_block(d->spatial, d->block, x + r * row, m, s, y + r * row);
        if (normal != NULL) memcpy(normal + r * row, y + r * row, (size_t)row * sizeof(*y));
    }
}

/* ---- backward */

typedef struct gradient {
    const ct_blocked *v;
    const float *x, *mean, *inv_std, *dy; /* mean NULL: x is normal already */
} gradient;

static inline void gradient_rows(int64_t inner, int block, const float *x, const float *mean,
                                 const float *inv_std, const float *dy, double *sum, double *dot)
{
    double s[CT_BLOCK_MAX], t[CT_BLOCK_MAX];

    for (int i = 0; i < block; i++) {
        s[i] = sum[i];
        t[i] = dot[i];
    }
    for (int64_t r = 0; r < inner; r++) {
#pragma omp simd
        for (int i = 0; i < block; i++) {
            float y = (x[r * block + i] - mean[i]) * inv_std[i];

            s[i] += (double)dy[r * block + i];
            t[i] += (double)dy[r * block + i] * (double)y;
        }
    }
    for (int i = 0; i < block; i++) {
        sum[i] = s[i];
        dot[i] = t[i];
    }
}

CT_SIMD_CLONES static void gradient_block(int64_t inner, int block, const float *x,
                                          const float *mean, const float *inv_std, const float *dy,
                                          double *sum, double *dot)
{
    if (block == 16)
        gradient_rows(inner, 16, x, mean, inv_std, dy, sum, dot);
    else if (block == 8)
        gradient_rows(inner, 8, x, mean, inv_std, dy, sum, dot);
    else
        gradient_rows(inner, block, x, mean, inv_std, dy, sum, dot);
}

/* Of block k: what makes x normal. */
static void pick(const gradient *g, int64_t k, float *mean, float *inv_std)
{
    ct_blocked_pick(g->v, k, g->mean, 0.0f, mean);
    ct_blocked_pick(g->v, k, (g->mean != NULL) ? g->inv_std : NULL, 1.0f, inv_std);
}

static void add_gradient(const void *ctx, int64_t k, int64_t at, int64_t inner, int block,
                         double *first, double *second)
{
    const gradient *g = ctx;
    float mean[CT_BLOCK_MAX], inv_std[CT_BLOCK_MAX];

    pick(g, k, mean, inv_std);
    gradient_block(inner, block, g->x + at, mean, inv_std, g->dy + at, first, second);
}

static inline void put_rows(int64_t inner, int block, const float *x, const float *mean,
                            const float *inv_std, const float *scale, const float *mean_dy,
                            const float *mean_dot, const float *dy, float *dx)
{
    for (int64_t r = 0; r < inner; r++) {
#pragma omp simd
        for (int i = 0; i < block; i++)
            dx[r * block + i] = (dy[r * block + i] - mean_dy[i] -
                                 (x[r * block + i] - mean[i]) * inv_std[i] * mean_dot[i]) *
                                scale[i];
    }
}

CT_SIMD_CLONES static void put_block(int64_t inner, int block, const float *x, const float *mean,
                                     const float *inv_std, const float *scale, const float *mean_dy,
                                     const float *mean_dot, const float *dy, float *dx)
{
    if (block == 16)
        put_rows(inner, 16, x, mean, inv_std, scale, mean_dy, mean_dot, dy, dx);
    else if (block == 8)
        put_rows(inner, 8, x, mean, inv_std, scale, mean_dy, mean_dot, dy, dx);
    else
        put_rows(inner, block, x, mean, inv_std, scale, mean_dy, mean_dot, dy, dx);
}

/* dx of blocks [from, to), given the means of dy and dy y over each of their channels. */
static void put_group(const ct_batch_norm_desc *d, const gradient *g, const float *inv_std,
                      int64_t from, int64_t to, const float *mean_dy, const float *mean_dot,
                      float *dx)
{
    int64_t n = ct_blocked_n(g->v), row = d->spatial * d->block;

#pragma omp parallel for schedule(static) if (d->n * (to - from) * row >= CT_PARALLEL_MIN)
    for (int64_t r = 0; r < d->n * (to - from); r++) {
        int64_t k = from + r % (to - from), at = (r / (to - from) * n + k) * row;
        float mean[CT_BLOCK_MAX], is[CT_BLOCK_MAX], scale[CT_BLOCK_MAX];

        pick(g, k, mean, is);
        ct_blocked_pick(g->v, k, inv_std, 0.0f, scale);
        put_block(d->spatial, d->block, g->x + at, mean, is, scale, mean_dy + (k - from) * d->block,
                  mean_dot + (k - from) * d->block, g->dy + at, dx + at);
    }
}

static void backward(const ct_batch_norm_desc *d, const float *x, const float *normal,
                     const float *mean, const float *inv_std, const float *dy, float *dx)
{
    enum { MOST = CT_BLOCKED_GROUP * CT_BLOCK_MAX };
    ct_blocked v = view_of(d);
    gradient g = { &v, (normal != NULL) ? normal : x, (normal != NULL) ? NULL : mean, inv_std, dy };
    double m = (double)(d->n * d->spatial), sum[MOST], dot[MOST];
    float mean_dy[MOST], mean_dot[MOST];

    for (int64_t k = 0; k < ct_blocked_n(&v); k += CT_BLOCKED_GROUP) {
        int64_t to = end_of(&v, k);

        ct_blocked_sums(&v, k, to, add_gradient, &g, sum, dot);
        for (int64_t i = 0; i < (to - k) * d->block; i++) {
            mean_dy[i] = (float)(sum[i] / m);
            mean_dot[i] = (float)(dot[i] / m);
        }
        put_group(d, &g, inv_std, k, to, mean_dy, mean_dot, dx);
    }
}

const ct_batch_norm_engine ct_batch_norm_blocked = { "blocked", supports, statistics, normalise,
                                                     backward };
