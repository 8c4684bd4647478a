/** @file low_rank.h  A matrix as the product of two thin ones. Private to comm/.
 *
 * V has rows x cols elements, row by row; P holds r columns of rows elements, and Q r columns of
 * cols, each column a stretch of its own. All sums are in an order that does not depend on the
 * number of threads or on the processor: what several ranks compute alike has the same bits.
 */
#ifndef CT_LOW_RANK_H
#define CT_LOW_RANK_H

#include "comm/select.h"

typedef struct ct_low_rank {
    int64_t rows, cols;
    int r;
} ct_low_rank;

/** Floats that ct_low_rank_right() needs. */
int64_t ct_low_rank_scratch(const ct_low_rank *s);
/** The update of *a, whose V is the matrix, and P = V Q. CT_ERR_DIVERGED where P is not finite,
 *  which it is not where V is not, as long as no column of Q is zero. */
ct_status ct_low_rank_left(const ct_low_rank *s, const ct_accum *a, const float *q, float *p);
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
