/** @file low_rank.h  A matrix as the product of two thin ones. Private to comm/.
 *
 * V has rows x cols elements, row by row; P holds r columns of rows elements, and Q r columns of
 * cols, each column a stretch of its own. All sums are in an order that does not depend on the
 * number of threads or on the processor: what several ranks compute alike has the same bits.
 */
#ifndef CT_LOW_RANK_H
#define CT_LOW_RANK_H

#include "comm/codec/select.h"

typedef struct ct_low_rank {
    int64_t rows, cols;
    int r;
} ct_low_rank;

enum {
    CT_LOW_RANK_WIDE = 8192, /* columns from which on they alone are work enough for all threads */
    CT_LOW_RANK_SLAB =
        1 << 16, /* elements of the rows that are added up apart, where there are fewer */
    CT_LOW_RANK_SLABS = 16
};

/** Rows that ct_low_rank_right() adds up apart, in so many slabs: by the shape alone. */
static inline int ct_low_rank_slabs(const ct_low_rank *s)
{
    int64_t n = s->rows * s->cols / CT_LOW_RANK_SLAB;

    if ((s->cols >= CT_LOW_RANK_WIDE) || (n < 2)) return 1;
    if (n > CT_LOW_RANK_SLABS) n = CT_LOW_RANK_SLABS;
    return (int)((n < s->rows) ? n : s->rows);
}

/** Floats that ct_low_rank_right() needs. */
int64_t ct_low_rank_scratch(const ct_low_rank *s);
/** The update of *a, whose V is the matrix, and P = V Q. CT_ERR_DIVERGED where P is not finite,
 *  which it is not where V is not, as long as no column of Q is zero. */
ct_status ct_low_rank_left(const ct_low_rank *s, const ct_momentum_correction *a, const float *q,
                           float *p);
/** Columns of length 1, at right angles to each other (Gram-Schmidt, twice); 0 where one is
 *  nothing but the others' sum. CT_ERR_DIVERGED where P is not finite. */
ct_status ct_low_rank_basis(const ct_low_rank *s, float *p);
/** Q = transposed V P. */
void ct_low_rank_right(const ct_low_rank *s, const float *v, const float *p, int n_thread,
                       float *scratch, float *q);
/** V -= P transposed Q. */
void ct_low_rank_take(const ct_low_rank *s, const float *p, const float *q, int n_thread, float *v);
/** V = P transposed Q. */
void ct_low_rank_put(const ct_low_rank *s, const float *p, const float *q, int n_thread, float *v);
/** Columns of length 1 in Q; one that is 0 is drawn at random by the key. */
void ct_low_rank_warm(const ct_low_rank *s, uint64_t key, float *q);

#endif
