#include "framework/base/rng.h"

#include <math.h>

ct_rng_block ct_rng_philox(uint64_t key, uint64_t counter_hi, uint64_t counter)
{
    return ct_philox(key, counter_hi, counter);
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
