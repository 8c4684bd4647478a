/* Products of pairs of bf16 numbers, added up in f32: a word of 32 bits has two neighbours of a
 * sum, the first in its lower half. Where there is no instruction for them words are split, and the
 * sum of each pair is two multiply-adds; sums differ in the rounding of these alone. Compiled with
 * -ffp-contract=fast. */
#include <string.h>

#include "framework/base/bf16.h"
#include "framework/base/simd.h"
#include "layers/engine/attention/flash.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

/* ---- tiles, as in flash_tile.c, of words */

#define UNROLL _Pragma("GCC unroll 16")

static inline float lower(float word)
{
    uint32_t bits;

    memcpy(&bits, &word, sizeof(bits));
    bits <<= 16;
    memcpy(&word, &bits, sizeof(bits));
    return word;
}

static inline float upper(float word)
{
    uint32_t bits;

    memcpy(&bits, &word, sizeof(bits));
    bits &= 0xffff0000u;
    memcpy(&word, &bits, sizeof(bits));
    return word;
}

#define ADD_SPLIT(_acc, _a, _x)                                                                    \
    (_acc) += lower(_a) * (vec)((bits)(_x) << 16);                                                 \
    (_acc) += upper(_a) * (vec)((bits)(_x)&0xffff0000u)
#define ADD_DOT(_acc, _a, _x)                                                                      \
    (_acc) = (vec)_mm512_dpbf16_ps((__m512)(_acc), (__m512bh)_mm512_set1_ps(_a), (__m512bh)(_x))

#define TILE(_name, _target, _add, _lanes, _rows, _vecs, _at, _step)                               \
    _target static void _name(int64_t k, const float *a, const float *b, float *c, bool add)       \
    {                                                                                              \
        typedef float vec __attribute__((vector_size(4 * (_lanes)), aligned(4), may_alias));       \
        typedef uint32_t bits                                                                      \
            __attribute__((vector_size(4 * (_lanes)), aligned(4), may_alias, unused));             \
        vec acc[_rows][_vecs] = { { { 0.0f } } };                                                  \
                                                                                                   \
        if (add) {                                                                                 \
            UNROLL for (int i = 0; i < (_rows); i++)                                               \
            {                                                                                      \
                UNROLL for (int j = 0; j < (_vecs); j++) acc[i][j] =                               \
                    *(const vec *)(c + i * CT_FLASH_ROW + j * (_lanes));                           \
            }                                                                                      \
        }                                                                                          \
        for (int64_t q = 0; q < k; q++) {                                                          \
            vec x[_vecs];                                                                          \
                                                                                                   \
            UNROLL for (int j = 0; j < (_vecs); j++) x[j] = *(const vec *)(b + j * (_lanes));      \
            UNROLL for (int i = 0; i < (_rows); i++)                                               \
            {                                                                                      \
                UNROLL for (int j = 0; j < (_vecs); j++)                                           \
                {                                                                                  \
                    _add(acc[i][j], a[_at(i)], x[j]);                                              \
                }                                                                                  \
            }                                                                                      \
            a += (_step);                                                                          \
            b += CT_FLASH_ROW;                                                                     \
        }                                                                                          \
        UNROLL for (int i = 0; i < (_rows); i++)                                                   \
        {                                                                                          \
            UNROLL for (int j = 0; j < (_vecs); j++) *                                             \
                (vec *)(c + i * CT_FLASH_ROW + j * (_lanes)) = acc[i][j];                          \
        }                                                                                          \
    }

