/** @file allgatherv.h  Everyone's payload to everyone: what codecs of kind GATHER travel by.
 *
 * Private to comm/. Payloads differ in size from rank to rank and step to step. They go round a
 * ring, each rank passing on what it gets: a node's link carries each payload once, however many
 * ranks the node has. p - 1 messages deep; memory for p payloads, since they are added in rank
 * order once all are there.
 */
#ifndef CT_GATHER_H
#define CT_GATHER_H

#include "comm/collective/coll.h"
#include "framework/tensor/device.h"

typedef struct ct_gather ct_gather;

/** Among n ranks, `member` (copied), of which this is number me, in a ring in this order; payloads
 *  are counted as members are. bound: most bytes of a payload, the same for all of them. Local. */
ct_status ct_gather_create(ct_comm *c, const int *member, int n, int me, size_t bound, int tag,
                           ct_gather **g_p);
/** Its payloads lie in memory that copies to and from the device are fast with; before it is used.
 */
ct_status ct_gather_keep_on(ct_gather *g, const ct_device *dev);
void ct_gather_destroy(ct_gather *g); /* NULL allowed */
/** The payload of a rank (member); this one's own is written here before start. 64-byte aligned. */
void *ct_gather_payload(ct_gather *g, int i);
size_t ct_gather_bytes(const ct_gather *g, int i);
ct_status ct_gather_start(ct_gather *g, size_t bytes);
/** CT_INPROGRESS until all payloads are there and ours has gone out. CT_ERR_COMM. */
ct_status ct_gather_progress(ct_gather *g, int64_t *bytes_sent, ct_coll_where *where);
/** As ct_coll_ops.pending. */
int ct_gather_pending(ct_gather *g, MPI_Request **out, int max);

#endif
