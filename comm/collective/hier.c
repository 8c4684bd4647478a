#include "comm/collective/hier.h"

#include <stdlib.h>

#include "comm/collective/coll_types.h"

/* ---- what hier costs */

static bool sums_on_nodes(const ct_topo *t, bool shares)
{
    return shares && (ct_topo_max_node_size(t) > 1);
}

enum {
    BETWEEN_PART = 256 << 10, /* elements of a part of a chunk that goes to other nodes, at least */
    BETWEEN_STEP = 16 << 10 /* … and of what a ring of nodes then sends at a time              */
};

int64_t ct_lanes_chunk(int64_t n_node, int n_lane)
{
    int64_t part = BETWEEN_PART;

    if (part < n_node * BETWEEN_STEP) part = n_node * BETWEEN_STEP;
    return part * n_lane;
}

static ct_status hier_rounds(ct_cost_work *w, const int *dim, bool shares)
{
    const ct_topo *t = ct_cost_topo(w);
    ct_hierarchical_plan *plan = NULL;

    (void)dim;
    if (sums_on_nodes(t, shares)) {
        double chunk = (double)ct_lanes_chunk(t->n_node, ct_topo_min_node_size(t));

        return ct_cost_by_nodes(w, chunk * sizeof(float));
    }
    CT_TRY(ct_hierarchical_plan_tree(t, 0, &plan));
    return ct_cost_by_plan(w, plan, CT_COST_ANY, true);
}

static double hier_weight(const ct_topo *t, bool shares)
{
    if (shares && (ct_topo_min_node_size(t) > 1)) return CT_COST_IN_PLACE;
    return sums_on_nodes(t, shares) ? 1 : CT_COST_CROSSING;
}

const ct_cost_ops ct_cost_hier = { .rounds = hier_rounds, .weight = hier_weight };

const ct_cost_ops ct_cost_hier_scatter = {
    .rounds = hier_rounds, .weight = hier_weight, .way = CT_COST_UP, .whole = &ct_cost_hier
};
const ct_cost_ops ct_cost_hier_gather = {
    .rounds = hier_rounds, .weight = hier_weight, .way = CT_COST_DOWN, .whole = &ct_cost_hier
};

/* ---- lanes: between the nodes */

void ct_lanes_destroy(ct_lanes *l)
{
    free(l->member);
    *l = (ct_lanes){ .mine = -1 };
}

ct_status ct_lanes_find(const ct_comm *c, ct_lanes *l)
{
    const ct_topo *t = c->topo;
    int at = -1;

    *l = (ct_lanes){ .n = ct_topo_min_node_size(t), .mine = -1 };
    CT_TRY(ct_coll_cost(c, &ct_cost_hier, true, &l->cost));
    if (c->node_rank < l->n) {
        l->mine = c->node_rank;
        l->member = malloc(sizeof(*l->member) * (size_t)t->n_node);
        if (l->member == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d nodes", t->n_node);
    }
    for (int i = 0; i < t->n_rank; ++i) {
        int r = t->order[i];

        if ((i == 0) || (t->node[t->order[i - 1]] != t->node[r])) at += 1;
        if (t->node[r] == t->node[c->rank]) l->me = at;
        if ((l->mine >= 0) && (t->local_rank[r] == l->mine)) l->member[at] = r;
    }
    return CT_OK;
}

ct_status ct_lanes_between(const ct_lanes *l, ct_coll_kind kind, int64_t n, size_t element_bytes,
                           ct_schedule *s)
{
    ct_group_algorithm way[CT_HIERARCHICAL_PLAN_PHASES];
    ct_engine_plan_use use = { .way = way, .rank = l->member, .me = l->me, .n = n };

    ct_cost_algorithms(l->cost, (double)n * (double)element_bytes * l->n,
                       way); /* all lanes travel */
    use.plan = ct_cost_plan(l->cost);
    if (kind != CT_COLL_ALLGATHER) CT_TRY(ct_hierarchical_plan_scatter(&use, s));
    return (kind != CT_COLL_REDUCE_SCATTER) ? ct_hierarchical_plan_gather(&use, s) : CT_OK;
}
