/** @file rng.h  Counter-based random numbers: no state, any element at any time.
 *
 * A number is a function of (key, counter), so what is drawn does not depend on threads, on the
 * number of ranks, or on what was drawn before. Philox-4x32-10 (Salmon et al., "Parallel random
 * numbers: as easy as 1, 2, 3", SC'11).
 *
 * Keys are made from (seed, purpose, ...) with ct_rng_key(); the counter is the element's index.
 */
#ifndef CT_RNG_H
#define CT_RNG_H

#include <stdint.h>

#include "framework/base/hd.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ct_rng_block {
    uint32_t v[4];
} ct_rng_block;

/** The block of four words number `counter` of stream `key`. */
ct_rng_block ct_rng_philox(uint64_t key, uint64_t counter_hi, uint64_t counter);
/** words[i] = word (first + i) % 4 of block (first + i) / 4 of counter_hi 0, for n words: what
 *  uniforms first, first + 1, … are made of, many at a time. */
void ct_rng_words(uint64_t key, uint64_t first, int64_t n, uint32_t *words);
/** Bit i % 16 of bits[i / 16] = whether word i of those n is `least` or more. Bits of the last
 *  word beyond n may be any. */
void ct_rng_bits(uint64_t key, uint64_t first, int64_t n, uint32_t least, uint16_t *bits);
/** Mixes a, b, c into one key (SplitMix64 finaliser). */
uint64_t ct_rng_key(uint64_t a, uint64_t b, uint64_t c);
/** 64-bit FNV-1a of a string, e.g. a layer's name. */
uint64_t ct_rng_hash(const char *text);
/** Uniform in [0, 1): 24 bits. */
CT_HD static inline float ct_rng_uniform(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}
/** Element i of a stream of uniforms in [0, 1). */
float ct_rng_uniform_at(uint64_t key, uint64_t i);
/** Element i of a stream of standard normals (Box-Muller). */
float ct_rng_normal_at(uint64_t key, uint64_t i);
/** A bijection of [0, n): the place in a shuffled order of element i, for any n >= 1, without
 *  memory (a Feistel network over the next power of four, walked until inside). */
uint64_t ct_rng_permute(uint64_t key, uint64_t i, uint64_t n);

#ifdef __cplusplus
}
#endif

#endif
