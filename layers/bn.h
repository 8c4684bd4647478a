/** @file bn.h  What BN's setup makes of the prototxt of whichever fork it is; private to layers/.
 */
#ifndef CT_BN_H
#define CT_BN_H

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

/* Weights, the last two not with CT_BN_SEGNET; buffers. */
enum { CT_BN_SCALE, CT_BN_SHIFT, CT_BN_MEAN, CT_BN_VARIANCE };
enum { CT_BN_USED_MEAN, CT_BN_INV_STD, CT_BN_NORMAL, CT_BN_SUMS, CT_BN_SHARED };

#endif
