#include "framework/tensor/cuda/device_cuda.h"
#include "layers/engine/relu/relu_private.h"

static bool on_cuda(const ct_relu_desc *d)
{
    return d->device == CT_DEVICE_CUDA;
}

static __global__ void forward_kernel(int64_t n, float slope, const float *x, float *y)
{
    CT_CUDA_LOOP(i, n)
    {
        float low = (slope == 0.0f) ? 0.0f : slope * x[i];

        y[i] = (x[i] < 0.0f) ? low : x[i];
    }
}

static __global__ void backward_kernel(int64_t n, float slope, const float *x, const float *dy,
                                       float *dx)
{
    CT_CUDA_LOOP(i, n) dx[i] = (x[i] > 0.0f) ? dy[i] : slope * dy[i];
}

static ct_status forward(const ct_relu_desc *d, ct_exec *ex, const ct_relu_args *a)
{
    CT_CUDA_RUN(forward_kernel, ct_cuda_grid(d->count), ex->stream, d->count, d->slope, a->x, a->y);
    return ct_cuda_launched("relu");
}

static ct_status backward(const ct_relu_desc *d, ct_exec *ex, const ct_relu_args *a)
{
    CT_CUDA_RUN(backward_kernel, ct_cuda_grid(d->count), ex->stream, d->count, d->slope, a->x,
                a->dy, a->dx);
    return ct_cuda_launched("relu backward");
}

const ct_relu_impl ct_relu_cuda_forward = { "cuda", on_cuda, NULL, forward };
const ct_relu_impl ct_relu_cuda_backward = { "cuda", on_cuda, NULL, backward };
