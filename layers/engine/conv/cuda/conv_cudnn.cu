/* Convolution by cuDNN 9, found when the program runs: built where its header is there, used where
 * its library is. Deterministic algorithms in f32 without TF32, chosen by its heuristics, with as
 * much workspace as they may have at most. */
#include <cudnn.h>
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "framework/tensor/cuda/launch.cuh"
#include "layers/engine/conv/conv_private.h"

static const size_t WORK_MAX = (size_t)512 << 20;

#define CALLS(X)                                                                                   \
    X(cudnnCreate)                                                                                 \
    X(cudnnSetStream)                                                                              \
    X(cudnnGetErrorString)                                                                         \
    X(cudnnCreateTensorDescriptor)                                                                 \
    X(cudnnSetTensor4dDescriptor)                                                                  \
    X(cudnnCreateFilterDescriptor)                                                                 \
    X(cudnnSetFilter4dDescriptor)                                                                  \
    X(cudnnCreateConvolutionDescriptor)                                                            \
    X(cudnnSetConvolution2dDescriptor)                                                             \
    X(cudnnSetConvolutionGroupCount)                                                               \
    X(cudnnSetConvolutionMathType)                                                                 \
    X(cudnnGetConvolutionForwardAlgorithm_v7)                                                      \
    X(cudnnGetConvolutionBackwardDataAlgorithm_v7)                                                 \
    X(cudnnGetConvolutionBackwardFilterAlgorithm_v7)                                               \
    X(cudnnConvolutionForward)                                                                     \
    X(cudnnConvolutionBackwardData)                                                                \
    X(cudnnConvolutionBackwardFilter)

/* The library is the process's, like the device; as the handle of cuBLAS. */
static struct {
    bool looked;
    cudnnHandle_t handle; /* NULL: there is none */
#define MEMBER(_name) decltype(&::_name) p_##_name;
    CALLS(MEMBER)
} dnn;

