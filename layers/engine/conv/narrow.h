/** @file narrow.h  Operands of products rounded to bfloat16 (to the nearest, ties to even), on
 * their way into the buffers that tiles read; private to conv/.
 *
 * Buffers are counted in words of 32 bits, which pass as floats. Where the processor multiplies
 * pairs (AVX512_BF16), a word is a pair of bf16 numbers, the first in the lower half, and tiles of
 * pairs read them; elsewhere it is a float that was rounded, and the usual tiles do. Rounding moves
 * a number by 2^-8 of itself at most (below 2^-126: to 0, with pairs).
 */
#ifndef CT_ENGINE_CONV_NARROW_H
#define CT_ENGINE_CONV_NARROW_H

#include "framework/base/bf16.h"

typedef struct ct_narrow {
    int pair; /* values of a word: 2 or 1 */
    /** Neighbours in words: to[r to_step + k] = x[r step + pair k and on], k < n / pair, of `rows`
     *  rows. n is a multiple of 8. */
    void (*along)(int64_t rows, int64_t n, const float *x, int64_t step, float *to,
                  int64_t to_step);
    /** Two arrays in words: to[r to_step + k] = (a, b)[r step + k], k < n, a multiple of 8; b NULL:
     *  zeros. With words of one value a alone is there. */
    void (*across)(int64_t rows, int64_t n, const float *a, const float *b, int64_t step, float *to,
                   int64_t to_step);
    /** The same of arrays of bf16 numbers. */
    void (*across_bf16)(int64_t rows, int64_t n, const float *a, const float *b, int64_t step,
                        float *to, int64_t to_step);
    /** Results as bf16 numbers: `rows` runs of n of them, a multiple of 8, step and to_step numbers
     *  apart. relu: 0 where they are below. */
    void (*out)(int64_t rows, int64_t n, bool relu, const float *x, int64_t step, float *to,
                int64_t to_step);
} ct_narrow;

/** As ct_simd_has_bf16() says. */
const ct_narrow *ct_narrow_pick(void);

#endif
