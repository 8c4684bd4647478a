/** @file coll_parts.h  Reduce-scatter, allgather and broadcast, with the requests of coll.h.
 *
 * The buffer holds all elements on every rank. A reduce-scatter leaves the sum of a rank's part in
 * its place, and anything elsewhere; an allgather takes each rank's part from its place and leaves
 * all parts everywhere. Which part is whose follows the topology's order, so that near ranks share
 * long stretches: ask ct_coll_part(). Ring, halving or all at once, by cost.
 *
 * Weights are broadcast. Nothing in this tree scatters or gathers by parts yet: they are kept for
 * states of update rules that ranks share out among them, by ranges of the arena
 * (docs/architecture.md, "Arena canon").
 */
#ifndef CT_COLL_PARTS_H
#define CT_COLL_PARTS_H

#include "comm/collective/coll.h"

/** The part of a rank: elements [*first_p, *first_p + *n_p) of count. Parts of all ranks are
 *  disjoint, cover all, and differ by rounding only: to 16 elements, where count allows. */
ct_status ct_coll_part(const ct_comm *c, int64_t count, int rank, int64_t *first_p, int64_t *n_p);

extern const ct_coll_ops ct_coll_reduce_scatter;
extern const ct_coll_ops ct_coll_allgather; /* any dtype */
/** From r->root: a binomial tree for small buffers; for large ones parts dealt out and gathered
 *  (van de Geijn; Thakur et al., IJHPCA 2005). Any dtype. */
extern const ct_coll_ops ct_coll_broadcast;

#endif
