/** @file show_topology.h  `cortado info --topology[=SPEC|FILE|NAME]`. */
#ifndef CT_SHOW_TOPOLOGY_H
#define CT_SHOW_TOPOLOGY_H

#include "runtime/call.h"

/** True where `info --topology` runs in a job that a launcher started, so that MPI has a word. */
bool ct_show_topology_in_job(int argc, char *const *argv);
/** Draws the machine that is named or, in a job, the job's tree; rank 0 prints. Collective in a
 * job. CT_ERR_CONFIG, CT_ERR_IO. */
ct_status ct_show_topology(const ct_call *call, const char *topology);

#endif
