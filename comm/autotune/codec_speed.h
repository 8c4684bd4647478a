/** @file codec_speed.h  What codecs take on the machine that the job runs on.
 */
#ifndef CT_CODEC_SPEED_H
#define CT_CODEC_SPEED_H

#include "comm/core/comm.h"
#include "comm/codec/codec.h"

/** Some tenth of a second on arrays beyond the caches, on all ranks at once, with the threads that
 *  c has now. A figure is the least of a few runs, on the slowest rank. The same on all ranks.
 *  Collective. CT_ERR_NOMEM. */
ct_status ct_codec_speed_measure(ct_comm *c, ct_codec_speed *out);
/** Messages here. */
typedef struct ct_codec_calibration {
    double sum_factor, wire_factor; /* an allreduce, and a sparse exchange's messages, take so many
                                       times what the models say: the least of a few, on the slowest
                                       rank */
    double taken; /* share of an allreduce's time in which the ranks' computation stands still while
                     it goes on beside: messages need cores, too, and ranks may share them */
} ct_codec_calibration;
/** A few allreduces of n f32 and exchanges. `allreduce` as ct_coll_choose()'s. Factors are 1 and
 *  nothing is taken where nothing travels, and in simulations. The same on all ranks. Collective.
 */
ct_status ct_codec_calibrate(ct_comm *c, const char *allreduce, int64_t n,
                             ct_codec_calibration *out);
/** Puts it into the communicator's machine, unless the machine's file has such figures, or memory
 *  and messages are simulated. Collective. */
ct_status ct_codec_speed_find(ct_comm *c);

/* ---- What codecs take on a device, and what crossing to the host and back
 *  takes. Private to comm/.
 */

/** Some tens of milliseconds on all ranks at once, by the device's own events. A figure is the
 *  least of a few runs, on the slowest rank. *speed_p has the host's figures and keeps those of
 *  what stays there (merging). The same on all ranks. Collective. CT_ERR_NOMEM, CT_ERR_DEVICE. */
ct_status ct_codec_speed_on_device(ct_comm *c, const ct_device *dev, ct_codec_speed *speed_p,
                                   ct_codec_bus *bus_p);

#endif