static bool find_calls(void *lib)
{
#define FIND(_name)                                                                                \
    dnn.p_##_name = (decltype(dnn.p_##_name))dlsym(lib, #_name);                                   \
    if (dnn.p_##_name == NULL) return false;
    CALLS(FIND)
    return true;
}

static bool is_there(void)
{
    void *lib;

    if (dnn.looked) return dnn.handle != NULL;
    dnn.looked = true;
    lib = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if ((lib == NULL) || !find_calls(lib) ||
        (dnn.p_cudnnCreate(&dnn.handle) != CUDNN_STATUS_SUCCESS)) {
        dnn.handle = NULL;
        CT_DEBUG("no cuDNN 9 here: convolutions go through im2col");
    }
    return dnn.handle != NULL;
}

static ct_status check(cudnnStatus_t st, const char *what)
{
    if (st == CUDNN_STATUS_SUCCESS) return CT_OK;
    return CT_FAIL(CT_ERR_DEVICE, "%s: cuDNN: %s", what, dnn.p_cudnnGetErrorString(st));
}

/* ---- what a convolution of these shapes takes, found once */

typedef struct plan {
    ct_conv_desc desc;
    ct_run_kind kind;
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t weight;
    cudnnConvolutionDescriptor_t conv;
    int algorithm; /* -1: cuDNN has none */
    size_t memory;
} plan;

static struct {
    plan *of;
    int n, room;
} plans;

static ct_status describe(plan *p)
{
    const ct_conv_desc *d = &p->desc;

    CT_TRY(check(dnn.p_cudnnCreateTensorDescriptor(&p->x), "x"));
    CT_TRY(check(dnn.p_cudnnCreateTensorDescriptor(&p->y), "y"));
    CT_TRY(check(dnn.p_cudnnCreateFilterDescriptor(&p->weight), "weight"));
    CT_TRY(check(dnn.p_cudnnCreateConvolutionDescriptor(&p->conv), "convolution"));
    CT_TRY(check(dnn.p_cudnnSetTensor4dDescriptor(p->x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT,
                                                  (int)d->n, (int)d->c, (int)d->h, (int)d->w),
                 "x"));
    CT_TRY(check(dnn.p_cudnnSetTensor4dDescriptor(p->y, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT,
                                                  (int)d->n, (int)d->m, (int)d->oh, (int)d->ow),
                 "y"));
    CT_TRY(check(dnn.p_cudnnSetFilter4dDescriptor(p->weight, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW,
                                                  (int)d->m, (int)(d->c / d->group), (int)d->kh,
                                                  (int)d->kw),
                 "weight"));
    CT_TRY(check(dnn.p_cudnnSetConvolution2dDescriptor(p->conv, (int)d->ph, (int)d->pw, (int)d->sh,
                                                       (int)d->sw, (int)d->dh, (int)d->dw,
                                                       CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
                 "convolution"));
    CT_TRY(check(dnn.p_cudnnSetConvolutionGroupCount(p->conv, (int)d->group), "groups"));
    return check(dnn.p_cudnnSetConvolutionMathType(p->conv, CUDNN_FMA_MATH), "f32");
}

/* The first that heuristics name, gives the same bits each time and has room. */
template <class P> static void take_first(plan *p, const P *perf, int n)
{
    for (int i = 0; i < n; i++) {
        if ((perf[i].status != CUDNN_STATUS_SUCCESS) || (perf[i].memory > WORK_MAX) ||
            (perf[i].determinism != CUDNN_DETERMINISTIC))
            continue;
        p->algorithm = (int)perf[i].algo;
        p->memory = perf[i].memory;
        return;
    }
}

static ct_status choose(plan *p)
{
    enum { MOST = 10 };
    int n = 0;

    p->algorithm = -1;
    if (p->kind == CT_RUN_FORWARD) {
        cudnnConvolutionFwdAlgoPerf_t perf[MOST];

        CT_TRY(check(dnn.p_cudnnGetConvolutionForwardAlgorithm_v7(dnn.handle, p->x, p->weight,
                                                                  p->conv, p->y, MOST, &n, perf),
                     "choice"));
        take_first(p, perf, n);
    } else if (p->kind == CT_RUN_BACKWARD_DATA) {
        cudnnConvolutionBwdDataAlgoPerf_t perf[MOST];

        CT_TRY(check(dnn.p_cudnnGetConvolutionBackwardDataAlgorithm_v7(
                         dnn.handle, p->weight, p->y, p->conv, p->x, MOST, &n, perf),
                     "choice"));
        take_first(p, perf, n);
    } else {
        cudnnConvolutionBwdFilterAlgoPerf_t perf[MOST];

        CT_TRY(check(dnn.p_cudnnGetConvolutionBackwardFilterAlgorithm_v7(
                         dnn.handle, p->x, p->y, p->conv, p->weight, MOST, &n, perf),
                     "choice"));
        take_first(p, perf, n);
    }
    return CT_OK;
}

/* NULL: no memory, or cuDNN refused (logged). */
static const plan *plan_of(const ct_conv_desc *d, ct_run_kind kind)
{
    plan *p;

    for (int i = 0; i < plans.n; i++) {
        if ((plans.of[i].kind == kind) && (memcmp(&plans.of[i].desc, d, sizeof(*d)) == 0))
            return &plans.of[i];
    }
    if (plans.n == plans.room) {
        int room = 2 * plans.room + 64;
        plan *more = (plan *)realloc(plans.of, (size_t)room * sizeof(*more));

        if (more == NULL) return NULL;
        plans.of = more;
        plans.room = room;
    }
    p = &plans.of[plans.n];
    memset(p, 0, sizeof(*p));
    memcpy(&p->desc, d, sizeof(*d));
    p->kind = kind;
    if ((describe(p) != CT_OK) || (choose(p) != CT_OK)) p->algorithm = -1;
    plans.n++;
    return p;
}

static bool fits(const ct_conv_desc *d, ct_run_kind kind)
{
    const plan *p;

    if ((d->device != CT_DEVICE_CUDA) || (d->x_block != 0) || (d->y_block != 0) ||
        (d->n_front != 0) || (d->n < 1) || !is_there())
        return false;
    p = plan_of(d, kind);
    return (p != NULL) && (p->algorithm >= 0);
}

/* ---- the three ways */

static ct_status open_run(const ct_conv_desc *d, ct_run_kind kind, const ct_exec *ex,
                          const plan **p_p)
{
    *p_p = plan_of(d, kind);
    if (*p_p == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a convolution of cuDNN");
    return check(dnn.p_cudnnSetStream(dnn.handle, (cudaStream_t)ex->stream), "stream");
}

static ct_status forward(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    const float one = 1.0f, zero = 0.0f, *bias = a->bias;
    int64_t m = d->m, s = d->oh * d->ow;
    float *y = a->y;
    const plan *p;

    CT_TRY(open_run(d, CT_RUN_FORWARD, ex, &p));
    CT_TRY(check(dnn.p_cudnnConvolutionForward(dnn.handle, &one, p->x, a->x, p->weight, a->weight,
                                               p->conv, (cudnnConvolutionFwdAlgo_t)p->algorithm,
                                               a->work, p->memory, &zero, p->y, a->y),
                 "convolution"));
    if (bias == NULL) return CT_OK;
    return ct_cuda_map(ex->stream, "convolution bias", d->n * m * s,
                       [=] __device__(int64_t i) { y[i] += bias[i / s % m]; });
}

static ct_status backward_data(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    const float one = 1.0f, zero = 0.0f;
    const plan *p;

    CT_TRY(open_run(d, CT_RUN_BACKWARD_DATA, ex, &p));
    return check(dnn.p_cudnnConvolutionBackwardData(dnn.handle, &one, p->weight, a->weight, p->y,
                                                    a->dy, p->conv,
                                                    (cudnnConvolutionBwdDataAlgo_t)p->algorithm,
                                                    a->work, p->memory, &zero, p->x, a->dx),
                 "convolution by data");
}

static ct_status backward_weight(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    const float one = 1.0f, beta = a->beta;
    const plan *p;

    CT_TRY(open_run(d, CT_RUN_BACKWARD_WEIGHT, ex, &p));
    return check(
        dnn.p_cudnnConvolutionBackwardFilter(dnn.handle, &one, p->x, a->x, p->y, a->dy, p->conv,
                                             (cudnnConvolutionBwdFilterAlgo_t)p->algorithm, a->work,
                                             p->memory, &beta, p->weight, a->dweight),
        "convolution by weight");
}

#define ENGINE(_symbol, _kind, _run)                                                               \
    static bool _run##_fits(const ct_conv_desc *d)                                                 \
    {                                                                                              \
        return fits(d, _kind);                                                                     \
    }                                                                                              \
    static size_t _run##_work(const ct_conv_desc *d)                                               \
    {                                                                                              \
        return plan_of(d, _kind)->memory;                                                          \
    }                                                                                              \
    const ct_conv_impl _symbol = { "cudnn", _run##_fits, _run##_work, _run };

ENGINE(ct_conv_cudnn_forward, CT_RUN_FORWARD, forward)
ENGINE(ct_conv_cudnn_backward_data, CT_RUN_BACKWARD_DATA, backward_data)
ENGINE(ct_conv_cudnn_backward_weight, CT_RUN_BACKWARD_WEIGHT, backward_weight)
