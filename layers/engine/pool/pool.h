/** @file pool.h  Pooling over windows of the planes (n c) x h x w.
 *
 * Window of output (i, j): rows [i sh - ph, i sh - ph + kh), columns alike. MAX: the largest of
 * the window's elements inside the plane; of equal ones the first in row-major order; a NaN if
 * there is one. AVE: the sum of those inside, over the number inside the plane *with its padding*
 * (Caffe's divisor). inside: over the number inside the plane alone. No engine but the reference
 * does that.
 *
 * With a dilation, the elements of a window are dh rows and dw columns apart, and a divisor counts
 * these elements alone; kh and kw are how many there are. No engine but the reference does that.
 *
 * What MAX took it notes in a mask with a number an output: the element's place among those of its
 * window inside the plane, counted along rows of ct_pool_pitch() places. A byte does for all usual
 * windows. relu: a ReLU stands before or behind MAX, which come to the same. Then y is not below 0.
 * Where it is not above, no gradient passes, which the mask says too.
 */
#ifndef CT_ENGINE_POOL_POOL_H
#define CT_ENGINE_POOL_POOL_H

#include "layers/engine/engine.h"
#include "framework/base/simd.h"

typedef enum { CT_POOL_MAX, CT_POOL_AVE } ct_pool_method;

typedef struct ct_pool_desc {
    ct_device_kind device;
    int n_thread;
    ct_pool_method method;
    int64_t planes, h, w, oh, ow; /* planes: those that fill up a block, too   */
    int block; /* planes that stand together, as channels do in tensor.h; 0: none */
    int64_t kh, kw, sh, sw, ph, pw;
    int64_t dh, dw; /* 0: 1, neighbours */
    bool inside;    /* AVE only: padding does not count */
    bool relu;      /* MAX only */
    bool bf16;      /* x, y, dy, dx; of blocks alone */
    int64_t last;   /* on devices: so many channels come last, in the mask too; 0: planes do */
    ct_dtype dtype; /* of x, y, dy, dx on devices */
} ct_pool_desc;

enum { CT_POOL_BYTE_NONE = 255, CT_POOL_NONE = -1 }; /* in a mask: no gradient passes */

typedef struct ct_pool_args {
    const float *x;
    float *y;   /* overwritten                                                           */
    void *mask; /* MAX: like y, of ct_pool_mask_bytes() each: uint8_t or int32_t; forward writes
                 * it; NULL: unwanted */
    float *mask_top; /* MAX forward: the places in their planes as numbers; NULL: unwanted    */
    const float *dy;
    void *work; /* workspace() bytes                                                          */
    float *dx;  /* overwritten                                                                 */
} ct_pool_args;

CT_ENGINE_TIMED(pool)

extern const ct_pool_impl *const ct_pool_forward_table[];
extern const ct_pool_impl *const ct_pool_backward_table[];

/** The part of a window inside [0, in), and its length inside [-pad, in + pad). */
static inline void ct_pool_window(int64_t out, int64_t kernel, int64_t stride, int64_t pad,
                                  int64_t in, int64_t *lo_p, int64_t *hi_p, int64_t *padded_p)
{
    int64_t lo = out * stride - pad;
    int64_t hi = (lo + kernel < in + pad) ? lo + kernel : in + pad;

    *padded_p = hi - lo;
    *lo_p = (lo > 0) ? lo : 0;
    *hi_p = (hi < in) ? hi : in;
}

static inline bool ct_pool_is_dilated(const ct_pool_desc *d)
{
    return (d->dh > 1) || (d->dw > 1);
}

/** Caffe's windows, which every engine has. */
static inline bool ct_pool_is_plain(const ct_pool_desc *d)
{
    return !ct_pool_is_dilated(d) && !d->inside;
}

/** Of the places that a mask counts. */
static inline int64_t ct_pool_pitch(const ct_pool_desc *d)
{
    return (d->kw < d->w) ? d->kw : d->w;
}

/** Bytes of a number of MAX's mask. */
static inline int ct_pool_mask_bytes(const ct_pool_desc *d)
{
    int64_t rows = (d->kh < d->h) ? d->kh : d->h;

    return (rows * ct_pool_pitch(d) <= CT_POOL_BYTE_NONE) ? 1 : 4;
}

/* ---- Shared by the pooling engines. */

extern const ct_pool_impl ct_pool_ref_forward, ct_pool_ref_backward;
extern const ct_pool_impl ct_pool_simd_forward, ct_pool_simd_backward;
extern const ct_pool_impl ct_pool_blocked_forward, ct_pool_blocked_backward;
extern const ct_pool_impl ct_pool_cuda_forward, ct_pool_cuda_backward;
extern const ct_pool_impl ct_pool_cudnn_forward, ct_pool_cudnn_backward;

static inline bool ct_pool_on_cpu(const ct_pool_desc *d)
{
    return d->device == CT_DEVICE_CPU;
}

CT_SIMD_PART bool ct_pool_holds_nan(int64_t n, const float *x)
{
    int32_t most = 0;

#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++) {
        union {
            float f;
            int32_t bits;
        } v = { x[i] };

        most = ((v.bits & INT32_MAX) > most) ? v.bits & INT32_MAX : most;
    }
    return most > 0x7f800000; /* above infinity */
}

/* Number o of a mask. */
static inline void ct_pool_mark(const ct_pool_desc *d, void *mask, int64_t o, int32_t place)
{
    if (ct_pool_mask_bytes(d) == 1)
        ((uint8_t *)mask)[o] = (uint8_t)place; /* CT_POOL_NONE becomes CT_POOL_BYTE_NONE */
    else
        ((int32_t *)mask)[o] = place;
}

/* CT_POOL_NONE: none. */
static inline int32_t ct_pool_marked(const ct_pool_desc *d, const void *mask, int64_t o)
{
    int32_t place;

    if (ct_pool_mask_bytes(d) == 4) return ((const int32_t *)mask)[o];
    place = ((const uint8_t *)mask)[o];
    return (place == CT_POOL_BYTE_NONE) ? CT_POOL_NONE : place;
}

#endif
