/* Columns made to stand at right angles, or to be of length 1. */
#include <math.h>

#include "comm/codec/low_rank.h"
#include "framework/base/rng.h"
#include "framework/base/simd.h"
#include "framework/base/status.h"

enum { LANES = 8 };

/* Below this share of what it was, a column is what rounding left of the others' sum. */
static const double nothing = 0x1p-20;

CT_SIMD_CLONES static double dot(int64_t n, const float *x, const float *y)
{
    double sum[LANES] = { 0 }, all = 0;
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (int l = 0; l < LANES; ++l) sum[l] += (double)x[i + l] * (double)y[i + l];
    }
    for (int l = 0; i < n; ++i, ++l) sum[l] += (double)x[i] * (double)y[i];
    for (int l = 0; l < LANES; ++l) all += sum[l];
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
