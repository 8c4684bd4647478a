/** @file group_mpi.h  The group of a communicator's ranks (framework/exchange/group.h).
 */
#ifndef CT_GROUP_MPI_H
#define CT_GROUP_MPI_H

#include "comm/core/comm.h"
#include "runtime/exchange/transports.h"

/** The caller's, as long as the group. */
typedef struct ct_group_mpi {
    ct_comm *comm;               /* borrowed                                                   */
    bool reproducible;           /* sums of floats as comm/collective/repro.h has them         */
    ct_transport_device *device; /* whose library adds up a device's numbers; borrowed; or NULL */
} ct_group_mpi;

void ct_group_mpi_open(ct_group_mpi *g, ct_group *out);

#endif
