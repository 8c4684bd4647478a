/** @file blocked.h  Sums and affine maps along the channels of blocked arrays; private to layers/.
 *
 * x[outer][mid / block, rounded up][inner][block]; vectors of the channels have mid elements. What
 * fills up the last block is read and written, and counts for nothing. No result depends on the
 * number of threads.
 */
#ifndef CT_BLOCKED_H
#define CT_BLOCKED_H

#include "framework/net/layer.h"

enum { CT_BLOCK_MAX = 16, CT_BLOCKED_GROUP = 16 };

typedef struct ct_blocked {
    int64_t outer, mid, inner;
    int block; /* at most CT_BLOCK_MAX */
    bool bf16; /* x and y, a and b     */
} ct_blocked;

/** y = x scale + bias; NULL: 1, 0. y may be x. */
void ct_blocked_affine(const ct_blocked *v, const float *x, const float *scale, const float *bias,
                       float *y);

/** What one image's block of channels adds to each channel's two sums: x[inner][block], or several
 *  such arrays that ctx knows of; `at`: of its first element in the whole array. */
typedef void (*ct_blocked_fn)(const void *ctx, int64_t k, int64_t at, int64_t inner, int block,
                              double *first, double *second);
/** The two sums of the channels of blocks [from, to), at most CT_BLOCKED_GROUP of them:
 *  first, second [(to - from) block]. */
void ct_blocked_sums(const ct_blocked *v, int64_t from, int64_t to, ct_blocked_fn add,
                     const void *ctx, double *first, double *second);
/** out[c] = the first sum of channel c. add: added to out. */
void ct_blocked_total(const ct_blocked *v, ct_blocked_fn fn, const void *ctx, bool add, float *out);
/** out[c] = sum of a b over channel c, in double; b NULL: 1. add: added to out. */
void ct_blocked_dot(const ct_blocked *v, const float *a, const float *b, bool add, float *out);

static inline int64_t ct_blocked_n(const ct_blocked *v)
{
    return (v->mid + v->block - 1) / v->block;
}

/** Channels of block k that there are. */
static inline int ct_blocked_used(const ct_blocked *v, int64_t k)
{
    int64_t rest = v->mid - k * v->block;

    return (int)((rest < v->block) ? rest : v->block);
}

/** to[block] = channels of block k of a vector; `rest` where there is none. from NULL: rest. */
static inline void ct_blocked_pick(const ct_blocked *v, int64_t k, const float *from, float rest,
                                   float *to)
{
    int used = (from != NULL) ? ct_blocked_used(v, k) : 0;

    for (int i = 0; i < used; i++) to[i] = from[k * v->block + i];
    for (int i = used; i < v->block; i++) to[i] = rest;
}

#endif
