/** @file async_sum.h  Sums over the ranks, and transfers, that are under way while this rank
 * computes.
 *
 * begin returns at once, end waits. What lies between may compute and may let sums move
 * (ct_async_sum_poll()). Begin and end come in one order on all ranks, from the main thread;
 * several sums may be under way at a time.
 */
#ifndef CT_ASYNC_SUM_H
#define CT_ASYNC_SUM_H

#include "comm/core/comm.h"
#include "framework/tensor/transfer.h"

typedef struct ct_async_sum ct_async_sum;

/** v[i] = sum over the ranks, with the bits of ct_comm_sum(): the same numbers in the same order. v
 *  is the sum's until its end. CT_ERR_NOMEM. */
ct_status ct_async_sum_begin(ct_comm *c, double *v, int n, ct_async_sum **s_p);
/** The same of floats, by a ring; reproducible: as comm/collective/repro.h, all at once in end. */
ct_status ct_async_sum_begin_f32(ct_comm *c, float *v, int64_t n, bool reproducible,
                                 ct_async_sum **s_p);
/** Waits; what the communicator's movers move goes on meanwhile. Releases s, in case of errors too.
 */
ct_status ct_async_sum_end(ct_async_sum *s);
/** Moves every sum under way as far as it goes. Never waits. */
ct_status ct_async_sum_poll(ct_comm *c);
/** What the sums under way wait for, as ct_coll_ops.pending. */
int ct_async_sum_pending(ct_comm *c, MPI_Request **out, int max);

/* ---- what carries the transfers of a net that is divided among ranks
 *
 * In a group every rank sends each other one its piece, or what it has of that one's: as many bytes
 * as a ring, in one step, or two for a sum. Pieces are added in rank order, in f32, and rounded
 * once: the same bits on every rank, and on every placement. They move in ct_transfer_ops.poll, and
 * while this rank waits in any communicator of the family (ct_comm_plug()). */

typedef struct ct_transfers ct_transfers;

/** group: of those that divide layers among them; NULL: nobody does. peers: whose ranks SEND and
 *  RECEIVE name, in messages of a communicator of their own. Both outlive it. Collective over
 * peers. CT_ERR_NOMEM, CT_ERR_COMM. */
ct_status ct_transfers_create(ct_comm *group, ct_comm *peers, ct_transfers **t_p);
void ct_transfers_destroy(ct_transfers *t); /* NULL allowed; collective over peers */
/** A device's numbers cross the host, but those that lib can carry among the group's ranks: library
 *  is its group, lib->transfer not NULL. Before the first transfer; it outlives t. */
void ct_transfers_use(ct_transfers *t, const ct_device_sum_ops *lib, void *library);
/** For the watchdog: whom the main thread waits for. From any thread. */
void ct_transfers_describe(const ct_transfers *t, char *text, size_t size);
/** With a ct_transfers as ctx. Tags of SEND and RECEIVE: below 2^15. Pieces of 2^31 elements and
 *  more: CT_ERR_ARG. */
extern const ct_transfer_ops ct_transfers_ops;

#endif
