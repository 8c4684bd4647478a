/* cuDNN's average pooling and softmax as loops, in double. */
#include "emulated_cudnn.cuh"

#include <cmath>
#include <vector>

struct ct_emulated_pooling {
    int64_t kh, kw, ph, pw, sh, sw;
};

cudnnStatus_t cudnnCreatePoolingDescriptor(cudnnPoolingDescriptor_t *p)
{
    *p = new ct_emulated_pooling();
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyPoolingDescriptor(cudnnPoolingDescriptor_t p)
{
    delete p;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetPooling2dDescriptor(cudnnPoolingDescriptor_t p, cudnnPoolingMode_t mode,
                                          cudnnNanPropagation_t, int kh, int kw, int ph, int pw,
                                          int sh, int sw)
{
    if ((mode != CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING) || (ph >= kh) || (pw >= kw))
        return CUDNN_STATUS_BAD_PARAM;
    *p = { kh, kw, ph, pw, sh, sw };
    return CUDNN_STATUS_SUCCESS;
}

/* The divisor is the whole window, wherever it reaches. */
template <class F>
static void windows(const ct_emulated_pooling &p, const ct_emulated_array &x,
                    const ct_emulated_array &y, F each)
{
    for (int64_t i = 0; i < y.n * y.c * y.h * y.w; i++) {
        int64_t image = i / (y.c * y.h * y.w), c = i / (y.h * y.w) % y.c;
        int64_t oy = i / y.w % y.h, ox = i % y.w, at = y.at(image, c, oy, ox);

        for (int64_t e = 0; e < p.kh * p.kw; e++) {
            int64_t row = oy * p.sh - p.ph + e / p.kw, column = ox * p.sw - p.pw + e % p.kw;

            if ((row < 0) || (row >= x.h) || (column < 0) || (column >= x.w)) continue;
            each(at, x.at(image, c, row, column));
        }
    }
}

static bool fits(const ct_emulated_pooling &p, const ct_emulated_array &x,
                 const ct_emulated_array &y)
{
    return (x.n == y.n) && (x.c == y.c) && (x.type == y.type) && (x.format == y.format) &&
           ((x.h + 2 * p.ph - p.kh) / p.sh + 1 == y.h) &&
           ((x.w + 2 * p.pw - p.kw) / p.sw + 1 == y.w);
}

static void store(const ct_emulated_array &of, const std::vector<double> &sum, double by, void *to)
{
    for (size_t i = 0; i < sum.size(); i++) of.put(to, (int64_t)i, sum[i] * by);
}

cudnnStatus_t cudnnPoolingForward(cudnnHandle_t, cudnnPoolingDescriptor_t pool, const void *alpha,
                                  cudnnTensorDescriptor_t x_of, const void *x_at, const void *beta,
                                  cudnnTensorDescriptor_t y_of, void *y_at)
{
    ct_emulated_pooling p = *pool;
    ct_emulated_array x = *x_of, y = *y_of;

    if (!fits(p, x, y) || !ct_emulated_overwrites(alpha, beta))
        return CUDNN_STATUS_BAD_PARAM;
    ct_emulated_give(ct_emulated_cudnn_stream, [=]() {
        std::vector<double> sum((size_t)y.count());

        ct_emulated_open();
        windows(p, x, y, [&](int64_t to, int64_t from) { sum[(size_t)to] += x.get(x_at, from); });
        store(y, sum, 1.0 / (double)(p.kh * p.kw), y_at);
        ct_emulated_close();
    });
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnPoolingBackward(cudnnHandle_t, cudnnPoolingDescriptor_t pool, const void *alpha,
                                   cudnnTensorDescriptor_t y_of, const void *y_at,
                                   cudnnTensorDescriptor_t dy_of, const void *dy_at,
                                   cudnnTensorDescriptor_t x_of, const void *x_at, const void *beta,
                                   cudnnTensorDescriptor_t dx_of, void *dx_at)
{
    ct_emulated_pooling p = *pool;
    ct_emulated_array x = *dx_of, y = *dy_of;

    if (!fits(p, x, y) || !ct_emulated_is_same(*x_of, x) || !ct_emulated_is_same(*y_of, y) ||
        (x_at == nullptr) || (y_at == nullptr) || !ct_emulated_overwrites(alpha, beta))
        return CUDNN_STATUS_BAD_PARAM;
    ct_emulated_give(ct_emulated_cudnn_stream, [=]() {
        std::vector<double> sum((size_t)x.count());

        ct_emulated_open();
        windows(p, x, y, [&](int64_t from, int64_t to) { sum[(size_t)to] += y.get(dy_at, from); });
        store(x, sum, 1.0 / (double)(p.kh * p.kw), dx_at);
        ct_emulated_close();
    });
    return CUDNN_STATUS_SUCCESS;
}

/* each(first, step): a distribution of as many numbers as x has channels. */
template <class F> static void distributions(const ct_emulated_array &x, F each)
{
    int64_t inner = x.h * x.w;

    for (int64_t i = 0; i < x.n * inner; i++) each(i / inner * x.c * inner + i % inner, inner);
}

cudnnStatus_t cudnnSoftmaxForward(cudnnHandle_t, cudnnSoftmaxAlgorithm_t how,
                                  cudnnSoftmaxMode_t mode, const void *alpha,
                                  cudnnTensorDescriptor_t x_of, const void *x_at, const void *beta,
                                  cudnnTensorDescriptor_t y_of, void *y_at)
{
    ct_emulated_array x = *x_of;
    const float *from = (const float *)x_at;
    float *to = (float *)y_at;

    if ((how != CUDNN_SOFTMAX_ACCURATE) || (mode != CUDNN_SOFTMAX_MODE_CHANNEL) ||
        (x.format != CUDNN_TENSOR_NCHW) || (x.type != CUDNN_DATA_FLOAT) ||
        !ct_emulated_is_same(x, *y_of) || !ct_emulated_overwrites(alpha, beta))
        return CUDNN_STATUS_BAD_PARAM;
    ct_emulated_give(ct_emulated_cudnn_stream, [=]() {
        ct_emulated_open();
        distributions(x, [&](int64_t first, int64_t step) {
            double most = -INFINITY, sum = 0.0;

            for (int64_t c = 0; c < x.c; c++) most = fmax(most, (double)from[first + c * step]);
            for (int64_t c = 0; c < x.c; c++) sum += exp((double)from[first + c * step] - most);
            for (int64_t c = 0; c < x.c; c++)
                to[first + c * step] = (float)(exp((double)from[first + c * step] - most) / sum);
        });
        ct_emulated_close();
    });
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSoftmaxBackward(cudnnHandle_t, cudnnSoftmaxAlgorithm_t how,
                                   cudnnSoftmaxMode_t mode, const void *alpha,
                                   cudnnTensorDescriptor_t y_of, const void *y_at,
                                   cudnnTensorDescriptor_t dy_of, const void *dy_at,
                                   const void *beta, cudnnTensorDescriptor_t dx_of, void *dx_at)
{
    ct_emulated_array x = *dx_of;
    const float *y = (const float *)y_at, *dy = (const float *)dy_at;
    float *dx = (float *)dx_at;

    if ((how != CUDNN_SOFTMAX_ACCURATE) || (mode != CUDNN_SOFTMAX_MODE_CHANNEL) ||
        !ct_emulated_is_same(x, *y_of) || !ct_emulated_is_same(x, *dy_of) || !ct_emulated_overwrites(alpha, beta))
        return CUDNN_STATUS_BAD_PARAM;
    ct_emulated_give(ct_emulated_cudnn_stream, [=]() {
        ct_emulated_open();
        distributions(x, [&](int64_t first, int64_t step) {
            double dot = 0.0;

            for (int64_t c = 0; c < x.c; c++)
                dot += (double)y[first + c * step] * (double)dy[first + c * step];
            for (int64_t c = 0; c < x.c; c++)
                dx[first + c * step] =
                    (float)((double)y[first + c * step] * ((double)dy[first + c * step] - dot));
        });
        ct_emulated_close();
    });
    return CUDNN_STATUS_SUCCESS;
}
