/** @file coll_p2p.h  A collective that is one schedule over all ranks. Private to comm/. */
#ifndef CT_COLL_P2P_H
#define CT_COLL_P2P_H

#include "comm/collective/schedule.h"

/** Appends the steps of a collective over r->count elements. */
typedef ct_status (*ct_p2p_build_fn)(const ct_coll_req *r, ct_schedule *s);

ct_status ct_coll_p2p_prepare(ct_coll_req *r, ct_p2p_build_fn build);
ct_status ct_coll_p2p_start(ct_coll_req *r);
ct_status ct_coll_p2p_progress(ct_coll_req *r);
void ct_coll_p2p_release(ct_coll_req *r);
int ct_coll_p2p_pending(ct_coll_req *r, MPI_Request **out, int max);
/** True for the dtypes that can be added. */
bool ct_coll_p2p_supports(const ct_comm *c, int64_t count, ct_dtype dtype);
/** Appends the reduce-scatter and/or the allgather of the plan that `how` prices, over all ranks. */
ct_status ct_coll_p2p_plan(const ct_coll_req *r, const ct_cost_ops *how, bool scatter, bool gather,
                           ct_schedule *s);
/** Place of this rank in the topology's order. */
int ct_coll_p2p_place(const ct_comm *c);

/** What the operations of all of them have in common. */
#define CT_COLL_P2P_OPS                                                                            \
    .supports = ct_coll_p2p_supports, .start = ct_coll_p2p_start,                                  \
    .progress = ct_coll_p2p_progress, .release = ct_coll_p2p_release,                              \
    .pending = ct_coll_p2p_pending

/** One group of all ranks, in whichever way costs least; a binomial tree of them. */
extern const ct_cost_ops ct_cost_flat, ct_cost_tree;

#endif
