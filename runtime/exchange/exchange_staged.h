/** @file exchange_staged.h  An exchange for gradients that lie on a device, through memory of the
 * host.
 *
 * A parameter's gradient that is ready is copied down beside what the device goes on computing, and
 * handed to the other exchange once it is there; what lands is copied up, and the update follows it
 * on the device. So whatever moves messages on the host serves GPUs, with any MPI. Gradients that
 * the other exchange takes from the device by itself, as codecs do, are left there.
 */
#ifndef CT_EXCHANGE_STAGED_H
#define CT_EXCHANGE_STAGED_H

#include "framework/net/net.h"
#include "framework/exchange/exchange.h"

typedef struct ct_exchange_staged ct_exchange_staged;

/** Room on the host for net's gradients, whose parameter i has its own at the same offset as in the
 *  arena; zeros. The net's device is not the CPU. */
ct_status ct_exchange_staged_create(const ct_net *net, ct_exchange_staged **s_p);
float *ct_exchange_staged_arena(const ct_exchange_staged *s);
/** Between steps: from now on the gradient of this parameter stays where it is, and inner is told
 * at once that it is ready, in the order of the device's stream, where its sum lands, too; or it
 *  comes down, as all do at first. */
void ct_exchange_staged_leave(ct_exchange_staged *s, int param, bool stays);
/** inner works on that arena; *out is what the solver gets, and inner is copied. */
void ct_exchange_staged_wrap(ct_exchange_staged *s, const ct_exchange *inner, ct_exchange *out);
void ct_exchange_staged_destroy(ct_exchange_staged *s); /* NULL allowed; not inner */
/** Bytes copied down and up so far. */
void ct_exchange_staged_bytes(const ct_exchange_staged *s, int64_t *down_p, int64_t *up_p);

#endif
