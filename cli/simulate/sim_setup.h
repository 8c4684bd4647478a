/** @file sim_setup.h  What `cortado simulate` and the simulator that it starts agree on. */
#ifndef CT_SIM_SETUP_H
#define CT_SIM_SETUP_H

#include "framework/base/option.h"
#include "topology/topo.h"

/** Options of both. */
extern const ct_option ct_sim_option_table[];
extern const int ct_sim_option_table_n;

/** The ranks of --machine, --nodes, --ranks_per_node, --placement and --order. n_rank: how many
 *  there are; 0: as many as --nodes says. CT_ERR_CONFIG. */
ct_status ct_sim_place(const ct_options *o, int n_rank, ct_topo **topo_p);

/** --placement. */
const char *ct_sim_placement(const ct_options *o);

#endif
