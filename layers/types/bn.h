/** @file bn.h  What BN's setup makes of the prototxt of whichever fork it is; private to layers/.
 */
#ifndef CT_BN_H
#define CT_BN_H

#include "framework/base/hd.h"
#include "framework/net/layer.h"

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
