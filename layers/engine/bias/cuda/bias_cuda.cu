#include "layers/engine/bias/bias.h"
#include "layers/engine/cuda/wide.cuh"

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
template <ct_dtype T>
static ct_status backward_last(const ct_bias_desc *d, ct_exec *ex, const ct_bias_args *a)
{
    const float *dy = a->dy;
    float *dbias = a->dbias, beta = a->beta;
    int64_t columns = d->c, rows = d->n * d->s;
    auto put = [=] __device__(int64_t c, const double *sum) {
        dbias[c] = (float)(((beta != 0.0f) ? (double)(beta * dbias[c]) : 0.0) + *sum);
    };

    if ((columns % CT_WIDE == 0) && (columns <= CT_WIDE_COLUMNS) && ct_is_wide(dy, T))
        return ct_cuda_wide_columns<4>(
            ex->stream, "bias backward", rows, columns,
            [=] __device__(int64_t, int64_t) { return 0; },
            [=] __device__(int64_t k, int, double *sum) {
                ct_four f = ct_wide_get<T>(dy, k);

                for (int j = 0; j < CT_WIDE; j++) sum[2 * j] += (double)f.v[j];
            },
            put);
    return ct_cuda_column_sums<1>(
        ex->stream, "bias backward", columns, rows,
        [=] __device__(int64_t c, int64_t i, double *sum) {
            *sum += (double)ct_numbers_at(dy, T)[i * columns + c];
        },
        put);
}

/* Several blocks a channel, where channels are too few for a device. */
static ct_status backward(const ct_bias_desc *d, ct_exec *ex, const ct_bias_args *a)
{
    const float *dy = a->dy;
    float *dbias = a->dbias, beta = a->beta;
    int64_t channels = d->c, places = d->s;

    if (!d->last && (d->s == 1)) return backward_last<CT_F32>(d, ex, a);
    if (d->last)
        return (d->dtype == CT_F32)    ? backward_last<CT_F32>(d, ex, a)
               : (d->dtype == CT_BF16) ? backward_last<CT_BF16>(d, ex, a)
                                       : backward_last<CT_F16>(d, ex, a);
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
