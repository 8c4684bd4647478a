/* Collectives that are one schedule over all ranks: ring, rhd, torus and tree, their halves, and
 * broadcast. */
#include "comm/collective/coll_types.h"

#include <stdlib.h>
#include <string.h>

#include "comm/core/reduce.h"
#include "comm/cost/hierarchical_plan.h"

int ct_coll_p2p_place(const ct_comm *c)
{
    int at = 0;

    while (c->topo->order[at] != c->rank) at += 1;
    return at;
}

bool ct_coll_p2p_moves(const ct_comm *c, int64_t count, ct_dtype dtype)
{
    (void)c;
    (void)count;
    (void)dtype;
    return true;
}

/* ---- parts, and the pieces of plans */

static ct_status no_memory(void)
{
    return CT_FAIL(CT_ERR_NOMEM, "no memory for the parts of a collective");
}

ct_status ct_coll_p2p_parts(const ct_coll_req *r, ct_sched_piece **piece_p)
{
    int n = r->comm->size;
    const ct_cost *cost = NULL;
    const ct_hierarchical_plan *all = NULL;
    ct_sched_piece *part = malloc(sizeof(*part) * (size_t)n);
    ct_status status = CT_OK;

    if (part == NULL) return no_memory();
    status = ct_coll_cost(r->comm, &ct_cost_flat, false, &cost);
    if (status != CT_OK) {
        free(part);
        return status;
    }
    all = ct_cost_plan(cost);
    for (int i = 0; i < n; ++i) /* one each */
        part[i] = (ct_sched_piece){ ct_hierarchical_plan_at(all->piece[i].end, r->count, n),
                                    all->piece[i].owner };
    *piece_p = part;
    return CT_OK;
}

ct_status ct_coll_p2p_deal(const ct_coll_req *r, const ct_hierarchical_plan *plan, int n_chunk,
                           bool back, ct_schedule *s)
{
    int64_t n = ct_hierarchical_plan_pieces(plan), k = 0;
    int me = ct_coll_p2p_place(r->comm);
    const int *rank = r->comm->topo->order;
    ct_sched_piece *part = NULL, *piece = malloc(sizeof(*piece) * (size_t)(n * n_chunk));
    ct_status status = CT_OK;

    if (piece == NULL) return no_memory();
    for (int c = 0; c < n_chunk; ++c) {
        int64_t first = ct_part(r->count, n_chunk, c);
        int64_t length = ct_part(r->count, n_chunk, c + 1) - first;

        for (int64_t i = 0; i < n; ++i)
            piece[k++] = (ct_sched_piece){ first + ct_hierarchical_plan_at(plan->piece[i].end,
                                                                           length, plan->n),
                                           plan->piece[i].owner };
    }
    CT_TRY_GOTO(status, done, ct_coll_p2p_parts(r, &part));
    status = ct_schedule_deal(back ? part : piece, back ? piece : part, rank, me, r->count, s);

done:
    free(part);
    free(piece);
    return status;
}

ct_status ct_coll_p2p_plan(const ct_coll_req *r, const ct_cost_ops *how, ct_coll_kind kind,
                           ct_schedule *s)
{
    const ct_cost *cost = NULL;
    ct_group_algorithm way[CT_HIERARCHICAL_PLAN_PHASES];
    ct_engine_plan_use use = { .way = way, .me = ct_coll_p2p_place(r->comm), .n = r->count };

    CT_TRY(ct_coll_cost(r->comm, how, false, &cost));
    ct_cost_algorithms(cost, (double)r->count * (double)ct_dtype_size(r->dtype), way);
    use.plan = ct_cost_plan(cost);
    use.rank = ct_cost_rank(cost);
    if (kind == CT_COLL_ALLGATHER) CT_TRY(ct_coll_p2p_deal(r, use.plan, 1, true, s));
    if (kind != CT_COLL_ALLGATHER) CT_TRY(ct_hierarchical_plan_scatter(&use, s));
    if (kind == CT_COLL_REDUCE_SCATTER) return ct_coll_p2p_deal(r, use.plan, 1, false, s);
    return ct_hierarchical_plan_gather(&use, s);
}

/* ---- ring: reduce-scatter and allgather around a ring in the topology's order: least traffic, and
 * each link of the tree crossed once; 2 (p-1) messages deep. */

/* One group of all ranks, in one of these ways. */
static ct_status flat_rounds(ct_cost_work *w, unsigned ways)
{
    ct_hierarchical_plan *plan = NULL;

    CT_TRY(ct_hierarchical_plan_flat(ct_cost_topo(w)->n_rank, &plan));
    return ct_cost_by_plan(w, plan, ways, false);
}

