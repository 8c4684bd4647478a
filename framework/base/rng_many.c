/* Random numbers many at a time: blocks of Philox side by side in vectors, as words or as bits. */
#include "framework/base/rng.h"

#include "framework/base/simd.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

/* Words made in one go; the bits of a word of bits; vectors of blocks side by side, and vectors of
 * words that they make. */
enum { SOME = 128, BITS = 16, SIDE = 4, MADE = 2 * SIDE };

#define EACH(_n) _Pragma("GCC unroll 8") for (int i = 0; i < (_n); i++)

/* Blocks of the lanes of a vector; the even (_q 0) or odd (1) lanes of two vectors in turns. */
#define ORDER_2     0, 1
#define ORDER_4     0, 2, 1, 3
#define ORDER_8     0, 4, 1, 5, 2, 6, 3, 7
#define TURNS_2(_q) (_q), (_q) + 2
#define TURNS_4(_q) (_q), (_q) + 4, (_q) + 2, (_q) + 6
#define TURNS_8(_q) (_q), (_q) + 8, (_q) + 2, (_q) + 10, (_q) + 4, (_q) + 12, (_q) + 6, (_q) + 14

/* A vector has a word of each of its blocks in the lower half of a lane of 64 bits, where it is
 * multiplied without being moved; what is in the upper half counts no more. Lanes have their blocks
 * in such an order that two words put into each lane, and then lanes of two such vectors in turns,
 * have words as they follow one another.
 * _mul: products of the lower halves. _high: upper halves as the lower ones, by a shuffle, which
 * more units can do than a shift. _least: bit k: whether word k of w is not less. */
