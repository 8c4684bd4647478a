/* Convolution on CUDA: im2col of as many images as the workspace holds, then one batched product.
 * Per image and group, with K = C/G KH KW and S = OH OW:
 *   y = W col, dcol = W^T dy (folded onto dx), dW += sum over images of dy col^T. */
#include "framework/math/cuda/math_cuda.h"
#include "framework/tensor/cuda/device_cuda.h"
#include "layers/engine/conv/conv_private.h"

static const int64_t WORK_MAX = (int64_t)256 << 20;

static bool on_cuda(const ct_conv_desc *d)
{
    return d->device == CT_DEVICE_CUDA;
}

/* Floats of one image's column block; of all groups. */
static int64_t col_floats(const ct_conv_desc *d)
{
    return d->group * group_k(d) * out_size(d);
}

static int64_t weight_floats(const ct_conv_desc *d)
{
    return d->m * group_k(d);
}

static int64_t images_at_once(const ct_conv_desc *d, int64_t floats_per_image)
{
    int64_t n = WORK_MAX / (int64_t)sizeof(float) / floats_per_image;

    return (n < 1) ? 1 : (n > d->n) ? d->n : n;
}

static size_t work_col(const ct_conv_desc *d)
{
    return (size_t)(images_at_once(d, col_floats(d)) * col_floats(d)) * sizeof(float);
}

static size_t work_weight(const ct_conv_desc *d)
{
    int64_t per_image = col_floats(d) + weight_floats(d);

    return (size_t)(images_at_once(d, per_image) * per_image) * sizeof(float);
}

/* One thread per entry of col: [image][channel kh kw][oh ow]. */
static __global__ void im2col_kernel(ct_conv_desc d, int64_t n, const float *x, float *col)
{
    int64_t kernel = d.kh * d.kw, s = d.oh * d.ow;

    CT_CUDA_LOOP(i, n * d.c * kernel * s)
    {
        int64_t at = i % s, row = i / s % (d.c * kernel), image = i / (s * d.c * kernel);
        int64_t c = row / kernel, p = row % kernel / d.kw, q = row % d.kw;
        int64_t h = at / d.ow * d.sh - d.ph + p * d.dh, w = at % d.ow * d.sw - d.pw + q * d.dw;
        bool inside = (h >= 0) && (h < d.h) && (w >= 0) && (w < d.w);

        col[i] = inside ? x[((image * d.c + c) * d.h + h) * d.w + w] : 0.0f;
    }
}

/* One thread per entry of dx, which gathers: no atomics, so the sum has a fixed order. */
static __global__ void col2im_kernel(ct_conv_desc d, int64_t n, const float *col, float *dx)
{
    int64_t kernel = d.kh * d.kw, s = d.oh * d.ow;

    CT_CUDA_LOOP(i, n * d.c * d.h * d.w)
    {
        int64_t w = i % d.w, h = i / d.w % d.h, c = i / (d.w * d.h) % d.c;
        int64_t image = i / (d.w * d.h * d.c);
        const float *from = col + (image * d.c + c) * kernel * s;
        float sum = 0.0f;

        for (int64_t p = 0; p < d.kh; p++) {
            int64_t top = h + d.ph - p * d.dh;

            if ((top < 0) || (top % d.sh != 0) || (top / d.sh >= d.oh)) continue;
            for (int64_t q = 0; q < d.kw; q++) {
                int64_t left = w + d.pw - q * d.dw;

                if ((left < 0) || (left % d.sw != 0) || (left / d.sw >= d.ow)) continue;
                sum += from[(p * d.kw + q) * s + top / d.sh * d.ow + left / d.sw];
            }
        }
        dx[i] = sum;
    }
}

static __global__ void add_bias_kernel(int64_t n, int64_t m, int64_t s, const float *bias, float *y)
{
    CT_CUDA_LOOP(i, n) y[i] += bias[i / s % m];
}

static ct_status im2col(const ct_conv_desc *d, ct_exec *ex, int64_t n, const float *x, float *col)
{
    im2col_kernel<<<ct_cuda_grid(n * col_floats(d)), CT_CUDA_BLOCK, 0, (cudaStream_t)ex->stream>>>(
        *d, n, x, col);
    return ct_cuda_launched("im2col");
}

