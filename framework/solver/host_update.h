/** @file host_update.h  What crosses to the host and back where a device computes a net, and the
 *  host updates its weights. Private to framework/solver.
 *
 * Gradients come down in pieces through a ring of pinned buffers, beside what the device computes.
 * Weights that lie in host memory or in files come up through another ring, ahead of the layers
 * that read them. One thread at a time.
 */
#ifndef CT_HOST_UPDATE_H
#define CT_HOST_UPDATE_H

#include "framework/net/net.h"
#include "framework/tensor/storage.h"

typedef struct ct_pinned_slot {
    int of;              /* parameter or chunk; -1: nobody's */
    int64_t from, count; /* elements of it */
    float *data;
    void *ticket; /* of its copy; NULL: it has ended */
} ct_pinned_slot;

enum { CT_PINNED_SLOTS = 8 };

typedef struct ct_pinned_ring {
    ct_pinned_slot slot[CT_PINNED_SLOTS];
    int turn; /* the slot that is taken next */
    void *block;
} ct_pinned_ring;

typedef struct ct_host_update {
    const ct_net *net; /* NULL: not open */
    int64_t piece;     /* floats of a slot */
    ct_pinned_ring down, up;
    int64_t version; /* of the net's weights when they were those on the host; -1: never */
} ct_host_update;

static inline bool ct_host_update_is_open(const ct_host_update *h)
{
    return h->net != NULL;
}
/** piece: floats that cross at once; 0: chosen. CT_ERR_DEVICE, CT_ERR_NOMEM. */
ct_status ct_host_update_open(const ct_net *net, int64_t piece, ct_host_update *h);
void ct_host_update_close(ct_host_update *h); /* zeroed ones too */

/** A step's gradients are about to be made: what is left of the last one's is nobody's. */
void ct_host_gradients_begin(ct_host_update *h);
/** The gradient of a parameter is final, after what the stream was given so far: as much of it sets
 *  off as there is room for. */
ct_status ct_host_gradient_ready(ct_host_update *h, ct_stream st, int param);
/** *data_p: elements of a gradient from `at` on, on the host, as many as *n_p says, which becomes
 *  less where they end sooner. Until the next call. What follows sets off meanwhile. */
ct_status ct_host_gradient(ct_host_update *h, ct_stream st, int param, int64_t at, int64_t *n_p,
                           const float **data_p);

/** Nobody asks for elements of this gradient any more. */
void ct_host_gradient_done(ct_host_update *h, int param);

/** Elements [from, from + count) of a storage of the host set off to `place` on the device, for
 *  `chunk`, after what the stream was given so far. */
ct_status ct_host_bring(ct_host_update *h, ct_stream st, ct_storage *s, int64_t from, int64_t count,
                        float *place, int chunk);
/** Work that the stream is given from now on finds them all. */
ct_status ct_host_arrive(ct_host_update *h, ct_stream st, int chunk);

/** Storage `s` of the host becomes the weights that the device has, where they were changed since
 *  ct_host_weights_are() was called last. */
ct_status ct_host_take_weights(ct_host_update *h, ct_storage *s);
/** They are the same. */
void ct_host_weights_are(ct_host_update *h);

#endif
