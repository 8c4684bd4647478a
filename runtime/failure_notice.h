/** @file failure_notice.h  How ranks learn that one has failed, in a job that nobody ends: a
 * program of users goes on.
 *
 * A rank that fails while others wait for it tells them, and they give up waiting
 * (ct_comm_listen()). Each passes it on to those 1, 2, 4 ... ranks further on, so that it is
 * everywhere after log2 p messages. In the end all ranks agree on one status.
 */
#ifndef CT_FAILURE_NOTICE_H
#define CT_FAILURE_NOTICE_H

#include <mpi.h>
#include <stdbool.h>

#include "framework/base/status.h"

typedef struct ct_failure_notice ct_failure_notice;

/** On a communicator that has no other messages; borrowed. Collective. CT_ERR_NOMEM, CT_ERR_COMM.
 */
ct_status ct_failure_notice_open(MPI_Comm comm, ct_failure_notice **notice_p);
void ct_failure_notice_close(ct_failure_notice *n); /* NULL allowed */
/** Fits ct_comm_listen(), with the notice as ctx: the status that another rank met, logged with its
 *  words, or CT_OK. */
ct_status ct_failure_notice_poll(void *ctx);
/** The end of what all ranks were asked for. Where any failed all do, with one status. Those that
 *  have nothing to say themselves say the words of the first that has. *torn_p: they failed at
 *  different places, so what was under way between them is lost. n NULL: one rank. Collective. */
ct_status ct_failure_notice_agree(ct_failure_notice *n, ct_status mine, bool *torn_p);

#endif
