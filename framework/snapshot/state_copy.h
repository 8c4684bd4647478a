/** @file state_copy.h  A copy of weights and states of all ranks, of which each rank keeps a part.
 *
 * Where ranks have shards of states, or parts of a net, a rank copies those. Where all have the
 * same, each copies an equal part of it. Weights that do not learn are rank 0's.
 */
#ifndef CT_SNAPSHOT_STATE_COPY_H
#define CT_SNAPSHOT_STATE_COPY_H

#include "framework/snapshot/snapshot.h"
#include "framework/snapshot/whole.h"

typedef struct ct_state_copy {
    const ct_net *net;
    const ct_group *g;
    ct_shard weights, history; /* of the net's arenas: what this rank copies */
    ct_state_shards *shards;   /* of all ranks; NULL: they have parts of a net */
    ct_parts parts;            /* those, and the copy of weights in shards     */
    int n;                     /* storages that are open: the weights', and each history's */
    ct_storage copy[CT_WHOLE_ARENAS];
    ct_storage *own[CT_WHOLE_ARENAS];
} ct_state_copy;

/** Finds who copies what of a net and of state's histories; both stay. Takes no memory for copies.
 *  c is zero. Collective over g. CT_ERR_NOMEM. */
ct_status ct_state_copy_create(const ct_net *net, const ct_snapshot_state *state, const ct_group *g,
                               ct_state_copy *c);
void ct_state_copy_destroy(ct_state_copy *c); /* zeroed ones allowed */
/** Floats of the copies of the weights and of so many histories. */
int64_t ct_state_copy_floats(const ct_state_copy *c, int n_history);
/** The same of rank `rank` of n, each of which has the whole net; own: its shard of the histories,
 *  NULL: it has all of them. CT_ERR_NOMEM. */
ct_status ct_state_copy_size(const ct_net *net, const ct_shard *own, int rank, int n, int n_history,
                             int64_t *floats_p);
/** Takes memory for them, where they have none yet. CT_ERR_NOMEM. */
ct_status ct_state_copy_open(ct_state_copy *c, int n_history);
/** Copies what this rank has now; they are open. */
ct_status ct_state_copy_take(ct_state_copy *c, const ct_snapshot_state *state);
/** Of the copies of all ranks: the weights, then histories. */
ct_whole_source ct_state_copy_source(const ct_state_copy *c);

#endif
