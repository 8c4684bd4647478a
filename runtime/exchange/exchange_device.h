/** @file exchange_device.h  An exchange whose gradients are summed where they are, on the device,
 * by the device's own library (framework/tensor/device.h).
 *
 * Parameters that are neighbours in the arena travel together, a few megabytes at a time. With NCCL
 * nobody waits on the host: an update follows its sum in the order of the device. All else (numbers
 * that ranks agree on, weights, statistics) is the other exchange's.
 */
#ifndef CT_EXCHANGE_DEVICE_H
#define CT_EXCHANGE_DEVICE_H

#include "framework/exchange/exchange.h"
#include "framework/net/net.h"
#include "framework/tensor/device.h"

typedef struct ct_exchange_device ct_exchange_device;

/** Collective, over inner: rank 0 makes the group's id. inner, which is copied, gets no gradients.
 *  bucket_bytes 0: 16 MiB. */
ct_status ct_exchange_device_create(const ct_net *net, const ct_device_sum_ops *ops,
                                    const ct_exchange *inner, int64_t bucket_bytes,
                                    ct_exchange_device **x_p);
/** What the solver gets. */
void ct_exchange_device_wrap(ct_exchange_device *x, ct_exchange *out);
/** For the watchdog: what a rank that hangs may wait for; ctx is the exchange. */
void ct_exchange_device_describe(void *ctx, char *text, size_t size);
void ct_exchange_device_destroy(ct_exchange_device *x); /* NULL allowed; not inner */

#endif
