/** @file error_feedback.h  What codecs that send a part keep of a parameter: U and V of codec.h.
 * Private to comm/.
 */
#ifndef CT_ERROR_FEEDBACK_H
#define CT_ERROR_FEEDBACK_H

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
/** Number of states: V, then U and the rate where there is one. As ct_codec_ops.state. */
int ct_error_feedback_states(const ct_error_feedback *k);
bool ct_error_feedback_state(ct_error_feedback *k, int i, ct_codec_state *out);
/** On a device: the copies that were looked at, and perhaps written, go there. */
ct_status ct_error_feedback_restored(ct_error_feedback *k);
/** … are of no use any more: a step begins. */
void ct_error_feedback_forget_copy(ct_error_feedback *k);

#endif
