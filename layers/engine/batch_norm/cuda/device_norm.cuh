/** @file device_norm.cuh  What BatchNorm's engines on CUDA share. Included by .cu files. */
#ifndef CT_DEVICE_NORM_CUH
#define CT_DEVICE_NORM_CUH

#include "layers/engine/batch_norm/cuda/batch_norm.cuh"

extern "C" {
#include "layers/engine/batch_norm/device_norm.h"
}

static inline extent extent_of(const ct_device_norm_desc *d)
{
    if (d->last) return { d->n * d->s, d->c, 1, d->dtype };
    return { d->n, d->c, d->s, d->dtype };
}

/* What the sums that decay are over. */
static __device__ inline float factor_of(const ct_device_norm_args &a)
{
    return (a.factor[0] == 0.0f) ? 0.0f : 1.0f / a.factor[0];
}

/* var: of the whole population, as the sample lets guess. */
static __device__ inline void move_statistics(const ct_device_norm_args &a, int64_t c, float mean,
                                              float var)
{
    a.moving_mean[c] = a.decay * a.moving_mean[c] + mean;
    a.moving_var[c] = a.decay * a.moving_var[c] + var;
    if (c == 0) a.factor[0] = a.factor[0] * a.decay + 1.0f;
}

#endif
