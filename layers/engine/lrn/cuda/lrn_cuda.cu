/* Normalisation on CUDA: a thread an element, which adds up its window. Backward makes the terms of
 * its sum in a pass of their own, so that each power is taken once. */
#include "framework/math/cuda/narrow.cuh"
#include "framework/tensor/cuda/launch.cuh"
#include "layers/engine/lrn/lrn_private.h"

static bool on_cuda(const ct_lrn_desc *d)
{
    return (d->device == CT_DEVICE_CUDA) && (d->block == 0);
}

static int64_t count_of(const ct_lrn_desc *d)
{
    return d->n * d->c * d->h * d->w;
}

/* v(place), summed over the window around element e. */
template <class V> static __device__ float window_sum(const ct_lrn_desc &d, int64_t e, V v)
{
    int64_t half = (d.size - 1) / 2, plane = d.h * d.w;
    float sum = 0.0f;

    if (d.within) {
        int64_t i = e / d.w % d.h, j = e % d.w, first = e - e % plane;
        int64_t i0 = (i > half) ? i - half : 0, i1 = (i + half < d.h) ? i + half : d.h - 1;
        int64_t j0 = (j > half) ? j - half : 0, j1 = (j + half < d.w) ? j + half : d.w - 1;

        for (int64_t p = i0; p <= i1; p++) {
            for (int64_t q = j0; q <= j1; q++) sum += v(first + p * d.w + q);
        }
        return sum;
    }
    {
        int64_t step = d.last ? 1 : plane, c = e / step % d.c, c0 = (c > half) ? c - half : 0;
        int64_t c1 = (c + half < d.c) ? c + half : d.c - 1;

        for (int64_t k = c0; k <= c1; k++) sum += v(e + (k - c) * step);
    }
    return sum;
}

static ct_status forward(const ct_lrn_desc *desc, ct_exec *ex, const ct_lrn_args *args)
{
    ct_lrn_desc d = *desc;
    ct_lrn_args a = *args;
    ct_numbers x = ct_numbers_at(a.x, d.dtype), y = ct_numbers_at(a.y, d.dtype);
    float factor = ct_lrn_factor(desc);

    return ct_cuda_map(ex->stream, "LRN", count_of(desc), [=] __device__(int64_t e) {
        float scale = d.k + factor * window_sum(d, e, [x](int64_t at) { return x[at] * x[at]; });

        a.scale[e] = scale;
        y.put(e, x[e] * powf(scale, -d.beta));
    });
}

static size_t workspace(const ct_lrn_desc *d)
{
    return (size_t)count_of(d) * sizeof(float);
}

static ct_status backward(const ct_lrn_desc *desc, ct_exec *ex, const ct_lrn_args *args)
{
    ct_lrn_desc d = *desc;
    ct_lrn_args a = *args;
    float factor = 2.0f * ct_lrn_factor(desc) * d.beta, *ratio = (float *)a.work;

    ct_numbers x = ct_numbers_at(a.x, d.dtype), dy = ct_numbers_at(a.dy, d.dtype);
    ct_numbers dx = ct_numbers_at(a.dx, d.dtype);

    CT_TRY(ct_cuda_map(ex->stream, "LRN backward", count_of(desc), [=] __device__(int64_t e) {
        ratio[e] = dy[e] * x[e] * powf(a.scale[e], -d.beta - 1.0f);
    }));
    return ct_cuda_map(ex->stream, "LRN backward", count_of(desc), [=] __device__(int64_t e) {
        float sum = window_sum(d, e, [ratio](int64_t at) { return ratio[at]; });

        dx.put(e, dy[e] * powf(a.scale[e], -d.beta) - factor * x[e] * sum);
    });
}

const ct_lrn_impl ct_lrn_cuda_forward = { "cuda", on_cuda, NULL, forward };
const ct_lrn_impl ct_lrn_cuda_backward = { "cuda", on_cuda, workspace, backward };
