/* Copies between layouts: places that a stride meets, and those alone; and between rows of
 * weights, as their owner keeps them, and rows of lanes, as tiles want them: small matrices turned
 * over in registers. */
#include "layers/engine/conv/blocked.h"

typedef float vec4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t num4 __attribute__((vector_size(16)));

enum { AHEAD = 64 }; /* floats of a row that are fetched ahead: its next columns come next */

/* to[j][i] = from[i][j], 4 x 4, rows `step` and `to_step` floats apart */
static inline void turn4(const float *from, int64_t step, float *to, int64_t to_step)
{
    vec4 a = *(const vec4 *)from, b = *(const vec4 *)(from + step);
    vec4 c = *(const vec4 *)(from + 2 * step), d = *(const vec4 *)(from + 3 * step);
    vec4 ab_lo = CT_SIMD_MIXED(num4, a, b, 0, 4, 1, 5);
    vec4 ab_hi = CT_SIMD_MIXED(num4, a, b, 2, 6, 3, 7);
    vec4 cd_lo = CT_SIMD_MIXED(num4, c, d, 0, 4, 1, 5);
    vec4 cd_hi = CT_SIMD_MIXED(num4, c, d, 2, 6, 3, 7);

    *(vec4 *)to = CT_SIMD_MIXED(num4, ab_lo, cd_lo, 0, 1, 4, 5);
    *(vec4 *)(to + to_step) = CT_SIMD_MIXED(num4, ab_lo, cd_lo, 2, 3, 6, 7);
    *(vec4 *)(to + 2 * to_step) = CT_SIMD_MIXED(num4, ab_hi, cd_hi, 0, 1, 4, 5);
    *(vec4 *)(to + 3 * to_step) = CT_SIMD_MIXED(num4, ab_hi, cd_hi, 2, 3, 6, 7);
}

CT_SIMD_CLONES void ct_blk_rectify(int64_t n, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = (y[i] < 0.0f) ? 0.0f : y[i];
}

CT_SIMD_CLONES void ct_blk_rectify_bf16(int64_t n, float *y)
{
    ct_bf16 *h = (void *)y;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        uint16_t below = (uint16_t)(h[i] - 0x8001) < 0x7f80; /* -0 and NaN stay */

        h[i] = below ? 0 : h[i];
    }
}

void ct_blk_turn(int64_t rows, int64_t cols, const float *from, int64_t step, float *to,
                 int64_t to_step)
{
    int64_t i = 0;

    for (; i + 4 <= rows; i += 4) {
        int64_t j = 0;

        for (int64_t k = i; k < i + 4; k++) __builtin_prefetch(from + k * step + AHEAD);
        for (; j + 4 <= cols; j += 4)
            turn4(from + i * step + j, step, to + j * to_step + i, to_step);
        for (; j < cols; j++) {
            for (int64_t k = i; k < i + 4; k++) to[j * to_step + k] = from[k * step + j];
        }
    }
    for (; i < rows; i++) {
        for (int64_t j = 0; j < cols; j++) to[j * to_step + i] = from[i * step + j];
    }
}

bool ct_blk_is_sparse(const ct_conv_desc *d)
{
    return ct_blk_supports(d) && (d->kh == 1) && (d->kw == 1) && (d->ph == 0) && (d->pw == 0) &&
           ((d->sh > 1) || (d->sw > 1));
}

ct_conv_desc ct_blk_dense(const ct_conv_desc *d)
{
    ct_conv_desc dense = *d;

    dense.h = d->oh, dense.w = d->ow;
    dense.sh = dense.sw = 1;
    return dense;
}

static int64_t planes(const ct_conv_desc *d)
{
    return d->n * blk_count(d->c, d->x_block);
}

int64_t ct_blk_dense_floats(const ct_conv_desc *d)
{
    return planes(d) * out_size(d) * d->x_block;
}

/* A place of a block, in floats: bf16 numbers are copied in pairs. */
static int64_t place_floats(const ct_conv_desc *d)
{
    return d->x_bf16 ? d->x_block / 2 : d->x_block;
}

void ct_blk_gather(const ct_conv_desc *d, const float *x, float *dense)
{
    int64_t b = place_floats(d), rows = planes(d) * d->oh;

#pragma omp parallel for schedule(static) num_threads(d->n_thread)
    for (int64_t i = 0; i < rows; i++) {
        const float *from = x + (i / d->oh * d->h + i % d->oh * d->sh) * d->w * b;
        float *to = dense + i * d->ow * b;

        for (int64_t j = 0; j < d->ow; j++) copy_row(to + j * b, from + j * d->sw * b, b);
    }
}

void ct_blk_spread(const ct_conv_desc *d, const float *dense, float *dx)
{
    int64_t b = place_floats(d), rows = planes(d) * d->h;

#pragma omp parallel for schedule(static) num_threads(d->n_thread)
    for (int64_t i = 0; i < rows; i++) {
        int64_t row = i % d->h;
        const float *from = dense + (i / d->h * d->oh + row / d->sh) * d->ow * b;
        float *to = dx + i * d->w * b;

        memset(to, 0, (size_t)(d->w * b) * sizeof(float));
        if ((row % d->sh != 0) || (row / d->sh >= d->oh)) continue;
        for (int64_t j = 0; j < d->ow; j++) copy_row(to + j * d->sw * b, from + j * b, b);
    }
}
