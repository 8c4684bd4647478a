/** @file coll_p2p.h  A collective that is one schedule over all ranks. Private to comm/. */
#ifndef CT_COLL_P2P_H
#define CT_COLL_P2P_H

#include "comm/schedule.h"

/** Appends the steps of an allreduce of r->count elements. */
typedef ct_status (*ct_p2p_build_fn)(const ct_coll_req *r, ct_schedule *s);

ct_status ct_coll_p2p_prepare(ct_coll_req *r, ct_p2p_build_fn build);
ct_status ct_coll_p2p_start(ct_coll_req *r);
ct_status ct_coll_p2p_progress(ct_coll_req *r);
void ct_coll_p2p_release(ct_coll_req *r);
int ct_coll_p2p_pending(ct_coll_req *r, MPI_Request **out, int max);
/** True for the dtypes that can be added. */
bool ct_coll_p2p_supports(const ct_comm *c, int64_t count, ct_dtype dtype);
/** build() over all ranks of the world as one group, in rank order. */
ct_status ct_coll_p2p_world(const ct_coll_req *r, ct_schedule *s,
                            ct_status (*append)(ct_schedule *, const ct_group *, int64_t, int64_t));

#endif
