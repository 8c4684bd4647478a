/** @file math_cuda.h  ct_math_ops on CUDA: cuBLAS for matrices, own kernels for vectors. */
#ifndef CT_MATH_CUDA_H
#define CT_MATH_CUDA_H

#include "framework/math/math.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const ct_math_ops ct_math_cuda;
/** Makes the cuBLAS handle of this process's device; called by ct_device_cuda_open(). */
ct_status ct_math_cuda_open(void);

#ifdef __cplusplus
}
#endif

#endif
