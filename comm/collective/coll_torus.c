/* torus: a ring along each dimension in turn, of a grid laid through the topology's order: least
 * traffic, and only 2 sum (d_i - 1) messages deep. */
#include "comm/collective/coll_p2p.h"
#include "comm/collective/coll_types.h"

static ct_status torus_build(const ct_coll_req *r, ct_schedule *s)
{
    return ct_coll_p2p_plan(r, "torus", true, true, s);
}

static ct_status torus_prepare(ct_coll_req *r)
{
    return ct_coll_p2p_prepare(r, torus_build);
}

static double torus_cost_s(const ct_comm *c, int64_t bytes, ct_dtype dtype)
{
    (void)dtype;
    return ct_coll_cost_s(c, "torus", bytes);
}

const ct_coll_ops ct_coll_torus = {
    .name = "torus",
    .supports = ct_coll_p2p_supports,
    .cost_s = torus_cost_s,
    .prepare = torus_prepare,
    .start = ct_coll_p2p_start,
    .progress = ct_coll_p2p_progress,
    .release = ct_coll_p2p_release,
    .pending = ct_coll_p2p_pending,
};
