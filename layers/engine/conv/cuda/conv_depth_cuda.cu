/* Depthwise convolution on CUDA: each output channel sees one channel of the input, so there is no
 * product to make, and a thread an output (or an input, a weight) moves what must be moved. */
#include "framework/math/cuda/narrow.cuh"
#include "framework/tensor/cuda/launch.cuh"
#include "layers/engine/conv/conv_private.h"

static bool on_cuda(const ct_conv_desc *d)
{
    return (d->device == CT_DEVICE_CUDA) && (d->group == d->c) && (d->n_front == 0) &&
           (d->x_block == 0) && (d->y_block == 0) && (d->x_last == d->y_last);
}

static ct_numbers numbers(const ct_conv_desc *d, const float *at)
{
    return ct_numbers_at(at, d->x_last ? ct_dtype_of(d->operand) : CT_F32);
}

/* Element i of images of channels x h x w, and where one is. */
typedef struct spot {
    int64_t n, c, h, w;
} spot;

static __device__ spot spot_of(bool last, int64_t i, int64_t channels, int64_t h, int64_t w)
{
    int64_t step = last ? channels : 1, place = i / step;

    return { i / (channels * h * w), last ? i % channels : i / (h * w) % channels, place / w % h,
             place % w };
}

static __device__ int64_t index_of(bool last, const spot &s, int64_t channels, int64_t h, int64_t w)
{
    return last ? ((s.n * h + s.h) * w + s.w) * channels + s.c
                : ((s.n * channels + s.c) * h + s.h) * w + s.w;
}

static ct_status forward(const ct_conv_desc *desc, ct_exec *ex, const ct_conv_args *args)
{
    ct_conv_desc d = *desc;
    ct_conv_args a = *args;
    int64_t per = d.m / d.c; /* outputs of a channel */
    ct_numbers x = numbers(desc, a.x), y = numbers(desc, a.y);

    return ct_cuda_map(ex->stream, "depthwise", d.n * d.m * d.oh * d.ow, [=] __device__(int64_t i) {
        spot at = spot_of(d.y_last, i, d.m, d.oh, d.ow);
        const float *k = a.weight + at.c * d.kh * d.kw;
        float sum = (a.bias != NULL) ? a.bias[at.c] : 0.0f;

        for (int64_t p = 0; p < d.kh; p++) {
            int64_t row = at.h * d.sh - d.ph + p * d.dh;

            if ((row < 0) || (row >= d.h)) continue;
            for (int64_t q = 0; q < d.kw; q++) {
                int64_t column = at.w * d.sw - d.pw + q * d.dw;
                spot from = { at.n, at.c / per, row, column };

                if ((column >= 0) && (column < d.w))
                    sum += k[p * d.kw + q] * x[index_of(d.x_last, from, d.c, d.h, d.w)];
            }
        }
        y.put(i, sum);
    });
}

static ct_status backward_data(const ct_conv_desc *desc, ct_exec *ex, const ct_conv_args *args)
{
    ct_conv_desc d = *desc;
    ct_conv_args a = *args;
    int64_t per = d.m / d.c;
    ct_numbers dy = numbers(desc, a.dy), dx = numbers(desc, a.dx);

    return ct_cuda_map(
        ex->stream, "depthwise by data", d.n * d.c * d.h * d.w, [=] __device__(int64_t i) {
            spot at = spot_of(d.x_last, i, d.c, d.h, d.w);
            float sum = 0.0f;

            for (int64_t m = at.c * per; m < (at.c + 1) * per; m++) {
                const float *k = a.weight + m * d.kh * d.kw;

                for (int64_t p = 0; p < d.kh; p++) {
                    int64_t top = at.h + d.ph - p * d.dh;

                    if ((top < 0) || (top % d.sh != 0) || (top / d.sh >= d.oh)) continue;
                    for (int64_t q = 0; q < d.kw; q++) {
                        int64_t left = at.w + d.pw - q * d.dw;
                        spot from = { at.n, m, top / d.sh, left / d.sw };

                        if ((left < 0) || (left % d.sw != 0) || (left / d.sw >= d.ow)) continue;
                        sum += k[p * d.kw + q] * dy[index_of(d.y_last, from, d.m, d.oh, d.ow)];
                    }
                }
            }
            dx.put(i, sum);
        });
}

/* Sums of weight [m][tap] over images and outputs; channels last, threads side by side have m. */
static ct_status backward_weight(const ct_conv_desc *desc, ct_exec *ex, const ct_conv_args *args)
{
    ct_conv_desc d = *desc;
    ct_conv_args a = *args;
    int64_t per = d.m / d.c, taps = d.kh * d.kw, out = d.oh * d.ow;
    ct_numbers x = numbers(desc, a.x), dy = numbers(desc, a.dy);
    auto add = [=] __device__(int64_t r, int64_t i, double *sum) {
        int64_t m = d.y_last ? r % d.m : r / taps, tap = d.y_last ? r / d.m : r % taps;
        spot at = { i / out, m, i % out / d.ow, i % out % d.ow }, from = { i / out, m / per, 0, 0 };

        from.h = at.h * d.sh - d.ph + tap / d.kw * d.dh;
        from.w = at.w * d.sw - d.pw + tap % d.kw * d.dw;
        if ((from.h < 0) || (from.h >= d.h) || (from.w < 0) || (from.w >= d.w)) return;
        *sum += (double)dy[index_of(d.y_last, at, d.m, d.oh, d.ow)] *
                (double)x[index_of(d.x_last, from, d.c, d.h, d.w)];
    };
    auto put = [=] __device__(int64_t r, const double *sum) {
        int64_t to = d.y_last ? r % d.m * taps + r / d.m : r;

        a.dweight[to] =
            (float)(*sum + ((a.beta != 0.0f) ? (double)(a.beta * a.dweight[to]) : 0.0));
    };

    if (d.y_last)
        return ct_cuda_column_sums<1>(ex->stream, "depthwise weights", d.m * taps, d.n * out, add,
                                      put);
    return ct_cuda_sums<1>(ex->stream, "depthwise weights", d.m * taps, d.n * out, add, put);
}

const ct_conv_impl ct_conv_cuda_depth_forward = { "depthwise", on_cuda, NULL, forward };
const ct_conv_impl ct_conv_cuda_depth_backward_data = { "depthwise", on_cuda, NULL, backward_data };
const ct_conv_impl ct_conv_cuda_depth_backward_weight = { "depthwise", on_cuda, NULL,
                                                          backward_weight };
