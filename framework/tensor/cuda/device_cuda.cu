/* The CUDA device: memory and copies. The only place where a CUDA error becomes a ct_status. */
#include "framework/tensor/cuda/device_cuda.h"

#include <cuda_runtime.h>

#include "framework/math/cuda/math_cuda.h"

ct_status ct_cuda_check(cudaError_t err, const char *what)
{
    if (err == cudaSuccess) return CT_OK;
    return CT_FAIL(CT_ERR_DEVICE, "%s: %s", what, cudaGetErrorString(err));
}

static ct_status cuda_acquire(size_t bytes, void **data_p)
{
    void *data = NULL;

    CT_TRY(ct_cuda_check(cudaMalloc(&data, (bytes > 0) ? bytes : 1), "cudaMalloc"));
    CT_TRY(ct_cuda_check(cudaMemset(data, 0, bytes), "cudaMemset"));
    *data_p = data;
    return CT_OK;
}

static void cuda_release(void *data)
{
    (void)ct_cuda_check(cudaFree(data), "cudaFree");
}

static cudaStream_t stream_of(ct_stream st)
{
    return (cudaStream_t)st;
}

static ct_status cuda_sync(ct_stream st)
{
    return ct_cuda_check(cudaStreamSynchronize(stream_of(st)), "cudaStreamSynchronize");
}

static ct_status cuda_to_host(ct_stream st, void *host, const void *data, size_t bytes)
{
    CT_TRY(ct_cuda_check(cudaMemcpyAsync(host, data, bytes, cudaMemcpyDeviceToHost, stream_of(st)),
                         "copy to host"));
    return cuda_sync(st);
}

/* Returns when the host block may be used again, so that callers need no events of their own. */
static ct_status cuda_from_host(ct_stream st, void *data, const void *host, size_t bytes)
{
    CT_TRY(ct_cuda_check(
        cudaMemcpyAsync(data, host, bytes, cudaMemcpyHostToDevice, stream_of(st)), "copy from host"));
    return cuda_sync(st);
}

static ct_status cuda_copy(ct_stream st, void *to, const void *from, size_t bytes)
{
    return ct_cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_of(st)),
                         "copy on device");
}

static ct_status cuda_zero(ct_stream st, void *data, size_t bytes)
{
    return ct_cuda_check(cudaMemsetAsync(data, 0, bytes, stream_of(st)), "cudaMemsetAsync");
}

static const ct_device cuda_device = {
    "cuda",         CT_DEVICE_CUDA, cuda_acquire, cuda_release, cuda_to_host,
    cuda_from_host, cuda_copy,      cuda_zero,    cuda_sync,    &ct_math_cuda,
};

extern "C" ct_status ct_device_cuda_open(int local_rank, const ct_device **dev_p)
{
    int n = 0;

    CT_TRY(ct_cuda_check(cudaGetDeviceCount(&n), "cudaGetDeviceCount"));
    if (n == 0) return CT_FAIL(CT_ERR_DEVICE, "solver_mode GPU: no CUDA device is visible");
    CT_TRY(ct_cuda_check(cudaSetDevice(local_rank % n), "cudaSetDevice"));
    CT_TRY(ct_math_cuda_open());
    *dev_p = &cuda_device;
    return CT_OK;
}

extern "C" int ct_device_cuda_count(void)
{
    int n = 0;

    return (cudaGetDeviceCount(&n) == cudaSuccess) ? n : 0;
}