static ct_status forward(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    int64_t step = images_at_once(d, col_floats(d)), m = group_m(d), k = group_k(d), s = out_size(d);
    float *col = (float *)a->work;

    for (int64_t first = 0; first < d->n; first += step) {
        int64_t n = (d->n - first < step) ? d->n - first : step;
        float *y = a->y + first * d->m * s;

        CT_TRY(im2col(d, ex, n, a->x + first * d->c * in_size(d), col));
        for (int64_t g = 0; g < d->group; g++)
            CT_TRY(ct_math_cuda_gemm_batch(ex->stream, false, false, m, s, k, 1.0f,
                                           a->weight + g * m * k, k, 0, col + g * k * s, s,
                                           col_floats(d), 0.0f, y + g * m * s, s, d->m * s, n));
        if (a->bias == NULL) continue;
        add_bias_kernel<<<ct_cuda_grid(n * d->m * s), CT_CUDA_BLOCK, 0,
                          (cudaStream_t)ex->stream>>>(n * d->m * s, d->m, s, a->bias, y);
        CT_TRY(ct_cuda_launched("convolution bias"));
    }
    return CT_OK;
}

static ct_status backward_data(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    int64_t step = images_at_once(d, col_floats(d)), m = group_m(d), k = group_k(d), s = out_size(d);
    float *col = (float *)a->work;

    for (int64_t first = 0; first < d->n; first += step) {
        int64_t n = (d->n - first < step) ? d->n - first : step;
        int64_t count = n * d->c * in_size(d);

        for (int64_t g = 0; g < d->group; g++)
            CT_TRY(ct_math_cuda_gemm_batch(ex->stream, true, false, k, s, m, 1.0f,
                                           a->weight + g * m * k, k, 0,
                                           a->dy + (first * d->m + g * m) * s, s, d->m * s, 0.0f,
                                           col + g * k * s, s, col_floats(d), n));
        col2im_kernel<<<ct_cuda_grid(count), CT_CUDA_BLOCK, 0, (cudaStream_t)ex->stream>>>(
            *d, n, col, a->dx + first * d->c * in_size(d));
        CT_TRY(ct_cuda_launched("col2im"));
    }
    return CT_OK;
}

/* dw = beta dw + the sum of n blocks, in their order. */
static __global__ void sum_blocks_kernel(int64_t count, int64_t n, const float *part, float beta,
                                         float *dw)
{
    CT_CUDA_LOOP(i, count)
    {
        float sum = (beta == 0.0f) ? 0.0f : beta * dw[i];

        for (int64_t k = 0; k < n; k++) sum += part[k * count + i];
        dw[i] = sum;
    }
}

static ct_status backward_weight(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    int64_t count = weight_floats(d), step = images_at_once(d, col_floats(d) + count);
    int64_t m = group_m(d), k = group_k(d), s = out_size(d);
    float *col = (float *)a->work, *part = col + step * col_floats(d);

    for (int64_t first = 0; first < d->n; first += step) {
        int64_t n = (d->n - first < step) ? d->n - first : step;

        CT_TRY(im2col(d, ex, n, a->x + first * d->c * in_size(d), col));
        for (int64_t g = 0; g < d->group; g++)
            CT_TRY(ct_math_cuda_gemm_batch(ex->stream, false, true, m, k, s, 1.0f,
                                           a->dy + (first * d->m + g * m) * s, s, d->m * s,
                                           col + g * k * s, s, col_floats(d), 0.0f,
                                           part + g * m * k, k, count, n));
        sum_blocks_kernel<<<ct_cuda_grid(count), CT_CUDA_BLOCK, 0, (cudaStream_t)ex->stream>>>(
            count, n, part, (first == 0) ? a->beta : 1.0f, a->dweight);
        CT_TRY(ct_cuda_launched("weight gradient"));
    }
    return CT_OK;
}

const ct_conv_impl ct_conv_cuda_forward = { "cuda", on_cuda, work_col, forward };
const ct_conv_impl ct_conv_cuda_backward_data = { "cuda", on_cuda, work_col,
                                                             backward_data };
const ct_conv_impl ct_conv_cuda_backward_weight = { "cuda", on_cuda, work_weight,
                                                               backward_weight };
