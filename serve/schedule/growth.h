/** @file growth.h  How many tokens sequences make, and how many batches they take for them.
 *
 * Nobody knows when a text ends. It is expected to have as many new tokens as texts have had of
 * late, and no more than it may have. Each batch has a token of every sequence that has begun, so
 * batches are counted. Sequences that find no room wait until one ends: they are dealt out, in
 * order, to as many lanes as there is room for, each to the one that is free first.
 */
#ifndef CT_GROWTH_H
#define CT_GROWTH_H

#include <stdint.h>

#include "framework/base/status.h"

typedef struct ct_growth {
    double mean;  /* tokens that sequences made, the last ones counting most; 0: none ended */
    double *lane; /* a heap, the least first: batches until it is free                      */
    int n_lane, most_lane;
    double last; /* … until all are */
} ct_growth;

/** Room for so many lanes. CT_ERR_NOMEM, logged. */
ct_status ct_growth_create(ct_growth *g, int most_lane);
void ct_growth_destroy(ct_growth *g);

/** A sequence ended with so many tokens. */
void ct_growth_note(ct_growth *g, int64_t made);
/** How many more one is expected to make, at least 1; until any has ended, 1. */
double ct_growth_expect(const ct_growth *g, int64_t most_new, int64_t made);

/** n >= 1 lanes, all of them free. */
void ct_growth_clear(ct_growth *g, int n);
/** Batches until one is free. */
double ct_growth_free(const ct_growth *g);
/** A sequence takes that one, for so many batches. */
void ct_growth_add(ct_growth *g, double batches);

#endif
