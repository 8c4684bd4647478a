/** @file sim_codec.h  What codecs take in a simulation. Private to the X_sim.c of comm/.
 *
 * Ranks of a simulation are one process without globals: the machine's figures hang on their hosts.
 */
#ifndef CT_CODEC_SPEED_SIM_H
#define CT_CODEC_SPEED_SIM_H

#include "topology/machine.h"

/* bytes/s from a simulated host to itself: so a message tells the time */
#define CT_SIM_SELF_BANDWIDTH 1e7

/** The calling rank's host codes at this speed. Borrowed; NULL, as at first: coding is free. */
void ct_sim_codec_set(ct_codec_speed *speed);
ct_codec_speed ct_sim_codec(void);
/** So much simulated time passes. */
void ct_sim_codec_pass(double seconds);
/** That of memory traffic of so many bytes. */
void ct_sim_codec_stream(double bytes);

#endif
