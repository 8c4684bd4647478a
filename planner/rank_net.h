/** @file rank_net.h  The net that a rank runs under a parallel file, as a message.
 *
 * Of the whole net it has the layers of the rank's stage, each narrowed to the rank's part
 * (LayerParameter.part). Between them stands what the ranks send each other, as layers of their own
 * (layers/types/added_layers.c): conversions within a tensor group, Send and Receive at cuts.
 *
 * Values cross a cut by samples: each rank of the maker's stage sends every rank of the reader's
 * the samples that both have. Where a replica has fewer samples than ranks, and both stages are
 * divided alike, each rank sends whole values to its like. A value that several layers of a stage
 * read crosses once, however far the stages are apart.
 */
#ifndef CT_RANK_NET_H
#define CT_RANK_NET_H

#include "planner/sharding.h"

/** A net's message, and what of a parallel file it needs. */
typedef struct ct_rank_net {
    Ct__NetParameter *param; /* borrows from the whole net's message */
    ct_stage_place place;    /* the rank's: for ct_net_env.place     */
    bool tied_own_samples;   /* what two stages have in common sees samples of each rank's own */
    ct_net_segment *again;   /* made again, of the rank's stage      */
    int n_again;
    void *impl;
} ct_rank_net;

/** s is of the net of one phase, as one rank would run it; of TRAIN with one micro-batch. Both, and
 *  p, outlive what is made. The caller destroys it. CT_ERR_CONFIG: too few samples, a value without
 *  samples that crosses a cut, weights of two stages that are not cut alike. */
ct_status ct_rank_net_make(const ct_parallel *p, const ct_sharded_net *s, int rank,
                           ct_rank_net *net_p);
void ct_rank_net_destroy(ct_rank_net *net); /* zeroed ones too */

#endif
