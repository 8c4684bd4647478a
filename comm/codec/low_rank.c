#include "comm/codec/low_rank.h"

#include <math.h>
#include <string.h>

#include "framework/base/rng.h"
#include "framework/base/simd.h"
#include "framework/base/status.h"

enum {
    LANES = 16,
    GROUP = 4, /* columns at a time                                                        */
    TILE = 1024,
    TILE_ROWS = 16,
    ALONE = 65536 /* elements: fewer are not worth a team */
};

#define INLINE static inline __attribute__((always_inline))

static int64_t smaller(int64_t a, int64_t b)
{
    return (a < b) ? a : b;
}

static int group_at(const ct_low_rank *s, int k)
{
    int left = s->r - k;

    return (left >= GROUP) ? GROUP : (left >= 2) ? 2 : 1;
}

/* ---- P = V Q: a row with g columns */

INLINE void dots(int g, int64_t n, const float *restrict v, const float *restrict q, int64_t stride,
                 float *restrict out, int64_t out_stride)
{
    float sum[GROUP][LANES] = { { 0 } };
    int64_t j = 0;

    for (; j + LANES <= n; j += LANES) {
        for (int k = 0; k < g; ++k) {
#pragma omp simd
            for (int l = 0; l < LANES; ++l) sum[k][l] += v[j + l] * q[k * stride + j + l];
        }
    }
    for (int k = 0; k < g; ++k) {
        float all = 0;

        for (int64_t i = j; i < n; ++i) sum[k][i - j] += v[i] * q[k * stride + i];
        for (int l = 0; l < LANES; ++l) all += sum[k][l];
        out[k * out_stride] = all;
    }
}

CT_SIMD_CLONES static void dots1(int64_t n, const float *v, const float *q, int64_t stride,
                                 float *out, int64_t out_stride)
{
    dots(1, n, v, q, stride, out, out_stride);
}

CT_SIMD_CLONES static void dots2(int64_t n, const float *v, const float *q, int64_t stride,
                                 float *out, int64_t out_stride)
{
    dots(2, n, v, q, stride, out, out_stride);
}

CT_SIMD_CLONES static void dots4(int64_t n, const float *v, const float *q, int64_t stride,
                                 float *out, int64_t out_stride)
{
    dots(4, n, v, q, stride, out, out_stride);
}

static void row_left(const ct_low_rank *s, const float *row, const float *q, float *p, int64_t i)
{
    for (int k = 0; k < s->r; k += group_at(s, k)) {
        int g = group_at(s, k);
        const float *with = q + k * s->cols;
        float *out = p + k * s->rows + i;

        if (g == 4)
            dots4(s->cols, row, with, s->cols, out, s->rows);
        else if (g == 2)
            dots2(s->cols, row, with, s->cols, out, s->rows);
        else
            dots1(s->cols, row, with, s->cols, out, s->rows);
    }
}

static ct_status check_finite(const ct_low_rank *s, const float *p)
{
    for (int64_t i = 0; i < s->r * s->rows; ++i) {
        if (!isfinite(p[i]))
            return CT_FAIL(CT_ERR_DIVERGED,
                           "the gradient, or what is kept of it, is no longer finite");
    }
    return CT_OK;
}

ct_status ct_low_rank_left(const ct_low_rank *s, const ct_momentum_correction *a, const float *q,
                           float *p)
{
    int64_t each = (TILE * TILE_ROWS / 4 + s->cols - 1) / s->cols; /* rows: a cache's worth */
    int64_t n_block = (s->rows + each - 1) / each;
    int team = (a->n > ALONE) ? a->n_thread : 1;

#pragma omp parallel for schedule(static) num_threads(team)
    for (int64_t b = 0; b < n_block; ++b) {
        int64_t first = b * each, n = smaller(each, s->rows - first);
        ct_momentum_correction part = ct_momentum_correction_part(a, first * s->cols, n * s->cols);

        ct_momentum_correction_run(&part);
        for (int64_t i = 0; i < n; ++i) row_left(s, part.v + i * s->cols, q, p, first + i);
    }
    return check_finite(s, p);
}

/* ---- Q = transposed V P: a tile of rows, added to g columns */

INLINE void spread(int g, int64_t n_row, int64_t n, const float *restrict v, int64_t cols,
                   const float *restrict p, int64_t rows, float *restrict q)
{
    for (int64_t i = 0; i < n_row; ++i) {
        const float *row = v + i * cols;
        float p0 = p[i], p1 = (g > 1) ? p[rows + i] : 0, p2 = (g > 2) ? p[2 * rows + i] : 0,
              p3 = (g > 2) ? p[3 * rows + i] : 0;

#pragma omp simd
        for (int64_t j = 0; j < n; ++j) {
            float x = row[j];

            q[j] += p0 * x;
            if (g > 1) q[cols + j] += p1 * x;
            if (g > 2) q[2 * cols + j] += p2 * x;
            if (g > 2) q[3 * cols + j] += p3 * x;
        }
    }
}

