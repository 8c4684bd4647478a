/** @file transfer.h  What goes to other ranks and comes from them while a net runs that is divided
 * among ranks: the layers of a tensor group, or stages. Layers begin and await transfers; who
 * carries them is a table of operations (comm/collective/async_sum.h, tests/transfer_ranks.h).
 */
#ifndef CT_TRANSFER_H
#define CT_TRANSFER_H

#include "framework/tensor/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The first three are collective over the tensor group, whose ranks run the same list of steps. */
typedef enum {
    CT_TRANSFER_SUM,    /* to = the sum of what the ranks have in from; the same bits on every rank;
                         * to may be from                                                        */
    CT_TRANSFER_GATHER, /* to = the pieces of all ranks, one after the other; from: this one's    */
    CT_TRANSFER_SCATTER, /* to = this rank's piece of the sum of what the ranks have in from */
    CT_TRANSFER_SEND,   /* from goes to the peer …                                              */
    CT_TRANSFER_RECEIVE /* … and comes from it: in the order in which those of one peer and tag
                         * begin, whatever goes the other way with that tag                     */
} ct_transfer_kind;

typedef struct ct_transfer {
    ct_transfer_kind kind;
    ct_dtype dtype;   /* CT_F32, CT_BF16 */
    const void *from; /* both on the host, or on dev; and apart */
    void *to;
    int64_t n;            /* elements of the whole */
    const int64_t *piece; /* GATHER, SCATTER: of each rank, in units */
    int64_t unit;         /* elements of a unit */
    int peer, tag;        /* SEND, RECEIVE: rank of the job */
    const ct_device *dev; /* NULL: the host. What begins follows what the stream was given, … */
    ct_stream stream;     /* … and what it is given after the wait follows what came          */
} ct_transfer;

/** Who carries them. */
typedef struct ct_transfer_ops {
    /** Never blocks. What `from` and `to` name is the transfer's until it is waited for; t is
     *  copied, piece is borrowed. Those of a group begin in the same order on all its ranks. */
    ct_status (*begin)(void *ctx, const ct_transfer *t, void **ticket_p);
    /** Once a ticket. Those of a group end in the same order on all its ranks, in any order. */
    ct_status (*wait)(void *ctx, void *ticket);
    /** Lets all that have begun move; never waits. NULL: they need no help. */
    ct_status (*poll)(void *ctx);
    /** In place of wait, where the memory is about to go: never waits. */
    void (*drop)(void *ctx, void *ticket);
} ct_transfer_ops;

#ifdef __cplusplus
}
#endif

#endif
