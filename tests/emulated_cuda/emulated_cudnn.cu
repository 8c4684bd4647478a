/* cuDNN's convolutions as loops: sums in double, results rounded to their type, what lies in the
 * workspace overwritten. It names one algorithm that is not deterministic before one that is, and
 * has none for channels last where their number is odd. */
#include "emulated_cudnn.cuh"

#include <climits>
#include <cstdlib>
#include <cstring>

struct ct_emulated_convolution {
    int64_t ph, pw, sh, sw, dh, dw, groups;
    cudnnMathType_t math;
};

enum { MEMORY = 320 };
static const size_t MORE = 2 * MEMORY; /* of the algorithm behind the first that serves */

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    static char one;

    if (getenv("CORTADO_EMULATED_CUDNN") == NULL) return CUDNN_STATUS_NOT_INITIALIZED;
    *handle = (cudnnHandle_t)&one;
    return CUDNN_STATUS_SUCCESS;
}

cudaStream_t ct_emulated_cudnn_stream;

cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t st)
{
    ct_emulated_cudnn_stream = st;
    return CUDNN_STATUS_SUCCESS;
}

const char *cudnnGetErrorString(cudnnStatus_t st)
{
    if (st == CUDNN_STATUS_EXECUTION_FAILED_CUDART) return "execution failed";
    return (st == CUDNN_STATUS_NOT_SUPPORTED) ? "not supported" : "bad parameter";
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *t)
{
    *t = new ct_emulated_array();
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t t)
{
    delete t;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *f)
{
    return cudnnCreateTensorDescriptor(f);
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t f)
{
    return cudnnDestroyTensorDescriptor(f);
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *c)
{
    *c = new ct_emulated_convolution();
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t c)
{
    delete c;
    return CUDNN_STATUS_SUCCESS;
}

