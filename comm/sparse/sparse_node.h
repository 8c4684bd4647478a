/** @file sparse_node.h  What a node's ranks do before they compress together: each owner gets the
 * sum of its slice over the node. Private to comm/.
 *
 * Two ways, chosen alike on all ranks. The gradients of the node's ranks may lie in one window of
 * memory that they share. Then every rank signals that its own is there. An owner that has seen the
 * signals of all adds the slices up where they are, into its own gradient. Nothing is copied. Else
 * each rank sends every owner its slice.
 *
 * In shared memory nobody has to tell that it has read. An owner reads its own slice of the others'
 * gradients only. A rank writes there first when it delivers the sum, which it gets from that
 * owner. Signals count uses and only grow.
 */
#ifndef CT_SPARSE_NODE_H
#define CT_SPARSE_NODE_H

#include "comm/collective/coll.h"

typedef struct ct_sparse_allreduce_node ct_sparse_allreduce_node;

/** Where slice i of n elements begins, of n_owner nearly equal ones; i = n_owner gives n. unit: of
 *  how many elements they consist, but for the last one's end; 1: ct_part(). */
int64_t ct_sparse_allreduce_node_slice(int64_t n, int n_owner, int64_t unit, int i);
/** For vectors of n elements in n_owner slices of `unit`. The ranks 0 .. n_owner - 1 of the node
 * are owners. grad[n]: where the vectors lie that can be added up in place, if they can.
 * Collective. */
ct_status ct_sparse_allreduce_node_create(ct_comm *c, float *grad, int64_t n, int n_owner,
                                          int64_t unit, int tag, ct_sparse_allreduce_node **node_p);
void ct_sparse_allreduce_node_destroy(
    ct_sparse_allreduce_node *node); /* NULL allowed; collective */
/** Whether grad is added up in shared memory. */
bool ct_sparse_allreduce_node_shares(const ct_sparse_allreduce_node *node);
/** v[n]: grad, or another vector, on all ranks alike; afterwards an owner's slice of it is the sum,
 *  and the rest is as it was, or rubbish. */
ct_status ct_sparse_allreduce_node_start(ct_sparse_allreduce_node *node, float *v);
/** CT_INPROGRESS until that stands. *bytes_sent += what messages carry, or would. */
ct_status ct_sparse_allreduce_node_progress(ct_sparse_allreduce_node *node, int64_t *bytes_sent,
                                            ct_coll_where *where);
int ct_sparse_allreduce_node_pending(ct_sparse_allreduce_node *node, MPI_Request **out, int max);

#endif
