#include "framework/math/cuda/narrow.cuh"
#include "layers/engine/relu/relu_private.h"

static bool on_cuda(const ct_relu_desc *d)
{
    return d->device == CT_DEVICE_CUDA;
}

static __global__ void forward_kernel(int64_t n, float slope, ct_numbers x, ct_numbers y)
{
    CT_CUDA_LOOP(i, n)
    {
        float v = x[i], low = (slope == 0.0f) ? 0.0f : slope * v;

        y.put(i, (v < 0.0f) ? low : v);
    }
}

static __global__ void backward_kernel(int64_t n, float slope, ct_numbers x, ct_numbers dy,
                                       ct_numbers dx)
{
    CT_CUDA_LOOP(i, n) dx.put(i, (x[i] > 0.0f) ? dy[i] : slope * dy[i]);
}

static ct_status forward(const ct_relu_desc *d, ct_exec *ex, const ct_relu_args *a)
{
    CT_CUDA_RUN(forward_kernel, ct_cuda_grid(d->count), ex->stream, d->count, d->slope,
                ct_numbers_at(a->x, d->dtype), ct_numbers_at(a->y, d->dtype));
    return ct_cuda_launched("relu");
}

static ct_status backward(const ct_relu_desc *d, ct_exec *ex, const ct_relu_args *a)
{
    CT_CUDA_RUN(backward_kernel, ct_cuda_grid(d->count), ex->stream, d->count, d->slope,
                ct_numbers_at(a->x, d->dtype), ct_numbers_at(a->dy, d->dtype),
                ct_numbers_at(a->dx, d->dtype));
    return ct_cuda_launched("relu backward");
}

const ct_relu_impl ct_relu_cuda_forward = { "cuda", on_cuda, NULL, forward };
const ct_relu_impl ct_relu_cuda_backward = { "cuda", on_cuda, NULL, backward };
