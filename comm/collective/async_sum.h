/** @file async_sum.h  A sum over the ranks that is under way while this rank computes.
 *
 * begin returns at once, end waits. What lies between may compute and may let sums move
 * (ct_async_sum_poll()). Begin and end come in one order on all ranks, from the main thread;
 * several sums may be under way at a time.
 */
#ifndef CT_ASYNC_SUM_H
#define CT_ASYNC_SUM_H

#include "comm/core/comm.h"

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

#endif
