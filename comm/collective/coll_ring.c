/* ring: reduce-scatter and allgather around a ring in the topology's order: least traffic, and each
 * link of the tree crossed once; 2 (p-1) messages deep. */
#include "comm/collective/coll_p2p.h"
#include "comm/collective/coll_types.h"

static ct_status ring_build(const ct_coll_req *r, ct_schedule *s)
{
    return ct_coll_p2p_plan(r, "ring", true, true, s);
}

static ct_status ring_prepare(ct_coll_req *r)
{
    return ct_coll_p2p_prepare(r, ring_build);
}

static double ring_cost_s(const ct_comm *c, int64_t bytes, ct_dtype dtype)
{
    (void)dtype;
    return ct_coll_cost_s(c, "ring", bytes);
}

const ct_coll_ops ct_coll_ring = {
    .name = "ring",
    .supports = ct_coll_p2p_supports,
    .cost_s = ring_cost_s,
    .prepare = ring_prepare,
    .start = ct_coll_p2p_start,
    .progress = ct_coll_p2p_progress,
    .release = ct_coll_p2p_release,
    .pending = ct_coll_p2p_pending,
};