#define BLOCKS(_name, _target, _lanes, _mul, _high, _least)                                        \
    typedef uint64_t lanes_##_name                                                                 \
        __attribute__((vector_size(8 * (_lanes)), aligned(8), may_alias));                         \
    typedef uint32_t words_##_name                                                                 \
        __attribute__((vector_size(8 * (_lanes)), aligned(4), may_alias));                         \
                                                                                                   \
    /* ten rounds of the blocks from `counter` of counter_hi 0 on */                               \
    _target __attribute__((always_inline)) static inline void rounds_##_name(                      \
        uint64_t key, uint64_t counter, lanes_##_name v[4][SIDE])                                  \
    {                                                                                              \
        const lanes_##_name zero = { 0 }, m0 = zero + 0xD2511F53u, m1 = zero + 0xCD9E8D57u;        \
        lanes_##_name k0 = zero + (uint32_t)key, k1 = zero + (key >> 32);                          \
                                                                                                   \
        EACH(SIDE) /* the first round: words 2 and 3 are 0 */                                      \
        {                                                                                          \
            lanes_##_name c =                                                                      \
                (lanes_##_name){ ORDER_##_lanes } + counter + (uint64_t)(i * (_lanes));            \
                                                                                                   \
            v[0][i] = (c >> 32) ^ k0;                                                              \
            v[1][i] = zero;                                                                        \
            v[3][i] = (lanes_##_name)_mul(c, m0);                                                  \
            v[2][i] = (lanes_##_name)_high(v[3][i]) ^ k1;                                          \
        }                                                                                          \
        _Pragma("GCC unroll 9") for (int round = 1; round < 10; round++)                           \
        {                                                                                          \
            k0 += 0x9E3779B9u;                                                                     \
            k1 += 0xBB67AE85u;                                                                     \
            EACH(SIDE)                                                                             \
            {                                                                                      \
                lanes_##_name p0 = (lanes_##_name)_mul(v[0][i], m0);                               \
                lanes_##_name p1 = (lanes_##_name)_mul(v[2][i], m1);                               \
                                                                                                   \
                v[0][i] = (lanes_##_name)_high(p1) ^ v[1][i] ^ k0;                                 \
                v[2][i] = (lanes_##_name)_high(p0) ^ v[3][i] ^ k1;                                 \
                v[1][i] = p1;                                                                      \
                v[3][i] = p0;                                                                      \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    /* their words, one block behind the other */                                                  \
    _target __attribute__((always_inline)) static inline void make_##_name(                        \
        uint64_t key, uint64_t counter, words_##_name w[MADE])                                     \
    {                                                                                              \
        lanes_##_name v[4][SIDE];                                                                  \
                                                                                                   \
        rounds_##_name(key, counter, v);                                                           \
        EACH(SIDE)                                                                                 \
        {                                                                                          \
            lanes_##_name first = (v[0][i] & 0xffffffffu) | (v[1][i] << 32);                       \
            lanes_##_name last = (v[2][i] & 0xffffffffu) | (v[3][i] << 32);                        \
                                                                                                   \
            w[2 * i] =                                                                             \
                (words_##_name)CT_SIMD_MIXED(lanes_##_name, first, last, TURNS_##_lanes(0));       \
            w[2 * i + 1] =                                                                         \
                (words_##_name)CT_SIMD_MIXED(lanes_##_name, first, last, TURNS_##_lanes(1));       \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    _target static void some_words_##_name(uint64_t key, uint64_t counter, uint32_t *words)        \
    {                                                                                              \
        enum { IN = 2 * (_lanes) };                                                                \
        words_##_name w[MADE];                                                                     \
                                                                                                   \
        for (int at = 0; at < SOME; at += MADE * IN) {                                             \
            make_##_name(key, counter + (uint64_t)(at / 4), w);                                    \
            EACH(MADE) * (words_##_name *)(words + at + i * IN) = w[i];                            \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    _target static void some_bits_##_name(uint64_t key, uint64_t counter, uint32_t least,          \
                                          uint16_t *bits)                                          \
    {                                                                                              \
        enum { IN = 2 * (_lanes), PER = BITS / IN };                                               \
        words_##_name w[MADE];                                                                     \
                                                                                                   \
        for (int at = 0; at < SOME; at += MADE * IN) {                                             \
            make_##_name(key, counter + (uint64_t)(at / 4), w);                                    \
            EACH(MADE / PER)                                                                       \
            {                                                                                      \
                unsigned some = 0;                                                                 \
                                                                                                   \
                for (int k = 0; k < PER; k++) some |= _least(w[i * PER + k], least) << (k * IN);   \
                bits[at / BITS + i] = (uint16_t)some;                                              \
            }                                                                                      \
        }                                                                                          \
    }

#if defined(__x86_64__) && defined(__GNUC__)
#define MUL_SSE2(_a, _b)   _mm_mul_epu32((__m128i)(_a), (__m128i)(_b))
#define MUL_AVX2(_a, _b)   _mm256_mul_epu32((__m256i)(_a), (__m256i)(_b))
#define MUL_AVX512(_a, _b) _mm512_mul_epu32((__m512i)(_a), (__m512i)(_b))
#define HIGH_SSE2(_a)      _mm_shuffle_epi32((__m128i)(_a), 0xf5)
#define HIGH_AVX2(_a)      _mm256_shuffle_epi32((__m256i)(_a), 0xf5)
#define HIGH_AVX512(_a)    _mm512_shuffle_epi32((__m512i)(_a), 0xf5)
#define LEAST_SSE2(_w, _l) (unsigned)_mm_movemask_ps((__m128)((_w) >= (_l)))
#define LEAST_AVX2(_w, _l) (unsigned)_mm256_movemask_ps((__m256)((_w) >= (_l)))
#define LEAST_AVX512(_w, _l)                                                                       \
    (unsigned)_mm512_cmpge_epu32_mask((__m512i)(_w), _mm512_set1_epi32((int)(_l)))
BLOCKS(any, , 2, MUL_SSE2, HIGH_SSE2, LEAST_SSE2)
BLOCKS(avx2, __attribute__((target("avx2"))), 4, MUL_AVX2, HIGH_AVX2, LEAST_AVX2)
BLOCKS(avx512, __attribute__((target("avx512f"))), 8, MUL_AVX512, HIGH_AVX512, LEAST_AVX512)
#define LEVELS(_name)                                                                              \
    {                                                                                              \
        _name##_any, _name##_avx2, _name##_avx512                                                  \
    }
#else
#define MUL_ANY(_a, _b) (((_a)&0xffffffffu) * (_b))
#define HIGH_ANY(_a)    ((_a) >> 32)
#define LEAST_ANY(_w, _l)                                                                          \
    (unsigned)(((_w)[0] >= (_l)) | ((_w)[1] >= (_l)) << 1 | ((_w)[2] >= (_l)) << 2 |               \
               ((_w)[3] >= (_l)) << 3)
BLOCKS(any, , 2, MUL_ANY, HIGH_ANY, LEAST_ANY)
#define LEVELS(_name)                                                                              \
    {                                                                                              \
        _name##_any, _name##_any, _name##_any                                                      \
    }
#endif

static void (*const some_words[])(uint64_t, uint64_t, uint32_t *) = LEVELS(some_words);
static void (*const some_bits[])(uint64_t, uint64_t, uint32_t, uint16_t *) = LEVELS(some_bits);

void ct_rng_words(uint64_t key, uint64_t first, int64_t n, uint32_t *words)
{
    ct_simd_level level = ct_simd_pick();
    int64_t skip = (int64_t)(first % 4);

    for (uint64_t block = first / 4; n > 0; block += SOME / 4, skip = 0) {
        int64_t count = (n < SOME - skip) ? n : SOME - skip;

        if (count == SOME) {
            some_words[level](key, block, words);
        } else {
            uint32_t some[SOME];

            some_words[level](key, block, some);
            memcpy(words, some + skip, (size_t)count * sizeof(words[0]));
        }
        words += count;
        n -= count;
    }
}

/* Numbers that begin within a block. */
static void bits_between(uint64_t key, uint64_t first, int64_t n, uint32_t least, uint16_t *bits)
{
    uint32_t word[SOME];

    for (int64_t at = 0; at < n; at += SOME) {
        int64_t count = (n - at < SOME) ? n - at : SOME;

        ct_rng_words(key, first + (uint64_t)at, count, word);
        for (int64_t from = 0; from < count; from += BITS) {
            unsigned some = 0;

            for (int64_t i = from; (i < count) && (i < from + BITS); i++)
                some |= (unsigned)(word[i] >= least) << (i - from);
            bits[(at + from) / BITS] = (uint16_t)some;
        }
    }
}

void ct_rng_bits(uint64_t key, uint64_t first, int64_t n, uint32_t least, uint16_t *bits)
{
    ct_simd_level level = ct_simd_pick();

    if (first % 4 != 0) {
        bits_between(key, first, n, least, bits);
        return;
    }
    for (uint64_t block = first / 4; n > 0; block += SOME / 4, n -= SOME, bits += SOME / BITS) {
        uint16_t some[SOME / BITS];

        if (n >= SOME) {
            some_bits[level](key, block, least, bits);
        } else {
            some_bits[level](key, block, least, some);
            memcpy(bits, some, (size_t)((n + BITS - 1) / BITS) * sizeof(bits[0]));
        }
    }
}
