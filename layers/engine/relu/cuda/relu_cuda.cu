#include "layers/engine/cuda/wide.cuh"
#include "layers/engine/relu/relu.h"

static bool on_cuda(const ct_relu_desc *d)
{
    return d->device == CT_DEVICE_CUDA;
}

static ct_status forward(const ct_relu_desc *d, ct_exec *ex, const ct_relu_args *a)
{
    ct_wide_from<1> from = { { a->x } };
    float slope = d->slope;

    return ct_cuda_wide_map(ex->stream, "relu", d->count, d->dtype, from, a->y,
                            [=] __device__(const float *v) {
                                float low = (slope == 0.0f) ? 0.0f : slope * v[0];

                                return (v[0] < 0.0f) ? low : v[0];
                            });
}

static ct_status backward(const ct_relu_desc *d, ct_exec *ex, const ct_relu_args *a)
{
    ct_wide_from<2> from = { { a->x, a->dy } };
    float slope = d->slope;

    return ct_cuda_wide_map(
        ex->stream, "relu backward", d->count, d->dtype, from, a->dx,
        [=] __device__(const float *v) { return (v[0] > 0.0f) ? v[1] : slope * v[1]; });
}

const ct_relu_impl ct_relu_cuda_forward = { "cuda", on_cuda, NULL, forward };
const ct_relu_impl ct_relu_cuda_backward = { "cuda", on_cuda, NULL, backward };
