/** @file pool_private.h  Shared by the pooling engines. */
#ifndef CT_ENGINE_POOL_PRIVATE_H
#define CT_ENGINE_POOL_PRIVATE_H

#include "layers/engine/pool/pool.h"

extern const ct_pool_impl ct_pool_ref_forward, ct_pool_ref_backward;
extern const ct_pool_impl ct_pool_simd_forward, ct_pool_simd_backward;
extern const ct_pool_impl ct_pool_blocked_forward, ct_pool_blocked_backward;
extern const ct_pool_impl ct_pool_cuda_forward, ct_pool_cuda_backward;

static inline bool ct_pool_on_cpu(const ct_pool_desc *d)
{
    return d->device == CT_DEVICE_CPU;
}

#endif
