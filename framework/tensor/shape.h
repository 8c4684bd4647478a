/** @file shape.h  A shape is a value: up to eight dimensions, 64-bit, in logical order. */
#ifndef CT_SHAPE_H
#define CT_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CT_MAX_DIM 8

typedef struct ct_shape {
    int ndim; /* 0: a scalar, one element */
    int64_t dim[CT_MAX_DIM];
} ct_shape;

/** Product of dim[from..to); to < 0: to the end. 1 for an empty range. */
static inline int64_t ct_shape_count(const ct_shape *s, int from, int to)
{
    int64_t n = 1;

    if (to < 0) to = s->ndim;
    for (int i = from; i < to; i++) n *= s->dim[i];
    return n;
}

static inline bool ct_shape_equal(const ct_shape *a, const ct_shape *b)
{
    if (a->ndim != b->ndim) return false;
    for (int i = 0; i < a->ndim; i++) {
        if (a->dim[i] != b->dim[i]) return false;
    }
    return true;
}

/** Dimension i of Caffe's legacy (num, channels, height, width) view: 1 beyond ndim. */
static inline int64_t ct_shape_legacy(const ct_shape *s, int i)
{
    return (i < s->ndim) ? s->dim[i] : 1;
}

/** axis as in Caffe: negative counts from the end. False where it is outside [-ndim, ndim). */
static inline bool ct_shape_axis(const ct_shape *s, int axis, int *index_p)
{
    int index = (axis < 0) ? axis + s->ndim : axis;

    if ((index < 0) || (index >= s->ndim)) return false;
    *index_p = index;
    return true;
}

/** a * b of numbers that a file gave, both at least 0; too large: the largest number, which no
 *  shape with it passes ct_shape_check(). */
static inline int64_t ct_dim_mul(int64_t a, int64_t b)
{
    int64_t product;

    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

typedef struct ct_shape_text {
    char text[160];
} ct_shape_text;

/** "64 1 28 28 (50176)", as Caffe logs shapes. */
ct_shape_text ct_shape_str(const ct_shape *s);
/** False where a dimension is negative, or where any dimensions multiplied come near 2^62. */
bool ct_shape_is_valid(const ct_shape *s);
/** CT_ERR_SHAPE, logged, where it is not valid. */
ct_status ct_shape_check(const ct_shape *s);

#ifdef __cplusplus
}
#endif

#endif
