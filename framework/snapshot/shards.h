/** @file shards.h  States of which each rank of a group keeps a shard, as the whole arrays that
 * files have: whole.h. Together the shards are all that learns; the weights are whole everywhere.
 */
#ifndef CT_SNAPSHOT_SHARDS_H
#define CT_SNAPSHOT_SHARDS_H

#include "framework/net/net.h"
#include "framework/snapshot/whole.h"
#include "framework/tensor/storage_shard.h"

typedef struct ct_state_shards {
    const ct_group *g; /* borrowed */
    int64_t count;     /* floats of the whole */
    int n;
    int64_t *piece; /* [3 n] of all ranks, ascending: its first float, how many, whose */
} ct_state_shards;

/** Everyone learns of each rank's shard. Collective. CT_ERR_NOMEM. */
ct_status ct_state_shards_create(const ct_shard *own, int64_t count, const ct_group *g,
                                 ct_state_shards **shards_p);
void ct_state_shards_destroy(ct_state_shards *s); /* NULL allowed */
/** Appends this rank's pieces to own. CT_ERR_NOMEM. */
ct_status ct_state_shards_own(const ct_state_shards *s, ct_shard *own);
/** As whole.h reaches them: whole[k] stands for storages of all ranks' shards. What no shard has
 *  reads as zeros. */
ct_whole_source ct_state_shards_source(const ct_state_shards *s);
/** ct_whole_run() of that. Collective. */
ct_status ct_state_shards_run(const ct_state_shards *s, ct_storage *const *own, int n,
                              ct_whole_work work, void *ctx);
/** Rank 0's weights that do not learn to everyone. On the CPU. Collective. */
ct_status ct_net_broadcast_rest(const ct_net *net, const ct_group *g);
/** The whole of a storage into data[count] on every rank. Collective. */
ct_status ct_state_shards_gather(const ct_state_shards *s, ct_storage *own, float *data);

#endif