#define AT_DOWN(_i)  (_i)
#define AT_ALONG(_i) ((_i)*CT_FLASH_ROW)
#define BOTH(_s, _t, _d, _l, _v, _r)                                                               \
    TILE(_s##_##_v##_##_r##_down, _t, _d, _l, _r, _v, AT_DOWN, CT_FLASH_ROW)                       \
    TILE(_s##_##_v##_##_r##_along, _t, _d, _l, _r, _v, AT_ALONG, 1)
#define EACH_4(_s, _t, _d, _l, _v)                                                                 \
    BOTH(_s, _t, _d, _l, _v, 1)                                                                    \
    BOTH(_s, _t, _d, _l, _v, 2) BOTH(_s, _t, _d, _l, _v, 3) BOTH(_s, _t, _d, _l, _v, 4)
#define EACH_6(_s, _t, _d, _l, _v)                                                                 \
    EACH_4(_s, _t, _d, _l, _v) BOTH(_s, _t, _d, _l, _v, 5) BOTH(_s, _t, _d, _l, _v, 6)
#define EACH_14(_s, _t, _d, _l, _v)                                                                \
    EACH_6(_s, _t, _d, _l, _v)                                                                     \
    BOTH(_s, _t, _d, _l, _v, 7)                                                                    \
    BOTH(_s, _t, _d, _l, _v, 8)                                                                    \
    BOTH(_s, _t, _d, _l, _v, 9)                                                                    \
    BOTH(_s, _t, _d, _l, _v, 10)                                                                   \
    BOTH(_s, _t, _d, _l, _v, 11)                                                                   \
    BOTH(_s, _t, _d, _l, _v, 12) BOTH(_s, _t, _d, _l, _v, 13) BOTH(_s, _t, _d, _l, _v, 14)
#define NAMES_4(_s, _v, _k)                                                                        \
    _s##_##_v##_1_##_k, _s##_##_v##_2_##_k, _s##_##_v##_3_##_k, _s##_##_v##_4_##_k
#define NAMES_6(_s, _v, _k) NAMES_4(_s, _v, _k), _s##_##_v##_5_##_k, _s##_##_v##_6_##_k
#define NAMES_14(_s, _v, _k)                                                                       \
    NAMES_6(_s, _v, _k), _s##_##_v##_7_##_k, _s##_##_v##_8_##_k, _s##_##_v##_9_##_k,               \
        _s##_##_v##_10_##_k, _s##_##_v##_11_##_k, _s##_##_v##_12_##_k, _s##_##_v##_13_##_k,        \
        _s##_##_v##_14_##_k

#define SET(_set, _target, _add, _lanes, _rows)                                                    \
    EACH_##_rows(_set, _target, _add, _lanes, 1)                                                   \
        EACH_##_rows(_set, _target, _add, _lanes, 2) static const ct_flash_set set_##_set = {      \
            .lanes = (_lanes),                                                                     \
            .rows = (_rows),                                                                       \
            .down = { { NAMES_##_rows(_set, 1, down) }, { NAMES_##_rows(_set, 2, down) } },        \
            .along = { { NAMES_##_rows(_set, 1, along) }, { NAMES_##_rows(_set, 2, along) } },     \
        };

#if defined(__x86_64__) && defined(__GNUC__)
SET(bf16, __attribute__((target("avx512f,avx512bf16,fma"))), ADD_DOT, 16, 14)
SET(avx512, __attribute__((target("avx512f,fma"))), ADD_SPLIT, 16, 14)
SET(avx2, __attribute__((target("avx2,fma"))), ADD_SPLIT, 8, 6)
#endif
#if defined(__aarch64__)
SET(portable, , ADD_SPLIT, CT_SIMD_ANY_LANES, 14)
#else
SET(portable, , ADD_SPLIT, 4, 4)
#endif

const ct_flash_set *ct_flash_pairs_pick(void)
{
    ct_simd_level level = ct_simd_pick();

#if defined(__x86_64__) && defined(__GNUC__)
    if (ct_simd_has_bf16()) return &set_bf16;
    if (level >= CT_SIMD_AVX512) return &set_avx512;
    if (level >= CT_SIMD_AVX2) return &set_avx2;
#endif
    (void)level;
    return &set_portable;
}

/* ---- pairs of f32 numbers, rounded */

CT_SIMD_CLONES static void pair_two(int64_t n, const float *a, const float *b, float *to)
{
    uint32_t *word = (uint32_t *)(void *)to;

#pragma omp simd
    for (int64_t c = 0; c < n; c++) {
        uint32_t low = ct_bf16_from_f32(a[c]), high = ct_bf16_from_f32(b[c]);

        word[c] = low | high << 16;
    }
}

void ct_flash_pair_rows(int64_t from, int64_t end, int64_t width, const float *rows, float *to)
{
    static const float zeros[CT_FLASH_ROW] = { 0 };

    for (int64_t q = from / 2; 2 * q < end; q++) {
        const float *a = (2 * q >= from) ? rows + 2 * q * CT_FLASH_ROW : zeros;
        const float *b = (2 * q + 1 < end) ? rows + (2 * q + 1) * CT_FLASH_ROW : zeros;

        pair_two(width, a, b, to + q * CT_FLASH_ROW);
    }
}

void ct_flash_pair_along(int64_t n, int64_t count, int64_t width, const float *from, float *to)
{
    uint32_t word[CT_FLASH_PIECE / 2];

    for (int64_t i = 0; i < n; i++, from += CT_FLASH_ROW, to += CT_FLASH_ROW) {
        for (int64_t w = 0; 2 * w < width; w++) {
            float a = (2 * w < count) ? from[2 * w] : 0.0f;
            float b = (2 * w + 1 < count) ? from[2 * w + 1] : 0.0f;

            word[w] = ct_bf16_from_f32(a) | (uint32_t)ct_bf16_from_f32(b) << 16;
        }
        memcpy(to, word, (size_t)((width + 1) / 2) * sizeof(*word));
    }
}
