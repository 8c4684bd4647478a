/** @file allgatherv.h  Everyone's payload to everyone: what codecs of kind GATHER travel by.
 *
 * Private to comm/. Payloads differ in size from rank to rank and step to step. They go round a
 * ring, each rank passing on what it gets: a node's link carries each payload once, however many
 * ranks the node has. p - 1 messages deep; memory for p payloads, since they are added in rank
 * order once all are there.
 */
#ifndef CT_ALLGATHERV_H
#define CT_ALLGATHERV_H

#include "comm/collective/coll.h"
#include "framework/tensor/device.h"

typedef struct ct_allgatherv ct_allgatherv;

/** Among n ranks, `member` (copied), of which this is number me, in a ring in this order; payloads
 *  are counted as members are. bound: most bytes of a payload, the same for all of them. Local. */
ct_status ct_allgatherv_create(ct_comm *c, const int *member, int n, int me, size_t bound, int tag,
                               ct_allgatherv **g_p);
/** Its payloads lie in memory that copies to and from the device are fast with; before it is used.
 */
ct_status ct_allgatherv_keep_on(ct_allgatherv *g, const ct_device *dev);
void ct_allgatherv_destroy(ct_allgatherv *g); /* NULL allowed */
/** The payload of a rank (member); this one's own is written here before start. 64-byte aligned. */
void *ct_allgatherv_payload(ct_allgatherv *g, int i);
size_t ct_allgatherv_bytes(const ct_allgatherv *g, int i);
ct_status ct_allgatherv_start(ct_allgatherv *g, size_t bytes);
/** CT_INPROGRESS until all payloads are there and ours has gone out. CT_ERR_COMM. */
ct_status ct_allgatherv_progress(ct_allgatherv *g, int64_t *bytes_sent, ct_coll_where *where);
/** As ct_coll_ops.pending. */
int ct_allgatherv_pending(ct_allgatherv *g, MPI_Request **out, int max);

#endif
