/** @file residual_return.h  Where entries go that somebody drops on the way: back to what is not
 * sent yet.
 *
 * That is a vector at hand, or one on a device: then additions are noted, in their order, for who
 * makes them there. In a batch no element comes twice, so all of it may be added at once; batches
 * are added one after the other, and so have the bits of additions made here. Private to comm/.
 */
#ifndef CT_RESIDUAL_RETURN_H
#define CT_RESIDUAL_RETURN_H

#include "comm/sparse/sparse.h"

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
