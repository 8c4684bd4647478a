/** @file allgatherv.h  Everyone's payload to everyone: what codecs of kind GATHER travel by.
 *
 * Private to comm/. Payloads differ in size from rank to rank and step to step. They go round a
 * ring, each rank passing on what it gets. So a node's link carries each payload once, however many
 * ranks the node has. That is p - 1 messages deep. It takes memory for p payloads, since they are
 * added in rank order once all are there.
 */
#ifndef CT_ALLGATHERV_H
#define CT_ALLGATHERV_H

#include "comm/core/message.h"
#include "comm/collective/coll.h"
#include "framework/tensor/device.h"

/* ---- one message of bytes whose size the receiver does not know, of any size.
 *
 * What travels states its own size in its first 8 bytes (as payloads do:
 * payload.h). It goes in parts of at most 2^30 bytes, since MPI counts with int: the receiver posts
 * the first, and the others once it knows how many there are. Parcels between two ranks with one
 * tag must be received in the order in which they are sent, one after the other.
 */
enum { CT_SIZED_MESSAGE_PART = 1 << 30 };

typedef struct ct_sized_message {
    ct_message message;
    char *data;
    size_t bytes, at; /* of the whole; those before `at` have moved or are under way */
    size_t room, expected;
    int peer, tag; /* peer: a rank of the communicator */
    bool receives, busy;
    int part; /* bytes; 0: CT_SIZED_MESSAGE_PART */
} ct_sized_message;

/** The data is left alone until done. CT_ERR_COMM. */
ct_status ct_sized_message_send(ct_comm *c, ct_sized_message *p, const void *data, size_t bytes,
                                int to, int tag);
/** room >= 8. expected: its size, where nothing that travels has content (a simulation). */
ct_status ct_sized_message_recv(ct_comm *c, ct_sized_message *p, void *data, size_t room,
                                size_t expected, int from, int tag);
/** *done_p where it has arrived (bytes is then its size), or left. Never waits. CT_ERR_COMM where
 *  it says that it is larger than there is room. */
ct_status ct_sized_message_progress(ct_comm *c, ct_sized_message *p, bool *done_p);

typedef struct ct_allgatherv ct_allgatherv;

/** Among n ranks, `member` (copied), of which this is number me, in a ring in this order. Payloads
 *  are counted as members are. bound: most bytes of a payload, the same for all of them. Local. */
ct_status ct_allgatherv_create(ct_comm *c, const int *member, int n, int me, size_t bound, int tag,
                               ct_allgatherv **g_p);
/** Bytes of its payloads. */
size_t ct_allgatherv_room(int n, size_t bound);
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