/* As the library: dimensions of at least 1, no more numbers than an int counts. */
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t t, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w)
{
    if ((n < 1) || (c < 1) || (h < 1) || (w < 1)) return CUDNN_STATUS_BAD_PARAM;
    if ((double)n * c * h * w > (double)INT_MAX) return CUDNN_STATUS_NOT_SUPPORTED;
    *t = { format, type, n, c, h, w };
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t f, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int m, int c, int h, int w)
{
    return cudnnSetTensor4dDescriptor(f, format, type, m, c, h, w);
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t c, int ph, int pw,
                                              int sh, int sw, int dh, int dw,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t sums)
{
    if ((mode != CUDNN_CROSS_CORRELATION) || (sums != CUDNN_DATA_FLOAT))
        return CUDNN_STATUS_BAD_PARAM;
    *c = { ph, pw, sh, sw, dh, dw, 1, CUDNN_DEFAULT_MATH };
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t c, int groups)
{
    c->groups = groups;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t c, cudnnMathType_t math)
{
    c->math = math;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- what there is for such arrays */

static int64_t out_of(int64_t in, int64_t kernel, int64_t pad, int64_t stride, int64_t dilation)
{
    return (in + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1;
}

static bool agree(const ct_emulated_array *x, const ct_emulated_array *w,
                  const ct_emulated_convolution *c, const ct_emulated_array *y)
{
    return (x->type == w->type) && (x->type == y->type) && (x->format == y->format) &&
           (x->format == w->format) && (x->n == y->n) && (x->c == w->c * c->groups) &&
           (y->c == w->n) && (w->n % c->groups == 0) &&
           (y->h == out_of(x->h, w->h, c->ph, c->sh, c->dh)) &&
           (y->w == out_of(x->w, w->w, c->pw, c->sw, c->dw));
}

template <class A>
static cudnnStatus_t algorithms(const ct_emulated_array *x, const ct_emulated_array *w,
                                const ct_emulated_convolution *c, const ct_emulated_array *y,
                                int most, int *n, ct_emulated_perf<A> *perf)
{
    if (!agree(x, w, c, y) || (most < 2)) return CUDNN_STATUS_BAD_PARAM;
    if ((x->format == CUDNN_TENSOR_NHWC) && ((x->c % 2 == 1) || (y->c % 2 == 1)))
        return CUDNN_STATUS_NOT_SUPPORTED;
    perf[0] = { (A)1, CUDNN_STATUS_SUCCESS, 0, CUDNN_NON_DETERMINISTIC, CUDNN_DEFAULT_MATH };
    perf[1] = { (A)0, CUDNN_STATUS_SUCCESS, MEMORY, CUDNN_DETERMINISTIC, c->math };
    *n = 2;
    if (most > 2) perf[(*n)++] = { (A)2, CUDNN_STATUS_SUCCESS, MORE, CUDNN_DETERMINISTIC, c->math };
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
    cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t y, int most, int *n,
    cudnnConvolutionFwdAlgoPerf_t *perf)
{
    return algorithms(x, w, c, y, most, n, perf);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t dx, int most, int *n,
    cudnnConvolutionBwdDataAlgoPerf_t *perf)
{
    return algorithms(dx, w, c, dy, most, n, perf);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t c, cudnnFilterDescriptor_t dw, int most, int *n,
    cudnnConvolutionBwdFilterAlgoPerf_t *perf)
{
    return algorithms(x, dw, c, dy, most, n, perf);
}

/* ---- the three ways: every product once, into the sum that it belongs to */

typedef enum { FORWARD, DATA, FILTER } way;

struct call {
    ct_emulated_array x, w, y;
    ct_emulated_convolution c;
    const void *x_at, *w_at, *y_at;
    void *to, *work;
    size_t bytes;
    float alpha, beta;
    way which;
    int algorithm;
};

/* Output (i, m, oy, ox) with all its taps. */
static void taps(const call &k, double *sum, int64_t i, int64_t m, int64_t oy, int64_t ox)
{
    int64_t own = k.w.n / k.c.groups, first = m / own * k.w.c, y = k.y.at(i, m, oy, ox);

    for (int64_t e = 0; e < k.w.c * k.w.h * k.w.w; e++) {
        int64_t c = e / (k.w.h * k.w.w), p = e / k.w.w % k.w.h, q = e % k.w.w;
        int64_t row = oy * k.c.sh - k.c.ph + p * k.c.dh, column = ox * k.c.sw - k.c.pw + q * k.c.dw;
        int64_t x, w = k.w.at(m, c, p, q);

        if ((row < 0) || (row >= k.x.h) || (column < 0) || (column >= k.x.w)) continue;
        x = k.x.at(i, first + c, row, column);
        if (k.which == FORWARD) sum[y] += k.x.get(k.x_at, x) * k.w.get(k.w_at, w);
        if (k.which == DATA) sum[x] += k.y.get(k.y_at, y) * k.w.get(k.w_at, w);
        if (k.which == FILTER) sum[w] += k.y.get(k.y_at, y) * k.x.get(k.x_at, x);
    }
}

static void convolve(const call &k)
{
    const ct_emulated_array &made = (k.which == FORWARD) ? k.y : (k.which == DATA) ? k.x : k.w;
    double *sum = (double *)calloc((size_t)made.count() + 1, sizeof(double));

    ct_emulated_open();
    memset(k.work, 0xff, k.bytes); /* NaN to who keeps something there */
    for (int64_t i = 0; i < k.y.n; i++)
        for (int64_t m = 0; m < k.y.c; m++)
            for (int64_t o = 0; o < k.y.h * k.y.w; o++) taps(k, sum, i, m, o / k.y.w, o % k.y.w);
    for (int64_t e = 0; e < made.count(); e++) {
        double old = (k.beta == 0.0f) ? 0.0 : (double)k.beta * made.get(k.to, e);

        made.put(k.to, e, (double)k.alpha * sum[e] + old);
    }
    ct_emulated_close();
    free(sum);
}

/* CORTADO_EMULATED_CUDNN_FAIL=0: what algorithm 0 is given fails, having spoilt what it was to
 * make; 02: algorithm 2's, too; with an s behind, CUDA's error stays. */
static bool fails(const call &k)
{
    const char *which = getenv("CORTADO_EMULATED_CUDNN_FAIL");
    const ct_emulated_array &made = (k.which == FORWARD) ? k.y : (k.which == DATA) ? k.x : k.w;

    if ((which == nullptr) || (strchr(which, '0' + k.algorithm) == nullptr)) return false;
    if (strchr(which, 's') != nullptr) ct_emulated_break(cudaErrorIllegalAddress);
    ct_emulated_open();
    for (int64_t e = 0; e < made.count(); e++) made.put(k.to, e, (double)NAN);
    ct_emulated_close();
    return true;
}

static cudnnStatus_t give(const call &k)
{
    size_t least = (k.algorithm == 0) ? MEMORY : MORE;

    if (!agree(&k.x, &k.w, &k.c, &k.y) || (k.bytes < least)) return CUDNN_STATUS_BAD_PARAM;
    if (fails(k)) return CUDNN_STATUS_EXECUTION_FAILED_CUDART;
    ct_emulated_give(ct_emulated_cudnn_stream, [=]() { convolve(k); });
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t, const void *alpha, cudnnTensorDescriptor_t x,
                                      const void *x_at, cudnnFilterDescriptor_t w, const void *w_at,
                                      cudnnConvolutionDescriptor_t c, cudnnConvolutionFwdAlgo_t algorithm,
                                      void *work, size_t bytes, const void *beta,
                                      cudnnTensorDescriptor_t y, void *y_at)
{
    return give({ *x, *w, *y, *c, x_at, w_at, y_at, y_at, work, bytes, *(const float *)alpha,
                  *(const float *)beta, FORWARD, (int)algorithm });
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t, const void *alpha,
                                           cudnnFilterDescriptor_t w, const void *w_at,
                                           cudnnTensorDescriptor_t dy, const void *dy_at,
                                           cudnnConvolutionDescriptor_t c,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void *work, size_t bytes,
                                           const void *beta, cudnnTensorDescriptor_t dx,
                                           void *dx_at)
{
    return give({ *dx, *w, *dy, *c, dx_at, w_at, dy_at, dx_at, work, bytes, *(const float *)alpha,
                  *(const float *)beta, DATA, (int)algorithm });
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t, const void *alpha,
                                             cudnnTensorDescriptor_t x, const void *x_at,
                                             cudnnTensorDescriptor_t dy, const void *dy_at,
                                             cudnnConvolutionDescriptor_t c,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void *work,
                                             size_t bytes, const void *beta,
                                             cudnnFilterDescriptor_t dw, void *dw_at)
{
    return give({ *x, *dw, *dy, *c, x_at, dw_at, dy_at, dw_at, work, bytes, *(const float *)alpha,
                  *(const float *)beta, FILTER, (int)algorithm });
}
