/* Softmax on CUDA: one thread a position, which walks over the classes; where those of a position
 * lie side by side and are many, a block. */
#include <cfloat>
#include <cmath>

#include "framework/base/memory.h"
#include "framework/tensor/cuda/launch.cuh"
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

static __global__ void backward_kernel(ct_softmax_desc d, const float *y, const float *dy,
                                       float *dx)
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

/* Classes side by side. */
enum { MANY = 32, MOST_BLOCKS = 1 << 16 };

static bool by_blocks(const ct_softmax_desc *d)
{
    return (d->inner == 1) && (d->classes > MANY);
}

static unsigned blocks_of(const ct_softmax_desc *d)
{
    return (unsigned)((d->outer < MOST_BLOCKS) ? d->outer : MOST_BLOCKS);
}

/* The largest of the threads' values, to all of them. */
static __device__ float block_largest(float *part, float mine)
{
    float largest;

    part[threadIdx.x] = mine;
    __syncthreads();
    for (int half = CT_CUDA_BLOCK / 2; half > 0; half /= 2) {
        if ((int)threadIdx.x < half)
            part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + half]);
        __syncthreads();
    }
    largest = part[0];
    __syncthreads(); /* part may be used again */
    return largest;
}

/* The sum, likewise. */
static __device__ double block_sum(ct_sums<1> *part, double mine)
{
    ct_sums<1> one = { { mine } };
    double sum;

    ct_block_add<1>(part, one);
    sum = part[0].v[0];
    __syncthreads();
    return sum;
}

static __global__ void forward_rows_kernel(ct_softmax_desc d, const float *x, float *y)
{
    __shared__ float largest_part[CT_CUDA_BLOCK];
    __shared__ ct_sums<1> sum_part[CT_CUDA_BLOCK];

    for (int64_t r = blockIdx.x; r < d.outer; r += gridDim.x) {
        const float *from = x + r * d.classes;
        float *to = y + r * d.classes, largest = -INFINITY;
        double sum = 0.0;

        for (int64_t c = threadIdx.x; c < d.classes; c += CT_CUDA_BLOCK)
            largest = fmaxf(largest, from[c]);
        largest = block_largest(largest_part, largest);
        for (int64_t c = threadIdx.x; c < d.classes; c += CT_CUDA_BLOCK) {
            float e = expf(from[c] - largest);

            to[c] = e;
            sum += (double)e;
        }
        sum = block_sum(sum_part, sum);
        for (int64_t c = threadIdx.x; c < d.classes; c += CT_CUDA_BLOCK)
            to[c] = (float)((double)to[c] / sum);
    }
}

static __global__ void backward_rows_kernel(ct_softmax_desc d, const float *y, const float *dy,
                                            float *dx)
{
    __shared__ ct_sums<1> part[CT_CUDA_BLOCK];

    for (int64_t r = blockIdx.x; r < d.outer; r += gridDim.x) {
        int64_t row = r * d.classes;
        double dot = 0.0;

        for (int64_t c = row + threadIdx.x; c < row + d.classes; c += CT_CUDA_BLOCK)
            dot += (double)dy[c] * (double)y[c];
        dot = block_sum(part, dot);
        for (int64_t c = row + threadIdx.x; c < row + d.classes; c += CT_CUDA_BLOCK)
            dx[c] = y[c] * (dy[c] - (float)dot);
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
        if ((int)threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) *out = part[0];
}

static ct_status forward(const ct_softmax_desc *d, ct_exec *ex, const float *x, float *y)
{
    if (d->outer * d->inner == 0) return CT_OK;
    if (by_blocks(d)) {
        CT_CUDA_RUN_BLOCKS(forward_rows_kernel, blocks_of(d), ex->stream, *d, x, y);
        return ct_cuda_launched("softmax");
    }
    CT_CUDA_RUN(forward_kernel, ct_cuda_grid(d->outer * d->inner), ex->stream, *d, x, y);
    return ct_cuda_launched("softmax");
}

static ct_status backward(const ct_softmax_desc *d, ct_exec *ex, const float *y, const float *dy,
                          float *dx)
{
    if (d->outer * d->inner == 0) return CT_OK;
    if (by_blocks(d)) {
        CT_CUDA_RUN_BLOCKS(backward_rows_kernel, blocks_of(d), ex->stream, *d, y, dy, dx);
        return ct_cuda_launched("softmax backward");
    }
    CT_CUDA_RUN(backward_kernel, ct_cuda_grid(d->outer * d->inner), ex->stream, *d, y, dy, dx);
    return ct_cuda_launched("softmax backward");
}

/* scratch has room for the sum behind the numbers: ct_softmax_scratch(). */
static ct_status loss(const ct_softmax_desc *d, ct_exec *ex, const float *p, const int32_t *label,
                      float *scratch, double *loss_p)
{
    int64_t n = d->outer * d->inner;
    double *sum = (double *)((char *)scratch + ct_align_up((size_t)n * sizeof(float)));
    cudaStream_t stream = (cudaStream_t)ex->stream;

    CT_CUDA_RUN(loss_kernel, ct_cuda_grid(n), stream, *d, p, label, scratch);
    CT_TRY(ct_cuda_launched("softmax loss"));
    CT_CUDA_RUN_BLOCKS(sum_kernel, 1, stream, n, scratch, sum);
    CT_TRY(ct_cuda_launched("softmax loss"));
    return ex->dev->to_host(ex->stream, loss_p, sum, sizeof(*loss_p));
}

static ct_status loss_backward(const ct_softmax_desc *d, ct_exec *ex, const float *p,
                               const int32_t *label, float scale, float *dx)
{
    CT_CUDA_RUN(loss_backward_kernel, ct_cuda_grid(d->outer * d->classes * d->inner), ex->stream,
                *d, p, label, scale, dx);
    return ct_cuda_launched("softmax loss backward");
}

const ct_softmax_engine ct_softmax_cuda = {
    "cuda", supports, forward, backward, loss, loss_backward, NULL, NULL,
};
