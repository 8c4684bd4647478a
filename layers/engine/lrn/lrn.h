/** @file lrn.h  Local response normalisation: y = x scale^-beta.
 *
 * Across channels: scale = k + alpha / size   * sum of x^2 over `size` channels around this one.
 * Within a channel: scale = k + alpha / size^2 * sum of x^2 over size x size places around it.
 * What lies outside counts as zero; the divisor stays. The gradient, with a = alpha / size or
 * alpha / size^2, the sum over the same window (it is symmetric, size is odd):
 *   dx = dy scale^-beta - 2 a beta x sum of dy x scale^(-beta - 1)
 */
#ifndef CT_ENGINE_LRN_H
#define CT_ENGINE_LRN_H

#include "layers/engine/engine.h"

typedef struct ct_lrn_desc {
    ct_device_kind device;
    int n_thread;
    bool within;
    int64_t n, c, h, w;
    int block;      /* channels that stand together, as in tensor.h; 0: plain order */
    bool last;      /* on devices: channels come last, in scale too */
    ct_dtype dtype; /* of x, y, dy, dx on devices; scale is f32 */
    int64_t size;   /* odd */
    float alpha, beta, k;
    bool kept; /* forward must write scale: backward will read it */
} ct_lrn_desc;

typedef struct ct_lrn_args {
    const float *x;
    float *y;     /* backward: where the engine reads the top */
    float *scale; /* like x: written by forward, read by backward. NULL, of engines that can: made
                   * again in backward */
    const float *dy;
    float *dx;
    void *work;
} ct_lrn_args;

CT_ENGINE_TIMED(lrn)

/** In ct_lrn_impl.can: goes without scale; of backward, reads the top. */
enum { CT_LRN_CAN_REMAKE = 1, CT_LRN_READS_TOP = 2 };

extern const ct_lrn_impl *const ct_lrn_forward_table[];
extern const ct_lrn_impl *const ct_lrn_backward_table[];

/** alpha over the number of places of a window. */
static inline float ct_lrn_factor(const ct_lrn_desc *d)
{
    return d->alpha / (float)(d->within ? d->size * d->size : d->size);
}

#endif
