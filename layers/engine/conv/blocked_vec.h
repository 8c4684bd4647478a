/** @file blocked_vec.h  What the tiles on blocked layouts are made with; private to conv/. */
#ifndef CT_ENGINE_CONV_BLOCKED_VEC_H
#define CT_ENGINE_CONV_BLOCKED_VEC_H

#include "framework/base/simd.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

#define CT_UNROLL _Pragma("GCC unroll 16")

/* A vector of so many channels: a block, or the part of one that the machine's registers hold. (The
 * compiler would split a longer one, and keep it in memory.) */
#define CT_VEC(_b) typedef float vec __attribute__((vector_size(4 * (_b)), aligned(4), may_alias))

/* Registers of _l channels that a block takes; where the one called v of several blocks lies, which
 * are _block floats apart. */
#define CT_PARTS(_b, _l) ((_b) / (_l))
#define CT_PART_AT(_b, _l, _v, _block)                                                             \
    ((_v) / CT_PARTS(_b, _l) * (_block) + (_v) % CT_PARTS(_b, _l) * (_l))

/* The same as bits, which comparisons give. */
#define CT_VEC_BITS(_b)                                                                            \
    typedef int32_t bits __attribute__((vector_size(4 * (_b)), aligned(4), may_alias))

/* A block of bf16 numbers, as a block of floats; and floats rounded to the nearest, ties to even, a
 * NaN stays one (framework/base/bf16.h). In functions that have CT_VEC and CT_VEC_BF16. */
#define CT_VEC_BF16(_b)                                                                            \
    typedef uint16_t half __attribute__((vector_size(2 * (_b)), aligned(2), may_alias));           \
    typedef uint32_t word __attribute__((vector_size(4 * (_b))))
#define CT_WIDE(_at)                                                                               \
    ((vec)(__builtin_convertvector(*(const half *)(const void *)(_at), word) << 16))
#define CT_NARROW(_at, _v)                                                                         \
    {                                                                                              \
        vec value = (_v);                                                                          \
        word bits = (word)value, nan = (word)(value != value);                                     \
        word near = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;                                  \
                                                                                                   \
        near = (near & ~nan) | (((bits >> 16) | 0x40u) & nan);                                     \
        *(half *)(void *)(_at) = __builtin_convertvector(near, half);                              \
    }

/* A sum becomes more by a word times a vector of words: floats, or pairs of bf16 numbers. */
#define CT_ADD(_sum, _word, _x) (_sum) += (_word) * (_x)
#define CT_ADD_PAIR(_sum, _word, _x)                                                               \
    (_sum) = (vec)_mm512_dpbf16_ps((__m512)(_sum), (__m512bh)_mm512_set1_ps(_word), (__m512bh)(_x))

