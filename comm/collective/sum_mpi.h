/** @file sum_mpi.h  Sums of gradients on devices by an MPI that takes their memory in messages. */
#ifndef CT_SUM_MPI_H
#define CT_SUM_MPI_H

#include "framework/tensor/device.h"

/** MPI's own nonblocking allreduce, on the device's addresses. `there` is what MPI says of itself
 *  (comm/core/comm.h). A sum begins once the device has made the gradient, seen by `poll` and
 *  `follow`, and in the order of `begin`; `follow` waits for it on the host. Over the ranks of the
 *  ct_comm that `open` is given. */
extern const ct_device_sum_ops ct_device_sum_mpi;

#endif
