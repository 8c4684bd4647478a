/** @file batch_norm_blocked.h  What both directions of the engine "blocked" share; private to
 * batch_norm/.
 */
#ifndef CT_BATCH_NORM_BLOCKED_H
#define CT_BATCH_NORM_BLOCKED_H

#include "layers/blocked.h"
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
