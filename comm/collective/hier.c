#include "comm/collective/hier.h"

#include <stdlib.h>

#include "comm/collective/coll_p2p.h"

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
    CT_TRY(ct_coll_cost(c, "hier", true, &l->cost));
    if (c->node_rank >= l->n) return CT_OK;
    l->mine = c->node_rank;
    l->member = malloc(sizeof(*l->member) * (size_t)t->n_node);
    if (l->member == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d nodes", t->n_node);
    for (int i = 0; i < t->n_rank; ++i) {
        int r = t->order[i];

        if ((i == 0) || (t->node[t->order[i - 1]] != t->node[r])) at += 1;
        if (t->node[r] == t->node[c->rank]) l->me = at;
        if (t->local_rank[r] == l->mine) l->member[at] = r;
    }
    return CT_OK;
}

ct_status ct_lanes_between(const ct_lanes *l, int64_t first, int64_t n, size_t element_bytes,
                           ct_schedule *s)
{
    ct_group_algorithm way[CT_HIERARCHICAL_PLAN_PHASES];
    ct_engine_plan_use use = { .way = way, .rank = l->member, .me = l->me, .first = first, .n = n };

    ct_cost_algorithms(l->cost, (double)n * (double)element_bytes * l->n,
                       way); /* all lanes travel */
    use.plan = ct_cost_plan(l->cost);
    CT_TRY(ct_hierarchical_plan_scatter(&use, s));
    return ct_hierarchical_plan_gather(&use, s);
}

ct_status ct_hier_messages(const ct_coll_req *r, ct_schedule *s, bool *piped_p)
{
    double bytes = (double)r->count * (double)ct_dtype_size(r->dtype);
    ct_group_algorithm way[CT_HIERARCHICAL_PLAN_PHASES];
    ct_engine_plan_use use = { .way = way, .me = ct_coll_p2p_place(r->comm), .n = r->count };
    const ct_cost *cost = NULL;
    int n_chunk = 0;

    CT_TRY(ct_coll_cost(r->comm, "hier", false, &cost));
    n_chunk = ct_cost_chunks(cost, bytes);
    *piped_p = (n_chunk > 1);
    if (n_chunk == 1) return ct_coll_p2p_plan(r, "hier", true, true, s);
    ct_cost_algorithms(cost, bytes / n_chunk, way);
    use.plan = ct_cost_plan(cost);
    use.rank = ct_cost_rank(cost);
    return ct_hierarchical_plan_pipelined(&use, n_chunk, s);
}
