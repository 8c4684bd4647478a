/** @file codec_side.h  What codecs keep of a parameter (U and V of codec.h), and where it lies.
 * Private to comm/codec.
 *
 * Gradients lie in the host's memory or on a device, and U and V beside them. Kernels
 * (codec_kernels.h) work there; messages are the host's. So what a codec sends is brought to the
 * host, and what it gets is lifted from there. In the host's memory both are one place: the codec
 * gives the same address twice, nothing is copied, and everything has arrived at once. So a codec
 * is one state machine, written as if all were on a device.
 */
#ifndef CT_CODEC_SIDE_H
#define CT_CODEC_SIDE_H

#include "comm/codec/codec.h"
#include "comm/codec/codec_kernels.h"

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

/* ---- where they lie */

typedef struct ct_codec_side {
    const ct_codec_setup *setup; /* borrowed */
    bool host;                   /* gradients lie in the host's memory */
    const ct_codec_kernels *kernels;
    ct_stream stream;      /* the codecs' */
    ct_codec_coder *coder; /* of all elements: made by who knows its sizes */
    ct_error_feedback keep;
    const ct_coder_note *note; /* the last one that was brought */
    ct_coder_note *note_room;
    void *ticket[2]; /* of copies to the host */
} ct_codec_side;

/** Close it in any case. keeps: with U and V. */
ct_status ct_side_open(ct_codec_side *s, const ct_codec_setup *setup, bool keeps);
/** Waits for the stream: call it before anything else is released. A zeroed one is closed. */
void ct_side_wait(const ct_codec_side *s);
void ct_side_close(ct_codec_side *s);
/** A coder that selects nothing: for updates, dense steps, signs, limits and norms. */
ct_status ct_side_plain_coder(ct_codec_side *s);
/** Memory where gradients lie, zeroed; and memory of the host that copies are fast with. */
ct_status ct_side_acquire(const ct_codec_side *s, size_t bytes, void **data_p);
void ct_side_release(const ct_codec_side *s, void *data); /* NULL allowed */
ct_status ct_side_host_acquire(const ct_codec_side *s, size_t bytes, void **data_p);
void ct_side_host_release(const ct_codec_side *s, void *data); /* NULL allowed */

/** Zeros where gradients lie. */
ct_status ct_side_zero(const ct_codec_side *s, void *data, size_t bytes);
/** Copies beside the computation: to the host as number i, and from there. */
ct_status ct_side_bring(ct_codec_side *s, int i, void *host, void *data, size_t bytes);
ct_status ct_side_lift(const ct_codec_side *s, void *host, void *data, size_t bytes);
/** The coder's note, into s->note, as number i. */
ct_status ct_side_bring_note(ct_codec_side *s, int i, ct_codec_coder *coder);
/** CT_INPROGRESS until all that was brought is there. */
ct_status ct_side_arrived(ct_codec_side *s, ct_coll_where *where);

/** The first thing of a step; the stream goes on behind the gradient. empty_p: V is 0. */
ct_status ct_side_begin(ct_codec_side *s, bool *empty_p);
/** A dense step: grad becomes what is to be summed, and is brought to setup->host.
 *
 *  V is a sum of steps that were computed where the weights stood then, and saw nothing of what
 *  they would have done. Along a direction of curvature c, T steps at rate r with momentum m are up
 *  to T r c / (1 - m) times the way to the minimum. Sent at once they end on the other side,
 *  farther away where that is over 2. Yet every one of them, sent in its time, would have been
 *  stable up to r c = 2 (1 + m). So of V goes what moves no farther than this step's own update:
 *
 *      share = min(1, |update| / (|V| sqrt(ranks)))
 *
 *  since what ranks send adds up to sqrt(ranks) times as much at least, where their gradients do
 *  not cancel. Momentum that was built up while nothing moved is no momentum: where dense steps
 *  begin, and where the codec masks momentum, U begins at 0. Nothing left behind: nothing of this.
 */
ct_status ct_side_dense(ct_codec_side *s, const ct_codec_step *step, bool empty, double limit);
/** ct_codec_ops.fold: the dense step in the host's memory; else it has begun when the gradient was
 *  ready, and this is ct_side_arrived(). */
ct_status ct_side_fold(ct_codec_side *s, const ct_codec_step *step, ct_codec_stats *stats,
                       ct_coll_where *where);
/** … and its sum is lifted; the device goes on with it. */
ct_status ct_side_summed(const ct_codec_side *s);
/** The device goes on with what the stream has made. */
ct_status ct_side_hand_over(const ct_codec_side *s);
/** CT_ERR_DIVERGED or CT_ERR_COMM where the note, which is there, says so. */
ct_status ct_side_check(const ct_codec_side *s);
/** The sum of V's squares. */
double ct_side_left(ct_codec_side *s);

#endif
