/** @file lrn.h  Local response normalisation: y = x scale^-beta.
 *
 * Across channels: scale = k + alpha / size   * sum of x^2 over `size` channels around this one.
 * Within a channel: scale = k + alpha / size^2 * sum of x^2 over size x size places around it.
 * What lies outside counts as zero; the divisor stays. The gradient, with a = alpha / size or
 * alpha / size^2, the sum over the same window (it is symmetric, size is odd):
 *   dx = dy scale^-beta - 2 a beta x sum of dy x scale^(-beta - 1)
 */
#ifndef CT_ENGINE_LRN_LRN_H
#define CT_ENGINE_LRN_LRN_H

#include "layers/engine/engine.h"
#include "framework/base/simd.h"

typedef struct ct_lrn_desc {
    ct_device_kind device;
    int n_thread;
    bool within;
    int64_t n, c, h, w;
    int block;      /* channels that stand together, as in tensor.h; 0: plain order */
    bool last;      /* on devices: channels come last, in scale too */
    ct_dtype dtype; /* of x, y, dy, dx on devices; scale is f32 */
    int64_t size;   /* odd */
    float alpha, beta, k;
    bool kept; /* forward must write scale: backward will read it */
} ct_lrn_desc;

typedef struct ct_lrn_args {
    const float *x;
    float *y;     /* backward: where the engine reads the top */
    float *scale; /* like x: written by forward, read by backward. NULL, of engines that can: made
                   * again in backward */
    const float *dy;
    float *dx;
    void *work;
} ct_lrn_args;

CT_ENGINE_TIMED(lrn)

/** In ct_lrn_impl.can: goes without scale; of backward, reads the top. */
enum { CT_LRN_CAN_REMAKE = 1, CT_LRN_READS_TOP = 2 };

extern const ct_lrn_impl *const ct_lrn_forward_table[];
extern const ct_lrn_impl *const ct_lrn_backward_table[];

/** alpha over the number of places of a window. */
static inline float ct_lrn_factor(const ct_lrn_desc *d)
{
    return d->alpha / (float)(d->within ? d->size * d->size : d->size);
}

/* ---- Shared by the normalisation engines. */

extern const ct_lrn_impl ct_lrn_ref_forward, ct_lrn_ref_backward;
extern const ct_lrn_impl ct_lrn_cuda_forward, ct_lrn_cuda_backward;
extern const ct_lrn_impl ct_lrn_cudnn_forward, ct_lrn_cudnn_backward;
extern const ct_lrn_impl ct_lrn_simd_forward, ct_lrn_simd_backward;
extern const ct_lrn_impl ct_lrn_blocked_forward, ct_lrn_blocked_backward;

static inline bool ct_lrn_on_cpu(const ct_lrn_desc *d)
{
    return d->device == CT_DEVICE_CPU;
}

/** What all published nets use: beta = 3/4, and sums that are not below k. */
static inline bool ct_lrn_is_usual(const ct_lrn_desc *d)
{
    return (d->beta == 0.75f) && (d->alpha >= 0.0f) && (d->k >= 1e-20f);
}

/** _name(&s, &r): r = s^(-1/4) of normal positive numbers, for floats or vectors of them, _int: the
 *  integers of the same bits. From a guess by the exponent, with e = 1 - s guess^4 in +-0.1243, by
 *  a polynomial for (1 - e)^(-1/4), fitted to the least largest relative error (0.17 * 2^-24). It
 *  is within 2 units of the last place. Not a number stays so. No division and no root, which take
 *  a vector as long as ten multiplications. */
#define CT_LRN_GUESS(_float, _int, _s) ((_float)(0x4f582000 - ((_int)(_s) >> 2)))
#define CT_LRN_SERIES(_e, _ee)                                                                     \
    ((0.25f + (_e)*0.15624274f) + (_ee) * ((0.11717775f + (_e)*0.096742637f) + (_ee)*0.082416773f))
#define CT_LRN_ROOT(_name, _float, _int)                                                           \
    CT_SIMD_PART void _name(const _float *s_p, _float *root_p)                                     \
    {                                                                                              \
        union {                                                                                    \
            _float f;                                                                              \
            _int i;                                                                                \
        } u = { .f = *s_p };                                                                       \
        _float s = *s_p, r, e;                                                                     \
                                                                                                   \
        u.i = 0x4f582000 - (u.i >> 2);                                                             \
        r = u.f;                                                                                   \
        e = 1.0f - s * (r * r) * (r * r);                                                          \
        *root_p = r + r * e * CT_LRN_SERIES(e, e * e);                                             \
    }

/** The same of the first n (at most 4, a constant) of an array, step by step of all. */
#define CT_LRN_EACH(_n) _Pragma("GCC unroll 4") for (int i = 0; i < (_n); i++)
#define CT_LRN_ROOTS(_name, _float, _int)                                                          \
    CT_SIMD_PART void _name(const int n, const _float *s, _float *root)                            \
    {                                                                                              \
        _float r[4], e[4];                                                                         \
                                                                                                   \
        CT_LRN_EACH(n) r[i] = CT_LRN_GUESS(_float, _int, s[i]);                                    \
        CT_LRN_EACH(n) e[i] = r[i] * r[i];                                                         \
        CT_LRN_EACH(n) e[i] = 1.0f - s[i] * e[i] * e[i];                                           \
        CT_LRN_EACH(n) root[i] = r[i] + r[i] * e[i] * CT_LRN_SERIES(e[i], e[i] * e[i]);            \
    }

#endif
