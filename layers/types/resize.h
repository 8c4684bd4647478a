/** @file resize.h  What Interp, Upsample, ROIPooling and PSROIPooling compute with, on the host
 * and on devices; private to layers/. */
#ifndef CT_TYPES_RESIZE_H
#define CT_TYPES_RESIZE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "framework/base/simd.h"

/* ---- Between which places of the bottom a place of Interp's top lies */

typedef struct ct_interp_axis {
    int64_t in, out, beg; /* used places of the bottom, those of the top, the first used one */
} ct_interp_axis;

/** in->state. */
typedef struct ct_interp_plan {
    ct_interp_axis h, w;
} ct_interp_plan;

/** How far the bottom moves on from one place of the top to the next. */
CT_HD static inline float ct_interp_step(const ct_interp_axis *a)
{
    return (a->out > 1) ? (float)(a->in - 1) / (float)(a->out - 1) : 0.0f;
}

/** Place k of the top lies between *lo_p and *lo_p + *step_p of the bottom; the share of the
 * latter. */
CT_HD static inline float ct_interp_between(const ct_interp_axis *a, int64_t k, int64_t *lo_p,
                                            int64_t *step_p)
{
    float at = ct_interp_step(a) * (float)k;
    int64_t lo = (int64_t)at;

    if (lo > a->in - 1) lo = a->in - 1;
    *lo_p = lo + a->beg;
    *step_p = (lo < a->in - 1) ? 1 : 0;
    return at - (float)lo;
}

/* ---- What Upsample's setup makes of its prototxt */

typedef struct ct_upsample_state {
    int64_t scale_h, scale_w; /* 0: sizes are given */
    int64_t h, w;             /* 0: by scale        */
    bool pad_h, pad_w;
} ct_upsample_state;

/* ---- Where the bins of a region lie on the bottom: what ROIPooling and PSROIPooling
 * compute with, on the host and on devices. */

#ifdef __cplusplus
extern "C" {
#endif

#include "framework/net/layer.h"

typedef struct ct_roi_state {
    int64_t h, w, dim; /* bins; channels of the top, 0: those of the bottom */
    float scale;
} ct_roi_state;

/** A bin on the bottom: rows [top, bottom), columns [left, right). */
typedef struct ct_roi_bin {
    int64_t top, bottom, left, right;
} ct_roi_bin;

typedef struct ct_roi_region {
    int64_t sample;
    float y, x, h, w; /* where it begins, and sizes of its bins */
} ct_roi_region;

/** Whether all n regions, in host memory, name one of the samples, and numbers; CT_ERR_DATA. */
ct_status ct_roi_check(const ct_layer *l, const ct_exec *ex, const float *roi, int64_t n,
                       int64_t samples);

#ifdef __cplusplus
}
#endif

/** MAX: edges are rounded on the bottom. Mean: in pixels, and may lie between places. */
CT_HD static inline ct_roi_region ct_roi_region_of(const ct_roi_state *s, const float *roi)
{
    ct_roi_region r;
    float w, h;

    r.sample = (int64_t)roi[0];
    if (s->dim == 0) {
        r.x = roundf(roi[1] * s->scale);
        r.y = roundf(roi[2] * s->scale);
        w = fmaxf(roundf(roi[3] * s->scale) - r.x + 1.0f, 1.0f);
        h = fmaxf(roundf(roi[4] * s->scale) - r.y + 1.0f, 1.0f);
    } else {
        r.x = roundf(roi[1]) * s->scale;
        r.y = roundf(roi[2]) * s->scale;
        w = fmaxf((roundf(roi[3]) + 1.0f) * s->scale - r.x, 0.1f);
        h = fmaxf((roundf(roi[4]) + 1.0f) * s->scale - r.y, 0.1f);
    }
    r.w = w / (float)s->w;
    r.h = h / (float)s->h;
    return r;
}

CT_HD static inline int64_t ct_roi_inside(float at, int64_t n)
{
    return (at <= 0.0f) ? 0 : (at >= (float)n) ? n : (int64_t)at;
}

/** Bin (i, j) on planes of height x width. */
CT_HD static inline ct_roi_bin ct_roi_bin_of(const ct_roi_region *r, int64_t i, int64_t j,
                                             int64_t height, int64_t width)
{
    ct_roi_bin b;

    b.top = ct_roi_inside(floorf((float)i * r->h + r->y), height);
    b.bottom = ct_roi_inside(ceilf((float)(i + 1) * r->h + r->y), height);
    b.left = ct_roi_inside(floorf((float)j * r->w + r->x), width);
    b.right = ct_roi_inside(ceilf((float)(j + 1) * r->w + r->x), width);
    return b;
}

CT_HD static inline bool ct_roi_is_empty(const ct_roi_bin *b)
{
    return (b->bottom <= b->top) || (b->right <= b->left);
}

/** The place of the first largest value of a bin; -1: it is empty. */
CT_HD static inline int32_t ct_roi_largest(const float *x, int64_t width, const ct_roi_bin *b)
{
    int64_t best = b->top * width + b->left;

    if (ct_roi_is_empty(b)) return -1;
    for (int64_t i = b->top; i < b->bottom; i++) {
        for (int64_t k = i * width + b->left; k < i * width + b->right; k++) {
            if (x[k] > x[best]) best = k;
        }
    }
    return (int32_t)best;
}

#endif
