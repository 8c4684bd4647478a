/** @file storage_shard.h  A storage of which a rank keeps some pieces: its shard.
 *
 * Ranges are counted as in the whole, and lie in one piece each. The pieces stand one after the
 * other in an inner storage of any form.
 */
#ifndef CT_STORAGE_SHARD_H
#define CT_STORAGE_SHARD_H

#include "framework/tensor/storage.h"

/** Floats [from, from + count) of the whole. */
typedef struct ct_shard_piece {
    int64_t from, count;
} ct_shard_piece;

typedef struct ct_shard {
    int n;
    ct_shard_piece *piece; /* [n] ascending, none next to another; owned */
    int64_t count;         /* floats of all pieces */
} ct_shard;

/** Appends a piece that begins at or behind the end of the last one; 0 floats are allowed.
 *  CT_ERR_NOMEM. */
ct_status ct_shard_add(ct_shard *s, int64_t from, int64_t count);
/** Appends what s has from float `from` on. CT_ERR_NOMEM. */
ct_status ct_shard_add_from(const ct_shard *s, int64_t from, ct_shard *to);
void ct_shard_destroy(ct_shard *s); /* zeroed ones too */

/** Floats of the inner storage of such a shard. */
int64_t ct_shard_length(const ct_shard *s);
/** Opens a storage of `count` zeros, of which the pieces of `shard` are there. They are copied.
 *  inner: opens what they lie in. */
ct_status ct_storage_open_shard(const ct_shard *shard, ct_storage_open_fn inner, void *inner_ctx,
                                const ct_device *dev, int64_t count, ct_storage *s_p);

#endif
