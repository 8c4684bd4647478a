/** @file norm.h  What normalisations share between the host and devices: rows of LayerNorm and
 * MVN, the parameters of BN; private to layers/. */
#ifndef CT_TYPES_NORM_H
#define CT_TYPES_NORM_H

#include "framework/base/simd.h"
#include "framework/net/layer.h"

/* ---- Rows less their mean, over their deviation.
 *
 * x, y: rows x n. No result depends on the number of threads. */

typedef struct ct_row_stat {
    double mean, variance;
    double factor; /* y = (x - mean) factor                                            */
    double gain;   /* of the part of the gradient that goes through the factor: 1 where
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

/* ---- LayerNorm's and RMSNorm's rows on the CPU (norm_rows.c)
 *
 * y = scale (x - mean) factor + shift. Sums are f32 over pieces of a row, and double over the
 * pieces. No result depends on the number of threads. */

typedef struct ct_norm_rows {
    int64_t rows, n;
    bool centred; /* false: nothing is subtracted, and the variance is the mean of x^2 */
    double eps;
    const float *x, *scale, *shift; /* scale, shift: [n]; NULL: 1, 0; no shift without a scale */
    ct_row_stat *stat;              /* [rows]; forward writes it, backward reads it            */
    bool bf16;                      /* x, y and their gradients: addresses of bf16 numbers     */
    const float *a, *b;             /* forward: x is a + b, and is written; NULL: it is there  */
} ct_norm_rows;

void ct_norm_rows_forward(const ct_norm_rows *r, float *y);

typedef struct ct_norm_back {
    const float *dy;
    float *dx;                 /* may be dy; NULL: unwanted                     */
    float *dscale, *dshift;    /* of a scale; NULL: unwanted                    */
    bool add_scale, add_shift; /* to what is there                              */
    float *part;               /* ct_norm_rows_part_bytes(), with dscale or dshift */
    const float *more;         /* a gradient that is added to dx; NULL: none       */
    float *too;                /* dx once more; NULL: no                           */
} ct_norm_back;

size_t ct_norm_rows_part_bytes(int64_t rows, int64_t n);
void ct_norm_rows_backward(const ct_norm_rows *r, const ct_norm_back *b);

/** A LayerNorm or an RMSNorm at the end of a group: its rows, and its backward but for dx and what
 *  stands beside it. */
ct_norm_rows ct_norm_rows_of(const ct_instance *in);
ct_norm_back ct_norm_back_of(const ct_instance *in, const ct_exec *ex);

/* ---- What BN's setup makes of the prototxt of whichever fork it is */

typedef enum { CT_BN_SLOPES, CT_BN_AVERAGES, CT_BN_SEGNET } ct_bn_form;
typedef enum { CT_BN_BATCH, CT_BN_RUNNING, CT_BN_NOTHING } ct_bn_by;

typedef struct ct_bn_state {
    Ct__FillerParameter one; /* the default filler */
    ct_bn_form form;
    ct_bn_by by;
    bool sync;       /* SyncBN */
    bool moves;      /* running statistics follow the batch's */
    float keep, eps; /* running = keep running + (1 - keep) batch */
} ct_bn_state;

/* Weights, the last two not with CT_BN_SEGNET; buffers, COUNT on devices alone. */
enum { CT_BN_SCALE, CT_BN_SHIFT, CT_BN_MEAN, CT_BN_VARIANCE };
enum { CT_BN_USED_MEAN, CT_BN_INV_STD, CT_BN_NORMAL, CT_BN_SUMS, CT_BN_SHARED, CT_BN_COUNT };

/* SyncBN: the means and variances of ranks with `here` values a channel become those of all N
 * values: M = sum n mean / N, then V = sum n (var + (mean - M)^2) / N. What a rank brings: */
static inline CT_HD double ct_bn_mean_share(double here, float mean)
{
    return (here > 0.0) ? here * (double)mean : 0.0;
}

static inline CT_HD double ct_bn_variance_share(double here, float mean, float var, double all)
{
    double off = (double)mean - all;

    return (here > 0.0) ? here * ((double)var + off * off) : 0.0;
}

/* What the sum of the shares makes. */
static inline CT_HD double ct_bn_joined(double sum, double count)
{
    return (count > 0.0) ? sum / count : 0.0;
}

#endif
