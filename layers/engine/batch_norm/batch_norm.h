/** @file batch_norm.h  Kernels of batch normalisation, and the table they are chosen from.
 *
 * x is n x channels x spatial; statistics run over n and spatial (Ioffe and Szegedy 2015).
 */
#ifndef CT_BATCH_NORM_H
#define CT_BATCH_NORM_H

#include "framework/tensor/device.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ct_batch_norm_desc {
    ct_device_kind device;
    int64_t n, channels, spatial;
    int block; /* channels that stand together, as in tensor.h; 0: plain order */
} ct_batch_norm_desc;

typedef struct ct_batch_norm_engine {
    const char *name;
    bool (*supports)(const ct_batch_norm_desc *d);
    /** mean[c], and var[c] = E (x - mean)^2, not corrected for the sample's size. */
    void (*statistics)(const ct_batch_norm_desc *d, const float *x, float *mean, float *var);
    /** y = (x - mean[c]) inv_std[c]; normal, unless NULL, gets a copy of y. y may be x. */
    void (*normalise)(const ct_batch_norm_desc *d, const float *x, const float *mean,
                      const float *inv_std, float *y, float *normal);
    /** dx = (dy - E dy - y E(dy y)) inv_std[c], E over the batch's statistics; y is given either as
     *  `normal` or (normal NULL) as x, mean. dx may be dy. */
    void (*backward)(const ct_batch_norm_desc *d, const float *x, const float *normal,
                     const float *mean, const float *inv_std, const float *dy, float *dx);
} ct_batch_norm_engine;

extern const ct_batch_norm_engine ct_batch_norm_omp, ct_batch_norm_blocked, ct_batch_norm_ref;
/** Best first, the reference last; NULL-terminated. */
extern const ct_batch_norm_engine *const ct_batch_norm_table[];

/** The first engine that supports d; NULL: none. */
const ct_batch_norm_engine *ct_batch_norm_choose(const ct_batch_norm_desc *d);

#endif
