/** @file transfer_ranks.h  Transfers (ct_transfer_ops) between ranks that are threads of one
 * process.
 *
 * A group's sums are taken in rank order, in f32, and rounded once. Nothing comes before it is
 * waited for, and until then `to` holds no numbers; a send is over once its receive has begun. So
 * who does not wait finds NaN, and an order that could hang does: after 20 s, with CT_ERR_COMM.
 */
#ifndef CT_TEST_TRANSFER_RANKS_H
#define CT_TEST_TRANSFER_RANKS_H

#include <pthread.h>

#include "framework/net/exec.h"

enum { TRANSFER_RANKS = 4, TRANSFER_MOST = 64, TRANSFER_TAGS = 4 };

/** One side of the k-th transfer of a group, or the k-th message of a peer and a tag. */
typedef struct transfer_slot {
    void *kept; /* a copy of what is sent */
    ct_transfer t;
} transfer_slot;

typedef struct transfer_box {
    transfer_slot sent[TRANSFER_MOST];
    int n_sent, n_posted;
} transfer_box;

typedef struct transfer_ranks {
    int n;
    pthread_mutex_t lock;
    pthread_cond_t turn;
    transfer_slot slot[TRANSFER_MOST][TRANSFER_RANKS];
    int n_begun[TRANSFER_RANKS];
    transfer_box box[TRANSFER_RANKS][TRANSFER_RANKS][TRANSFER_TAGS]; /* from, to, tag */
} transfer_ranks;

/** What ct_exec.transfers_ctx is. */
typedef struct transfer_rank {
    transfer_ranks *all;
    int rank;
    int n_begun, n_ended, most, n_polls; /* most: under way at a time */
    int n_dropped;
} transfer_rank;

extern const ct_transfer_ops transfer_rank_ops;

void transfer_ranks_open(transfer_ranks *all, int n, transfer_rank *rank);
void transfer_ranks_close(transfer_ranks *all);
/** run(&ctx[rank * size]) in a thread of each rank. */
void transfer_ranks_run(const transfer_ranks *all, void *(*run)(void *), void *ctx, size_t size);

#endif