CT_SIMD_CLONES static void spread1(int64_t n_row, int64_t n, const float *v, int64_t cols,
                                   const float *p, int64_t rows, float *q)
{
    spread(1, n_row, n, v, cols, p, rows, q);
}

CT_SIMD_CLONES static void spread2(int64_t n_row, int64_t n, const float *v, int64_t cols,
                                   const float *p, int64_t rows, float *q)
{
    spread(2, n_row, n, v, cols, p, rows, q);
}

CT_SIMD_CLONES static void spread4(int64_t n_row, int64_t n, const float *v, int64_t cols,
                                   const float *p, int64_t rows, float *q)
{
    spread(4, n_row, n, v, cols, p, rows, q);
}

/* The rows first .. last - 1 of the columns at .. at + n - 1. */
static void strip_right(const ct_low_rank *s, const float *v, const float *p, int64_t first,
                        int64_t last, int64_t at, int64_t n, float *q)
{
    for (int k = 0; k < s->r; ++k) memset(q + k * s->cols + at, 0, sizeof(*q) * (size_t)n);
    for (int64_t i = first; i < last; i += TILE_ROWS) {
        int64_t n_row = smaller(TILE_ROWS, last - i);
        const float *tile = v + i * s->cols + at;

        for (int k = 0; k < s->r; k += group_at(s, k)) {
            int g = group_at(s, k);
            const float *with = p + k * s->rows + i;
            float *out = q + k * s->cols + at;

            if (g == 4)
                spread4(n_row, n, tile, s->cols, with, s->rows, out);
            else if (g == 2)
                spread2(n_row, n, tile, s->cols, with, s->rows, out);
            else
                spread1(n_row, n, tile, s->cols, with, s->rows, out);
        }
    }
}

/* Wide matrices are cut into columns for the threads, others into rows as well, whose sums are then
 * added up: both by the shape alone. */
int64_t ct_low_rank_scratch(const ct_low_rank *s)
{
    return (ct_low_rank_slabs(s) > 1) ? ct_low_rank_slabs(s) * s->r * s->cols : 0;
}

void ct_low_rank_right(const ct_low_rank *s, const float *v, const float *p, int n_thread,
                       float *scratch, float *q)
{
    int slabs = ct_low_rank_slabs(s), team = (s->rows * s->cols > ALONE) ? n_thread : 1;
    int64_t strips = (s->cols + TILE - 1) / TILE, size = s->r * s->cols;
    float *to = (slabs > 1) ? scratch : q;

#pragma omp parallel for schedule(static) num_threads(team)
    for (int64_t w = 0; w < slabs * strips; ++w) {
        int64_t slab = w / strips, at = w % strips * TILE;

        strip_right(s, v, p, s->rows * slab / slabs, s->rows * (slab + 1) / slabs, at,
                    smaller(TILE, s->cols - at), to + slab * size);
    }
    if (slabs == 1) return;
#pragma omp parallel for schedule(static) num_threads(team) if (size > ALONE)
    for (int64_t i = 0; i < size; ++i) {
        float sum = scratch[i];

        for (int k = 1; k < slabs; ++k) sum += scratch[k * size + i];
        q[i] = sum;
    }
}

/* ---- P transposed Q: a piece of a row */

INLINE void product(int g, int64_t n, const float *restrict p, int64_t rows,
                    const float *restrict q, int64_t cols, bool puts, bool takes, float *restrict v)
{
    float p0 = p[0], p1 = (g > 1) ? p[rows] : 0, p2 = (g > 2) ? p[2 * rows] : 0,
          p3 = (g > 2) ? p[3 * rows] : 0;

#pragma omp simd
    for (int64_t j = 0; j < n; ++j) {
        float x = p0 * q[j];

        if (g > 1) x += p1 * q[cols + j];
        if (g > 2) x += p2 * q[2 * cols + j];
        if (g > 2) x += p3 * q[3 * cols + j];
        v[j] = puts ? x : takes ? v[j] - x : v[j] + x;
    }
}

typedef enum { PUT, ADD, TAKE } how;

#define PRODUCT(_g, _name, _puts, _takes)                                                          \
    CT_SIMD_CLONES static void _name(int64_t n, const float *p, int64_t rows, const float *q,      \
                                     int64_t cols, float *v)                                       \
    {                                                                                              \
        product(_g, n, p, rows, q, cols, _puts, _takes, v);                                        \
    }

PRODUCT(1, put1, true, false)
PRODUCT(2, put2, true, false)
PRODUCT(4, put4, true, false)
PRODUCT(1, add1, false, false)
PRODUCT(2, add2, false, false)
PRODUCT(4, add4, false, false)
PRODUCT(1, take1, false, true)
PRODUCT(2, take2, false, true)
PRODUCT(4, take4, false, true)

