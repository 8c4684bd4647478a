/** @file chunk_plan.h  Which chunk lies where at each moment of a training step, where only some of
 * them fit the fast memory: chosen before the run, and the same in every step.
 *
 * A *chunk* is a range of the arena of weights. It is *used* at moments of a step: by the layers
 * that have its weights, forward and backward. A *slot* is room for one chunk. A chunk that a use
 * does not find in a slot is loaded, into the slot of one that is not kept. A chain of n layers,
 * forward and then backward, with C slots takes 2 (n - C) loads a step, which is the least; then
 * chunk k always lies in slot k modulo C.
 *
 * What is kept from one use to the next is an arc on the circle of the step's moments; at a moment
 * at most C arcs and chunks in use meet. With the arcs given that pass the end of the step, the
 * most others are kept by dropping, where there are too many, the one that ends last: Belady's
 * rule (IBM Systems Journal 5, 1966). Up to CT_CHUNK_EXACT chunks all sets of such arcs are tried;
 * beyond, those that the least recently used and Belady's rule come to, and changes of them.
 */
#ifndef CT_CHUNK_PLAN_H
#define CT_CHUNK_PLAN_H

#include <stdint.h>

#include "framework/base/status.h"

enum { CT_CHUNK_EXACT = 12 };

/** At this moment of a step this chunk must be there. Several may be used at one moment. */
typedef struct ct_chunk_use {
    int moment, chunk;
} ct_chunk_use;

typedef struct ct_chunk_load {
    int chunk, slot;
    int moment; /* of the use that needs it                                              */
    int from;   /* the slot's chunk before was last used at this moment, of this step, or where it
                 * is above `moment` of the step before: the load may begin behind it     */
} ct_chunk_load;

typedef struct ct_chunk_plan {
    int n_use, n_load;
    int *slot;           /* [n_use] where the chunk of each use lies       */
    ct_chunk_load *load; /* [n_load] a step, in the order of their moments */
    int n_shift;         /* chunks that lie elsewhere in the fast memory when the next step begins,
                          * and are copied there; none in a chain */
} ct_chunk_plan;

/** use: by moments, of chunks 0 to n_chunk - 1. CT_ERR_CONFIG where room is less than a moment
 *  uses; CT_ERR_NOMEM. */
ct_status ct_chunk_plan_make(const ct_chunk_use *use, int n_use, int n_chunk, int room,
                             ct_chunk_plan *plan);
void ct_chunk_plan_destroy(ct_chunk_plan *plan); /* zeroed ones too */
/** Loads a step, once they repeat, of dropping what was used longest ago: to compare. room holds
 *  what a moment uses. CT_ERR_NOMEM. */
ct_status ct_chunk_plan_lru(const ct_chunk_use *use, int n_use, int n_chunk, int room,
                            int *n_load_p);
/** Fills use[2 n] with those of a chain: forward, then backward. */
void ct_chunk_chain(int n, ct_chunk_use *use);

#endif
