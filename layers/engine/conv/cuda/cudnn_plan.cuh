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

/* ---- what a convolution of these shapes takes, found once */

typedef struct plan {
    ct_conv_desc desc;
    ct_run_kind kind;
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t weight;
    cudnnConvolutionDescriptor_t conv;
    bool nhwc;     /* what cuDNN sees      */
    int algorithm; /* -1: cuDNN has none */
    size_t memory; /* of the algorithm, at the front of the workspace */
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

/* The first that heuristics name, gives the same bits each time and has room. */
template <class P> static void take_first(plan *p, const P *perf, int n)
{
    for (int i = 0; i < n; i++) {
        if ((perf[i].status != CUDNN_STATUS_SUCCESS) || (perf[i].memory > WORK_MAX) ||
            (perf[i].determinism != CUDNN_DETERMINISTIC))
            continue;
        /* an algorithm goes with the kind of arithmetic that it was named for */
        if ((p->desc.operand != CT_OPERAND_F32) &&
            (ct_dnn.p_cudnnSetConvolutionMathType(p->conv, perf[i].mathType) != CUDNN_STATUS_SUCCESS))
            continue;
        p->algorithm = (int)perf[i].algo;
        p->memory = perf[i].memory;
        return;
    }
}

/* algorithm stays -1 where it has none for such a description, which is no error. */
static void choose(plan *p)
{
    enum { MOST = 10 };
    int n = 0;

    if (p->kind == CT_RUN_FORWARD) {
        cudnnConvolutionFwdAlgoPerf_t perf[MOST];

        if (ct_dnn.p_cudnnGetConvolutionForwardAlgorithm_v7(ct_dnn.handle, p->x, p->weight, p->conv, p->y,
                                                         MOST, &n, perf) == CUDNN_STATUS_SUCCESS)
            take_first(p, perf, n);
    } else if (p->kind == CT_RUN_BACKWARD_DATA) {
        cudnnConvolutionBwdDataAlgoPerf_t perf[MOST];

        if (ct_dnn.p_cudnnGetConvolutionBackwardDataAlgorithm_v7(
                ct_dnn.handle, p->weight, p->y, p->conv, p->x, MOST, &n, perf) == CUDNN_STATUS_SUCCESS)
            take_first(p, perf, n);
    } else {
        cudnnConvolutionBwdFilterAlgoPerf_t perf[MOST];

        if (ct_dnn.p_cudnnGetConvolutionBackwardFilterAlgorithm_v7(
                ct_dnn.handle, p->x, p->y, p->conv, p->weight, MOST, &n, perf) == CUDNN_STATUS_SUCCESS)
            take_first(p, perf, n);
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
    p->algorithm = -1;
    if (describe(p) == CT_OK) choose(p);
}

/* NULL: no memory. */
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
    p->nhwc = narrows(d) && (d->y_last || ((d->c % 8 == 0) && (d->m % 8 == 0)));
    look_up(p);
    if (p->nhwc && (p->algorithm < 0)) {
        forget(p);
        p->nhwc = false;
        look_up(p);
    }
    plans.n++;
    return p;
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
    return (p != NULL) && (p->algorithm >= 0);
}

#endif
