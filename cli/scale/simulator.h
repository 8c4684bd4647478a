/** @file simulator.h  Finding the simulator, and how it is started. */
#ifndef CT_SIMULATOR_H
#define CT_SIMULATOR_H

#include "cli/scale/spawn.h"
#include "topology/topo.h"

/** CORTADO_SIM, or beside the program `self`, in the build tree, installed. out: [PATH_MAX].
 *  CT_ERR_IO where CORTADO_SIM is wrong, CT_ERR_CONFIG where the simulator is not built. */
ct_status ct_simulator_find(const char *self, char *out);

/** Writes the platform (XML) and the hosts of the ranks to two files. */
ct_status ct_simulator_platform(const ct_topo *t, const char *xml_path, const char *hosts_path);

/** smpirun with these files and the settings that SMPI needs, and the simulator: append its
 *  arguments. None may hold a space, which smpirun takes for the end of a word. */
void ct_simulator_start(const ct_machine *machine, int n_rank, const char *xml_path,
                        const char *hosts_path, const char *program, ct_argv *command);

#endif
