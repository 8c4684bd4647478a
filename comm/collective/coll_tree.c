/* tree: a binomial tree to the first rank of the topology's order, and back: 2 log2 p messages
 * deep, each of the whole buffer, so for small ones; half as many messages as rhd has. */
#include "comm/collective/coll_p2p.h"
#include "comm/collective/coll_types.h"

static ct_status tree_build(const ct_coll_req *r, ct_schedule *s)
{
    int n = r->comm->size, me = ct_coll_p2p_place(r->comm);

    CT_TRY(ct_tree_reduce(r->comm->topo->order, n, 0, me, r->count, s));
    return ct_tree_broadcast(r->comm->topo->order, n, 0, me, r->count, s);
}

static ct_status tree_prepare(ct_coll_req *r)
{
    return ct_coll_p2p_prepare(r, tree_build);
}

static double tree_cost_s(const ct_comm *c, int64_t bytes, ct_dtype dtype)
{
    (void)dtype;
    return ct_coll_cost_s(c, "tree", bytes);
}

const ct_coll_ops ct_coll_tree = {
    .name = "tree",
    .supports = ct_coll_p2p_supports,
    .cost_s = tree_cost_s,
    .prepare = tree_prepare,
    .start = ct_coll_p2p_start,
    .progress = ct_coll_p2p_progress,
    .release = ct_coll_p2p_release,
    .pending = ct_coll_p2p_pending,
};
