/** @file pool_max3.h  MAX over windows of 3 x 3, step 1, of planes in blocks; private to pool/.
 *
 * The largest of three neighbours in a row of the plane serves the three rows of outputs above, at
 * and below it: four comparisons a place where window by window there are eight.
 */
#ifndef CT_ENGINE_POOL_MAX3_H
#define CT_ENGINE_POOL_MAX3_H

#include "layers/engine/pool/pool_private.h"

bool ct_pool_max3_takes(const ct_pool_desc *d);
/** Of a thread's room. */
size_t ct_pool_max3_bytes(const ct_pool_desc *d);
/** A plane of blocks; x and y as d says; mask may be NULL. stream: y passes the caches by. */
void ct_pool_max3_plane(const ct_pool_desc *d, const float *x, float *y, uint8_t *mask, bool stream,
                        void *room);

#endif
