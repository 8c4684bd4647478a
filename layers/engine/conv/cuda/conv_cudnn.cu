/* Convolution by cuDNN: what it would do for these shapes, asked once, and the engines. */
#include <climits>
#include <cstdlib>
#include <cstring>

#include "framework/base/memory.h"
#include "framework/tensor/cuda/launch.cuh"
#include "layers/engine/conv/conv.h"
#include "layers/engine/cudnn.cuh"

/* ---- What cuDNN would do for a convolution of these shapes, asked once. */

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
    CT_TRY(ct_cudnn_check(ct_dnn.p_cudnnSetTensor4dDescriptor(p->x, form, type, (int)d->n,
                                                              (int)d->c, (int)d->h, (int)d->w),
                          "x"));
    CT_TRY(ct_cudnn_check(ct_dnn.p_cudnnSetTensor4dDescriptor(p->y, form, type, (int)d->n,
                                                              (int)d->m, (int)d->oh, (int)d->ow),
                          "y"));
    CT_TRY(ct_cudnn_check(ct_dnn.p_cudnnSetFilter4dDescriptor(p->weight, type, form, (int)d->m,
                                                              (int)(d->c / d->group), (int)d->kh,
                                                              (int)d->kw),
                          "weight"));
    CT_TRY(ct_cudnn_check(ct_dnn.p_cudnnSetConvolution2dDescriptor(
                              p->conv, (int)d->ph, (int)d->pw, (int)d->sh, (int)d->sw, (int)d->dh,
                              (int)d->dw, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
                          "convolution"));
    CT_TRY(
        ct_cudnn_check(ct_dnn.p_cudnnSetConvolutionGroupCount(p->conv, (int)d->group), "groups"));
    return ct_cudnn_check(ct_dnn.p_cudnnSetConvolutionMathType(p->conv, math_of(d->operand)),
                          "precision");
}

