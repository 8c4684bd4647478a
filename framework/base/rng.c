#include "framework/base/rng.h"

#include "framework/base/philox.h"
#include "framework/base/simd.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

ct_rng_block ct_rng_philox(uint64_t key, uint64_t counter_hi, uint64_t counter)
{
    return ct_philox(key, counter_hi, counter);
}

/* ---- many blocks at a time */

enum { SIDE = 32 }; /* blocks side by side */

/* Words of each block, one in the lower half of a lane of 64 bits, where they are multiplied
 * without being moved; what is in the upper half counts no more. */
typedef uint64_t counters[4][SIDE];

static const uint64_t step[] = { 0, 1, 2, 3, 4, 5, 6, 7 };

/* Ten rounds of blocks `counter` to counter + SIDE of counter_hi 0. _mul: products of the lower
 * halves. */
#define ROUNDS(_name, _target, _lanes, _mul)                                                       \
    _target static void _name(uint64_t key, uint64_t counter, counters c)                          \
    {                                                                                              \
        typedef uint64_t vec __attribute__((vector_size(8 * (_lanes)), aligned(8), may_alias));    \
        enum { N = 4 };                                                                            \
        const vec zero = { 0 }, m0 = zero + 0xD2511F53u, m1 = zero + 0xCD9E8D57u;                  \
                                                                                                   \
        for (int at = 0; at < SIDE; at += N * (_lanes)) {                                          \
            uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);                               \
            vec v[4][N];                                                                           \
                                                                                                   \
            EACH(N)                                                                                \
            {                                                                                      \
                v[0][i] = *(const vec *)step + (counter + (uint64_t)(at + i * (_lanes)));          \
                v[1][i] = v[0][i] >> 32;                                                           \
                v[2][i] = v[3][i] = zero;                                                          \
            }                                                                                      \
            for (int round = 0; round < 10; round++) {                                             \
                EACH(N)                                                                            \
                {                                                                                  \
                    vec p0 = (vec)_mul(v[0][i], m0), p1 = (vec)_mul(v[2][i], m1);                  \
                                                                                                   \
                    v[0][i] = (p1 >> 32) ^ v[1][i] ^ (zero + k0);                                  \
                    v[2][i] = (p0 >> 32) ^ v[3][i] ^ (zero + k1);                                  \
                    v[1][i] = p1;                                                                  \
                    v[3][i] = p0;                                                                  \
                }                                                                                  \
                k0 += 0x9E3779B9u;                                                                 \
                k1 += 0xBB67AE85u;                                                                 \
            }                                                                                      \
            EACH(4 * N) * (vec *)(c[i / N] + at + i % N * (_lanes)) = v[i / N][i % N];             \
        }                                                                                          \
    }

#define EACH(_n) _Pragma("GCC unroll 16") for (int i = 0; i < (_n); i++)

#if defined(__x86_64__) && defined(__GNUC__)
#define MUL_SSE2(_a, _b)   _mm_mul_epu32((__m128i)(_a), (__m128i)(_b))
#define MUL_AVX2(_a, _b)   _mm256_mul_epu32((__m256i)(_a), (__m256i)(_b))
#define MUL_AVX512(_a, _b) _mm512_mul_epu32((__m512i)(_a), (__m512i)(_b))
ROUNDS(rounds_any, , 2, MUL_SSE2)
ROUNDS(rounds_avx2, __attribute__((target("avx2"))), 4, MUL_AVX2)
ROUNDS(rounds_avx512, __attribute__((target("avx512f"))), 8, MUL_AVX512)
static void (*const rounds[])(uint64_t, uint64_t, counters) = { rounds_any, rounds_avx2,
                                                                rounds_avx512 };
#else
#define MUL_ANY(_a, _b) (((_a)&0xffffffffu) * (_b))
ROUNDS(rounds_any, , 2, MUL_ANY)
static void (*const rounds[])(uint64_t, uint64_t, counters) = { rounds_any };
#endif

/* The words of the blocks, one block behind the other. */
CT_SIMD_CLONES static void put_words(const uint64_t *c0, const uint64_t *c1, const uint64_t *c2,
                                     const uint64_t *c3, uint32_t *out)
{
    for (int i = 0; i < SIDE; i++) {
        out[4 * i] = (uint32_t)c0[i];
        out[4 * i + 1] = (uint32_t)c1[i];
        out[4 * i + 2] = (uint32_t)c2[i];
        out[4 * i + 3] = (uint32_t)c3[i];
    }
}

void ct_rng_words(uint64_t key, uint64_t first, int64_t n, uint32_t *words)
{
    ct_simd_level level = ct_simd_pick();
    int64_t skip = (int64_t)(first % 4);

    for (uint64_t block = first / 4; n > 0; block += SIDE, skip = 0) {
        int64_t count = (n < 4 * SIDE - skip) ? n : 4 * SIDE - skip;
        uint32_t some[4 * SIDE];
        counters c;

        rounds[level](key, block, c);
        if (count == 4 * SIDE) {
            put_words(c[0], c[1], c[2], c[3], words);
        } else {
            put_words(c[0], c[1], c[2], c[3], some);
            memcpy(words, some + skip, (size_t)count * sizeof(words[0]));
        }
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
