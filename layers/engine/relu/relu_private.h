/** @file relu_private.h  The implementations that relu's tables list. */
#ifndef CT_ENGINE_RELU_PRIVATE_H
#define CT_ENGINE_RELU_PRIVATE_H

#include "layers/engine/relu/relu.h"

extern const ct_relu_impl ct_relu_simd_forward, ct_relu_simd_backward;
extern const ct_relu_impl ct_relu_ref_forward, ct_relu_ref_backward;
extern const ct_relu_impl ct_relu_cuda_forward, ct_relu_cuda_backward;

#endif
