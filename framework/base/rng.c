#include "framework/base/rng.h"

#include "framework/base/philox.h"
#include "framework/base/simd.h"

#include <math.h>
#include <string.h>

ct_rng_block ct_rng_philox(uint64_t key, uint64_t counter_hi, uint64_t counter)
{
    return ct_philox(key, counter_hi, counter);
}

enum { SIDE = 16 }; /* blocks side by side */

/* Blocks `counter` to counter + SIDE of counter_hi 0, one behind the other. */
CT_SIMD_CLONES static void philox_side(uint64_t key, uint64_t counter, uint32_t *out)
{
    uint32_t c0[SIDE], c1[SIDE], c2[SIDE], c3[SIDE];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    for (int i = 0; i < SIDE; i++) {
        c0[i] = (uint32_t)(counter + (uint64_t)i);
        c1[i] = (uint32_t)((counter + (uint64_t)i) >> 32);
        c2[i] = c3[i] = 0;
    }
    for (int round = 0; round < 10; round++) {
#pragma omp simd
        for (int i = 0; i < SIDE; i++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c0[i], p1 = (uint64_t)0xCD9E8D57u * c2[i];

            c0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
            c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
            c1[i] = (uint32_t)p1;
            c3[i] = (uint32_t)p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < SIDE; i++) {
        out[4 * i] = c0[i];
        out[4 * i + 1] = c1[i];
        out[4 * i + 2] = c2[i];
        out[4 * i + 3] = c3[i];
    }
}

void ct_rng_words(uint64_t key, uint64_t first, int64_t n, uint32_t *words)
{
    uint32_t some[4 * SIDE];
    int64_t skip = (int64_t)(first % 4);

    for (uint64_t block = first / 4; n > 0; block += SIDE, skip = 0) {
        int64_t count = (n < 4 * SIDE - skip) ? n : 4 * SIDE - skip;

        philox_side(key, block, some);
        memcpy(words, some + skip, (size_t)count * sizeof(words[0]));
        words += count;
        n -= count;
    }
}

uint64_t ct_rng_key(uint64_t a, uint64_t b, uint64_t c)
{
    return ct_mix_key(a, b, c);
}

uint64_t ct_rng_hash(const char *text)
{
    uint64_t h = 0xCBF29CE484222325u;

    for (; *text != '\0'; text++) h = (h ^ (unsigned char)*text) * 0x100000001B3u;
    return h;
}

float ct_rng_uniform_at(uint64_t key, uint64_t i)
{
    return ct_rng_uniform(ct_rng_philox(key, 0, i / 4).v[i % 4]);
}

float ct_rng_normal_at(uint64_t key, uint64_t i)
{
    ct_rng_block b = ct_rng_philox(key, 0, i / 4);
    int pair = (int)(i % 4) / 2 * 2;
    double u1 = ((double)b.v[pair] + 1.0) * 0x1p-32, u2 = (double)b.v[pair + 1] * 0x1p-32;
    double radius = sqrt(-2.0 * log(u1)), angle = 6.283185307179586 * u2;

    return (float)(radius * ((i % 2 == 0) ? cos(angle) : sin(angle)));
}

uint64_t ct_rng_permute(uint64_t key, uint64_t i, uint64_t n)
{
    int half = 1;
    uint64_t mask;

    while ((half < 32) && (((uint64_t)1 << (2 * half)) < n)) half++;
    mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;

        for (int round = 0; round < 6; round++) {
            uint64_t f = ct_mix(key ^ ct_mix(right * 8 + (uint64_t)round)) & mask;
            uint64_t old = right;

            right = left ^ f;
            left = old;
        }
        i = (left << half) | right;
    } while (i >= n);
    return i;
}
