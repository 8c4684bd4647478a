/** @file node_sum.h  The sum of one buffer over the ranks of a node, in the memory they share.
 *
 * Private to comm/. Nothing is sent. Two ways, the same on all ranks of the node:
 *   direct   every rank's buffer lies in one window. When all have arrived, parts of the sum are
 *            made by whoever is there: who claims a part adds it up over all buffers, in the order
 *            of the ranks, and writes it into all of them. Where each rank has a core of its own and
 *            the buffer is not large, each part has a fixed owner instead, which saves the claims.
 *   copied   small ones, and where each rank lies in memory does not matter: every rank copies its
 *            terms into a window, and once all are there each adds all of them up for itself. One
 *            meeting of the ranks instead of two. Two copies take turns, so that nobody waits for
 *            the others to have read: who starts use k + 2 has seen everyone start k + 1, and so
 *            finish k.
 *
 * Either way the terms are added in the order of the ranks: the same bits on all of them, in each
 * run. */
#ifndef CT_NODE_SUM_H
#define CT_NODE_SUM_H

#include "comm/coll.h"
#include "comm/node.h"

typedef struct ct_node_sum ct_node_sum;

/** For r->buf, count and dtype, which every later use has. CT_UNSUPPORTED, on all ranks alike, where
 *  the node has one rank, ranks cannot share memory, or a large buffer lies elsewhere. Collective
 *  over the world, whose ranks must all be on one node. */
ct_status ct_node_sum_create(ct_coll_req *r, ct_node_sum **sum_p);
void ct_node_sum_destroy(ct_node_sum *sum); /* NULL allowed; collective */
ct_status ct_node_sum_start(ct_node_sum *sum);
/** CT_INPROGRESS until the sum is in the buffer. *late: a rank of the world that has not come. */
ct_status ct_node_sum_progress(ct_node_sum *sum, int *late);
/** Bytes of other ranks' terms and sums that a rank reads or writes in one use, were the parts dealt
 *  out evenly: what messages would carry. */
int64_t ct_node_sum_bytes(const ct_node_sum *sum);

#endif
