/** @file storage_ring.h  A storage in host memory, whose ranges come to a device through a ring.
 *
 * The storage has pages of the host that need not be pinned. Its chunks come to slots in the
 * device's memory: by a pinned buffer of the slot, on the device's stream of copies, ahead of the
 * work that wants them. What was changed goes back by another pinned buffer while later chunks are
 * worked on. A chunk has the same slot each time. The host takes part in every transfer, so work on
 * ranges cannot be recorded. A range lies in one chunk (ct_storage_together()).
 */
#ifndef CT_STORAGE_RING_H
#define CT_STORAGE_RING_H

#include "framework/tensor/storage.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What storages of one process have in common. */
typedef struct ct_storage_rings {
    int64_t chunk; /* floats that move at once; 0: 1 Mi. Rounded up to 64 */
    int ahead;     /* chunks that are brought ahead; 0: 4                   */
    /* of all that are open: bytes */
    int64_t host_bytes, pinned_bytes, device_bytes;
    int64_t up, down; /* … that were moved so far            */
    double waited_s;  /* for copies that had not ended, so far */
} ct_storage_rings;

/** A ct_storage_open_fn; ctx: a ct_storage_rings, which outlives it. Of the CPU it is
 *  ct_storage_open_fixed(). CT_ERR_NOMEM, CT_ERR_DEVICE; CT_ERR_CONFIG where the device makes no
 *  copies beside its work. */
ct_status ct_storage_open_ring(void *ctx, const ct_device *dev, int64_t count, ct_storage *s_p);

#ifdef __cplusplus
}
#endif

#endif
