/** @file philox.h  ct_rng_philox() and ct_rng_key() for code that draws a block at a time where it
 * needs it: kernels of devices. */
#ifndef CT_PHILOX_H
#define CT_PHILOX_H

#include "framework/base/hd.h"
#include "framework/base/rng.h"

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
