/** @file row_norm.h  Rows less their mean, over their deviation; private to layers/.
 *
 * x, y: rows x n. Sums run in double. No result depends on the number of threads.
 */
#ifndef CT_ROW_NORM_H
#define CT_ROW_NORM_H

#include "framework/net/layer.h"

typedef struct ct_row_stat {
    double mean, variance; /* set by ct_row_stats()                                            */
    double factor;         /* y = (x - mean) factor; the caller sets it                        */
    double gain;           /* of the part of the gradient that goes through the factor: 1 where
                            * factor = (variance + eps)^(-1/2), 0 where it is constant         */
} ct_row_stat;

/** in->state of layers on rows begins with it. */
typedef struct ct_row_plan {
    int64_t rows, n;
} ct_row_plan;

/** Of the buffer that keeps the statistics: on devices with room for two sums a row. */
static inline size_t ct_row_bytes(const ct_layer *l, const ct_row_plan *p)
{
    size_t sums = (l->dev->kind == CT_DEVICE_CPU) ? 0 : 2 * sizeof(double);

    return (size_t)p->rows * (sizeof(ct_row_stat) + sums);
}

void ct_row_stats(int64_t rows, int64_t n, const float *x, ct_row_stat *stat);
/** y may be x. */
void ct_row_normalise(int64_t rows, int64_t n, const float *x, const ct_row_stat *stat, float *y);
/** dx = factor (g - mean g - gain y mean(g y)), g = dy scale; scale[n] NULL: 1. dx may be dy. */
void ct_row_gradient(int64_t rows, int64_t n, const ct_row_stat *stat, const float *y,
                     const float *dy, const float *scale, float *dx);

#endif
