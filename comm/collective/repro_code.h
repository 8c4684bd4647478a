/** @file repro_code.h  Floats as integers that can be added in any order. Private to comm/.
 *
 * After the idea of Demmel and Nguyen ("Parallel reproducible summation", IEEE Trans. Computers
 * 2015), cut down to what an allreduce needs: one round for a common exponent, one for integers.
 * A block is CT_REPRO_BLOCK elements that begin at a multiple of CT_REPRO_BLOCK in the arena: a
 * cache line of gradients, so parameters begin blocks, and buckets cut at any such place have the
 * same blocks. With e the largest biased exponent of a block's finite elements over all ranks,
 * |x| < 2^(e-126), and x travels as q = rint(x 2^(43 + 126 - e)), |q| < 2^43: sums over up to
 * 2^20 ranks stay below 2^63, and every order and grouping of the additions gives the same bits.
 *
 * Error of an element's sum over p ranks: at most p 2^(e-126-44), half a unit of q a rank, and one
 * rounding to f32 at the end. Elements within 2^19 of their block's largest travel exactly, so
 * there the result is the exact sum rounded once (for up to 2^10 ranks; beyond, sums above 2^53
 * are first rounded to 53 bits). A sum in f32 errs by up to (p-1) 2^-24 sum |x|.
 *
 * Infinities and NaNs are counted beside the finite sum: in blocks that hold one on some rank, the
 * integer carries two counters of k + 1 bits above the sum, 2^k >= p, of +inf or NaN and of -inf or
 * NaN. The sum keeps all its 43 bits up to 64 ranks, and 64 - 3 (k + 1) beyond, cut off. The result
 * is what a plain sum gives: NaN, or +inf with -inf: NaN; else an infinity; else the sum. A sum of
 * zeros is +0, also of negative ones.
 */
#ifndef CT_REPRO_CODE_H
#define CT_REPRO_CODE_H

#include <stdint.h>

enum {
    CT_REPRO_BLOCK = 16, /* elements                     */
    CT_REPRO_BITS = 43,  /* of an integer: |q| < 2^43    */
    CT_REPRO_LOG_RANKS = 20
};

static inline int64_t ct_repro_blocks(int64_t n)
{
    return (n + CT_REPRO_BLOCK - 1) / CT_REPRO_BLOCK;
}

/** top[b]: largest biased exponent of the finite elements of block b; odd[b]: 1 where an element is
 *  not finite. To be maximised over the ranks. n_thread at most, in all three. */
void ct_repro_scan(const float *x, int64_t n, uint8_t *top, uint8_t *odd, int n_thread);
/** With the maxima over n_rank <= 2^20 ranks; q may not overlap x. */
void ct_repro_encode(const float *x, int64_t n, const uint8_t *top, const uint8_t *odd, int n_rank,
                     int64_t *q, int n_thread);
/** x from the sums q. */
void ct_repro_decode(const int64_t *q, int64_t n, const uint8_t *top, const uint8_t *odd,
                     int n_rank, float *x, int n_thread);

#endif
