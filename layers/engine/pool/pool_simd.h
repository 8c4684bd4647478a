/** @file pool_simd.h  Vectors of the engines on planes in plain order; private to pool/. */
#ifndef CT_ENGINE_POOL_SIMD_H
#define CT_ENGINE_POOL_SIMD_H

#include "framework/base/simd.h"
#include "layers/engine/pool/pool_private.h"

enum { CT_POOL_LANES = 8 };
typedef float ct_pool_vec __attribute__((vector_size(4 * CT_POOL_LANES), aligned(4), may_alias));
typedef int32_t ct_pool_num __attribute__((vector_size(4 * CT_POOL_LANES), aligned(4), may_alias));

/** Numbers of two vectors, by their places in both. */
#define CT_POOL_MIXED(_a, _b, ...) CT_SIMD_MIXED(ct_pool_num, _a, _b, __VA_ARGS__)

/** n, rounded up to whole vectors. */
static inline int64_t ct_pool_lanes(int64_t n)
{
    return (n + CT_POOL_LANES - 1) / CT_POOL_LANES * CT_POOL_LANES;
}

/** One window, the plane. */
static inline bool ct_pool_is_global(const ct_pool_desc *d)
{
    return (d->oh == 1) && (d->ow == 1) && (d->kh == d->h) && (d->kw == d->w) && (d->ph == 0) &&
           (d->pw == 0);
}

/* places in windows are 32-bit */
static inline bool ct_pool_simd_supports(const ct_pool_desc *d)
{
    return ct_pool_on_cpu(d) && (d->block == 0) && !d->bf16 && (d->h * d->w < 1 << 30) &&
           (d->kw < 1 << 30);
}

/** Windows of 2 or 3 columns, two apart, with places in bytes; more outputs than a vector has. */
bool ct_pool_is_step2(const ct_pool_desc *d);
/** MAX forward of a plane with ct_pool_is_step2(); mask NULL: unwanted. */
void ct_pool_step2_max(const ct_pool_desc *d, const float *x, float *y, uint8_t *mask);

#endif
