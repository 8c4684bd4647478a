/* cuDNN's normalisations as loops, in double. Neither works in place: who gives one address for what
 * is read and what is written is refused. */
#include "emulated_cudnn.cuh"

#include <cmath>
#include <vector>

/* ---- across channels */

struct ct_emulated_lrn {
    int64_t size;
    double alpha, beta, k;
};

cudnnStatus_t cudnnCreateLRNDescriptor(cudnnLRNDescriptor_t *r)
{
    *r = new ct_emulated_lrn();
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyLRNDescriptor(cudnnLRNDescriptor_t r)
{
    delete r;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetLRNDescriptor(cudnnLRNDescriptor_t r, unsigned n, double alpha, double beta,
                                    double k)
{
    if ((n < 1) || (n > CUDNN_LRN_MAX_N) || (k < CUDNN_LRN_MIN_K) || (beta < CUDNN_LRN_MIN_BETA))
        return CUDNN_STATUS_BAD_PARAM;
    *r = { n, alpha, beta, k };
    return CUDNN_STATUS_SUCCESS;
}

/* of(place), summed over the window around channel c of place (i, h, w). */
template <class F>
static double window(const ct_emulated_lrn &r, const ct_emulated_array &x, int64_t i, int64_t c,
                     int64_t h, int64_t w, F of)
{
    double sum = 0.0;

    for (int64_t k = c - (r.size - 1) / 2; k <= c + r.size / 2; k++) {
        if ((k >= 0) && (k < x.c)) sum += of(x.at(i, k, h, w));
    }
    return sum;
}

/* each(i, c, h, w) of all places. */
template <class F> static void places(const ct_emulated_array &x, F each)
{
    for (int64_t i = 0; i < x.n; i++)
        for (int64_t c = 0; c < x.c; c++)
            for (int64_t h = 0; h < x.h; h++)
                for (int64_t w = 0; w < x.w; w++) each(i, c, h, w);
}

static std::vector<double> scales(const ct_emulated_lrn &r, const ct_emulated_array &x,
                                  const void *x_at)
{
    std::vector<double> scale((size_t)x.count());

    places(x, [&](int64_t i, int64_t c, int64_t h, int64_t w) {
        scale[(size_t)x.at(i, c, h, w)] =
            r.k + r.alpha / (double)r.size * window(r, x, i, c, h, w, [&](int64_t at) {
                      return x.get(x_at, at) * x.get(x_at, at);
                  });
    });
    return scale;
}

static bool is_plain(const ct_emulated_array &x)
{
    return (x.format == CUDNN_TENSOR_NCHW) && (x.type == CUDNN_DATA_FLOAT);
}

static bool crosses_channels(cudnnLRNMode_t mode, const ct_emulated_array &x,
                             const ct_emulated_array &y, const void *alpha, const void *beta)
{
    return (mode == CUDNN_LRN_CROSS_CHANNEL_DIM1) && is_plain(x) && ct_emulated_is_same(x, y) &&
           ct_emulated_overwrites(alpha, beta);
}

cudnnStatus_t cudnnLRNCrossChannelForward(cudnnHandle_t, cudnnLRNDescriptor_t norm,
                                          cudnnLRNMode_t mode, const void *alpha,
                                          cudnnTensorDescriptor_t x_of, const void *x_at,
                                          const void *beta, cudnnTensorDescriptor_t y_of,
                                          void *y_at)
{
    ct_emulated_lrn r = *norm;
    ct_emulated_array x = *x_of;

    if (!crosses_channels(mode, x, *y_of, alpha, beta) || (x_at == y_at))
        return CUDNN_STATUS_BAD_PARAM;
    ct_emulated_give(ct_emulated_cudnn_stream, [=]() {
        ct_emulated_open();
        std::vector<double> scale = scales(r, x, x_at);

        for (int64_t i = 0; i < x.count(); i++)
            x.put(y_at, i, x.get(x_at, i) * pow(scale[(size_t)i], -r.beta));
        ct_emulated_close();
    });
    return CUDNN_STATUS_SUCCESS;
}

/* y over the scale is x scale^(-beta - 1): so y must be there, and be forward's. */
cudnnStatus_t cudnnLRNCrossChannelBackward(cudnnHandle_t, cudnnLRNDescriptor_t norm,
                                           cudnnLRNMode_t mode, const void *alpha,
                                           cudnnTensorDescriptor_t y_of, const void *y_at,
                                           cudnnTensorDescriptor_t dy_of, const void *dy_at,
                                           cudnnTensorDescriptor_t x_of, const void *x_at,
                                           const void *beta, cudnnTensorDescriptor_t dx_of,
                                           void *dx_at)
{
    ct_emulated_lrn r = *norm;
    ct_emulated_array x = *x_of;

    if (!crosses_channels(mode, x, *y_of, alpha, beta) || !ct_emulated_is_same(x, *dy_of) ||
        !ct_emulated_is_same(x, *dx_of) || (dx_at == dy_at))
        return CUDNN_STATUS_BAD_PARAM;
    ct_emulated_give(ct_emulated_cudnn_stream, [=]() {
        ct_emulated_open();
        std::vector<double> scale = scales(r, x, x_at);

        places(x, [&](int64_t i, int64_t c, int64_t h, int64_t w) {
            int64_t to = x.at(i, c, h, w);
            double sum = window(r, x, i, c, h, w, [&](int64_t at) {
                return x.get(dy_at, at) * x.get(y_at, at) / scale[(size_t)at];
            });

            x.put(dx_at, to,
                  x.get(dy_at, to) * pow(scale[(size_t)to], -r.beta) -
                      2.0 * r.alpha * r.beta / (double)r.size * x.get(x_at, to) * sum);
        });
        ct_emulated_close();
    });
    return CUDNN_STATUS_SUCCESS;
}

/* ---- over the batch */

static bool is_vector(const ct_emulated_array &v, const ct_emulated_array &x)
{
    return is_plain(v) && (v.n == 1) && (v.c == x.c) && (v.h == 1) && (v.w == 1);
}

/* x and y, another array of the same shape, with a number a channel in each vector. */
static bool normalises(cudnnBatchNormMode_t mode, const ct_emulated_array &x,
                       const ct_emulated_array &y, const ct_emulated_array &vector,
                       const void *alpha, const void *beta, double eps)
{
    return (mode == CUDNN_BATCHNORM_SPATIAL) && ct_emulated_is_same(x, y) &&
           is_vector(vector, x) && ct_emulated_overwrites(alpha, beta) &&
           (eps >= CUDNN_BN_MIN_EPSILON);
}

/* f(c, place) of all of x. */
template <class F> static void by_channel(const ct_emulated_array &x, F f)
{
    places(x, [&](int64_t i, int64_t c, int64_t h, int64_t w) { f(c, x.at(i, c, h, w)); });
}

static void move(void *running, int64_t c, double factor, double value)
{
    float *at = (float *)running + c;

    *at = (float)((double)*at * (1.0 - factor) + value * factor);
}

/* y = (x - mean) inv_std scale + bias. */
static void normalise(const ct_emulated_array &x, const void *x_at, void *y_at,
                      const std::vector<double> &mean, const std::vector<double> &inv_std,
                      const void *scale, const void *bias)
{
    by_channel(x, [&](int64_t c, int64_t at) {
        double normal = (x.get(x_at, at) - mean[(size_t)c]) * inv_std[(size_t)c];

        x.put(y_at, at, normal * (double)((const float *)scale)[c] +
                            (double)((const float *)bias)[c]);
    });
}

cudnnStatus_t cudnnBatchNormalizationForwardTraining(
    cudnnHandle_t, cudnnBatchNormMode_t mode, const void *alpha, const void *beta,
    cudnnTensorDescriptor_t x_of, const void *x_at, cudnnTensorDescriptor_t y_of, void *y_at,
    cudnnTensorDescriptor_t vector, const void *scale, const void *bias, double factor,
    void *running_mean, void *running_var, double eps, void *mean_at, void *inv_std_at)
{
    ct_emulated_array x = *x_of;
    double count = (double)(x.n * x.h * x.w);

    if (!normalises(mode, x, *y_of, *vector, alpha, beta, eps) || (x_at == y_at) ||
        (scale == nullptr) || (bias == nullptr) || (count < 2.0))
        return CUDNN_STATUS_BAD_PARAM;
    ct_emulated_give(ct_emulated_cudnn_stream, [=]() {
        std::vector<double> mean((size_t)x.c), var((size_t)x.c);

        ct_emulated_open();
        by_channel(x, [&](int64_t c, int64_t at) { mean[(size_t)c] += x.get(x_at, at) / count; });
        by_channel(x, [&](int64_t c, int64_t at) {
            var[(size_t)c] += pow(x.get(x_at, at) - mean[(size_t)c], 2.0) / count;
        });
        for (int64_t c = 0; c < x.c; c++) {
            move(running_mean, c, factor, mean[(size_t)c]);
            move(running_var, c, factor, var[(size_t)c] * count / (count - 1.0));
            var[(size_t)c] = 1.0 / sqrt(var[(size_t)c] + eps);
            ((float *)mean_at)[c] = (float)mean[(size_t)c];
            ((float *)inv_std_at)[c] = (float)var[(size_t)c];
        }
        normalise(x, x_at, y_at, mean, var, scale, bias);
        ct_emulated_close();
    });
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBatchNormalizationForwardInference(
    cudnnHandle_t, cudnnBatchNormMode_t mode, const void *alpha, const void *beta,
    cudnnTensorDescriptor_t x_of, const void *x_at, cudnnTensorDescriptor_t y_of, void *y_at,
    cudnnTensorDescriptor_t vector, const void *scale, const void *bias, const void *mean_at,
    const void *var_at, double eps)
{
    ct_emulated_array x = *x_of;

    if (!normalises(mode, x, *y_of, *vector, alpha, beta, eps) || (x_at == y_at) ||
        (scale == nullptr) || (bias == nullptr))
        return CUDNN_STATUS_BAD_PARAM;
    ct_emulated_give(ct_emulated_cudnn_stream, [=]() {
        std::vector<double> mean((size_t)x.c), inv_std((size_t)x.c);

        ct_emulated_open();
        for (int64_t c = 0; c < x.c; c++) {
            mean[(size_t)c] = (double)((const float *)mean_at)[c];
            inv_std[(size_t)c] = 1.0 / sqrt((double)((const float *)var_at)[c] + eps);
        }
        normalise(x, x_at, y_at, mean, inv_std, scale, bias);
        ct_emulated_close();
    });
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBatchNormalizationBackward(
    cudnnHandle_t, cudnnBatchNormMode_t mode, const void *alpha, const void *beta,
    const void *alpha_vector, const void *beta_vector, cudnnTensorDescriptor_t x_of,
    const void *x_at, cudnnTensorDescriptor_t dy_of, const void *dy_at,
    cudnnTensorDescriptor_t dx_of, void *dx_at, cudnnTensorDescriptor_t vector, const void *scale,
    void *dscale, void *dbias, double eps, const void *mean_at, const void *inv_std_at)
{
    ct_emulated_array x = *x_of;
    double count = (double)(x.n * x.h * x.w);

    if (!normalises(mode, x, *dy_of, *vector, alpha, beta, eps) ||
        !ct_emulated_is_same(x, *dx_of) || !ct_emulated_overwrites(alpha_vector, beta_vector) ||
        (dx_at == dy_at) || (dx_at == nullptr) || (scale == nullptr) || (dscale == nullptr) ||
        (dbias == nullptr))
        return CUDNN_STATUS_BAD_PARAM;
    ct_emulated_give(ct_emulated_cudnn_stream, [=]() {
        std::vector<double> sum((size_t)x.c), dot((size_t)x.c);
        const float *mean = (const float *)mean_at, *inv_std = (const float *)inv_std_at;
        auto normal = [&](int64_t c, int64_t at) {
            return (x.get(x_at, at) - (double)mean[c]) * (double)inv_std[c];
        };

        ct_emulated_open();
        by_channel(x, [&](int64_t c, int64_t at) {
            sum[(size_t)c] += x.get(dy_at, at);
            dot[(size_t)c] += x.get(dy_at, at) * normal(c, at);
        });
        by_channel(x, [&](int64_t c, int64_t at) {
            double less = (sum[(size_t)c] + normal(c, at) * dot[(size_t)c]) / count;

            x.put(dx_at, at, (x.get(dy_at, at) - less) * (double)((const float *)scale)[c] *
                                 (double)inv_std[c]);
        });
        for (int64_t c = 0; c < x.c; c++) {
            ((float *)dscale)[c] = (float)dot[(size_t)c];
            ((float *)dbias)[c] = (float)sum[(size_t)c];
        }
        ct_emulated_close();
    });
    return CUDNN_STATUS_SUCCESS;
}
