/** @file fused_cuda.h  ct_fused_ops by cuBLASLt. */
#ifndef CT_FUSED_CUDA_H
#define CT_FUSED_CUDA_H

#include "framework/math/fused.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const ct_fused_ops ct_fused_cuda;
/** Makes cuBLASLt's handle of this process's device; called by ct_math_cuda_open(). */
ct_status ct_fused_cuda_open(void);

#ifdef __cplusplus
}
#endif

#endif
