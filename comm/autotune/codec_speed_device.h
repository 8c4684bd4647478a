/** @file codec_speed_device.h  What codecs take on a device, and what crossing to the host and back
 *  takes. Private to comm/.
 */
#ifndef CT_CODEC_SPEED_DEVICE_H
#define CT_CODEC_SPEED_DEVICE_H

#include "comm/codec/codec.h"

/** Some tens of milliseconds on all ranks at once, by the device's own events; a figure is the
 *  least of a few runs, on the slowest rank. *speed_p has the host's figures and keeps those of
 * what stays there (merging). The same on all ranks. Collective. CT_ERR_NOMEM, CT_ERR_DEVICE. */
ct_status ct_codec_speed_on_device(ct_comm *c, const ct_device *dev, ct_codec_speed *speed_p,
                                   ct_codec_bus *bus_p);

#endif
