/** @file sized_message.h  One message of bytes whose size the receiver does not know, of any size.
 *
 * Private to comm/. What travels states its own size in its first 8 bytes (as payloads do:
 * payload.h). It goes in parts of at most 2^30 bytes, since MPI counts with int: the receiver posts
 * the first, and the others once it knows how many there are. Parcels between two ranks with one
 * tag must be received in the order in which they are sent, one after the other.
 */
#ifndef CT_SIZED_MESSAGE_H
#define CT_SIZED_MESSAGE_H

#include "comm/core/comm.h"

enum { CT_SIZED_MESSAGE_PART = 1 << 30 };

typedef struct ct_sized_message {
    MPI_Request request;
    char *data;
    size_t bytes, at; /* of the whole; those before `at` have moved or are under way */
    size_t room, expected;
    int peer, tag; /* peer: a rank of the world */
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

#endif
