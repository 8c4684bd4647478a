/** @file coding_sim.h  What codecs take in a simulation. Private to the X_sim.c of comm/.
 *
 * Ranks of a simulation are one process without globals: the machine's figures hang on their hosts.
 */
#ifndef CT_CODING_SIM_H
#define CT_CODING_SIM_H

#include "topology/machine.h"

/** The calling rank's host codes at this speed. Borrowed; NULL, as at first: coding is free. */
void ct_coding_sim_set(ct_coding_speed *speed);
ct_coding_speed ct_coding_sim(void);
/** So much simulated time passes. */
void ct_coding_sim_pass(double seconds);
/** That of memory traffic of so many bytes. */
void ct_coding_sim_stream(double bytes);

#endif
