/** @file error_feedback.h  What codecs that send a part keep of a parameter: U and V of codec.h.
 * Private to comm/.
 */
#ifndef CT_CODEC_KEEP_H
#define CT_CODEC_KEEP_H

#include "comm/codec/codec.h"
#include "comm/codec/select.h"

typedef struct ct_error_feedback {
    const ct_codec_setup *setup; /* borrowed */
    float *u, *v;                /* [n]; u NULL: not absorbed */
    float rate; /* absorbed: that of the last step, in which V is counted; 0: not known */
    bool empty; /* V is 0; no: nobody knows                                              */
    bool masks; /* momentum that nothing moved by does not go on: set by who selects     */
    /* setup->dev: u and v lie there, and work on them is queued here; set by who made it */
    ct_stream stream;
    float *host_u, *host_v; /* copies of them, between steps; NULL: nobody has looked       */
} ct_error_feedback;

/** CT_ERR_NOMEM: release it, too. */
ct_status ct_error_feedback_acquire(const ct_codec_setup *setup, ct_error_feedback *k);
void ct_error_feedback_release(ct_error_feedback *k);
/** This step's accumulation of the elements [first, first + length), whose decay `copies` ranks
 *  share. Once a step: from then on V counts in this step's rate. */
ct_momentum_correction ct_error_feedback_accum(ct_error_feedback *k, const ct_codec_step *step,
                                               int64_t first, int64_t length, double copies);
/** ct_codec_ops.fold; adds its seconds to stats->accumulate_s.
 *
 *  V is a sum of steps that were computed where the weights stood then, and saw nothing of what
 * they would have done. Along a direction of curvature c, T steps at rate r with momentum m are up
 * to T r c / (1 - m) times the way to the minimum: sent at once they end on the other side, farther
 *  away where that is over 2, though every one of them, sent in its time, would have been stable up
 *  to r c = 2 (1 + m). So of V goes what moves no farther than this step's own update:
 *
 *      share = min(1, |update| / (|V| sqrt(ranks)))
 *
 *  since what ranks send adds up to sqrt(ranks) times as much at least, where their gradients do
 *  not cancel. Momentum that was built up while nothing moved is no momentum: where dense steps
 *  begin, and where the codec masks momentum, U begins at 0. Nothing left behind: nothing of this.
 */
void ct_error_feedback_fold(ct_error_feedback *k, const ct_codec_step *step, ct_codec_stats *stats);
/** Number of states: V, then U and the rate where there is one. As ct_codec_ops.state. */
int ct_error_feedback_states(const ct_error_feedback *k);
bool ct_error_feedback_state(ct_error_feedback *k, int i, ct_codec_state *out);
/** On a device: the copies that were looked at, and perhaps written, go there. */
ct_status ct_error_feedback_restored(ct_error_feedback *k);
/** … are of no use any more: a step begins. */
void ct_error_feedback_forget_copy(ct_error_feedback *k);

#endif
