/** @file storage_bf16.h  A storage whose floats lie in memory as bf16, 2 bytes each.
 *
 * A range that is wanted is widened into a buffer; what was changed is rounded when it is given
 * back (ct_bf16_from_f32()). On the CPU; a range has CT_STORAGE_BF16_MOST floats at most.
 */
#ifndef CT_STORAGE_BF16_H
#define CT_STORAGE_BF16_H

#include "framework/tensor/storage.h"

enum { CT_STORAGE_BF16_MOST = 1 << 16 /* floats of one range: a buffer that fits a cache */ };

/** Bytes that one of `count` floats takes. */
size_t ct_storage_bf16_size(int64_t count);
/** A ct_storage_open_fn; ctx is not looked at. CT_ERR_NOMEM. */
ct_status ct_storage_open_bf16(void *ctx, const ct_device *dev, int64_t count, ct_storage *s_p);

#endif
