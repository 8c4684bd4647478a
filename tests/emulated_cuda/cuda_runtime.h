/** @file cuda_runtime.h  As much of CUDA's runtime as the sources here use, on the host.
 *
 * With make CUDA=emulated the .cu files are compiled as plain C++ against this header: kernels run
 * as loops, and the unit tests compare the very code that a GPU would run with the CPU's. "Device"
 * memory cannot be touched but by kernels and copies: the host's look at it ends the program, as
 * it would with a GPU. What this cannot show: races within a warp, speed, the GPU's rounding
 * (fused multiply-adds, its exp and log).
 */
#ifndef CT_EMULATED_CUDA_RUNTIME_H
#define CT_EMULATED_CUDA_RUNTIME_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define CT_CUDA_EMULATED 1
#define __global__
#define __device__
#define __host__
#define __shared__      static
#define __forceinline__ inline
#define __launch_bounds__(...)

typedef enum {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorNotReady = 600
} cudaError_t;
typedef enum {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3
} cudaMemcpyKind;
typedef void *cudaStream_t;
typedef struct ct_emulated_event *cudaEvent_t;

struct ct_emulated_dim {
    unsigned x, y, z;
};
extern ct_emulated_dim threadIdx, blockIdx, blockDim, gridDim;

typedef struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem;
    int major, minor, multiProcessorCount;
} cudaDeviceProp;

enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2 };

cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device);
cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device);
cudaError_t cudaMemGetInfo(size_t *free_p, size_t *all_p);
cudaError_t cudaMalloc(void **data_p, size_t bytes);
cudaError_t cudaFree(void *data);
cudaError_t cudaMallocHost(void **data_p, size_t bytes);
cudaError_t cudaFreeHost(void *data);
cudaError_t cudaMemset(void *data, int byte, size_t bytes);
cudaError_t cudaMemsetAsync(void *data, int byte, size_t bytes, cudaStream_t st);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t st);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *st, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t st);
cudaError_t cudaStreamSynchronize(cudaStream_t st);
cudaError_t cudaStreamWaitEvent(cudaStream_t st, cudaEvent_t event, unsigned flags);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t st);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaGetLastError(void);
const char *cudaGetErrorString(cudaError_t err);

/** Opens the device's memory to the host while a kernel runs; calls nest. */
void ct_emulated_open(void);
void ct_emulated_close(void);
/** One thread of a kernel: closure(ctx) with threadIdx and blockIdx set. barriers: the kernel has
 *  __syncthreads(); then all threads of a block take turns between them. */
void ct_emulated_launch(unsigned blocks, unsigned threads, bool barriers,
                        void (*closure)(void *ctx), void *ctx);
void ct_emulated_barrier(void);
#define __syncthreads ct_emulated_barrier

template <class F>
static inline void ct_emulated_run(unsigned blocks, unsigned threads, bool barriers, F f)
{
    ct_emulated_launch(
        blocks, threads, barriers, [](void *ctx) { (*(F *)ctx)(); }, &f);
}

template <class T> static inline T atomicAdd(T *at, T value)
{
    T old = *at;

    *at = old + value;
    return old;
}
template <class T> static inline T atomicMax(T *at, T value)
{
    T old = *at;

    *at = (value > old) ? value : old;
    return old;
}

#endif
