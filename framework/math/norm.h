/** @file norm.h  The square of a norm, for who has so many threads to give and no more: one that
 * moves messages beside layers that compute. */
#ifndef CT_NORM_H
#define CT_NORM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The sum of x[n]'s squares by at most n_thread (>= 1) threads: the bits of ct_math_cpu.sumsq
 *  (math.h), whatever their number. On the CPU. */
double ct_sumsq_by(int64_t n, const float *x, int n_thread);

#ifdef __cplusplus
}
#endif

#endif
