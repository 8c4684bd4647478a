#include "framework/math/cuda/narrow.cuh"
#include "framework/tensor/cuda/launch.cuh"
#include "layers/engine/bias/bias_private.h"

static bool on_cuda(const ct_bias_desc *d)
{
    return d->device == CT_DEVICE_CUDA;
}

static __global__ void fill_kernel(ct_bias_desc d, const float *bias, float *y)
{
    CT_CUDA_LOOP(i, d.n * d.c * d.s) y[i] = bias[i / d.s % d.c];
}

/* One block a channel; partial sums in double, added in a fixed order. */
static __global__ void backward_kernel(ct_bias_desc d, const float *dy, float beta, float *dbias)
{
    __shared__ double part[CT_CUDA_BLOCK];
    int64_t c = blockIdx.x;
    double sum = 0.0;

    for (int64_t i = threadIdx.x; i < d.n * d.s; i += blockDim.x)
        sum += (double)dy[(i / d.s * d.c + c) * d.s + i % d.s];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = CT_CUDA_BLOCK / 2; half > 0; half /= 2) {
        if ((int)threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        dbias[c] = (float)(((beta != 0.0f) ? (double)(beta * dbias[c]) : 0.0) + part[0]);
}

static ct_status fill(const ct_bias_desc *d, ct_exec *ex, const ct_bias_args *a)
{
    CT_CUDA_RUN(fill_kernel, ct_cuda_grid(d->n * d->c * d->s), ex->stream, *d, a->bias, a->y);
    return ct_cuda_launched("bias");
}

/* Channels last: sums down the columns. */
static ct_status backward_last(const ct_bias_desc *d, ct_exec *ex, const ct_bias_args *a)
{
    ct_numbers dy = ct_numbers_at(a->dy, d->dtype);
    float *dbias = a->dbias, beta = a->beta;
    int64_t columns = d->c;

    return ct_cuda_column_sums<1>(
        ex->stream, "bias backward", columns, d->n * d->s,
        [=] __device__(int64_t c, int64_t i, double *sum) { *sum += (double)dy[i * columns + c]; },
        [=] __device__(int64_t c, const double *sum) {
            dbias[c] = (float)(((beta != 0.0f) ? (double)(beta * dbias[c]) : 0.0) + *sum);
        });
}

static ct_status backward(const ct_bias_desc *d, ct_exec *ex, const ct_bias_args *a)
{
    if (d->last) return backward_last(d, ex, a);
    CT_CUDA_RUN_BLOCKS(backward_kernel, (unsigned)d->c, ex->stream, *d, a->dy, a->beta, a->dbias);
    return ct_cuda_launched("bias backward");
}

const ct_bias_impl ct_bias_cuda_fill = { "cuda", on_cuda, NULL, fill };
const ct_bias_impl ct_bias_cuda_backward = { "cuda", on_cuda, NULL, backward };
