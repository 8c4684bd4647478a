/** @file transports.h  What carries a step's gradients (ct_transport,
 * framework/exchange/grad_sync.h) where they lie on a device. Each begins as a struct of its own
 * and fills a ct_transport.
 *
 * staged: a parameter's gradient that is ready is copied down beside what the device goes on
 * computing, and handed to the transport of the host once it is there; what lands is copied up, and
 * the update follows it on the device. So whatever moves messages on the host serves GPUs, with any
 * MPI. Gradients that the inner transport takes from the device by itself, as codecs do, are left
 * there.
 *
 * device: gradients are summed where they are, by the device's own library
 * (framework/tensor/device_sum.h): NCCL, or an MPI that takes the device's memory. Parameters that
 * are neighbours in the arena travel together, a few megabytes at a time. With NCCL nobody waits on
 * the host: an update follows its sum in the order of the device.
 */
#ifndef CT_TRANSPORTS_H
#define CT_TRANSPORTS_H

#include "framework/exchange/exchange.h"
#include "framework/net/net.h"
#include "framework/tensor/device_sum.h"

typedef struct ct_transport_staged ct_transport_staged;

/** Memory on the host for net's gradients, whose parameter i has its own at the same offset as in
 *  the arena; zeros. The net's device is not the CPU. */
ct_status ct_transport_staged_create(const ct_net *net, ct_transport_staged **s_p);
float *ct_transport_staged_arena(const ct_transport_staged *s);
/** inner, which is copied, works on that arena; *out is what the solver gets. */
void ct_transport_staged_open(ct_transport_staged *s, const ct_transport *inner, ct_transport *out);
/** For an inner transport that takes parts (ready_to): elements [from, from + count) of this
 *  gradient hold the sum, before the whole is reported. ctx: s. */
ct_status ct_transport_staged_part(void *ctx, int param, int64_t from, int64_t count);
/** Between steps: from now on the gradient of this parameter stays where it is, and inner is told
 *  at once that it is ready, in the order of the device's stream, where its sum lands, too; or it
 *  comes down, as all do at first. */
void ct_transport_staged_leave(ct_transport_staged *s, int param, bool stays);
/** Bytes copied down and up so far. */
void ct_transport_staged_bytes(const ct_transport_staged *s, int64_t *down_p, int64_t *up_p);
void ct_transport_staged_destroy(ct_transport_staged *s); /* NULL allowed; not inner */

typedef struct ct_transport_device ct_transport_device;

/** Collective, over group, which lasts as long: rank 0 makes the id of the library's own. lib NULL:
 *  one rank, which has nothing to add up. bucket_bytes 0: 16 MiB. */
ct_status ct_transport_device_create(const ct_net *net, const ct_device_sum_ops *lib,
                                     const ct_group *group, int64_t bucket_bytes,
                                     ct_transport_device **x_p);
void ct_transport_device_open(ct_transport_device *x, ct_transport *out);
/** A step begins. CT_ERR_ARG where buckets of the last one are under way. */
ct_status ct_transport_device_begin(ct_transport_device *x);
/** ct_group_ops.sum_there, where the library can. */
bool ct_transport_device_sums(const ct_transport_device *x);
ct_status ct_transport_device_sum(ct_transport_device *x, ct_stream st, double *v, int n);
int64_t ct_transport_device_bytes(const ct_transport_device *x); /* of gradients sent so far */
void ct_transport_device_destroy(ct_transport_device *x);        /* NULL allowed */

#endif
