/** @file parts.h  Weights and states of a net that ranks run together, each a part of it, as the
 * whole arrays that files have.
 *
 * Rank 0 of the job reads and writes files. It reaches the arrays of all ranks as ranges of
 * storages that are as long as the whole net's arenas. A range that it wants comes from the ranks
 * that have parts of it. One that it gives back goes to all that do. Nobody needs more room than
 * for two ranges.
 */
#ifndef CT_SNAPSHOT_PARTS_H
#define CT_SNAPSHOT_PARTS_H

#include "framework/exchange/group.h"
#include "framework/net/net.h"
#include "framework/snapshot/whole.h"
#include "framework/tensor/storage_shard.h"

/** What a rank has of a parameter. */
typedef struct ct_part {
    int rank; /* of the job */
    ct_cut cut;
} ct_part;

/** Elements [from, from + count) of a part, that a rank of the job keeps. */
typedef struct ct_part_piece {
    int rank;
    int64_t from, count;
} ct_part_piece;

typedef struct ct_parts {
    const ct_net *whole; /* has no memory; its order is that of files */
    const ct_net *net;   /* this rank's */
    const ct_group *job;
    int *own; /* [whole->n_param] this rank's parameter of the same key, or -1: it has nothing */
    /* [whole->n_param] ranks that have what this one has of it, with gradients of their own; -1:
     * not the same number of ranks for all of that */
    int *n_sharer;
    int *first;    /* [whole->n_param + 1] places in `part` */
    ct_part *part; /* part[first[i]] … together are parameter i, each of the lowest rank that has
                      it */
    int n_part, capacity;
    /* Ranks with the same part have pieces of its states: ct_parts_share_out() */
    int *first_piece;      /* [n_part + 1] places in `piece`; NULL: each has all of its part's */
    ct_part_piece *piece;  /* that together are a part, ascending */
    const ct_shard *shard; /* this rank's, of its net's arena     */
    ct_storage *learned;   /* … and where its weights lie that come and go; NULL: it has none */
    bool *visits;          /* [whole->n_param] which these are: ct_net_param_visits() */
} ct_parts;

/** Agrees on who has what. The nets and the group outlive it. CT_ERR_CONFIG, logged, where ranks
 *  do not have a whole parameter together. Collective over the job. */
ct_status ct_parts_create(const ct_net *whole, const ct_net *net, const ct_group *job,
                          ct_parts **parts_p);
void ct_parts_destroy(ct_parts *p); /* NULL allowed */
/** From now on states are storages of shards (ct_storage_open_shard()), of which `own` is this
 *  rank's. NULL, on all ranks or on none: each has all of its parts. learned: so are the weights
 *  that come and go, and lie there. NULL: it has none. Both outlive p. Collective over the job
 *  where there are shards. CT_ERR_NOMEM, CT_ERR_CONFIG. */
ct_status ct_parts_share_out(ct_parts *p, const ct_shard *own, ct_storage *learned);
/** Whether this rank is the one that stands for its part of parameter i. */
bool ct_parts_stands(const ct_parts *p, int i);
/** Whether this rank's gradients of parameter i, of which it has something, are those of another
 *  rank of its replica, which does the same. */
bool ct_parts_repeats(const ct_parts *p, int i);
/** This rank's cut of parameter i, of which it has something. */
ct_cut ct_parts_cut(const ct_parts *p, int i);

/** v: this rank's numbers of parameter i, as long as its part; NULL: it has none. Afterwards their
 *  sum over the ranks that have gradients of their own for it. Collective. */
ct_status ct_parts_add_up(const ct_parts *p, int i, float *v);

/** As whole.h reaches them, over the job. p stays meanwhile. */
ct_whole_source ct_parts_source(const ct_parts *p);
/** ct_whole_run() of that: whole[k] stands for own[k] of all ranks, in the order of the whole net's
 *  arenas. own[n]: this rank's arenas, in the same order on all ranks. The weights come first, then
 *  states of what learns. Collective. */
ct_status ct_parts_run(const ct_parts *p, ct_storage *const *own, int n, ct_whole_work work,
                       void *ctx);
/** This rank's weights as the first of `own`. */
ct_storage ct_parts_weights(const ct_parts *p);
/** ct_net_checksum() of all weights of the net that one rank would have. Collective. */
ct_status ct_parts_checksum(const ct_parts *p, uint64_t *sum_p);

#endif
