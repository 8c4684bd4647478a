/** @file reduce.h  What is done with the content of messages: additions, mostly. Private to comm/.
 *
 * f32, or bf16 or f16 added in f32 and rounded once. The order of the terms is the caller's, so
 * sums do not depend on timing or on the number of threads. Two dtypes do not depend on the order
 * either: i64 is added modulo 2^64, and of u8 the greatest is taken (exponents:
 * comm/collective/repro.h).
 */
#ifndef CT_REDUCE_H
#define CT_REDUCE_H

#include <stdint.h>

#include "framework/tensor/tensor.h"

/** True for the dtypes that can be combined. */
bool ct_reduce_supports(ct_dtype dtype);

/** y[i] += x[i]; n_thread at most. No overlap. */
void ct_reduce_add(ct_dtype dtype, int64_t n, const void *x, void *y, int n_thread);

/** dst[j][i] = sum over k of src[k][i], k ascending, for all n_dst destinations. Sources may be
 *  destinations too. */
void ct_reduce_many(ct_dtype dtype, int64_t n, const void *const *src, int n_src, void *const *dst,
                    int n_dst, int n_thread);

/** The size that a message states of itself in its first 8 bytes. In a simulation, whose large
 *  messages hold nothing, the size that is expected. */
size_t ct_reduce_stated_size(const void *message, size_t expected);

#endif
