/** @file rank_state.h  What codecs keep on each rank, read back; private to framework/snapshot.
 *
 * With the same number of ranks each takes back its own. Otherwise the sum over the ranks of then
 * is kept: every rank takes 1 / n_rank of it. Nothing of a residual is lost where a parameter now
 * travels in another way: what is counted in updates goes to the weights, no farther in an
 * iteration than that moves them (framework/snapshot/residual_drain.h); what is counted in
 * gradients goes into the next gradient.
 */
#ifndef CT_SNAPSHOT_RANK_STATE_H
#define CT_SNAPSHOT_RANK_STATE_H

#include "framework/snapshot/snapshot.h"

/** What is on its way to the weights, in rank 0's file. */
#define CT_RANK_LATE      "late"
#define CT_RANK_LATE_RATE "late_rate"

/** net and state hold the shared parts already. Collective. CT_ERR_IO, CT_ERR_DATA. */
ct_status ct_rank_state_read(const char *file, ct_net *net, ct_snapshot_state *state,
                             const ct_exchange *x);

#endif
