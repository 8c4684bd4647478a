/* Convolution by cuDNN 9, found when the program runs: built where its header is there, used where
 * its library is. Deterministic algorithms, chosen by its heuristics, with as much workspace as
 * they may have at most; in f32 without TF32, or as the solver's precision says. cuDNN takes and
 * gives 16 bits on both sides, so in 16 bits operands are rounded into the workspace, and what it
 * makes, added up in f32 and rounded once, is widened from there. On the way both change to and
 * from NHWC, which tensor cores want, where cuDNN takes that. Where values lie so already, channels
 * last in 16 bits, it reads and writes them in place. */
#include "layers/engine/conv/cuda/cudnn_plan.cuh"

/* ---- the three ways */

static ct_status open_run(const ct_conv_desc *d, ct_run_kind kind, const ct_exec *ex,
                          plan **p_p)
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
        return ct_dnn.p_cudnnConvolutionForward(
            ct_dnn.handle, &one, p->x, x, p->weight, weight, p->conv,
            (cudnnConvolutionFwdAlgo_t)algorithm, a->work, p->memory, &zero, p->y, y);
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
    const ct_conv_impl _symbol = {                                                                 \
        "cudnn", _run##_fits, _run##_work, _run, NULL, CT_CONV_CAN_BF16 | (_can)                   \
    };

ENGINE(ct_conv_cudnn_forward, CT_RUN_FORWARD, forward, CT_CONV_CAN_RELU)
ENGINE(ct_conv_cudnn_backward_data, CT_RUN_BACKWARD_DATA, backward_data, 0)
ENGINE(ct_conv_cudnn_backward_weight, CT_RUN_BACKWARD_WEIGHT, backward_weight, 0)