/* _x(name, target, b, outputs, vecs) for 1 to N outputs, and a table of what they are called. */
#define CT_EACH_3(_x, _s, _t, _b, _v)                                                              \
    _x(_s##_##_v##_1, _t, _b, 1, _v) _x(_s##_##_v##_2, _t, _b, 2, _v)                              \
        _x(_s##_##_v##_3, _t, _b, 3, _v)
#define CT_EACH_6(_x, _s, _t, _b, _v)                                                              \
    _x(_s##_##_v##_1, _t, _b, 1, _v) _x(_s##_##_v##_2, _t, _b, 2, _v)                              \
        _x(_s##_##_v##_3, _t, _b, 3, _v) _x(_s##_##_v##_4, _t, _b, 4, _v)                          \
            _x(_s##_##_v##_5, _t, _b, 5, _v) _x(_s##_##_v##_6, _t, _b, 6, _v)
#define CT_EACH_12(_x, _s, _t, _b, _v)                                                             \
    _x(_s##_##_v##_1, _t, _b, 1, _v) _x(_s##_##_v##_2, _t, _b, 2, _v)                              \
        _x(_s##_##_v##_3, _t, _b, 3, _v) _x(_s##_##_v##_4, _t, _b, 4, _v)                          \
            _x(_s##_##_v##_5, _t, _b, 5, _v) _x(_s##_##_v##_6, _t, _b, 6, _v)                      \
                _x(_s##_##_v##_7, _t, _b, 7, _v) _x(_s##_##_v##_8, _t, _b, 8, _v)                  \
                    _x(_s##_##_v##_9, _t, _b, 9, _v) _x(_s##_##_v##_10, _t, _b, 10, _v)            \
                        _x(_s##_##_v##_11, _t, _b, 11, _v) _x(_s##_##_v##_12, _t, _b, 12, _v)
#define CT_EACH_14(_x, _s, _t, _b, _v)                                                             \
    _x(_s##_##_v##_1, _t, _b, 1, _v) _x(_s##_##_v##_2, _t, _b, 2, _v)                              \
        _x(_s##_##_v##_3, _t, _b, 3, _v) _x(_s##_##_v##_4, _t, _b, 4, _v)                          \
            _x(_s##_##_v##_5, _t, _b, 5, _v) _x(_s##_##_v##_6, _t, _b, 6, _v)                      \
                _x(_s##_##_v##_7, _t, _b, 7, _v) _x(_s##_##_v##_8, _t, _b, 8, _v)                  \
                    _x(_s##_##_v##_9, _t, _b, 9, _v) _x(_s##_##_v##_10, _t, _b, 10, _v)            \
                        _x(_s##_##_v##_11, _t, _b, 11, _v) _x(_s##_##_v##_12, _t, _b, 12, _v)      \
                            _x(_s##_##_v##_13, _t, _b, 13, _v) _x(_s##_##_v##_14, _t, _b, 14, _v)

#define CT_NAMES_3(_s, _v, _k)                                                                     \
    {                                                                                              \
        _s##_##_v##_1_##_k, _s##_##_v##_2_##_k, _s##_##_v##_3_##_k                                 \
    }
#define CT_NAMES_6(_s, _v, _k)                                                                     \
    {                                                                                              \
        _s##_##_v##_1_##_k, _s##_##_v##_2_##_k, _s##_##_v##_3_##_k, _s##_##_v##_4_##_k,            \
            _s##_##_v##_5_##_k, _s##_##_v##_6_##_k                                                 \
    }
#define CT_NAMES_12(_s, _v, _k)                                                                    \
    {                                                                                              \
        _s##_##_v##_1_##_k, _s##_##_v##_2_##_k, _s##_##_v##_3_##_k, _s##_##_v##_4_##_k,            \
            _s##_##_v##_5_##_k, _s##_##_v##_6_##_k, _s##_##_v##_7_##_k, _s##_##_v##_8_##_k,        \
            _s##_##_v##_9_##_k, _s##_##_v##_10_##_k, _s##_##_v##_11_##_k, _s##_##_v##_12_##_k      \
    }
#define CT_NAMES_14(_s, _v, _k)                                                                    \
    {                                                                                              \
        _s##_##_v##_1_##_k, _s##_##_v##_2_##_k, _s##_##_v##_3_##_k, _s##_##_v##_4_##_k,            \
            _s##_##_v##_5_##_k, _s##_##_v##_6_##_k, _s##_##_v##_7_##_k, _s##_##_v##_8_##_k,        \
            _s##_##_v##_9_##_k, _s##_##_v##_10_##_k, _s##_##_v##_11_##_k, _s##_##_v##_12_##_k,     \
            _s##_##_v##_13_##_k, _s##_##_v##_14_##_k                                               \
    }

#define CT_EACH_16(_x, _s, _t, _b, _v)                                                             \
    _x(_s##_##_v##_1, _t, _b, 1, _v) _x(_s##_##_v##_2, _t, _b, 2, _v)                              \
        _x(_s##_##_v##_3, _t, _b, 3, _v) _x(_s##_##_v##_4, _t, _b, 4, _v)                          \
            _x(_s##_##_v##_5, _t, _b, 5, _v) _x(_s##_##_v##_6, _t, _b, 6, _v)                      \
                _x(_s##_##_v##_7, _t, _b, 7, _v) _x(_s##_##_v##_8, _t, _b, 8, _v)                  \
                    _x(_s##_##_v##_9, _t, _b, 9, _v) _x(_s##_##_v##_10, _t, _b, 10, _v)            \
                        _x(_s##_##_v##_11, _t, _b, 11, _v) _x(_s##_##_v##_12, _t, _b, 12, _v)      \
                            _x(_s##_##_v##_13, _t, _b, 13, _v) _x(_s##_##_v##_14, _t, _b, 14, _v)  \
                                _x(_s##_##_v##_15, _t, _b, 15, _v)                                 \
                                    _x(_s##_##_v##_16, _t, _b, 16, _v)
#define CT_NAMES_16(_s, _v, _k)                                                                    \
    {                                                                                              \
        _s##_##_v##_1_##_k, _s##_##_v##_2_##_k, _s##_##_v##_3_##_k, _s##_##_v##_4_##_k,            \
            _s##_##_v##_5_##_k, _s##_##_v##_6_##_k, _s##_##_v##_7_##_k, _s##_##_v##_8_##_k,        \
            _s##_##_v##_9_##_k, _s##_##_v##_10_##_k, _s##_##_v##_11_##_k, _s##_##_v##_12_##_k,     \
            _s##_##_v##_13_##_k, _s##_##_v##_14_##_k, _s##_##_v##_15_##_k, _s##_##_v##_16_##_k     \
    }

/* The tiles that each set has, by _x as above, and their tables, called <name>_<_k>.
 * Accumulators, factors and a value must fit into the registers: 32, or 16. */
#if defined(__x86_64__) && defined(__GNUC__)
#define CT_TILES_X86(_x)                                                                           \
    CT_EACH_16(_x, avx512, CT_AVX512, 16, 1)                                                       \
    CT_EACH_14(_x, avx512, CT_AVX512, 16, 2)                                                       \
    CT_EACH_12(_x, avx2, CT_AVX2, 8, 1) CT_EACH_6(_x, avx2, CT_AVX2, 8, 2)
#define CT_TABLE_X86(_k)                                                                           \
    [CT_SIMD_AVX2] = { CT_NAMES_12(avx2, 1, _k), CT_NAMES_6(avx2, 2, _k) },                        \
    [CT_SIMD_AVX512] = { CT_NAMES_16(avx512, 1, _k), CT_NAMES_14(avx512, 2, _k) },
#define CT_AVX512      __attribute__((target("avx512f,fma")))
#define CT_AVX2        __attribute__((target("avx2,fma")))
#define CT_AVX512_BF16 __attribute__((target("avx512f,avx512bf16,fma")))
#define CT_TILES_PAIR(_x)                                                                          \
    CT_EACH_16(_x, pair, CT_AVX512_BF16, 16, 1)                                                    \
    CT_EACH_14(_x, pair, CT_AVX512_BF16, 16, 2)
#define CT_TABLE_PAIR(_k)                                                                          \
    {                                                                                              \
        CT_NAMES_16(pair, 1, _k), CT_NAMES_14(pair, 2, _k)                                         \
    }
#else
#define CT_TILES_PAIR(_x)
#define CT_TABLE_PAIR(_k)                                                                          \
    {                                                                                              \
        {                                                                                          \
            NULL                                                                                   \
        }                                                                                          \
    }
#define CT_TILES_X86(_x)
#define CT_TABLE_X86(_k)
#endif
#if CT_SIMD_ANY_LANES > 4
#define CT_TILES_ANY(_x)                                                                           \
    CT_EACH_16(_x, any, , CT_SIMD_ANY_BLOCK, 1) CT_EACH_14(_x, any, , CT_SIMD_ANY_BLOCK, 2)
#define CT_TABLE_ANY(_k) [CT_SIMD_PORTABLE] = { CT_NAMES_16(any, 1, _k), CT_NAMES_14(any, 2, _k) },
enum { CT_BLK_ANY_TILE = 16, CT_BLK_ANY_TILE_2 = 14 };
#elif defined(__aarch64__)
#define CT_TILES_ANY(_x) CT_EACH_12(_x, any, , 8, 1) CT_EACH_6(_x, any, , 8, 2)
#define CT_TABLE_ANY(_k) [CT_SIMD_PORTABLE] = { CT_NAMES_12(any, 1, _k), CT_NAMES_6(any, 2, _k) },
enum { CT_BLK_ANY_TILE = 12, CT_BLK_ANY_TILE_2 = 6 };
#else
#define CT_TILES_ANY(_x) CT_EACH_6(_x, any, , 8, 1) CT_EACH_3(_x, any, , 8, 2)
#define CT_TABLE_ANY(_k) [CT_SIMD_PORTABLE] = { CT_NAMES_6(any, 1, _k), CT_NAMES_3(any, 2, _k) },
enum { CT_BLK_ANY_TILE = 6, CT_BLK_ANY_TILE_2 = 3 };
#endif
#define CT_TABLE(_k)                                                                               \
    {                                                                                              \
        CT_TABLE_ANY(_k) CT_TABLE_X86(_k)                                                          \
    }

#endif
