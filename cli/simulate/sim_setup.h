/** @file sim_setup.h  What `cortado simulate` and the simulator that it starts agree on. */
#ifndef CT_SIM_SETUP_H
#define CT_SIM_SETUP_H

#include "comm/core/sim_codec.h"
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

/* ---- A machine with ranks on it, as SimGrid wants to see it.
 *
 * Every rank is a host of its own. A message takes level[l].latency_s plus its bytes over what the
 * level's pair gets, where l is the level at which its two ranks meet, and it shares the links of
 * all members that it leaves and enters, and the bus of the vertex where they meet, with the other
 * messages under way (max-min fair shares). That is what topology/topo.h models, too.
 *
 * A host's speed is the machine's sum_bandwidth times the speed of its node's class: one "flop" is
 * one byte of f32 added. Links of a node are those of its class. From a host to itself leads a slow
 * link without latency, with which the simulator tells the time.
 */

#define CT_SIM_TIMER_BANDWIDTH CT_SIM_SELF_BANDWIDTH /* bytes/s from a host to itself */

/** Appends a platform file (XML, for `smpirun -platform`) and the host of each rank (for
 *  `-hostfile`, one a line) to two texts. CT_ERR_CONFIG where a level has no figures. */
ct_status ct_sim_platform_write(const ct_topo *t, ct_text *xml, ct_text *hosts);

/** Appends the settings that make SMPI keep to the figures of the machine, as arguments of smpirun,
 *  one a line. */
void ct_sim_settings(const ct_machine *m, ct_text *out);

#endif
