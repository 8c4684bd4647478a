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
 *  dropped there, where not NULL. Nothing is allocated. A NaN counts as the
 * largest. */
void ct_sparse_keep(ct_sparse *s, int64_t k, const struct ct_residual_return *dropped);

/** The k-th largest magnitude of value[count], exactly, as its 31 bits (which order floats without
 *  sign like integers), and how many of the entries equal to it belong to the k largest. By
 *  histograms between the least and the largest. k >= count: 0 and count, as all belong; k <= 0:
 *  more than any float's bits. */
void ct_sparse_kth(const float *value, int64_t count, int64_t k, uint32_t *bits_p,
                   int64_t *equal_p);

/* ---- where entries go that somebody drops on the way: back to what is not sent yet
 *
 * That is a vector at hand, or one on a device: then additions are noted, in their order, for who
 * makes them there. In a batch no element comes twice, so all of it may be added at once; batches
 * are added one after the other, and so have the bits of additions made here.
 */

enum { CT_RESIDUAL_RETURN_BATCHES = 80 };

/** Additions that are still to be made. */
typedef struct ct_residual_return_list {
    ct_sparse entry; /* in the order in which they were dropped; its room is all there is */
    int n_batch;
    int64_t end[CT_RESIDUAL_RETURN_BATCHES]; /* of the batches */
    bool full;                               /* there were more */
} ct_residual_return_list;

typedef struct ct_residual_return {
    float *v;                      /* they are added to v[i]; NULL: … */
    ct_residual_return_list *list; /* … noted as element first + i. NULL, too: they are gone */
    int64_t first;
} ct_residual_return;

/** Notes one; zeros change nothing and are left out. */
void ct_residual_return_note(const ct_residual_return *d, int64_t i, float value);
/** What comes from now on is a new batch. */
void ct_residual_return_next(const ct_residual_return *d);
/** Nothing is noted. */
void ct_residual_return_clear(ct_residual_return_list *list);

static inline void ct_residual_return_add(const ct_residual_return *d, int64_t i, float value)
{
    if (d->v != NULL)
        d->v[i] += value;
    else
        ct_residual_return_note(d, i, value);
}

/** Of the elements from `first` on. */
static inline ct_residual_return ct_residual_return_from(const ct_residual_return *d, int64_t first)
{
    return (ct_residual_return){ .v = (d->v != NULL) ? d->v + first : NULL,
                                 .list = d->list,
                                 .first = d->first + first };
}

#endif
