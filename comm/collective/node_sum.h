/** @file node_sum.h  The sum of one buffer over the ranks of a node, in the memory they share.
 *
 * Private to comm/. Every rank's buffer lies in one window: nothing is copied or sent. When all
 * ranks have arrived, the sum is made in parts. Who makes a part adds it up over all buffers, in
 * the order of the ranks, and writes it into all of them. So every rank gets the same bits, in each
 * run, whoever did it.
 *
 * Small sums where every rank has a core of its own: each part has a fixed owner. Others: whoever
 * is there claims the next part. Where ranks share cores it matters most, since a rank that waits
 * for its core then holds up nobody: two of four ranks that are running do the work of all.
 *
 * Memory order. A rank stores its counter of arrivals with release after its terms are written; who
 * loads it with acquire may read the terms and write into the buffer. Claims are one counter, moved
 * on by compare-and-swap: relaxed, since they order no data and atomicity alone makes a part one
 * rank's. A rank counts the parts it has made and stores that with release. Who adds the counters
 * up with acquire loads, and finds all parts of this use made, may read its sum and write new
 * terms. Counters only grow, over all uses, so nothing is ever reset: parts of use k + 1 can be
 * claimed only after all ranks arrived in it, and so have finished use k. */
#ifndef CT_NODE_SUM_H
#define CT_NODE_SUM_H

#include <stdint.h>

#include "comm/collective/coll.h"
#include "comm/core/node.h"

typedef struct ct_node_sum ct_node_sum;

/** For r->buf, count and dtype, which every later use has. A half writes less: a reduce-scatter the
 * sums to whose parts they are, in the same order of terms; an allgather copies each rank's part to
 * the others, of any dtype. CT_UNSUPPORTED, on all ranks alike,
 * where the job is not one node of several ranks that share memory, or a buffer lies outside of the
 *  window. Collective. */
ct_status ct_node_sum_create(ct_coll_req *r, ct_coll_kind kind, ct_node_sum **sum_p);
void ct_node_sum_destroy(ct_node_sum *sum); /* NULL allowed; collective */
ct_status ct_node_sum_start(ct_node_sum *sum);
/** CT_INPROGRESS until the sum is in the buffer. where: NULL allowed; brief: returns after one
 * part. */
ct_status ct_node_sum_progress(ct_node_sum *sum, ct_coll_where *where);
/** Bytes of other ranks' terms and sums that a rank reads or writes in one use, were the parts
 * dealt out evenly: what messages would carry. */
int64_t ct_node_sum_bytes(const ct_node_sum *sum);

/* ---- its innermost loop */

/** With at most n_thread threads, x[j][i] = x[0][i] + x[1][i] + … + x[n_x - 1][i], added in that
 * order, for all j. Each element is read once and written once per buffer. Plain stores: others
 * read the result next, mostly from a cache (non-temporal ones were slower at every size from 64 KB
 * to 256 MB, by 1.1 to 2). */
void ct_sum_shared(float *const *x, int n_x, int64_t n, int n_thread);

#endif
