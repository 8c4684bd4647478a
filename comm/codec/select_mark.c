/* Which elements of a block are over a bound, as bits. The compiler makes no such masks of a plain
 * loop, and by way of bytes or of groups' maxima it takes twice to three times as long. */
#include "comm/codec/select_impl.h"
#include "framework/base/simd.h"

/* Bit j of the result is byte j, which is 0 or 1, of eight. */
static uint64_t gather_bits(const uint8_t hit[8])
{
    uint64_t x;

    memcpy(&x, hit, sizeof(x));
    if (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__) x = __builtin_bswap64(x);
    return x * 0x0102040810204080u >> 56;
}

static uint32_t mark_portable(ct_select_key key, int64_t n_group, const float *v, int32_t bound,
                              uint64_t *mark)
{
    uint32_t some = 0;

    for (int64_t g = 0; g < n_group; ++g, v += CT_SELECT_GROUP) {
        uint8_t hit[CT_SELECT_GROUP];
        uint64_t m = 0;

#pragma omp simd
        for (int j = 0; j < CT_SELECT_GROUP; ++j) hit[j] = ct_select_key_of(v[j], key) > bound;
        for (int j = 0; j < CT_SELECT_GROUP; j += 8) m |= gather_bits(hit + j) << j;
        mark[g] = m;
        some |= (uint32_t)(m != 0) << g;
    }
    return some;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

/* As the bound is not negative, keys below 0 need not become 0. */
#define MARK(_name, _target, _lanes, _set1, _load, _xor, _and, _over)                              \
    __attribute__((target(_target))) static uint32_t _name(                                        \
        ct_select_key key, int64_t n_group, const float *v, int32_t bound, uint64_t *mark)         \
    {                                                                                              \
        uint32_t some = 0;                                                                         \
                                                                                                   \
        for (int64_t g = 0; g < n_group; ++g, v += CT_SELECT_GROUP) {                              \
            uint64_t m = 0;                                                                        \
                                                                                                   \
            for (int j = 0; j < CT_SELECT_GROUP; j += (_lanes))                                    \
                m |= (uint64_t)_over(_and(_xor(_load(v + j), _set1((int32_t)key.flip)),            \
                                          _set1((int32_t)key.keep)),                               \
                                     _set1(bound))                                                 \
                     << j;                                                                         \
            mark[g] = m;                                                                           \
            some |= (uint32_t)(m != 0) << g;                                                       \
        }                                                                                          \
        return some;                                                                               \
    }

#define LOAD_AVX2(_p) _mm256_castps_si256(_mm256_loadu_ps(_p))
#define OVER_AVX2(_a, _b)                                                                          \
    (uint32_t) _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(_a, _b)))

MARK(mark_avx512, "avx512f", 16, _mm512_set1_epi32, _mm512_loadu_si512, _mm512_xor_si512,
     _mm512_and_si512, _mm512_cmpgt_epi32_mask)
MARK(mark_avx2, "avx2", 8, _mm256_set1_epi32, LOAD_AVX2, _mm256_xor_si256, _mm256_and_si256,
     OVER_AVX2)

ct_mark_fn ct_mark_pick(void)
{
    ct_simd_level level = ct_simd_pick();

    if (level == CT_SIMD_AVX512) return mark_avx512;
    return (level == CT_SIMD_AVX2) ? mark_avx2 : mark_portable;
}
#else
ct_mark_fn ct_mark_pick(void)
{
    return mark_portable;
}
#endif
