/** @file cost.h  What an allreduce of `bytes` takes by the alpha-beta-gamma model, in seconds.
 *
 * Private to comm/. Latency alpha, time per byte beta, time per added byte gamma: of the slowest
 * link that a step crosses (topology/topo.h). A node has one link to the others: what its ranks
 * send out at the same time shares it.
 */
#ifndef CT_COST_H
#define CT_COST_H

#include "comm/comm.h"

/** Ring over all ranks in rank order: 2 (p-1) steps of bytes/p. */
double ct_cost_ring(const ct_topo *t, int64_t bytes);
/** Recursive halving and doubling, nearest first: the first exchanges, the largest, stay on the
 *  node. Compare section "topology-aware" of swCaffe (CLUSTER 2018). */
double ct_cost_rhd(const ct_topo *t, int64_t bytes);
/** Of one message pattern over n ranks, one per node, each with a share of its node's link. */
double ct_cost_between(const ct_topo *t, int64_t bytes, int n_lane, bool ring);

#endif
