/** @file device_cuda.h  The CUDA device, built with CUDA=1. Included by .cu files and table files.
 */
#ifndef CT_DEVICE_CUDA_H
#define CT_DEVICE_CUDA_H

#include "framework/tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ct_device_cuda_open() binds this process to device local_rank mod the visible ones. */

#ifdef __cplusplus
}
#endif

#ifdef __cplusplus
#include <cuda_runtime.h>
#if defined(__CUDACC__) || defined(CT_CUDA_EMULATED)
/** CT_OK, or CT_ERR_DEVICE logged with CUDA's text. */
ct_status ct_cuda_check(cudaError_t err, const char *what);
/** Of the kernel just launched. */
static inline ct_status ct_cuda_launched(const char *what)
{
    return ct_cuda_check(cudaGetLastError(), what);
}
/** cudaEventQuery(). That something is not ready is no error, but the runtime keeps it as the last
 *  one: the next kernel would be said to have failed. */
static inline cudaError_t ct_cuda_query(cudaEvent_t event)
{
    cudaError_t err = cudaEventQuery(event);

    if (err == cudaErrorNotReady) (void)cudaGetLastError();
    return err;
}

/** After a library's call failed that was to give st work: whether CUDA goes on, so that another
 *  call may do it. What the failed one left as the last error is gone. False while st is recorded.
 */
bool ct_cuda_goes_on(cudaStream_t st);

/** cudaStreamSynchronize(), counted. */
ct_status ct_cuda_wait(cudaStream_t st, const char *what);

/** cudaEventSynchronize(). */
ct_status ct_cuda_wait_event(cudaEvent_t event, const char *what);
/** For where what the device was given may never end, as a sum whose other ranks are gone. From
 *  here on both call `look` about every millisecond that they wait, and return its error at once.
 *  NULL: nobody has to be looked after. CT_ERR_DEVICE. */
ct_status ct_cuda_watch(ct_status (*look)(void *ctx), void *ctx);

/** Device memory that one kernel may use between its two halves, in the order of the stream; made
 *  when the device is opened. CT_CUDA_SCRATCH doubles. */
double *ct_cuda_scratch(void);
/** Pinned host memory of at least `bytes`, the same block at every call: use it, and have the
 * copies from it done, before the next. Grows in the first step, then never. NULL: none (logged).
 */
void *ct_cuda_stage(size_t bytes);

/** cudaMemcpyAsync() on a stream of its own, seen by who watches copies (device.h). */
ct_status ct_cuda_copy_beside(cudaStream_t way, void *to, const void *from, size_t bytes, bool down,
                              const char *what);
/** `behind` goes on after all that `first` was given so far. */
ct_status ct_cuda_follow(ct_stream first, ct_stream behind);

#ifdef CT_CUDA_EMULATED
enum { CT_CUDA_BLOCK = 32 }; /* threads that take turns are slow */
#else
enum { CT_CUDA_BLOCK = 256 };
#endif
enum { CT_CUDA_SCRATCH = 1 << 20 };
/** Blocks for n elements in a grid-stride loop: enough to fill a device, never too many. */
static inline unsigned ct_cuda_grid(int64_t n)
{
    int64_t blocks = (n + CT_CUDA_BLOCK - 1) / CT_CUDA_BLOCK;

    return (unsigned)((blocks < 1) ? 1 : (blocks > 4096) ? 4096 : blocks);
}
#define CT_CUDA_LOOP(_i, _n)                                                                       \
    for (int64_t _i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; _i < (_n);                   \
         _i += (int64_t)gridDim.x * blockDim.x)

/** Launches `blocks` blocks of CT_CUDA_BLOCK threads. _RUN: kernels without __syncthreads();
 *  _RUN_BLOCKS: with. */
#ifdef CT_CUDA_EMULATED
#define CT_CUDA_RUN(_kernel, _blocks, _st, ...)                                                    \
    ct_emulated_call(_kernel, (_blocks), CT_CUDA_BLOCK, false, (cudaStream_t)(_st), __VA_ARGS__)
#define CT_CUDA_RUN_BLOCKS(_kernel, _blocks, _st, ...)                                             \
    ct_emulated_call(_kernel, (_blocks), CT_CUDA_BLOCK, true, (cudaStream_t)(_st), __VA_ARGS__)
#else
#define CT_CUDA_RUN(_kernel, _blocks, _st, ...)                                                    \
    _kernel<<<(_blocks), CT_CUDA_BLOCK, 0, (cudaStream_t)(_st)>>>(__VA_ARGS__)
#define CT_CUDA_RUN_BLOCKS CT_CUDA_RUN
#endif
#endif
#endif

#endif
