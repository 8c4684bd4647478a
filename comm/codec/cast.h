/** @file cast.h  Gradients as 16-bit numbers. Private to comm/. */
#ifndef CT_CAST_H
#define CT_CAST_H

#include "framework/tensor/tensor.h"

/** CT_BF16: to the nearest; or CT_F16: of scale times each, a power of two. */
void ct_cast_encode(ct_dtype dtype, const float *v, int64_t n, float scale, int n_thread,
                    uint16_t *out);
/** … of scale times what is encoded. */
void ct_cast_decode(ct_dtype dtype, const uint16_t *in, int64_t n, float scale, int n_thread,
                    float *v);

/** The same of v[n] where it lies: the payload's first number takes v's first bytes, and so on. */
void ct_cast_encode_in_place(ct_dtype dtype, float *v, int64_t n, float scale, int n_thread);
/** Elements [first, first + n) of such a payload go back to their places in v. What else v holds is
 *  then anything. */
void ct_cast_decode_in_place(ct_dtype dtype, float *v, int64_t first, int64_t n, float scale,
                             int n_thread);

/** The largest of the exponents of v[n] as f32 stores them, 0 to 255: all are below
 *  2^(that - 126) in magnitude; 255 where one is not finite. */
uint8_t ct_cast_exponent(const float *v, int64_t n, int n_thread);
/** The power of two that f16 takes values of this exponent times, so that the sum over the ranks,
 *  however it is rounded on its way, stays below 2^15, and f16 ends at 65504. Within
 *  2^-126 … 2^126, so that 1 / scale is a number, too. */
float ct_cast_scale(uint8_t exponent, int ranks);

#endif
