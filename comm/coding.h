/** @file coding.h  What codecs take on the machine that the job runs on.
 */
#ifndef CT_CODING_H
#define CT_CODING_H

#include "comm/comm.h"

/** Some tenth of a second on arrays beyond the caches, on all ranks at once, with the threads
 *  that c has now; a figure is the least of a few runs, on the slowest rank. The same on all ranks.
 *  Collective. CT_ERR_NOMEM. */
ct_status ct_coding_measure(ct_comm *c, ct_coding_speed *out);
/** How much longer an allreduce of n f32 and a sparse exchange's messages take here than the models
 *  say: a few runs of each, on the slowest rank. `allreduce` as ct_coll_choose()'s. 1 where
 *  nothing travels, and in simulations. Collective. */
ct_status ct_coding_calibrate(ct_comm *c, const char *allreduce, int64_t n, double *sum_factor_p,
                              double *wire_factor_p);
/** Puts it into the communicator's machine, unless the machine's file has such figures, or memory
 *  and messages are simulated. Collective. */
ct_status ct_coding_find(ct_comm *c);

#endif
