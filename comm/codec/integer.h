/** @file integer.h  Small integers and a scale for each block of a vector. Private to comm/.
 *
 * A vector is cut into blocks of CT_INTEGER_BLOCK elements. With m the largest magnitude of a block
 * and L the largest integer, 127 with 8 bits and 7 with 4,
 *
 *     scale = m / L     integer = element * (1 / scale), rounded to the nearest, ties to even
 *
 * and scale * integer comes back, all in f32. A block whose scale would be below the least normal
 * number is zeros. A block that holds NaN or infinity has NaN as its scale, so that all of it comes
 * back as NaN. Rounding is an addition in f32, which every processor makes alike: the functions are
 * compiled for several levels of vector instructions, and all have the same bits.
 *
 * A block's payload, without gaps or a head; the last one is shorter:
 *
 *     8 bits    f32 scale, n signed bytes
 *     4 bits    f32 scale, h = (n + 1) / 2 bytes; byte i has element i in its lower bits and
 *               element h + i in the upper ones, each as two's complement
 */
#ifndef CT_INTEGER_H
#define CT_INTEGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CT_INTEGER_BLOCK = 256 /* elements */
};

/** Of the payload of n elements with 8 or 4 bits each: a half byte at the end counts as one. */
int64_t ct_integer_bytes(int bits, int64_t n);

/** The payload of v[n], the same bytes with any number of threads. It needs no alignment and tells
 *  nothing of n. takes: what comes back of it is taken out of v. Else v is left alone. False where
 *  v has NaN or infinity. */
bool ct_integer_encode(int bits, float *v, int64_t n, bool takes, int n_thread, void *payload);

/** v[n] = the payload; adds: v[n] += the payload. Any bytes are a payload. */
void ct_integer_decode(int bits, const void *payload, int64_t n, bool adds, int n_thread, float *v);

#endif
