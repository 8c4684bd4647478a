/* Softmax on CUDA: one thread a position, which walks over the classes. */
#include <cfloat>
#include <cmath>

#include "framework/base/memory.h"
#include "framework/tensor/cuda/device_cuda.h"
#include "layers/engine/softmax/softmax.h"

static bool supports(const ct_softmax_desc *d)
{
    return d->device == CT_DEVICE_CUDA;
}

static __device__ int64_t at(const ct_softmax_desc &d, int64_t k, int64_t c)
{
    return (k / d.inner * d.classes + c) * d.inner + k % d.inner;
}

static __global__ void forward_kernel(ct_softmax_desc d, const float *x, float *y)
{
    CT_CUDA_LOOP(k, d.outer * d.inner)
    {
        float largest = -INFINITY, sum = 0.0f;

        for (int64_t c = 0; c < d.classes; c++) largest = fmaxf(largest, x[at(d, k, c)]);
        for (int64_t c = 0; c < d.classes; c++) {
            float e = expf(x[at(d, k, c)] - largest);

            y[at(d, k, c)] = e;
            sum += e;
        }
        for (int64_t c = 0; c < d.classes; c++) y[at(d, k, c)] /= sum;
    }
}

static __global__ void backward_kernel(ct_softmax_desc d, const float *y, const float *dy, float *dx)
{
    CT_CUDA_LOOP(k, d.outer * d.inner)
    {
        double dot = 0.0;

        for (int64_t c = 0; c < d.classes; c++)
            dot += (double)y[at(d, k, c)] * (double)dy[at(d, k, c)];
        for (int64_t c = 0; c < d.classes; c++)
            dx[at(d, k, c)] = y[at(d, k, c)] * (dy[at(d, k, c)] - (float)dot);
    }
}

static __global__ void loss_kernel(ct_softmax_desc d, const float *p, const int32_t *label,
                                   float *scratch)
{
    CT_CUDA_LOOP(k, d.outer * d.inner)
    {
        float q = 1.0f; /* ignored: a logarithm of zero */

        if (label[k] != CT_LABEL_IGNORED) q = p[at(d, k, label[k])];
        scratch[k] = -logf((q > FLT_MIN) ? q : ((q == q) ? FLT_MIN : q)); /* NaN stays NaN */
    }
}

static __global__ void loss_backward_kernel(ct_softmax_desc d, const float *p, const int32_t *label,
                                            float scale, float *dx)
{
    CT_CUDA_LOOP(i, d.outer * d.classes * d.inner)
    {
        int64_t c = i / d.inner % d.classes, k = i / (d.inner * d.classes) * d.inner + i % d.inner;
        int32_t is = label[k];

        dx[i] = (is == CT_LABEL_IGNORED) ? 0.0f : scale * (p[i] - ((c == is) ? 1.0f : 0.0f));
    }
}

/* One block adds in a fixed order. */
static __global__ void sum_kernel(int64_t n, const float *v, double *out)
{
    __shared__ double part[CT_CUDA_BLOCK];
    double sum = 0.0;

    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += (double)v[i];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = CT_CUDA_BLOCK / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) *out = part[0];
}

static ct_status forward(const ct_softmax_desc *d, ct_exec *ex, const float *x, float *y)
{
    forward_kernel<<<ct_cuda_grid(d->outer * d->inner), CT_CUDA_BLOCK, 0,
                     (cudaStream_t)ex->stream>>>(*d, x, y);
    return ct_cuda_launched("softmax");
}

static ct_status backward(const ct_softmax_desc *d, ct_exec *ex, const float *y, const float *dy,
                          float *dx)
{
    backward_kernel<<<ct_cuda_grid(d->outer * d->inner), CT_CUDA_BLOCK, 0,
                      (cudaStream_t)ex->stream>>>(*d, y, dy, dx);
    return ct_cuda_launched("softmax backward");
}

/* scratch has room for the sum behind the numbers: ct_softmax_scratch(). */
static ct_status loss(const ct_softmax_desc *d, ct_exec *ex, const float *p, const int32_t *label,
                      float *scratch, double *loss_p)
{
    int64_t n = d->outer * d->inner;
    double *sum = (double *)((char *)scratch + ct_align_up((size_t)n * sizeof(float)));
    cudaStream_t stream = (cudaStream_t)ex->stream;

    loss_kernel<<<ct_cuda_grid(n), CT_CUDA_BLOCK, 0, stream>>>(*d, p, label, scratch);
    CT_TRY(ct_cuda_launched("softmax loss"));
    sum_kernel<<<1, CT_CUDA_BLOCK, 0, stream>>>(n, scratch, sum);
    CT_TRY(ct_cuda_launched("softmax loss"));
    return ex->dev->to_host(ex->stream, loss_p, sum, sizeof(*loss_p));
}

static ct_status loss_backward(const ct_softmax_desc *d, ct_exec *ex, const float *p,
                               const int32_t *label, float scale, float *dx)
{
    loss_backward_kernel<<<ct_cuda_grid(d->outer * d->classes * d->inner), CT_CUDA_BLOCK, 0,
                           (cudaStream_t)ex->stream>>>(*d, p, label, scale, dx);
    return ct_cuda_launched("softmax loss backward");
}

const ct_softmax_engine ct_softmax_cuda = {
    "cuda", supports, forward, backward, loss, loss_backward,
};
