/** @file device_cuda.h  The CUDA device, built with CUDA=1. Included by .cu files and table files.
 */
#ifndef CT_DEVICE_CUDA_H
#define CT_DEVICE_CUDA_H

#include "framework/tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Binds this process to device local_rank mod the visible ones. CT_ERR_DEVICE where none works. */
ct_status ct_device_cuda_open(int local_rank, const ct_device **dev_p);
/** Visible CUDA devices; 0 where there is none or no driver. Logs nothing. */
int ct_device_cuda_count(void);

#ifdef __cplusplus
}
#endif

#ifdef __CUDACC__
#include <cuda_runtime.h>
/** CT_OK, or CT_ERR_DEVICE logged with CUDA's text. */
ct_status ct_cuda_check(cudaError_t err, const char *what);
/** Of the kernel just launched. */
static inline ct_status ct_cuda_launched(const char *what)
{
    return ct_cuda_check(cudaGetLastError(), what);
}

enum { CT_CUDA_BLOCK = 256 };
/** Blocks for n elements in a grid-stride loop: enough to fill a device, never too many. */
static inline unsigned ct_cuda_grid(int64_t n)
{
    int64_t blocks = (n + CT_CUDA_BLOCK - 1) / CT_CUDA_BLOCK;

    return (unsigned)((blocks < 1) ? 1 : (blocks > 4096) ? 4096 : blocks);
}
#define CT_CUDA_LOOP(_i, _n)                                                                       \
    for (int64_t _i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; _i < (_n);                   \
         _i += (int64_t)gridDim.x * blockDim.x)
#endif

#endif
