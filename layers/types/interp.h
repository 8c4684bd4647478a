/** @file interp.h  Between which places of the bottom a place of Interp's top lies; private to
 * layers/.
 */
#ifndef CT_INTERP_H
#define CT_INTERP_H

#include <stdint.h>

#include "framework/base/hd.h"

typedef struct ct_interp_axis {
    int64_t in, out, beg; /* used places of the bottom, those of the top, the first used one */
} ct_interp_axis;

/** in->state. */
typedef struct ct_interp_plan {
    ct_interp_axis h, w;
} ct_interp_plan;

/** How far the bottom moves on from one place of the top to the next. */
CT_HD static inline float ct_interp_step(const ct_interp_axis *a)
{
    return (a->out > 1) ? (float)(a->in - 1) / (float)(a->out - 1) : 0.0f;
}

/** Place k of the top lies between *lo_p and *lo_p + *step_p of the bottom; the share of the
 * latter. */
CT_HD static inline float ct_interp_between(const ct_interp_axis *a, int64_t k, int64_t *lo_p,
                                            int64_t *step_p)
{
    float at = ct_interp_step(a) * (float)k;
    int64_t lo = (int64_t)at;

    if (lo > a->in - 1) lo = a->in - 1;
    *lo_p = lo + a->beg;
    *step_p = (lo < a->in - 1) ? 1 : 0;
    return at - (float)lo;
}

#endif
