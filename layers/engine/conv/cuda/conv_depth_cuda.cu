/* Depthwise convolution on CUDA: each output channel sees one channel of the input, so there is no
 * product to make, and a thread an output (or an input, a weight) moves what must be moved. */
#include "framework/tensor/cuda/launch.cuh"
#include "layers/engine/conv/conv_private.h"

static bool on_cuda(const ct_conv_desc *d)
{
    return (d->device == CT_DEVICE_CUDA) && (d->group == d->c) && (d->n_front == 0) &&
           (d->x_block == 0) && (d->y_block == 0);
}

static ct_status forward(const ct_conv_desc *desc, ct_exec *ex, const ct_conv_args *args)
{
    ct_conv_desc d = *desc;
    ct_conv_args a = *args;
    int64_t per = d.m / d.c; /* outputs of a channel */

    return ct_cuda_map(ex->stream, "depthwise", d.n * d.m * d.oh * d.ow, [=] __device__(int64_t i) {
        int64_t w = i % d.ow, h = i / d.ow % d.oh, m = i / (d.ow * d.oh) % d.m;
        const float *x = a.x + (i / (d.ow * d.oh * d.m) * d.c + m / per) * d.h * d.w;
        const float *k = a.weight + m * d.kh * d.kw;
        float sum = (a.bias != NULL) ? a.bias[m] : 0.0f;

        for (int64_t p = 0; p < d.kh; p++) {
            int64_t row = h * d.sh - d.ph + p * d.dh;

            if ((row < 0) || (row >= d.h)) continue;
            for (int64_t q = 0; q < d.kw; q++) {
                int64_t column = w * d.sw - d.pw + q * d.dw;

                if ((column >= 0) && (column < d.w)) sum += k[p * d.kw + q] * x[row * d.w + column];
            }
        }
        a.y[i] = sum;
    });
}

static ct_status backward_data(const ct_conv_desc *desc, ct_exec *ex, const ct_conv_args *args)
{
    ct_conv_desc d = *desc;
    ct_conv_args a = *args;
    int64_t per = d.m / d.c;

    return ct_cuda_map(
        ex->stream, "depthwise by data", d.n * d.c * d.h * d.w, [=] __device__(int64_t i) {
            int64_t w = i % d.w, h = i / d.w % d.h, c = i / (d.w * d.h) % d.c,
                    n = i / (d.w * d.h * d.c);
            float sum = 0.0f;

            for (int64_t m = c * per; m < (c + 1) * per; m++) {
                const float *dy = a.dy + (n * d.m + m) * d.oh * d.ow,
                            *k = a.weight + m * d.kh * d.kw;

                for (int64_t p = 0; p < d.kh; p++) {
                    int64_t top = h + d.ph - p * d.dh;

                    if ((top < 0) || (top % d.sh != 0) || (top / d.sh >= d.oh)) continue;
                    for (int64_t q = 0; q < d.kw; q++) {
                        int64_t left = w + d.pw - q * d.dw;

                        if ((left < 0) || (left % d.sw != 0) || (left / d.sw >= d.ow)) continue;
                        sum += k[p * d.kw + q] * dy[top / d.sh * d.ow + left / d.sw];
                    }
                }
            }
            a.dx[i] = sum;
        });
}

static ct_status backward_weight(const ct_conv_desc *desc, ct_exec *ex, const ct_conv_args *args)
{
    ct_conv_desc d = *desc;
    ct_conv_args a = *args;
    int64_t per = d.m / d.c, taps = d.kh * d.kw, out = d.oh * d.ow;

    return ct_cuda_sums<1>(
        ex->stream, "depthwise weights", d.m * taps, d.n * out,
        [=] __device__(int64_t r, int64_t i, double *sum) {
            int64_t m = r / taps, p = r % taps / d.kw, q = r % d.kw, n = i / out, at = i % out;
            int64_t row = at / d.ow * d.sh - d.ph + p * d.dh;
            int64_t column = at % d.ow * d.sw - d.pw + q * d.dw;

            if ((row < 0) || (row >= d.h) || (column < 0) || (column >= d.w)) return;
            *sum += (double)a.dy[(n * d.m + m) * out + at] *
                    (double)a.x[((n * d.c + m / per) * d.h + row) * d.w + column];
        },
        [=] __device__(int64_t r, const double *sum) {
            a.dweight[r] =
                (float)(*sum + ((a.beta != 0.0f) ? (double)(a.beta * a.dweight[r]) : 0.0));
        });
}

const ct_conv_impl ct_conv_cuda_depth_forward = { "depthwise", on_cuda, NULL, forward };
const ct_conv_impl ct_conv_cuda_depth_backward_data = { "depthwise", on_cuda, NULL, backward_data };
const ct_conv_impl ct_conv_cuda_depth_backward_weight = { "depthwise", on_cuda, NULL,
                                                          backward_weight };
