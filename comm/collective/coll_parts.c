#include "comm/collective/coll_parts.h"

#include <stdlib.h>

#include "comm/collective/coll_p2p.h"
#include "comm/collective/coll_types.h"
#include "comm/cost/hierarchical_plan.h"

ct_status ct_coll_part(const ct_comm *c, int64_t count, int rank, int64_t *first_p, int64_t *n_p)
{
    ct_hierarchical_plan_group all = { .n = c->size, .a = 0, .b = CT_HIERARCHICAL_PLAN_UNITS };
    int64_t a = 0, b = 0;
    int at = 0;

    if ((rank < 0) || (rank >= c->size))
        return CT_FAIL(CT_ERR_ARG, "a part of rank %d of %d", rank, c->size);
    while (c->topo->order[at] != rank) at += 1;
    ct_hierarchical_plan_part(&all, at, &a, &b);
    *first_p = ct_hierarchical_plan_at(a, count, c->size);
    *n_p = ct_hierarchical_plan_at(b, count, c->size) - *first_p;
    return CT_OK;
}

static ct_status scatter_build(const ct_coll_req *r, ct_schedule *s)
{
    return ct_coll_p2p_plan(r, &ct_cost_flat, true, false, s);
}

static ct_status scatter_prepare(ct_coll_req *r)
{
    return ct_coll_p2p_prepare(r, scatter_build);
}

static ct_status gather_build(const ct_coll_req *r, ct_schedule *s)
{
    return ct_coll_p2p_plan(r, &ct_cost_flat, false, true, s);
}

static ct_status gather_prepare(ct_coll_req *r)
{
    return ct_coll_p2p_prepare(r, gather_build);
}

static bool moves_all(const ct_comm *c, int64_t count, ct_dtype dtype)
{
    (void)c;
    (void)count;
    (void)dtype;
    return true;
}

/* ---- broadcast: positions count from the root */

/* Deals the parts out, from the first of the members that share a range to the first of the half
 * that gets the other range, and so on: ct_halving from the root's side. */
static ct_status deal_out(const int *rank, int n, int me, int64_t count, ct_schedule *s)
{
    ct_halving h;
    ct_halving_round r;

    ct_halving_begin(&h, n, me, 0, CT_HIERARCHICAL_PLAN_UNITS);
    for (int i = h.i; ct_halving_next(&h, &r); i = h.i) {
        ct_sched_step step = { .send_to = -1, .recv_from = -1 };

        if (i == 0) {
            step.send_to = rank[r.to];
            step.send_at = ct_hierarchical_plan_at(r.send_a, count, n);
            step.send_n = ct_hierarchical_plan_at(r.send_b, count, n) - step.send_at;
        } else if (i == 1) {
            step.recv_from = rank[r.from[0]];
            step.recv_at = ct_hierarchical_plan_at(r.keep_a, count, n);
            step.recv_n = ct_hierarchical_plan_at(r.keep_b, count, n) - step.recv_at;
        }
        CT_TRY(ct_schedule_add(s, &step));
    }
    return CT_OK;
}

static ct_status by_parts(const ct_coll_req *r, const int *rank, int me, ct_schedule *s)
{
    const ct_cost *cost = NULL;
    ct_group_algorithm way[CT_HIERARCHICAL_PLAN_PHASES];
    ct_engine_plan_use use = { .way = way, .rank = rank, .me = me, .n = r->count };

    CT_TRY(ct_coll_cost(r->comm, &ct_cost_flat, false, &cost));
    ct_cost_algorithms(cost, (double)r->count * (double)ct_dtype_size(r->dtype), way);
    use.plan = ct_cost_plan(cost);
    CT_TRY(deal_out(rank, r->comm->size, me, r->count, s));
    return ct_hierarchical_plan_gather(&use, s);
}

static ct_status broadcast_build(const ct_coll_req *r, ct_schedule *s)
{
    const ct_comm *c = r->comm;
    int64_t bytes = r->count * (int64_t)ct_dtype_size(r->dtype);
    int *rank = NULL, root = 0, me = 0;
    ct_status status = CT_OK;

    if ((r->root < 0) || (r->root >= c->size))
        return CT_FAIL(CT_ERR_ARG, "a broadcast from rank %d of %d", r->root, c->size);
    rank = malloc(sizeof(*rank) * (size_t)c->size);
    if (rank == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", c->size);
    while (c->topo->order[root] != r->root) root += 1;
    for (int i = 0; i < c->size; ++i) rank[i] = c->topo->order[(root + i) % c->size];
    while (rank[me] != c->rank) me += 1;
    if (ct_coll_seconds(c, &ct_cost_tree, bytes) / 2 <= ct_coll_seconds(c, &ct_cost_flat, bytes))
        status = ct_tree_broadcast(rank, c->size, 0, me, r->count, s);
    else
        status = by_parts(r, rank, me, s);
    free(rank);
    return status;
}

static ct_status broadcast_prepare(ct_coll_req *r)
{
    return ct_coll_p2p_prepare(r, broadcast_build);
}

const ct_coll_ops ct_coll_reduce_scatter = {
    .name = "reduce-scatter",
    .supports = ct_coll_p2p_supports,
    .prepare = scatter_prepare,
    .start = ct_coll_p2p_start,
    .progress = ct_coll_p2p_progress,
    .release = ct_coll_p2p_release,
    .pending = ct_coll_p2p_pending,
};

const ct_coll_ops ct_coll_allgather = {
    .name = "allgather",
    .supports = moves_all,
    .prepare = gather_prepare,
    .start = ct_coll_p2p_start,
    .progress = ct_coll_p2p_progress,
    .release = ct_coll_p2p_release,
    .pending = ct_coll_p2p_pending,
};

const ct_coll_ops ct_coll_broadcast = {
    .name = "broadcast",
    .supports = moves_all,
    .prepare = broadcast_prepare,
    .start = ct_coll_p2p_start,
    .progress = ct_coll_p2p_progress,
    .release = ct_coll_p2p_release,
    .pending = ct_coll_p2p_pending,
};