static ct_status ring_rounds(ct_cost_work *w, const int *dim, bool shares)
{
    (void)dim;
    (void)shares;
    return flat_rounds(w, 1 << CT_GROUP_ALGORITHM_RING);
}

static const ct_cost_ops ring_cost = { .rounds = ring_rounds };

static ct_status ring_build(const ct_coll_req *r, ct_schedule *s)
{
    return ct_coll_p2p_plan(r, &ring_cost, CT_COLL_ALLREDUCE, s);
}

static ct_status ring_prepare(ct_coll_req *r)
{
    return ct_coll_p2p_prepare(r, ring_build);
}

CT_COLL_PLAN_HALVES(ring, true, false, NULL)

const ct_coll_ops ct_coll_ring = {
    .name = "ring",
    .automatic = true,
    .many_rounds = true,
    .cost = &ring_cost,
    .scatter = &ring_scatter,
    .gather = &ring_gather,
    .prepare = ring_prepare,
    CT_COLL_P2P_OPS,
};

/* ---- rhd: recursive halving and doubling in the topology's order, nearest first: least traffic at
 * powers of two, 2 log2 p messages deep. The large exchanges stay near: swCaffe's numbering
 * (CLUSTER 2018) for any placement. */

static ct_status rhd_rounds(ct_cost_work *w, const int *dim, bool shares)
{
    (void)dim;
    (void)shares;
    return flat_rounds(w, 1 << CT_GROUP_ALGORITHM_HALVING);
}

static const ct_cost_ops rhd_cost = { .rounds = rhd_rounds };

static ct_status rhd_build(const ct_coll_req *r, ct_schedule *s)
{
    return ct_coll_p2p_plan(r, &rhd_cost, CT_COLL_ALLREDUCE, s);
}

static ct_status rhd_prepare(ct_coll_req *r)
{
    return ct_coll_p2p_prepare(r, rhd_build);
}

CT_COLL_PLAN_HALVES(rhd, false, false, NULL)

const ct_coll_ops ct_coll_rhd = {
    .name = "rhd",
    .automatic = true,
    .cost = &rhd_cost,
    .scatter = &rhd_scatter,
    .gather = &rhd_gather,
    .prepare = rhd_prepare,
    CT_COLL_P2P_OPS,
};

static ct_status any_rounds(ct_cost_work *w, const int *dim, bool shares)
{
    (void)dim;
    (void)shares;
    return flat_rounds(w, CT_COST_ANY);
}

const ct_cost_ops ct_cost_flat = { .rounds = any_rounds };

/* ---- torus: a ring along each dimension in turn, of a grid laid through the topology's order:
 * least traffic, and only 2 sum (d_i - 1) messages deep. On a torus the grid is the machine's. */

/* Three factors of n that are near to each other, the smallest last. */
static void near_factors(int n, int *dim)
{
    int best[3] = { n, 1, 1 };

    for (int c = 1; (int64_t)c * c * c <= n; ++c) {
        for (int b = c; (n % c == 0) && ((int64_t)b * b <= n / c); ++b) {
            int a = n / c / b;

            if ((n / c % b == 0) && (a + b + c < best[0] + best[1] + best[2])) {
                best[0] = a;
                best[1] = b;
                best[2] = c;
            }
        }
    }
    memcpy(dim, best, sizeof(best));
}

/* The sides of the torus that the job has to itself, if there are at most three. */
static bool machine_sides(const ct_topo *t, int *dim)
{
    const ct_torus *on = ct_topo_torus(t);

    if ((on == NULL) || (on->n_dim > 3)) return false;
    for (int d = 0; d < on->n_dim; ++d) dim[d] = on->dim[on->n_dim - 1 - d];
    return true;
}

static ct_status torus_rounds(ct_cost_work *w, const int *dim, bool shares)
{
    int n = ct_cost_topo(w)->n_rank, chosen[3] = { 1, 1, 1 };
    ct_hierarchical_plan *plan = NULL;

    (void)shares;
    if ((dim == NULL) || (dim[0] == 0)) {
        if (!machine_sides(ct_cost_topo(w), chosen)) near_factors(n, chosen);
    } else {
        for (int k = 0; k < 3; ++k) chosen[k] = (dim[k] > 0) ? dim[k] : 1;
        if ((int64_t)chosen[0] * chosen[1] > n || chosen[0] * chosen[1] * (int64_t)chosen[2] != n)
            return CT_FAIL(CT_ERR_CONFIG, "torus:%dx%dx%d has no place for each of %d ranks",
                           chosen[0], chosen[1], chosen[2], n);
    }
    CT_TRY(ct_hierarchical_plan_grid(n, chosen, 3, &plan));
    return ct_cost_by_plan(w, plan, 1 << CT_GROUP_ALGORITHM_RING, false);
}

