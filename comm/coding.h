/** @file coding.h  What codecs take on the machine that the job runs on.
 */
#ifndef CT_CODING_H
#define CT_CODING_H

#include "comm/comm.h"

/** Some twenty milliseconds on arrays of a million elements, on all ranks at once, with the threads
 *  that c has now; a figure is the least of a few runs, on the slowest rank. The same on all ranks.
 *  Collective. CT_ERR_NOMEM. */
ct_status ct_coding_measure(ct_comm *c, ct_coding_speed *out);
/** Puts it into the communicator's machine, unless the machine's file has such figures, or memory
 *  and messages are simulated. Collective. */
ct_status ct_coding_find(ct_comm *c);

#endif
