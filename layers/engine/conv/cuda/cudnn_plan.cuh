/** @file cudnn_plan.cuh  What cuDNN would do for a convolution of these shapes, asked once. Included
 * by conv_cudnn.cu alone.
 */
#ifndef CT_CUDNN_PLAN_CUH
#define CT_CUDNN_PLAN_CUH

#include <climits>
#include <cstdlib>
#include <cstring>

#include "framework/base/memory.h"
#include "framework/tensor/cuda/launch.cuh"
#include "layers/engine/conv/conv_private.h"
#include "layers/engine/cudnn.cuh"

static const size_t WORK_MAX = (size_t)512 << 20;
/* What an algorithm may take more that only stands in for one that fails. */
static const size_t SPARE_MAX = (size_t)32 << 20;

enum { MOST_FOUND = 10 };

/* ---- what a convolution of these shapes takes, found once */

typedef struct plan {
    ct_conv_desc desc;
    ct_run_kind kind;
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t weight;
    cudnnConvolutionDescriptor_t conv;
    bool nhwc; /* what cuDNN sees */
    struct {
        int algorithm;
        size_t memory;
        cudnnMathType_t math;
    } found[MOST_FOUND]; /* the best first */
    int n_found;         /* 0: cuDNN has none */
    int taken;
    bool ran;      /* … and did */
    size_t memory; /* for algorithms, at the front of the workspace */
} plan;

static struct {
    plan *of;
    int n, room;
} plans;

static bool narrows(const ct_conv_desc *d)
{
    return ct_operand_size(d->operand) == sizeof(uint16_t);
}

/* FMA: f32 as it is; DEFAULT lets TF32 in; TENSOR_OP is for numbers of 16 bits. */
static cudnnMathType_t math_of(ct_operand operand)
{
    if (operand == CT_OPERAND_F32) return CUDNN_FMA_MATH;
    return (operand == CT_OPERAND_TF32) ? CUDNN_DEFAULT_MATH : CUDNN_TENSOR_OP_MATH;
}

static ct_status describe(plan *p)
{
    const ct_conv_desc *d = &p->desc;
    cudnnDataType_t type = ct_cudnn_type(ct_dtype_of(d->operand));
    cudnnTensorFormat_t form = p->nhwc ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;

    CT_TRY(ct_cudnn_check(ct_dnn.p_cudnnCreateTensorDescriptor(&p->x), "x"));
    CT_TRY(ct_cudnn_check(ct_dnn.p_cudnnCreateTensorDescriptor(&p->y), "y"));
    CT_TRY(ct_cudnn_check(ct_dnn.p_cudnnCreateFilterDescriptor(&p->weight), "weight"));
    CT_TRY(ct_cudnn_check(ct_dnn.p_cudnnCreateConvolutionDescriptor(&p->conv), "convolution"));
    CT_TRY(ct_cudnn_check(ct_dnn.p_cudnnSetTensor4dDescriptor(p->x, form, type, (int)d->n, (int)d->c, (int)d->h,
                                                  (int)d->w),
                 "x"));
    CT_TRY(ct_cudnn_check(ct_dnn.p_cudnnSetTensor4dDescriptor(p->y, form, type, (int)d->n, (int)d->m,
                                                  (int)d->oh, (int)d->ow),
                 "y"));
    CT_TRY(ct_cudnn_check(ct_dnn.p_cudnnSetFilter4dDescriptor(p->weight, type, form, (int)d->m,
                                                  (int)(d->c / d->group), (int)d->kh, (int)d->kw),
                 "weight"));
    CT_TRY(ct_cudnn_check(ct_dnn.p_cudnnSetConvolution2dDescriptor(p->conv, (int)d->ph, (int)d->pw, (int)d->sh,
                                                       (int)d->sw, (int)d->dh, (int)d->dw,
                                                       CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
                 "convolution"));
    CT_TRY(ct_cudnn_check(ct_dnn.p_cudnnSetConvolutionGroupCount(p->conv, (int)d->group), "groups"));
    return ct_cudnn_check(ct_dnn.p_cudnnSetConvolutionMathType(p->conv, math_of(d->operand)), "precision");
}

/* An algorithm goes with the kind of arithmetic that it was named for. */
static bool use(plan *p, int i)
{
    p->taken = i;
    return (p->desc.operand == CT_OPERAND_F32) ||
           (ct_dnn.p_cudnnSetConvolutionMathType(p->conv, p->found[i].math) == CUDNN_STATUS_SUCCESS);
}

/* Those that heuristics name, give the same bits each time and have room, which is the first one's;
 * or a little more, so that another can take its place. */
template <class P> static void take_all(plan *p, const P *perf, int n)
{
    for (int i = 0; (i < n) && (p->n_found < MOST_FOUND); i++) {
        auto *f = &p->found[p->n_found];

        if ((perf[i].status != CUDNN_STATUS_SUCCESS) || (perf[i].memory > WORK_MAX) ||
            (perf[i].determinism != CUDNN_DETERMINISTIC))
            continue;
        if ((p->n_found > 0) && (perf[i].memory > p->memory) &&
            ((p->n_found > 1) || (perf[i].memory > SPARE_MAX)))
            continue;
        *f = { (int)perf[i].algo, perf[i].memory, perf[i].mathType };
        if (!use(p, p->n_found)) continue;
        if (f->memory > p->memory) p->memory = f->memory;
        p->n_found++;
    }
    if ((p->n_found > 0) && !use(p, 0)) p->n_found = 0;
}

/* n_found stays 0 where it has none for such a description, which is no error. */
static void choose(plan *p)
{
    enum { MOST = MOST_FOUND };
    int n = 0;

    if (p->kind == CT_RUN_FORWARD) {
        cudnnConvolutionFwdAlgoPerf_t perf[MOST];

        if (ct_dnn.p_cudnnGetConvolutionForwardAlgorithm_v7(ct_dnn.handle, p->x, p->weight, p->conv, p->y,
                                                         MOST, &n, perf) == CUDNN_STATUS_SUCCESS)
            take_all(p, perf, n);
    } else if (p->kind == CT_RUN_BACKWARD_DATA) {
        cudnnConvolutionBwdDataAlgoPerf_t perf[MOST];

        if (ct_dnn.p_cudnnGetConvolutionBackwardDataAlgorithm_v7(
                ct_dnn.handle, p->weight, p->y, p->conv, p->x, MOST, &n, perf) == CUDNN_STATUS_SUCCESS)
            take_all(p, perf, n);
    } else {
        cudnnConvolutionBwdFilterAlgoPerf_t perf[MOST];

        if (ct_dnn.p_cudnnGetConvolutionBackwardFilterAlgorithm_v7(
                ct_dnn.handle, p->x, p->y, p->conv, p->weight, MOST, &n, perf) == CUDNN_STATUS_SUCCESS)
            take_all(p, perf, n);
    }
}

static void forget(plan *p)
{
    (void)ct_dnn.p_cudnnDestroyTensorDescriptor(p->x);
    (void)ct_dnn.p_cudnnDestroyTensorDescriptor(p->y);
    (void)ct_dnn.p_cudnnDestroyFilterDescriptor(p->weight);
    (void)ct_dnn.p_cudnnDestroyConvolutionDescriptor(p->conv);
}

static void look_up(plan *p)
{
    p->n_found = 0;
    p->memory = 0;
    if (describe(p) == CT_OK) choose(p);
}

/* NULL: no memory. */
static plan *plan_of(const ct_conv_desc *d, ct_run_kind kind)
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
    p->nhwc = narrows(d) && (d->y_last || ((d->c % 8 == 0) && (d->m % 8 == 0)));
    look_up(p);
    if (p->nhwc && (p->n_found == 0)) {
        forget(p);
        p->nhwc = false;
        look_up(p);
    }
    plans.n++;
    return p;
}

