/** @file sparse.h  Some elements of a vector: their indices, ascending, and their values.
 *
 * What a selection takes out of a residual and what sparse exchanges merge. Indices are 32-bit
 * integers, so vectors have fewer than 2^32 elements. Buffers grow and stay: once they are large
 * enough nothing is allocated. A zeroed struct is an empty vector of no elements.
 */
#ifndef CT_SPARSE_H
#define CT_SPARSE_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/base/status.h"

#define CT_SPARSE_MAX ((int64_t)UINT32_MAX) /* most elements of the whole vector */

struct ct_residual_return;

typedef struct ct_sparse {
    int64_t n;       /* elements of the whole vector                */
    int64_t count;   /* those held here                             */
    int64_t room;    /* those that fit without allocation           */
    uint32_t *index; /* [count], ascending, each < n; 64-byte aligned */
    float *value;    /* [count]; 64-byte aligned                    */
} ct_sparse;

/** Room for at least `room` entries; what is held stays. CT_ERR_NOMEM: s is as it was. */
ct_status ct_sparse_reserve(ct_sparse *s, int64_t room);
/** Releases the buffers and zeroes *s. */
void ct_sparse_destroy(ct_sparse *s);

/** dense[index] += value for every entry. */
void ct_sparse_add_to(const ct_sparse *s, float *dense);
/** Keeps the k entries of largest magnitude, of equal ones those of lowest index. What goes is
 *  dropped there (residual_return.h), where not NULL. Nothing is allocated. A NaN counts as the
 * largest. */
void ct_sparse_keep(ct_sparse *s, int64_t k, const struct ct_residual_return *dropped);

/** The k-th largest magnitude of value[count], exactly, as its 31 bits (which order floats without
 *  sign like integers), and how many of the entries equal to it belong to the k largest. By
 *  histograms between the least and the largest. k >= count: 0 and count, as all belong; k <= 0:
 *  more than any float's bits. */
void ct_sparse_kth(const float *value, int64_t count, int64_t k, uint32_t *bits_p,
                   int64_t *equal_p);

#endif
