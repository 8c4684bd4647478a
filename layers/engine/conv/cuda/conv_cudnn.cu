/* Convolution by cuDNN 9, found when the program runs: built where its header is there, used where
 * its library is. Deterministic algorithms, chosen by its heuristics, with as much workspace as
 * they may have at most; in f32 without TF32, or as the solver's precision says. cuDNN takes and
 * gives 16 bits on both sides, so in 16 bits operands are rounded into the workspace, and what it
 * makes, added up in f32 and rounded once, is widened from there. On the way both change to and
 * from NHWC, which tensor cores want, where cuDNN takes that. */
#include "layers/engine/conv/cuda/cudnn_plan.cuh"

/* ---- the three ways */

static ct_status open_run(const ct_conv_desc *d, ct_run_kind kind, const ct_exec *ex,
                          const plan **p_p)
{
    *p_p = plan_of(d, kind);
    if (*p_p == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a convolution of cuDNN");
    return check(dnn.p_cudnnSetStream(dnn.handle, (cudaStream_t)ex->stream), "stream");
}

/* x, weight and dy or y rounded, behind the algorithm's memory. */
typedef struct sides {
    size_t x, weight, y, bytes;
} sides;

static sides sides_of(const plan *p)
{
    const ct_conv_desc *d = &p->desc;
    sides s = { p->memory, p->memory, p->memory, p->memory };

    if (!narrows(d)) return s;
    s.x = ct_align_up(p->memory);
    s.weight = s.x + ct_align_up((size_t)(d->n * d->c * d->h * d->w) * sizeof(uint16_t));
    s.y = s.weight + ct_align_up((size_t)(d->m * group_k(d)) * sizeof(uint16_t));
    s.bytes = s.y + ct_align_up((size_t)(d->n * d->m * d->oh * d->ow) * sizeof(uint16_t));
    return s;
}

/* An operand as `batch` matrices of channels and places. */
typedef struct planes {
    int64_t batch, channels, places;
} planes;

static planes x_of(const ct_conv_desc *d)
{
    return { d->n, d->c, d->h * d->w };
}

static planes y_of(const ct_conv_desc *d)
{
    return { d->n, d->m, d->oh * d->ow };
}

static planes weight_of(const ct_conv_desc *d)
{
    return { d->m, d->c / d->group, d->kh * d->kw };
}

/* What cuDNN reads: v itself, or its numbers rounded `at` bytes into the workspace. */
static ct_status reads(const plan *p, ct_exec *ex, const ct_conv_args *a, planes of, const float *v,
                       size_t at, const void **there_p)
{
    uint16_t *there = (uint16_t *)((char *)a->work + at);
    ct_operand operand = p->desc.operand;

    *there_p = narrows(&p->desc) ? (const void *)there : (const void *)v;
    if (!narrows(&p->desc)) return CT_OK;
    if (!p->nhwc)
        return ct_cuda_narrow(ex->stream, operand, of.batch * of.channels * of.places, v, there);
    return ct_cuda_turn(
        ex->stream, "rounding", of.batch, of.channels, of.places,
        [=] __device__(int64_t b, int64_t r, int64_t c) {
            return v[(b * of.channels + r) * of.places + c];
        },
        [=] __device__(int64_t b, int64_t r, int64_t c, float value) {
            there[(b * of.places + c) * of.channels + r] = ct_narrow_bits(operand, value);
        });
}

/* Where it writes. */
static void *writes(const plan *p, const ct_conv_args *a, float *v, size_t at)
{
    return narrows(&p->desc) ? (void *)((char *)a->work + at) : (void *)v;
}

/* v = beta v + what cuDNN wrote + the channel's bias, which may be NULL; relu: 0 where that would
 * be below. */
static ct_status finish(const plan *p, ct_exec *ex, const ct_conv_args *a, planes of, size_t at,
                        float beta, const float *bias, bool relu, float *v)
{
    const uint16_t *from = (const uint16_t *)((const char *)a->work + at);
    ct_operand operand = p->desc.operand;
    bool narrow = narrows(&p->desc);

    if (!narrow && (bias == NULL) && !relu) return CT_OK;
    if (!p->nhwc)
        return ct_cuda_map(
            ex->stream, "widening", of.batch * of.channels * of.places, [=] __device__(int64_t i) {
                float old = !narrow ? v[i] : (beta == 0.0f) ? 0.0f : beta * v[i];
                float made = narrow ? ct_narrow_value(operand, from[i]) : 0.0f;
                float all = made + old + ((bias != NULL) ? bias[i / of.places % of.channels] : 0);

                v[i] = (relu && (all < 0.0f)) ? 0.0f : all; /* NaN stays */
            });
    return ct_cuda_turn(
        ex->stream, "widening", of.batch, of.places, of.channels,
        [=] __device__(int64_t b, int64_t r, int64_t c) {
            return ct_narrow_value(operand, from[(b * of.places + r) * of.channels + c]) +
                   ((bias != NULL) ? bias[c] : 0.0f);
        },
        [=] __device__(int64_t b, int64_t r, int64_t c, float value) {
            int64_t i = (b * of.channels + c) * of.places + r;
            float all = value + ((beta == 0.0f) ? 0.0f : beta * v[i]);

            v[i] = (relu && (all < 0.0f)) ? 0.0f : all;
        });
}

static ct_status forward(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    const float one = 1.0f, zero = 0.0f;
    const void *x, *weight;
    const plan *p;
    sides s;

    CT_TRY(open_run(d, CT_RUN_FORWARD, ex, &p));
    s = sides_of(p);
    CT_TRY(reads(p, ex, a, x_of(d), a->x, s.x, &x));
    CT_TRY(reads(p, ex, a, weight_of(d), a->weight, s.weight, &weight));
    CT_TRY(
        check(dnn.p_cudnnConvolutionForward(dnn.handle, &one, p->x, x, p->weight, weight, p->conv,
                                            (cudnnConvolutionFwdAlgo_t)p->algorithm, a->work,
                                            p->memory, &zero, p->y, writes(p, a, a->y, s.y)),
              "convolution"));
    return finish(p, ex, a, y_of(d), s.y, 0.0f, a->bias, a->relu, a->y);
}

static ct_status backward_data(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    const float one = 1.0f, zero = 0.0f;
    const void *dy, *weight;
    const plan *p;
    sides s;

    CT_TRY(open_run(d, CT_RUN_BACKWARD_DATA, ex, &p));
    s = sides_of(p);
    CT_TRY(reads(p, ex, a, y_of(d), a->dy, s.y, &dy));
    CT_TRY(reads(p, ex, a, weight_of(d), a->weight, s.weight, &weight));
    CT_TRY(check(
        dnn.p_cudnnConvolutionBackwardData(dnn.handle, &one, p->weight, weight, p->y, dy, p->conv,
                                           (cudnnConvolutionBwdDataAlgo_t)p->algorithm, a->work,
                                           p->memory, &zero, p->x, writes(p, a, a->dx, s.x)),
        "convolution by data"));
    return finish(p, ex, a, x_of(d), s.x, 0.0f, NULL, false, a->dx);
}

static ct_status backward_weight(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    const float one = 1.0f, beta = narrows(d) ? 0.0f : a->beta;
    const void *x, *dy;
    const plan *p;
    sides s;

    CT_TRY(open_run(d, CT_RUN_BACKWARD_WEIGHT, ex, &p));
    s = sides_of(p);
    CT_TRY(reads(p, ex, a, x_of(d), a->x, s.x, &x));
    CT_TRY(reads(p, ex, a, y_of(d), a->dy, s.y, &dy));
    CT_TRY(check(dnn.p_cudnnConvolutionBackwardFilter(dnn.handle, &one, p->x, x, p->y, dy, p->conv,
                                                      (cudnnConvolutionBwdFilterAlgo_t)p->algorithm,
                                                      a->work, p->memory, &beta, p->weight,
                                                      writes(p, a, a->dweight, s.weight)),
                 "convolution by weight"));
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
