/** @file hier.h  Lanes: what nodes that share memory send each other. Private to comm/.
 *
 * On a node, `lanes` ranks each own a part of the buffer, as many as the smallest node has ranks.
 * An owner sums its part over the ranks of the node. Then it sums over the nodes with the owners of
 * the same part there (hierarchical_plan.h, over the levels above the node). The result goes back
 * to the node's ranks. So every node sends each byte once, on all lanes at a time. Without shared
 * memory the whole is one plan over all levels.
 */
#ifndef CT_HIER_H
#define CT_HIER_H

#include "comm/collective/schedule.h"

typedef struct ct_lanes {
    int n;       /* owners on each node                        */
    int mine;    /* this rank's lane, or -1: it owns nothing   */
    int *member; /* [n_node] owners of this lane, one per node, in the topology's order; or NULL */
    int me;      /* this node's place among the nodes          */
    const struct ct_cost *cost; /* and plan, over the nodes; borrowed */
} ct_lanes;

/** What hier costs, and its halves, which add in the order of the whole. */
extern const ct_cost_ops ct_cost_hier, ct_cost_hier_scatter, ct_cost_hier_gather;

/** Elements that hier sums between nodes at a time, so that messages are not too small. */
int64_t ct_lanes_chunk(int64_t n_node, int n_lane);

ct_status ct_lanes_find(const ct_comm *c, ct_lanes *l);
void ct_lanes_destroy(ct_lanes *l);

/** Appends an allreduce of n elements over the owners of this rank's lane; or its reduce-scatter,
 * which ends with the pieces of the plan, or the allgather from these. */
ct_status ct_lanes_between(const ct_lanes *l, ct_coll_kind kind, int64_t n, size_t element_bytes,
                           ct_schedule *s);

#endif
