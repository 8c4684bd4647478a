/* Tiles of products that stay in registers. Compiled with -ffp-contract=fast. */
#include "framework/base/simd.h"
#include "layers/engine/attention/flash.h"

#define UNROLL _Pragma("GCC unroll 16")

/* _at: where row i's number lies; _step: from there to the next number of the sum. Sums begin with
 * what is there, so they are in one order however they are cut. */
#define TILE(_name, _target, _lanes, _rows, _vecs, _at, _step)                                     \
    _target static void _name(int64_t k, const float *a, const float *b, float *c, bool add)       \
    {                                                                                              \
        typedef float vec __attribute__((vector_size(4 * (_lanes)), aligned(4), may_alias));       \
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
                UNROLL for (int j = 0; j < (_vecs); j++) acc[i][j] += a[_at(i)] * x[j];            \
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
#define BOTH(_s, _t, _l, _v, _r)                                                                   \
    TILE(_s##_##_v##_##_r##_down, _t, _l, _r, _v, AT_DOWN, CT_FLASH_ROW)                           \
    TILE(_s##_##_v##_##_r##_along, _t, _l, _r, _v, AT_ALONG, 1)

/* Accumulators, a factor and the values of a row must fit into the registers: 32, or 16. */
#define EACH_2(_s, _t, _l, _v) BOTH(_s, _t, _l, _v, 1) BOTH(_s, _t, _l, _v, 2)
#define EACH_4(_s, _t, _l, _v)                                                                     \
    EACH_2(_s, _t, _l, _v) BOTH(_s, _t, _l, _v, 3) BOTH(_s, _t, _l, _v, 4)
#define EACH_6(_s, _t, _l, _v)                                                                     \
    EACH_4(_s, _t, _l, _v) BOTH(_s, _t, _l, _v, 5) BOTH(_s, _t, _l, _v, 6)
#define EACH_8(_s, _t, _l, _v)                                                                     \
    EACH_6(_s, _t, _l, _v) BOTH(_s, _t, _l, _v, 7) BOTH(_s, _t, _l, _v, 8)
#define EACH_10(_s, _t, _l, _v)                                                                    \
    EACH_8(_s, _t, _l, _v) BOTH(_s, _t, _l, _v, 9) BOTH(_s, _t, _l, _v, 10)
#define EACH_12(_s, _t, _l, _v)                                                                    \
    EACH_10(_s, _t, _l, _v) BOTH(_s, _t, _l, _v, 11) BOTH(_s, _t, _l, _v, 12)
#define EACH_14(_s, _t, _l, _v)                                                                    \
    EACH_12(_s, _t, _l, _v) BOTH(_s, _t, _l, _v, 13) BOTH(_s, _t, _l, _v, 14)
#define NAMES_4(_s, _v, _k)                                                                        \
    _s##_##_v##_1_##_k, _s##_##_v##_2_##_k, _s##_##_v##_3_##_k, _s##_##_v##_4_##_k
#define NAMES_6(_s, _v, _k) NAMES_4(_s, _v, _k), _s##_##_v##_5_##_k, _s##_##_v##_6_##_k
#define NAMES_14(_s, _v, _k)                                                                       \
    NAMES_6(_s, _v, _k), _s##_##_v##_7_##_k, _s##_##_v##_8_##_k, _s##_##_v##_9_##_k,               \
        _s##_##_v##_10_##_k, _s##_##_v##_11_##_k, _s##_##_v##_12_##_k, _s##_##_v##_13_##_k,        \
        _s##_##_v##_14_##_k

#define SET(_set, _target, _lanes, _rows)                                                          \
    EACH_##_rows(_set, _target, _lanes, 1)                                                         \
        EACH_##_rows(_set, _target, _lanes, 2) static const ct_flash_set set_##_set = {            \
            .lanes = (_lanes),                                                                     \
            .rows = (_rows),                                                                       \
            .down = { { NAMES_##_rows(_set, 1, down) }, { NAMES_##_rows(_set, 2, down) } },        \
            .along = { { NAMES_##_rows(_set, 1, along) }, { NAMES_##_rows(_set, 2, along) } },     \
        };

#if defined(__x86_64__) && defined(__GNUC__)
SET(avx512, __attribute__((target("avx512f,fma"))), 16, 14)
SET(avx2, __attribute__((target("avx2,fma"))), 8, 6)
#endif
#if defined(__aarch64__)
SET(portable, , CT_SIMD_ANY_LANES, 14)
#else
SET(portable, , 4, 4)
#endif

const ct_flash_set *ct_flash_set_pick(void)
{
    ct_simd_level level = ct_simd_pick();

#if defined(__x86_64__) && defined(__GNUC__)
    if (level >= CT_SIMD_AVX512) return &set_avx512;
    if (level >= CT_SIMD_AVX2) return &set_avx2;
#endif
    (void)level;
    return &set_portable;
}
