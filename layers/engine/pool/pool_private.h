/** @file pool_private.h  Shared by the pooling engines. */
#ifndef CT_ENGINE_POOL_PRIVATE_H
#define CT_ENGINE_POOL_PRIVATE_H

#include "framework/base/simd.h"
#include "layers/engine/pool/pool.h"

extern const ct_pool_impl ct_pool_ref_forward, ct_pool_ref_backward;
extern const ct_pool_impl ct_pool_simd_forward, ct_pool_simd_backward;
extern const ct_pool_impl ct_pool_blocked_forward, ct_pool_blocked_backward;
extern const ct_pool_impl ct_pool_cuda_forward, ct_pool_cuda_backward;
extern const ct_pool_impl ct_pool_cudnn_forward, ct_pool_cudnn_backward;

static inline bool ct_pool_on_cpu(const ct_pool_desc *d)
{
    return d->device == CT_DEVICE_CPU;
}

CT_SIMD_PART bool ct_pool_holds_nan(int64_t n, const float *x)
{
    int32_t most = 0;

#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++) {
        union {
            float f;
            int32_t bits;
        } v = { x[i] };

        most = ((v.bits & INT32_MAX) > most) ? v.bits & INT32_MAX : most;
    }
    return most > 0x7f800000; /* above infinity */
}

/* Number o of a mask. */
static inline void ct_pool_mark(const ct_pool_desc *d, void *mask, int64_t o, int32_t place)
{
    if (ct_pool_mask_bytes(d) == 1)
        ((uint8_t *)mask)[o] = (uint8_t)place; /* CT_POOL_NONE becomes CT_POOL_BYTE_NONE */
    else
        ((int32_t *)mask)[o] = place;
}

/* CT_POOL_NONE: none. */
static inline int32_t ct_pool_marked(const ct_pool_desc *d, const void *mask, int64_t o)
{
    int32_t place;

    if (ct_pool_mask_bytes(d) == 4) return ((const int32_t *)mask)[o];
    place = ((const uint8_t *)mask)[o];
    return (place == CT_POOL_BYTE_NONE) ? CT_POOL_NONE : place;
}

#endif
