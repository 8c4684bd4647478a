/** @file device_side.h  What codecs that keep something share where gradients are on a device: U
 * and V there, copies down and up, dense steps (codec.h). Private to comm/.
 */
#ifndef CT_DEVICE_SIDE_H
#define CT_DEVICE_SIDE_H

#include "comm/codec/error_feedback.h"
#include "comm/codec/device_codec.h"

typedef struct ct_device_side {
    const ct_codec_setup *setup; /* borrowed */
    const ct_device_codec *codec;
    ct_stream stream;       /* the codecs' */
    ct_device_coder *coder; /* of all elements: made by who knows its sizes */
    ct_error_feedback keep;
    ct_coder_note *note; /* on the host */
    void *ticket[2];     /* of copies down */
} ct_device_side;

/** Close it in any case. */
ct_status ct_side_open(ct_device_side *s, const ct_codec_setup *setup);
/** Waits for the stream: call it before anything else is released. A zeroed one is closed. */
void ct_side_wait(const ct_device_side *s);
void ct_side_close(ct_device_side *s);
/** A coder that selects nothing: for dense steps, limits and norms. */
ct_status ct_side_plain_coder(ct_device_side *s);
/** Copies beside the computation: down as number i, and up. */
ct_status ct_side_bring(ct_device_side *s, int i, void *host, void *data, size_t bytes);
ct_status ct_side_lift(const ct_device_side *s, void *host, void *data, size_t bytes);
/** CT_INPROGRESS until all that was brought is there. */
ct_status ct_side_arrived(ct_device_side *s, ct_coll_where *where);
/** The first thing of a step; the stream goes on behind the gradient. empty_p: V is 0. */
ct_status ct_side_begin(ct_device_side *s, bool *empty_p);
/** A dense step: what is to be summed comes down to setup->host. */
ct_status ct_side_dense(ct_device_side *s, const ct_codec_step *step, bool empty, double limit);
/** … and its sum goes up; the device goes on with it. */
ct_status ct_side_summed(const ct_device_side *s);
/** The device goes on with what the stream has made. */
ct_status ct_side_hand_over(const ct_device_side *s);
/** CT_ERR_DIVERGED or CT_ERR_COMM where the note, which is there, says so. */
ct_status ct_side_check(const ct_device_side *s);
/** The sum of V's squares. */
double ct_side_left(ct_device_side *s);

#endif