/* Whether the next algorithm may do what the one that is taken did not: at its first run, if it made
 * nothing of what it was to add to, and CUDA goes on. */
static bool goes_over(plan *p, const ct_exec *ex, cudnnStatus_t st, float beta, const char *what)
{
    int kind = CUDNN_STATUS_CATEGORY((int)st), from = p->taken;
    bool refused = (kind == CUDNN_STATUS_NOT_SUPPORTED);
    bool failed = (kind == CUDNN_STATUS_EXECUTION_FAILED) || (kind == CUDNN_STATUS_INTERNAL_ERROR);

    if (p->ran || (p->taken + 1 >= p->n_found) || !(refused || (failed && (beta == 0.0f))) ||
        !ct_cuda_goes_on((cudaStream_t)ex->stream) || !use(p, p->taken + 1))
        return false;
    CT_WARN("cuDNN's algorithm %d does not do a %s that its heuristics name it for (%s): algorithm %d "
            "does it from here on",
            p->found[from].algorithm, what, ct_dnn.p_cudnnGetErrorString(st),
            p->found[p->taken].algorithm);
    return true;
}

/* call(algorithm) by the first that does it. */
template <class C>
static ct_status run_plan(plan *p, const ct_exec *ex, float beta, const char *what, C call)
{
    cudnnStatus_t st;

    do {
        st = call(p->found[p->taken].algorithm);
    } while ((st != CUDNN_STATUS_SUCCESS) && goes_over(p, ex, st, beta, what));
    p->ran = p->ran || (st == CUDNN_STATUS_SUCCESS);
    return ct_cudnn_check(st, what);
}

/* Of more numbers than an int counts cuDNN describes no array. */
static bool is_small(const ct_conv_desc *d)
{
    int64_t x = d->n * d->c * d->h * d->w, y = d->n * d->m * d->oh * d->ow;

    return (x <= INT_MAX) && (y <= INT_MAX);
}

static bool fits(const ct_conv_desc *d, ct_run_kind kind)
{
    const plan *p;

    if ((d->device != CT_DEVICE_CUDA) || (d->x_last && !d->y_last) || (d->x_block != 0) || (d->y_block != 0) ||
        (d->n_front != 0) || (d->n < 1) || !is_small(d) || !ct_cudnn_is_there())
        return false;
    p = plan_of(d, kind);
    return (p != NULL) && (p->n_found > 0);
}

#endif
