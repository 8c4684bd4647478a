/** @file find_topology.h  Gathers what the ranks know of the machine. Private to comm/. */
#ifndef CT_FIND_TOPOLOGY_H
#define CT_FIND_TOPOLOGY_H

#include "comm/core/comm.h"

/** Fills in host, topo and node_shares of c. Rank 0 reads the file that `topology` names, for all.
 *  Collective over c->world; fails on all ranks or on none. CT_ERR_CONFIG, CT_ERR_IO. */
ct_status ct_comm_find_topology(ct_comm *c, const char *topology);

#endif
