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

static ct_status fill(const ct_bias_desc *d, ct_exec *ex, const ct_bias_args *a)
{
    CT_CUDA_RUN(fill_kernel, ct_cuda_grid(d->n * d->c * d->s), ex->stream, *d, a->bias, a->y);
    return ct_cuda_launched("bias");
}

/* Channels last, or one place each: sums down the columns. */
static ct_status backward_last(const ct_bias_desc *d, ct_exec *ex, const ct_bias_args *a)
{
    ct_numbers dy = ct_numbers_at(a->dy, d->last ? d->dtype : CT_F32);
    float *dbias = a->dbias, beta = a->beta;
    int64_t columns = d->c;

    return ct_cuda_column_sums<1>(
        ex->stream, "bias backward", columns, d->n * d->s,
        [=] __device__(int64_t c, int64_t i, double *sum) { *sum += (double)dy[i * columns + c]; },
        [=] __device__(int64_t c, const double *sum) {
            dbias[c] = (float)(((beta != 0.0f) ? (double)(beta * dbias[c]) : 0.0) + *sum);
        });
}

/* Several blocks a channel, where channels are too few for a device. */
static ct_status backward(const ct_bias_desc *d, ct_exec *ex, const ct_bias_args *a)
{
    const float *dy = a->dy;
    float *dbias = a->dbias, beta = a->beta;
    int64_t channels = d->c, places = d->s;

    if (d->last || (d->s == 1)) return backward_last(d, ex, a);
    return ct_cuda_sums<1>(
        ex->stream, "bias backward", channels, d->n * places,
        [=] __device__(int64_t c, int64_t i, double *sum) {
            *sum += (double)dy[(i / places * channels + c) * places + i % places];
        },
        [=] __device__(int64_t c, const double *sum) {
            dbias[c] = (float)(((beta != 0.0f) ? (double)(beta * dbias[c]) : 0.0) + *sum);
        });
}

const ct_bias_impl ct_bias_cuda_fill = { "cuda", on_cuda, NULL, fill };
const ct_bias_impl ct_bias_cuda_backward = { "cuda", on_cuda, NULL, backward };
