/** @file coded_keep.h  What codecs that send a part keep of a parameter: U and V of coded.h.
 * Private to comm/.
 */
#ifndef CT_CODED_KEEP_H
#define CT_CODED_KEEP_H

#include "comm/coded.h"
#include "comm/select.h"

typedef struct ct_keep {
    const ct_coded_setup *setup; /* borrowed */
    float *u, *v;                /* [n]; u NULL: not absorbed */
    float rate; /* absorbed: that of the last step, in which V is counted; 0: not known */
} ct_keep;

/** CT_ERR_NOMEM: release it, too. */
ct_status ct_keep_acquire(const ct_coded_setup *setup, ct_keep *k);
void ct_keep_release(ct_keep *k);
/** This step's accumulation of the elements [first, first + length), whose decay `copies` ranks
 *  share. Once a step: from then on V counts in this step's rate. */
ct_accum ct_keep_accum(ct_keep *k, const ct_coded_step *step, int64_t first, int64_t length,
                       double copies);
/** ct_coded_ops.fold; adds its seconds to stats->accumulate_s. */
void ct_keep_fold(ct_keep *k, const ct_coded_step *step, ct_coded_stats *stats);
/** Number of states: V, then U and the rate where there is one. As ct_coded_ops.state. */
int ct_keep_states(const ct_keep *k);
bool ct_keep_state(ct_keep *k, int i, ct_coded_state *out);

#endif
