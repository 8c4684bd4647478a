/** @file lrn_private.h  Shared by the normalisation engines. */
#ifndef CT_ENGINE_LRN_PRIVATE_H
#define CT_ENGINE_LRN_PRIVATE_H

#include "layers/engine/lrn/lrn.h"

extern const ct_lrn_impl ct_lrn_ref_forward, ct_lrn_ref_backward;
extern const ct_lrn_impl ct_lrn_simd_forward, ct_lrn_simd_backward;
extern const ct_lrn_impl ct_lrn_blocked_forward, ct_lrn_blocked_backward;

static inline bool ct_lrn_on_cpu(const ct_lrn_desc *d)
{
    return d->device == CT_DEVICE_CPU;
}

#endif
