/** @file blocking.h  Small blocking collectives. Each is collective over its communicator.
 *
 * What the movers of its communicators move, gradients mostly, goes on while they wait.
 */
#ifndef CT_BLOCKING_H
#define CT_BLOCKING_H

#include "comm/core/comm.h"

/** v[i] = sum over the ranks. The same bits everywhere, in an order that n and the number of ranks
 *  decide: that of the ranks, or for many numbers of many ranks a binomial tree. */
ct_status ct_comm_sum(ct_comm *c, double *v, int n);
ct_status ct_comm_max(ct_comm *c, int64_t *v, int n);
ct_status ct_comm_broadcast(ct_comm *c, void *data, size_t bytes);
/** all[r * n, r * n + n) = v of rank r. */
ct_status ct_comm_gather(ct_comm *c, const int64_t *v, int n, int64_t *all);
ct_status ct_comm_barrier(ct_comm *c);
/** The bytes of rank `from` to rank `to`, another one; the others return at once. */
ct_status ct_comm_send(ct_comm *c, void *data, size_t bytes, int from, int to);

/** The out_n[r] floats at out[r] go to each other rank r, and in_n[r] come from it to in[r]. */
ct_status ct_comm_exchange(ct_comm *c, const float *const *out, const int64_t *out_n,
                           float *const *in, const int64_t *in_n);

/** Starts to gather the ranks' n numbers in all[size * n]; with the lock held. CT_UNSUPPORTED in a
 *  simulation, where it would be a message between every two ranks. */
ct_status ct_comm_gather_begin(ct_comm *c, const double *v, int n, double *all,
                               MPI_Request *request);
/** Waits for one request of a blocking collective, the movers at work meanwhile. */
ct_status ct_comm_complete(ct_comm *c, MPI_Request *request);
/** Whether ct_comm_sum() takes the tree: what all ranks have together is too much to gather. */
bool ct_comm_sums_by_tree(const ct_comm *c, int n);
/** ct_comm_sum() up a binomial tree and down again, 2 log2 p messages of n numbers deep. Who adds
 *  what to what depends on the number of ranks alone, not on where they are. */
ct_status ct_comm_sum_tree(ct_comm *c, double *v, int n);

/* ---- how far the clocks of the ranks are apart */

typedef struct ct_clock_offset {
    double at_s;     /* when, by this rank's ct_clock_s()                         */
    double offset_s; /* this rank's clock less rank 0's; 0 on rank 0              */
    double error_s;  /* at most: half of the shortest round trip                  */
} ct_clock_offset;

/** Every rank in its turn sends rank 0 some messages and takes the one that is back first: rank 0
 *  read its clock while it was away (Cristian, "Probabilistic clock synchronization", 1989). Some
 *  hundred microseconds a rank. Collective. */
ct_status ct_clock_sync(ct_comm *c, ct_clock_offset *out);

#endif
