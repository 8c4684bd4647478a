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
#include <functional>

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
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureUnjoined = 904,
    cudaErrorStreamCaptureIsolation = 905,
    cudaErrorStreamCaptureImplicit = 906,
    cudaErrorCapturedEvent = 907
} cudaError_t;
typedef enum {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3
} cudaMemcpyKind;
typedef struct ct_emulated_stream *cudaStream_t;
typedef struct ct_emulated_event *cudaEvent_t;
typedef struct ct_emulated_graph *cudaGraph_t;
typedef struct ct_emulated_graph *cudaGraphExec_t;
typedef enum { cudaStreamCaptureModeThreadLocal = 1 } cudaStreamCaptureMode;
typedef enum {
    cudaStreamCaptureStatusNone = 0,
    cudaStreamCaptureStatusActive = 1,
    cudaStreamCaptureStatusInvalidated = 2
} cudaStreamCaptureStatus;

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
cudaError_t cudaStreamCreate(cudaStream_t *st);
cudaError_t cudaStreamDestroy(cudaStream_t st);
/** While a stream is captured what it is given is kept instead of run, and what others are given
 *  that wait for an event of it: they are captured, too, until the capture ends, by when it must
 * have waited for them. The default stream's work, waits of the host and copies to and from its
 * memory are errors then. */
cudaError_t cudaStreamBeginCapture(cudaStream_t st, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t st, cudaGraph_t *graph_p);
cudaError_t cudaStreamIsCapturing(cudaStream_t st, cudaStreamCaptureStatus *status_p);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec_p, cudaGraph_t graph, unsigned long long f);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t st);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaStreamQuery(cudaStream_t st);
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

/** How often the host waited for a stream, an event or the device. */
extern "C" int ct_emulated_waits(void);
/** What the host has given the device: kernels, copies, products; a graph counts once. */
extern "C" int ct_emulated_given(void);
/** From here on the device gets no farther, as behind a kernel that never ends: what it is given
 * does not run, events do not come, and whoever waits for it waits for ever. false: it goes on. */
void ct_emulated_stick(bool stuck);
/** An error that stays, as of a kernel that went wrong, until the test mends it. */
void ct_emulated_break(cudaError_t err);
extern "C" void ct_emulated_mend(void);
/** As long as the device is stuck this does not return. */
void ct_emulated_hang(void);
/** Now, or where the stream is captured, when its graph is launched. */
void ct_emulated_give(cudaStream_t st, std::function<void()> work);
/* All that was given and comes late. */
void ct_emulated_finish(void);
/** Whether st is captured, or the host would wait for what is: that ends the capture in an error.
 */
bool ct_emulated_forbidden(cudaStream_t st);

/** Opens the device's memory to the host while a kernel runs; calls nest. */
void ct_emulated_open(void);
void ct_emulated_close(void);
/** Threads of a kernel, with threadIdx and blockIdx set. barriers: the kernel has
 *  __syncthreads(); then all threads of a block take turns between them. */
void ct_emulated_launch(unsigned blocks, unsigned threads, bool barriers,
                        const std::function<void()> &thread);
void ct_emulated_barrier(void);
#define __syncthreads ct_emulated_barrier

/** Arguments are copied when the kernel is launched, as a device's are. */
template <class... P, class... A>
static inline void ct_emulated_call(void (*kernel)(P...), unsigned blocks, unsigned threads,
                                    bool barriers, cudaStream_t st, A... args)
{
    std::function<void()> thread = [=]() { kernel(args...); };

    ct_emulated_give(st, [=]() { ct_emulated_launch(blocks, threads, barriers, thread); });
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
