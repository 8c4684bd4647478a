/** @file comm_sum.h  Sums of many doubles over many ranks. Private to comm/. */
#ifndef CT_COMM_SUM_H
#define CT_COMM_SUM_H

#include "comm/comm.h"

/** Whether ct_comm_sum() takes the tree: what all ranks have together is too much to gather. */
bool ct_comm_sums_by_tree(const ct_comm *c, int n);
/** v[i] = sum over the ranks: up a binomial tree and down again, 2 log2 p messages of n numbers
 *  deep. Who adds what to what depends on the number of ranks alone, not on where they are. */
ct_status ct_comm_sum_tree(ct_comm *c, double *v, int n);
/** Waits for one request of a blocking collective, the mover at work meanwhile. */
ct_status ct_comm_complete(ct_comm *c, MPI_Request *request);

#endif
