/** @file data_group.h  framework/data/group.h over MPI. */
#ifndef CT_DATA_GROUP_MPI_H
#define CT_DATA_GROUP_MPI_H

#include "comm/core/comm.h"
#include "framework/data/group.h"

/** The group of a job: nodes are comm's, hosts (for stage) the real ones. one_reader: the solver's
 *  node_reader. stage: borrowed; NULL: data is read where it lies. Collective. */
ct_status ct_data_group_open(ct_comm *comm, bool one_reader, const char *stage,
                             ct_data_group **group_p);
void ct_data_group_close(ct_data_group *g); /* NULL allowed */

#endif