/* An algorithm goes with the kind of arithmetic that it was named for. */
static bool use(plan *p, int i)
{
    p->taken = i;
    return (p->desc.operand == CT_OPERAND_F32) ||
           (ct_dnn.p_cudnnSetConvolutionMathType(p->conv, p->found[i].math) ==
            CUDNN_STATUS_SUCCESS);
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

        if (ct_dnn.p_cudnnGetConvolutionForwardAlgorithm_v7(ct_dnn.handle, p->x, p->weight, p->conv,
                                                            p->y, MOST, &n,
                                                            perf) == CUDNN_STATUS_SUCCESS)
            take_all(p, perf, n);
    } else if (p->kind == CT_RUN_BACKWARD_DATA) {
        cudnnConvolutionBwdDataAlgoPerf_t perf[MOST];

        if (ct_dnn.p_cudnnGetConvolutionBackwardDataAlgorithm_v7(ct_dnn.handle, p->weight, p->y,
                                                                 p->conv, p->x, MOST, &n,
                                                                 perf) == CUDNN_STATUS_SUCCESS)
            take_all(p, perf, n);
    } else {
        cudnnConvolutionBwdFilterAlgoPerf_t perf[MOST];

        if (ct_dnn.p_cudnnGetConvolutionBackwardFilterAlgorithm_v7(ct_dnn.handle, p->x, p->y,
                                                                   p->conv, p->weight, MOST, &n,
                                                                   perf) == CUDNN_STATUS_SUCCESS)
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

/* Whether the next algorithm may do what the one that is taken did not: at its first run, if it
 * made nothing of what it was to add to, and CUDA goes on. */
static bool goes_over(plan *p, const ct_exec *ex, cudnnStatus_t st, float beta, const char *what)
{
    int kind = CUDNN_STATUS_CATEGORY((int)st), from = p->taken;
    bool refused = (kind == CUDNN_STATUS_NOT_SUPPORTED);
    bool failed = (kind == CUDNN_STATUS_EXECUTION_FAILED) || (kind == CUDNN_STATUS_INTERNAL_ERROR);

    if (p->ran || (p->taken + 1 >= p->n_found) || !(refused || (failed && (beta == 0.0f))) ||
        !ct_cuda_goes_on((cudaStream_t)ex->stream) || !use(p, p->taken + 1))
        return false;
    CT_WARN(
        "cuDNN's algorithm %d does not do a %s that its heuristics name it for (%s): algorithm %d "
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

    if ((d->device != CT_DEVICE_CUDA) || (d->x_last && !d->y_last) || (d->x_block != 0) ||
        (d->y_block != 0) || (d->n_front != 0) || (d->n < 1) || !is_small(d) ||
        !ct_cudnn_is_there())
        return false;
    p = plan_of(d, kind);
    return (p != NULL) && (p->n_found > 0);
}

/* ---- Convolution by cuDNN 9, found when the program runs: built where its header is there, used
 * where its library is. Deterministic algorithms, chosen by its heuristics, with as much workspace
 * as they may have at most; in f32 without TF32, or as the solver's precision says. cuDNN takes and
 * gives 16 bits on both sides, so in 16 bits operands are rounded into the workspace, and what it
 * makes, added up in f32 and rounded once, is widened from there. On the way both change to and
 * from NHWC, which tensor cores want, where cuDNN takes that. Where values lie so already, channels
 * last in 16 bits, it reads and writes them in place. */

/* ---- the three ways */

static ct_status open_run(const ct_conv_desc *d, ct_run_kind kind, const ct_exec *ex, plan **p_p)
{
    *p_p = plan_of(d, kind);
    if (*p_p == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a convolution of cuDNN");
    return ct_cudnn_follow(ex);
}

/* An operand as `batch` matrices of channels and places; last: it lies with channels last in 16
 * bits, else in plain f32. */
typedef struct planes {
    int64_t batch, channels, places;
    bool last;
} planes;

static planes x_of(const ct_conv_desc *d)
{
    return { d->n, d->c, d->h * d->w, d->x_last };
}

static planes y_of(const ct_conv_desc *d)
{
    return { d->n, d->m, d->oh * d->ow, d->y_last };
}

static planes weight_of(const ct_conv_desc *d)
{
    return { d->m, d->c / d->group, d->kh * d->kw, false };
}

/* Whether cuDNN works on it where it lies. */
static bool in_place(const plan *p, planes of)
{
    return narrows(&p->desc) ? (of.last && p->nhwc) : true;
}

/* Room for x, weight and dy or y as cuDNN wants them, behind the algorithm's memory. */
typedef struct sides {
    size_t x, weight, y, bytes;
} sides;

static size_t room_of(const plan *p, planes of)
{
    return in_place(p, of)
               ? 0
               : ct_align_up((size_t)(of.batch * of.channels * of.places) * sizeof(uint16_t));
}

static sides sides_of(const plan *p)
{
    const ct_conv_desc *d = &p->desc;
    sides s = { p->memory, p->memory, p->memory, p->memory };

    if (!narrows(d)) return s;
    s.x = ct_align_up(p->memory);
    s.weight = s.x + room_of(p, x_of(d));
    s.y = s.weight + room_of(p, weight_of(d));
    s.bytes = s.y + room_of(p, y_of(d));
    return s;
}

/* Between how an operand lies and how cuDNN sees it: `last` at places of [batch][place][channel],
 * else of [batch][channel][place]. Memory is walked along on both sides. */
template <class L, class S>
static ct_status change(ct_exec *ex, const char *what, planes of, bool from_last, bool to_last,
                        L load, S store)
{
    if (from_last == to_last)
        return ct_cuda_map(
            ex->stream, what, of.batch * of.channels * of.places, [=] __device__(int64_t i) {
                store(i, from_last ? i % of.channels : i / of.places % of.channels, load(i));
            });
    if (to_last)
        return ct_cuda_turn(
            ex->stream, what, of.batch, of.channels, of.places,
            [=] __device__(int64_t b, int64_t r, int64_t c) {
                return load((b * of.channels + r) * of.places + c);
            },
            [=] __device__(int64_t b, int64_t r, int64_t c, float value) {
                store((b * of.places + c) * of.channels + r, r, value);
            });
    return ct_cuda_turn(
        ex->stream, what, of.batch, of.places, of.channels,
        [=] __device__(int64_t b, int64_t r, int64_t c) {
            return load((b * of.places + r) * of.channels + c);
        },
        [=] __device__(int64_t b, int64_t r, int64_t c, float value) {
            store((b * of.channels + c) * of.places + r, c, value);
        });
}

static ct_numbers numbers_of(const plan *p, planes of, const float *v)
{
    return ct_numbers_at(v, of.last ? ct_dtype_of(p->desc.operand) : CT_F32);
}

/* What cuDNN reads: v itself, or its numbers `at` bytes into the workspace. */
static ct_status reads(const plan *p, ct_exec *ex, const ct_conv_args *a, planes of, const float *v,
                       size_t at, const void **there_p)
{
    uint16_t *there = (uint16_t *)((char *)a->work + at);
    ct_operand operand = p->desc.operand;
    ct_numbers from = numbers_of(p, of, v);

    *there_p = in_place(p, of) ? (const void *)v : (const void *)there;
    if (in_place(p, of)) return CT_OK;
    if (!of.last && !p->nhwc)
        return ct_cuda_narrow(ex->stream, operand, of.batch * of.channels * of.places, v, there);
    return change(
        ex, "rounding", of, of.last, p->nhwc, [=] __device__(int64_t i) { return from[i]; },
        [=] __device__(int64_t i, int64_t, float value) {
            there[i] = ct_narrow_bits(operand, value);
        });
}

/* Where it writes. */
static void *writes(const plan *p, const ct_conv_args *a, planes of, float *v, size_t at)
{
    return in_place(p, of) ? (void *)v : (void *)((char *)a->work + at);
}

/* v = beta v + what cuDNN wrote + the channel's bias, which may be NULL; relu: 0 where that would
 * be below. What it wrote in place it has multiplied with beta itself. */
static ct_status finish(const plan *p, ct_exec *ex, const ct_conv_args *a, planes of, size_t at,
                        float beta, const float *bias, bool relu, float *v)
{
    bool there = in_place(p, of);
    ct_numbers to = numbers_of(p, of, v);
    ct_numbers from = { (char *)a->work + at, ct_dtype_of(p->desc.operand) };

    if (there && (bias == NULL) && !relu) return CT_OK;
    if (there) from = to;
    return change(
        ex, "widening", of, narrows(&p->desc) && p->nhwc, of.last,
        [=] __device__(int64_t i) { return from[i]; },
        [=] __device__(int64_t i, int64_t c, float value) {
            float all = value + ((there || (beta == 0.0f)) ? 0.0f : beta * to[i]) +
                        ((bias != NULL) ? bias[c] : 0.0f);

            to.put(i, (relu && (all < 0.0f)) ? 0.0f : all); /* NaN stays */
        });
}

static ct_status forward(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    const float one = 1.0f, zero = 0.0f;
    const void *x, *weight;
    void *y;
    plan *p;
    sides s;

    CT_TRY(open_run(d, CT_RUN_FORWARD, ex, &p));
    s = sides_of(p);
    CT_TRY(reads(p, ex, a, x_of(d), a->x, s.x, &x));
    CT_TRY(reads(p, ex, a, weight_of(d), a->weight, s.weight, &weight));
    y = writes(p, a, y_of(d), a->y, s.y);
    CT_TRY(run_plan(p, ex, zero, "convolution", [=](int algorithm) {
        return ct_dnn.p_cudnnConvolutionForward(ct_dnn.handle, &one, p->x, x, p->weight, weight,
                                                p->conv, (cudnnConvolutionFwdAlgo_t)algorithm,
                                                a->work, p->memory, &zero, p->y, y);
    }));
    return finish(p, ex, a, y_of(d), s.y, 0.0f, a->bias, a->relu, a->y);
}

static ct_status backward_data(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    const float one = 1.0f, zero = 0.0f;
    const void *dy, *weight;
    void *dx;
    plan *p;
    sides s;

    CT_TRY(open_run(d, CT_RUN_BACKWARD_DATA, ex, &p));
    s = sides_of(p);
    CT_TRY(reads(p, ex, a, y_of(d), a->dy, s.y, &dy));
    CT_TRY(reads(p, ex, a, weight_of(d), a->weight, s.weight, &weight));
    dx = writes(p, a, x_of(d), a->dx, s.x);
    CT_TRY(run_plan(p, ex, zero, "convolution by data", [=](int algorithm) {
        return ct_dnn.p_cudnnConvolutionBackwardData(
            ct_dnn.handle, &one, p->weight, weight, p->y, dy, p->conv,
            (cudnnConvolutionBwdDataAlgo_t)algorithm, a->work, p->memory, &zero, p->x, dx);
    }));
    return finish(p, ex, a, x_of(d), s.x, 0.0f, NULL, false, a->dx);
}

static ct_status backward_weight(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    const float one = 1.0f, beta = narrows(d) ? 0.0f : a->beta;
    const void *x, *dy;
    void *dweight;
    plan *p;
    sides s;

    CT_TRY(open_run(d, CT_RUN_BACKWARD_WEIGHT, ex, &p));
    s = sides_of(p);
    CT_TRY(reads(p, ex, a, x_of(d), a->x, s.x, &x));
    CT_TRY(reads(p, ex, a, y_of(d), a->dy, s.y, &dy));
    dweight = writes(p, a, weight_of(d), a->dweight, s.weight);
    CT_TRY(run_plan(p, ex, beta, "convolution by weight", [=](int algorithm) {
        return ct_dnn.p_cudnnConvolutionBackwardFilter(
            ct_dnn.handle, &one, p->x, x, p->y, dy, p->conv,
            (cudnnConvolutionBwdFilterAlgo_t)algorithm, a->work, p->memory, &beta, p->weight,
            dweight);
    }));
    return finish(p, ex, a, weight_of(d), s.weight, a->beta, NULL, false, a->dweight);
}

#define ENGINE(_symbol, _kind, _run, _can)                                                         \
    static bool _run##_fits(const ct_conv_desc *d)                                                 \
    {                                                                                              \
        return fits(d, _kind);                                                                     \
    }                                                                                              \
    static size_t _run##_work(const ct_conv_desc *d)                                               \
    {                                                                                              \
        return sides_of(plan_of(d, _kind)).bytes;                                                  \
    }                                                                                              \
    const ct_conv_impl _symbol = { "cudnn", _run##_fits, _run##_work,                              \
                                   _run,    NULL,        CT_CONV_CAN_BF16 | (_can) };

ENGINE(ct_conv_cudnn_forward, CT_RUN_FORWARD, forward, CT_CONV_CAN_RELU)
ENGINE(ct_conv_cudnn_backward_data, CT_RUN_BACKWARD_DATA, backward_data, 0)
ENGINE(ct_conv_cudnn_backward_weight, CT_RUN_BACKWARD_WEIGHT, backward_weight, 0)
