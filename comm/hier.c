#include "comm/hier.h"

#include <stdlib.h>

#include "comm/cost.h"

void ct_lanes_destroy(ct_lanes *l)
{
    free(l->member);
    *l = (ct_lanes){ .mine = -1 };
}

ct_status ct_lanes_find(const ct_comm *c, ct_lanes *l)
{
    const ct_topo *t = c->topo;

    *l = (ct_lanes){ .n = ct_topo_min_node_size(t), .mine = -1 };
    if (c->node_rank >= l->n) return CT_OK;
    l->mine = c->node_rank;
    l->member = malloc(sizeof(*l->member) * (size_t)t->n_node);
    if (l->member == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d nodes", t->n_node);
    for (int r = 0; r < t->n_rank; ++r) {
        if (t->local_rank[r] == l->mine) l->member[t->node[r]] = r;
    }
    l->peer = (ct_group){ .n = t->n_node, .me = t->node[c->rank], .member = l->member };
    return CT_OK;
}

ct_status ct_lanes_between(const ct_comm *c, const ct_lanes *l, int64_t first, int64_t n,
                           size_t element_bytes, ct_schedule *s)
{
    int64_t bytes = n * (int64_t)element_bytes;
    bool ring =
        ct_cost_between(c->topo, bytes, l->n, true) < ct_cost_between(c->topo, bytes, l->n, false);

    return ring ? ct_schedule_ring(s, &l->peer, first, n) : ct_schedule_rhd(s, &l->peer, first, n);
}

/* Ranks of a node beyond the lanes give all they have to an owner, and get the result from it. */
static ct_status fold(const ct_comm *c, const ct_lanes *l, int64_t n, bool back, ct_schedule *s)
{
    ct_sched_step step = { .send_to = -1, .recv_from = -1 };

    if (l->mine < 0) {
        int owner = c->node_member[c->node_rank % l->n];

        if (back) {
            step.recv_from = owner;
            step.recv_n = n;
            step.sent_first = s->n_step;
        } else {
            step.send_to = owner;
            step.send_n = n;
        }
        return ct_schedule_add(s, &step);
    }
    for (int r = l->mine + l->n; r < c->node_size; r += l->n) {
        step = (ct_sched_step){ .send_to = -1, .recv_from = -1 };
        if (back) {
            step.send_to = c->node_member[r];
            step.send_n = n;
        } else {
            step.recv_from = c->node_member[r];
            step.recv_n = n;
            step.add = true;
        }
        CT_TRY(ct_schedule_add(s, &step));
    }
    return CT_OK;
}

ct_status ct_hier_messages(const ct_comm *c, const ct_lanes *l, int64_t n, size_t element_bytes,
                           ct_schedule *s)
{
    ct_group owners = { .n = l->n, .me = l->mine, .member = c->node_member };

    CT_TRY(fold(c, l, n, false, s));
    if (l->mine >= 0) {
        int64_t first = ct_part(n, l->n, l->mine), end = ct_part(n, l->n, l->mine + 1);

        CT_TRY(ct_schedule_ring_scatter(s, &owners, 0, n));
        CT_TRY(ct_lanes_between(c, l, first, end - first, element_bytes, s));
        CT_TRY(ct_schedule_ring_gather(s, &owners, 0, n));
    }
    return fold(c, l, n, true, s);
}
