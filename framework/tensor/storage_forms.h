/** @file storage_forms.h  Forms of storages in the host's memory: in 16 bits, and with checksums.
 * On the CPU.
 */
#ifndef CT_STORAGE_FORMS_H
#define CT_STORAGE_FORMS_H

#include "framework/tensor/storage.h"

/* ---- floats lie as bf16, 2 bytes each: storage_bf16.c
 *
 * A range that is wanted is widened into a buffer; what was changed is rounded when it is given
 * back (ct_bf16_from_f32()). A range has CT_STORAGE_BF16_MOST floats at most.
 */
enum { CT_STORAGE_BF16_MOST = 1 << 16 /* floats of one range: a buffer that fits a cache */ };

/** Bytes that one of `count` floats takes. */
size_t ct_storage_bf16_size(int64_t count);
/** A ct_storage_open_fn; ctx is not looked at. CT_ERR_NOMEM. */
ct_status ct_storage_open_bf16(void *ctx, const ct_device *dev, int64_t count, ct_storage *s_p);

/* ---- memory that notices when something else than its users changes it: storage_checked.c
 *
 * Each block has the XXH64 of what was last written there. A range that is wanted is compared with
 * it first; what was changed is hashed when it is given back. Each use so reads its blocks once
 * more, and one that writes twice.
 */
enum { CT_STORAGE_CHECKED_BLOCK = 4096 /* floats of a hash */ };

/** A ct_storage_open_fn; ctx: a text for messages, what the storage holds; borrowed. CT_ERR_CONFIG
 *  where dev is not the CPU, CT_ERR_NOMEM. Wanting a range fails with CT_ERR_DIVERGED, logged,
 * where a block is not what was written. */
ct_status ct_storage_open_checked(void *ctx, const ct_device *dev, int64_t count, ct_storage *s_p);

#endif
