/* Panels of pairs of bf16 numbers: as gemm_pack.c, rounded on the way. */
#include "framework/base/bf16.h"
#include "framework/math/gemm_private.h"

#include <string.h>

enum { SIDE = 8 /* values, 4 words: of a row at a time */, AHEAD = 128 };

static inline void put_pair(float first, float second, float *to)
{
    uint32_t word = ct_bf16_from_f32(first) | (uint32_t)ct_bf16_from_f32(second) << 16;

    memcpy(to, &word, sizeof(word));
}

/* Words [from, words(k)), one by one. */
static void pack_rest(int64_t n, int64_t k, int64_t first, const float *from, int64_t row,
                      int64_t column, float *to, int64_t width)
{
    for (int64_t q = first; q < k; q += 2) {
        for (int64_t i = 0; i < n; i++) {
            const float *at = from + i * row + q * column;

            put_pair(at[0], (q + 1 < k) ? at[column] : 0.0f, to + q / 2 * width + i);
        }
    }
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define BF16 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512bf16")))

/* Eight values each of rows i, i + 4, i + 8, i + 12, rounded: a quarter of a register each. */
BF16 static inline __m512i quarters(const float *from, const int64_t *at, int i)
{
    __m512 low = _mm512_castps256_ps512(_mm256_loadu_ps(from + at[i]));
    __m512 high = _mm512_castps256_ps512(_mm256_loadu_ps(from + at[i + 8]));

    low = _mm512_insertf32x8(low, _mm256_loadu_ps(from + at[i + 4]), 1);
    high = _mm512_insertf32x8(high, _mm256_loadu_ps(from + at[i + 12]), 1);
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* n <= 16 rows; k a multiple of SIDE. As turn16 of gemm_pack.c, of words. */
BF16 static void turn_words(int64_t n, int64_t k, const float *from, int64_t row, int64_t next,
                            float *to, int64_t width)
{
    __mmask16 mask = (__mmask16)((1u << n) - 1u);
    int64_t at[16];

    for (int i = 0; i < 16; i++) at[i] = (i < n) ? i * row : 0;
    for (int64_t q = 0; q < k; q += SIDE, from += SIDE, to += SIDE / 2 * width) {
        /* half of the rows, some lines before their turn; at the end those of the next panel */
        const float *ahead = from + ((q + AHEAD < k) ? AHEAD : AHEAD - k + next);
        int r = (int)(q / SIDE % 2 * 8);

        for (int i = r; i < r + 8; i++) __builtin_prefetch(ahead + at[i]);
        __m512i a = quarters(from, at, 0), b = quarters(from, at, 1);
        __m512i c = quarters(from, at, 2), d = quarters(from, at, 3);
        __m512i ab_low = _mm512_unpacklo_epi32(a, b), ab_high = _mm512_unpackhi_epi32(a, b);
        __m512i cd_low = _mm512_unpacklo_epi32(c, d), cd_high = _mm512_unpackhi_epi32(c, d);

        _mm512_mask_storeu_epi32(to, mask, _mm512_unpacklo_epi64(ab_low, cd_low));
        _mm512_mask_storeu_epi32(to + width, mask, _mm512_unpackhi_epi64(ab_low, cd_low));
        _mm512_mask_storeu_epi32(to + 2 * width, mask, _mm512_unpacklo_epi64(ab_high, cd_high));
        _mm512_mask_storeu_epi32(to + 3 * width, mask, _mm512_unpackhi_epi64(ab_high, cd_high));
    }
}

/* Columns lie together: n <= 32 of them, of rows q and q + 1 each. Fetched some rows before their
 * turn, the next panel's at the end: rows may lie a page apart. */
BF16 static void pair_rows(int64_t n, int64_t k, const float *from, int64_t column, float *to,
                           int64_t width)
{
    static const uint16_t order[32] = { 0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                        21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                        11, 27, 12, 28, 13, 29, 14, 30, 15, 31 };
    enum { ROWS = 32 };
    __m512i index = _mm512_loadu_si512(order);

    for (int64_t q = 0; q < k; q += 2, to += width) {
        const float *a = from + q * column, *b = a + ((q + 1 < k) ? column : 0);
        int64_t ahead = (q + ROWS < k) ? ROWS * column : (ROWS - k) * column + n;

        for (int64_t i = 0; i < n; i += 16) {
            __mmask16 mask = (__mmask16)((n - i < 16) ? (1u << (n - i)) - 1u : 0xffffu);
            __mmask16 second = (q + 1 < k) ? mask : 0;
            __m512i both;

            __builtin_prefetch(a + ahead + i);
            __builtin_prefetch(b + ahead + i);
            both = (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(second, b + i),
                                                _mm512_maskz_loadu_ps(mask, a + i));
            _mm512_mask_storeu_epi32(to + i, mask, _mm512_permutexvar_epi16(index, both));
        }
    }
}

void ct_gemm_pack_pairs(int64_t n, int64_t k, const float *from, int64_t row, int64_t column,
                        float *to, int64_t width)
{
    int64_t squares = k / SIDE * SIDE;

    if (row == 1) {
        pair_rows(n, k, from, column, to, width);
        return;
    }
    for (int64_t i = 0; i < n; i += 16)
        turn_words(ct_gemm_smaller(16, n - i), squares, from + i * row, row, n * row, to + i,
                   width);
    pack_rest(n, k, squares, from, row, column, to, width);
}

#else

void ct_gemm_pack_pairs(int64_t n, int64_t k, const float *from, int64_t row, int64_t column,
                        float *to, int64_t width)
{
    pack_rest(n, k, 0, from, row, column, to, width);
}

#endif