typedef void (*product_fn)(int64_t n, const float *p, int64_t rows, const float *q, int64_t cols,
                           float *v);

static void piece(const ct_low_rank *s, const float *p, const float *q, int64_t i, int64_t at,
                  int64_t n, bool takes, float *v)
{
    static const product_fn fn[3][3] = { { put1, put2, put4 },
                                         { add1, add2, add4 },
                                         { take1, take2, take4 } };

    for (int k = 0; k < s->r; k += group_at(s, k)) {
        int g = group_at(s, k);
        how as = takes ? TAKE : ((k == 0) ? PUT : ADD);

        fn[as][(g == 4) ? 2 : g - 1](n, p + k * s->rows + i, s->rows, q + k * s->cols + at, s->cols,
                                     v + i * s->cols + at);
    }
}

static void all_pieces(const ct_low_rank *s, const float *p, const float *q, int n_thread,
                       bool takes, float *v)
{
    int64_t strips = (s->cols + TILE - 1) / TILE, bands = (s->rows + TILE_ROWS - 1) / TILE_ROWS;
    int team = (s->rows * s->cols > ALONE) ? n_thread : 1;

#pragma omp parallel for schedule(static) num_threads(team)
    for (int64_t w = 0; w < bands * strips; ++w) {
        int64_t first = w / strips * TILE_ROWS, at = w % strips * TILE;
        int64_t last = smaller(first + TILE_ROWS, s->rows);

        for (int64_t i = first; i < last; ++i)
            piece(s, p, q, i, at, smaller(TILE, s->cols - at), takes, v);
    }
}

void ct_low_rank_take(const ct_low_rank *s, const float *p, const float *q, int n_thread, float *v)
{
    all_pieces(s, p, q, n_thread, true, v);
}

void ct_low_rank_put(const ct_low_rank *s, const float *p, const float *q, int n_thread, float *v)
{
    all_pieces(s, p, q, n_thread, false, v);
}

/* ---- Columns made to stand at right angles, or to be of length 1. */

enum { BASIS_LANES = 8 };

/* Below this share of what it was, a column is what rounding left of the others' sum. */
static const double nothing = 0x1p-20;

CT_SIMD_CLONES static double dot(int64_t n, const float *x, const float *y)
{
    double sum[BASIS_LANES] = { 0 }, all = 0;
    int64_t i = 0;

    for (; i + BASIS_LANES <= n; i += BASIS_LANES) {
#pragma omp simd
        for (int l = 0; l < BASIS_LANES; ++l) sum[l] += (double)x[i + l] * (double)y[i + l];
    }
    for (int l = 0; i < n; ++i, ++l) sum[l] += (double)x[i] * (double)y[i];
    for (int l = 0; l < BASIS_LANES; ++l) all += sum[l];
    return all;
}

CT_SIMD_CLONES static void take(int64_t n, double a, const float *x, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = (float)(y[i] - a * x[i]);
}

CT_SIMD_CLONES static void stretch(int64_t n, double a, float *x)
{
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) x[i] = (float)(a * x[i]);
}

ct_status ct_low_rank_basis(const ct_low_rank *s, float *p)
{
    for (int k = 0; k < s->r; ++k) {
        float *column = p + k * s->rows;
        double before = sqrt(dot(s->rows, column, column)), after = 0;

        if (!isfinite(before))
            return CT_FAIL(CT_ERR_DIVERGED, "the sum of the ranks is no longer finite");
        for (int pass = 0; pass < 2; ++pass) {
            for (int m = 0; m < k; ++m) {
                const float *other = p + m * s->rows;

                take(s->rows, dot(s->rows, column, other), other, column);
            }
        }
        after = sqrt(dot(s->rows, column, column));
        stretch(s->rows, (after > nothing * before) ? 1 / after : 0, column);
    }
    return CT_OK;
}

void ct_low_rank_warm(const ct_low_rank *s, uint64_t key, float *q)
{
    for (int k = 0; k < s->r; ++k) {
        float *column = q + k * s->cols;
        double length = sqrt(dot(s->cols, column, column));

        if (!(length > 0) || !isfinite(length)) {
            /* uniform: no function of libm, whose last bit depends on the processor */
            for (int64_t j = 0; j < s->cols; ++j)
                column[j] = ct_rng_uniform_at(ct_rng_key(key, (uint64_t)k, 0), (uint64_t)j) - 0.5f;
            length = sqrt(dot(s->cols, column, column));
        }
        /* what a snapshot gives back stays as it is, bit by bit */
        if ((length > 0) && !(fabs(length - 1) < nothing)) stretch(s->cols, 1 / length, column);
    }
}
