/** @file message.h  One message between two ranks, and on request a checksum of what it carries.
 *
 * Private to comm/. With ct_comm.checks (`comm { verify_wire }`) a second message of 16 bytes
 * follows each on a communicator of its own. It says how many bytes the first has, and their XXH64
 * as they were when it was handed to MPI. So what MPI, a network or memory changes on the way is
 * found where it arrives. What MPI adds up itself, and its small collectives, are no messages of
 * ours.
 *
 * Between two ranks messages of one tag are received in the order in which they are sent, as MPI
 * pairs them: their checksums pair up the same way. A ct_message stays where it is until it is
 * done, since MPI reads or writes its checksum there.
 */
#ifndef CT_MESSAGE_H
#define CT_MESSAGE_H

#include "comm/core/comm.h"

typedef struct ct_message {
    MPI_Request request; /* of the data: for ct_coll_ops.pending and the like */
    MPI_Request check;   /* of its checksum                                   */
    uint64_t sum[2];     /* of the sender: bytes, hash                        */
    const void *data;    /* where it arrives, until it is verified; NULL: this one is sent */
    uint64_t room;       /* bytes there                                       */
    int peer;            /* of the communicator                               */
} ct_message;

/** The data is left alone until it has gone. With the lock held. CT_ERR_COMM. */
ct_status ct_message_send(ct_comm *c, ct_message *m, const void *data, int n, MPI_Datatype type,
                          int to, int tag);
/** n: there is room for so many; fewer may come. The data belongs to MPI until it has arrived. With
 *  the lock held. CT_ERR_COMM. */
ct_status ct_message_recv(ct_comm *c, ct_message *m, void *data, int n, MPI_Datatype type, int from,
                          int tag);
/** Has it gone, or arrived as it was sent? Like ct_comm_test(). CT_ERR_COMM. CT_ERR_DIVERGED,
 * logged with both ranks, where something else has arrived: the message is over, the data what
 * came. */
ct_status ct_message_test(ct_comm *c, ct_message *m, int *done_p);
/** Nobody waits for it any more: what has not arrived never will. With the lock held. */
void ct_message_drop(ct_message *m);

#endif