static double torus_weight(const ct_topo *t, bool shares)
{
    (void)t;
    (void)shares;
    return CT_COST_CROSSING;
}

static const ct_cost_ops torus_cost = { .rounds = torus_rounds, .weight = torus_weight };

static ct_status torus_build(const ct_coll_req *r, ct_schedule *s)
{
    return ct_coll_p2p_plan(r, &torus_cost, CT_COLL_ALLREDUCE, s);
}

static ct_status torus_prepare(ct_coll_req *r)
{
    return ct_coll_p2p_prepare(r, torus_build);
}

CT_COLL_PLAN_HALVES(torus, false, true, torus_weight)

const ct_coll_ops ct_coll_torus = {
    .name = "torus",
    .automatic = true,
    .has_dims = true,
    .cost = &torus_cost,
    .scatter = &torus_scatter,
    .gather = &torus_gather,
    .prepare = torus_prepare,
    CT_COLL_P2P_OPS,
};

/* ---- tree: a binomial tree to the first rank of the topology's order, and back: 2 log2 p messages
 * deep, each of the whole buffer, so for small ones; half as many messages as rhd has. */

static ct_status tree_rounds(ct_cost_work *w, const int *dim, bool shares)
{
    const ct_topo *t = ct_cost_topo(w);

    (void)dim;
    (void)shares;
    for (int64_t d = 1; d < t->n_rank; d *= 2) {
        for (int64_t i = d; i < t->n_rank; i += 2 * d)
            CT_TRY(ct_cost_message(w, t->order[i], t->order[i - d], 1));
        CT_TRY(ct_cost_end_round(w));
    }
    return CT_OK;
}

const ct_cost_ops ct_cost_tree = { .rounds = tree_rounds };

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

/* Its half: the sums to the first, who deals out the parts. */
static ct_status tree_scatter_build(const ct_coll_req *r, ct_schedule *s)
{
    int n = r->comm->size, me = ct_coll_p2p_place(r->comm);

    CT_TRY(ct_tree_reduce(r->comm->topo->order, n, 0, me, r->count, s));
    return deal_out(r->comm->topo->order, n, me, r->count, s);
}

static ct_status tree_scatter_prepare(ct_coll_req *r)
{
    return ct_coll_p2p_prepare(r, tree_scatter_build);
}

static ct_status tree_scatter_rounds(ct_cost_work *w, const int *dim, bool shares)
{
    const ct_topo *t = ct_cost_topo(w);
    double share = 1;

    CT_TRY(tree_rounds(w, dim, shares));
    for (int64_t d = 1; d < t->n_rank; d *= 2) {
        share /= 2;
        for (int64_t i = d; i < 2 * d && i < t->n_rank; ++i)
            CT_TRY(ct_cost_message(w, t->order[i - d], t->order[i], share));
        CT_TRY(ct_cost_end_copies(w));
    }
    return CT_OK;
}

static const ct_cost_ops tree_scatter_cost = { .rounds = tree_scatter_rounds,
                                               .way = CT_COST_UP,
                                               .whole = &ct_cost_tree };

static const ct_coll_ops tree_scatter = {
    .name = "tree",
    .kind = CT_COLL_REDUCE_SCATTER,
    .automatic = true,
    .cost = &tree_scatter_cost,
    .prepare = tree_scatter_prepare,
    CT_COLL_P2P_OPS,
};

const ct_coll_ops ct_coll_tree = {
    .name = "tree",
    .automatic = true,
    .cost = &ct_cost_tree,
    .scatter = &tree_scatter,
    .prepare = tree_prepare,
    CT_COLL_P2P_OPS,
};

/* ---- parts */

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

/* ---- broadcast: positions count from the root */

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

const ct_coll_ops ct_coll_broadcast = {
    .name = "broadcast",
    .supports = ct_coll_p2p_moves,
    .prepare = broadcast_prepare,
    .start = ct_coll_p2p_start,
    .progress = ct_coll_p2p_progress,
    .release = ct_coll_p2p_release,
    .pending = ct_coll_p2p_pending,
};
