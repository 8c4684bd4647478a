/** @file hier.h  Lanes: what nodes that share memory send each other. Private to comm/.
 *
 * On a node, `lanes` ranks each own a part of the buffer, as many as the smallest node has ranks.
 * An owner sums its part over the ranks of the node, then over the nodes with the owners of the
 * same part there (hierarchical_plan.h, over the levels above the node), and the result goes back
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
    int me;      /* this rank's place among them               */
    const struct ct_cost *cost; /* and plan, over the nodes; borrowed */
} ct_lanes;

ct_status ct_lanes_find(const ct_comm *c, ct_lanes *l);
void ct_lanes_destroy(ct_lanes *l);

/** Appends an allreduce of [first, first + n) over the owners of this rank's lane. */
ct_status ct_lanes_between(const ct_lanes *l, int64_t first, int64_t n, size_t element_bytes,
                           ct_schedule *s);

#endif
