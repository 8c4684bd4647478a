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

#include "framework/base/simd.h"

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

/* ---- ct_rng_philox() and ct_rng_key() for code that draws a block at a time where it
 * needs it: kernels of devices. */

CT_HD static inline uint64_t ct_mix(uint64_t z)
{
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/** As ct_rng_key(). */
CT_HD static inline uint64_t ct_mix_key(uint64_t a, uint64_t b, uint64_t c)
{
    return ct_mix(ct_mix(ct_mix(a) ^ b) ^ c);
}

CT_HD static inline ct_rng_block ct_philox(uint64_t key, uint64_t counter_hi, uint64_t counter)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32);
    uint32_t c2 = (uint32_t)counter_hi, c3 = (uint32_t)(counter_hi >> 32);
    ct_rng_block b;

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    b.v[0] = c0;
    b.v[1] = c1;
    b.v[2] = c2;
    b.v[3] = c3;
    return b;
}

#endif
