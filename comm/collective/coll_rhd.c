/* rhd: recursive halving and doubling in the topology's order, nearest first: least traffic at
 * powers of two, 2 log2 p messages deep. The large exchanges stay near: swCaffe's numbering
 * (CLUSTER 2018) for any placement. */
#include "comm/collective/coll_p2p.h"
#include "comm/collective/coll_types.h"

static ct_status rhd_build(const ct_coll_req *r, ct_schedule *s)
{
    return ct_coll_p2p_plan(r, "rhd", true, true, s);
}

static ct_status rhd_prepare(ct_coll_req *r)
{
    return ct_coll_p2p_prepare(r, rhd_build);
}

static double rhd_cost_s(const ct_comm *c, int64_t bytes, ct_dtype dtype)
{
    (void)dtype;
    return ct_coll_cost_s(c, "rhd", bytes);
}

const ct_coll_ops ct_coll_rhd = {
    .name = "rhd",
    .supports = ct_coll_p2p_supports,
    .cost_s = rhd_cost_s,
    .prepare = rhd_prepare,
    .start = ct_coll_p2p_start,
    .progress = ct_coll_p2p_progress,
    .release = ct_coll_p2p_release,
    .pending = ct_coll_p2p_pending,
};
