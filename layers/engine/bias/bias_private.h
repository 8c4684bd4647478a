/** @file bias_private.h  The implementations that bias's tables list. */
#ifndef CT_ENGINE_BIAS_PRIVATE_H
#define CT_ENGINE_BIAS_PRIVATE_H

#include "layers/engine/bias/bias.h"

extern const ct_bias_impl ct_bias_simd_fill, ct_bias_simd_backward;
extern const ct_bias_impl ct_bias_ref_fill, ct_bias_ref_backward;
extern const ct_bias_impl ct_bias_blocked_backward;
extern const ct_bias_impl ct_bias_cuda_fill, ct_bias_cuda_backward;

#endif
