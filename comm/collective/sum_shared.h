/** @file sum_shared.h  The innermost loop of a sum in shared memory. Private to comm/. */
#ifndef CT_SUM_SHARED_H
#define CT_SUM_SHARED_H

#include <stdint.h>

/** With at most n_thread threads, x[j][i] = x[0][i] + x[1][i] + … + x[n_x - 1][i], added in that
 * order, for all j. Each element is read once and written once per buffer. Plain stores: others
 * read the result next, mostly from a cache (non-temporal ones were slower at every size from 64 KB
 * to 256 MB, by 1.1 to 2). */
void ct_sum_shared(float *const *x, int n_x, int64_t n, int n_thread);

#endif
