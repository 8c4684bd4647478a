/** @file batch_norm_blocked.h  What both directions of the engine "blocked" share; private to
 * batch_norm/.
 */
#ifndef CT_ENGINE_BATCH_NORM_BATCH_NORM_BLOCKED_H
#define CT_ENGINE_BATCH_NORM_BATCH_NORM_BLOCKED_H

#include "framework/base/bf16.h"
#include "layers/layer_util.h"
#include "layers/engine/batch_norm/batch_norm.h"

void ct_batch_norm_blocked_backward(const ct_batch_norm_desc *d, int64_t from, int64_t to,
                                    const ct_batch_norm_back *b);

/** sum and square[block] grow by those of x[inner][block] and of its squares, in double. */
void ct_batch_norm_square(int64_t inner, int block, bool bf16, const float *x, double *sum,
                          double *square);

static inline ct_blocked norm_view(const ct_batch_norm_desc *d)
{
    return (ct_blocked){ d->n, d->channels, d->spatial, d->block, d->bf16 };
}

/** Blocks in groups, as ct_blocked_sums() takes them. */
static inline int64_t norm_group_end(int64_t k, int64_t to)
{
    return (k + CT_BLOCKED_GROUP < to) ? k + CT_BLOCKED_GROUP : to;
}

static inline int64_t norm_blocks(const ct_batch_norm_desc *d, int64_t channels)
{
    return (channels + d->block - 1) / d->block;
}

/** Rows that go through a first-level cache at a time, and how far in front of them others are
 * fetched: several arrays are read, and what was written last by another core waits longest. */
enum { NORM_ROWS = 32, NORM_AHEAD = 2 * NORM_ROWS };

/** The place that is NORM_AHEAD rows behind row r, which is at `at`: in the same block of channels
 *  of the next image where this one ends. */
static inline int64_t norm_soon(const ct_blocked *v, int64_t at, int64_t r)
{
    int64_t skip = (r + NORM_AHEAD < v->inner) ? 0 : (ct_blocked_n(v) - 1) * v->inner;

    return at + (NORM_AHEAD + skip) * v->block;
}

/** Fetches n numbers into a second-level cache. x may be NULL. */
static inline void norm_fetch(const float *x, bool bf16, int64_t at, int64_t n)
{
    if (x == NULL) return;
    for (int64_t i = 0; i < n; i += bf16 ? 32 : 16)
        __builtin_prefetch(ct_num_at(x, bf16, at + i), 0, 2);
}

/** What a block of channels is mapped by. */
typedef struct norm_factors {
    float mean[CT_BLOCK_MAX], inv_std[CT_BLOCK_MAX], scale[CT_BLOCK_MAX], bias[CT_BLOCK_MAX];
} norm_factors;

static inline void norm_pick(const ct_blocked *v, int64_t k, const ct_batch_norm_map *m,
                             norm_factors *f)
{
    ct_blocked_pick(v, k, m->mean, 0.0f, f->mean);
    ct_blocked_pick(v, k, (m->mean != NULL) ? m->inv_std : NULL, (m->mean != NULL) ? 0.0f : 1.0f,
                    f->inv_std);
    ct_blocked_pick(v, k, m->scale, 1.0f, f->scale);
    ct_blocked_pick(v, k, m->bias, 0.0f, f->bias);
}

#endif
