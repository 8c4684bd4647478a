/** @file stochastic_pool.h  Pooling that draws one element of each window (Zeiler and Fergus 2013).
 * Private to layers/.
 *
 * TRAIN: element k with probability x_k / sum x, by one number an output, which depends on the key
 * and the output's place in the global batch alone. TEST: sum x^2 / sum x. Made for x >= 0, as
 * behind a ReLU.
 */
#ifndef CT_STOCHASTIC_POOL_H
#define CT_STOCHASTIC_POOL_H

#include "layers/engine/pool/pool.h"

/** y from x in plain order, without padding. place: the element drawn, in its plane. `first`:
 * number of the first output in the global batch. */
void ct_stochastic_draw(const ct_pool_desc *d, uint64_t key, uint64_t first, const float *x,
                        float *y, int32_t *place);
/** dx[place] += dy. */
void ct_stochastic_draw_back(const ct_pool_desc *d, const int32_t *place, const float *dy,
                             float *dx);
void ct_stochastic_mean(const ct_pool_desc *d, const float *x, float *y);
void ct_stochastic_mean_back(const ct_pool_desc *d, const float *x, const float *dy, float *dx);

#endif
