/** @file transports.h  What carries a step's gradients (ct_transport,
 * framework/exchange/exchange.h) where they lie on a device; private to runtime/exchange.
 *
 * staged: a parameter's gradient that is ready is copied down beside what the device goes on
 * computing. Once it is there it is handed to the transport of the host. What lands is copied up,
 * and the update follows it on the device. So whatever moves messages on the host serves GPUs, with
 * any MPI. Gradients that the inner transport takes from the device by itself, as codecs do, are
 * left there.
 *
 * device: gradients are summed where they are, by the device's own library
 * (framework/tensor/device.h): NCCL, or an MPI that takes the device's memory. Parameters that
 * are neighbours in the arena travel together, a few megabytes at a time. With NCCL nobody waits on
 * the host: an update follows its sum in the order of the device.
 */
#ifndef CT_TRANSPORTS_H
#define CT_TRANSPORTS_H

#include "framework/exchange/exchange.h"
#include "framework/net/net.h"
#include "framework/tensor/device.h"

typedef struct ct_transport_staged ct_transport_staged;

/** inner, which is copied, is to work on *arena_p, on the host, as long as net's gradient arena.
 * The net's device copies beside what it computes. */
ct_status ct_transport_staged_create(const ct_net *net, const ct_transport *inner,
                                     ct_transport_staged **s_p, float **arena_p, ct_transport *out);
/** For an inner transport that takes parts (ready_to): elements [from, from + count) of this
 *  gradient hold the sum, before the whole is reported. ctx: s. */
ct_status ct_transport_staged_part(void *ctx, int param, int64_t from, int64_t count);
/** Between steps: from now on the gradient of this parameter stays where it is. inner is told at
 *  once that it is ready, in the order of the device's stream, where its sum lands, too. Or it
 *  comes down, as all do at first. */
void ct_transport_staged_leave(ct_transport_staged *s, int param, bool stays);
/** Bytes copied down and up so far. */
void ct_transport_staged_bytes(const ct_transport_staged *s, int64_t *down_p, int64_t *up_p);
void ct_transport_staged_destroy(ct_transport_staged *s); /* NULL allowed; not inner */

typedef struct ct_transport_device ct_transport_device;

/** library: the group that lib opened; it lasts as long. bucket_bytes 0: 16 MiB. */
ct_status ct_transport_device_create(const ct_net *net, const ct_device_sum_ops *lib, void *library,
                                     int64_t bucket_bytes, ct_transport_device **x_p,
                                     ct_transport *out);
/** A step begins. CT_ERR_ARG where buckets of the last one are under way. */
ct_status ct_transport_device_begin(ct_transport_device *x);
int64_t ct_transport_device_bytes(const ct_transport_device *x); /* sent so far */
void ct_transport_device_destroy(ct_transport_device *x);        /* NULL allowed */

#endif
