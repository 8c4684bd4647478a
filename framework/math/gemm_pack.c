/* Packing: what a tile reads lies together, in the order in which it is read. */
#include <string.h>

#include "framework/base/bf16.h"
#include "framework/base/simd.h"
#include "framework/math/gemm_private.h"

/* Of pairs. */
static void gemm_pack_pairs(int64_t n, int64_t k, const float *from, int64_t row, int64_t column,
                            float *to, int64_t width);

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

enum { SIDE = 4, AHEAD = 128 /* floats fetched before their turn */, ROWS_AHEAD = 32 /* rows */ };

#if defined(__x86_64__) && defined(__GNUC__)
#define AVX512 __attribute__((target("avx512f,avx512dq")))

/* Four columns of rows i, i + 4, i + 8, i + 12, each in a quarter of a register. */
AVX512 static inline __m512 quarters16(const float *from, const int64_t *at, int i)
{
    __m512 v = _mm512_castps128_ps512(_mm_loadu_ps(from + at[i]));

    v = _mm512_insertf32x4(v, _mm_loadu_ps(from + at[i + 4]), 1);
    v = _mm512_insertf32x4(v, _mm_loadu_ps(from + at[i + 8]), 2);
    return _mm512_insertf32x4(v, _mm_loadu_ps(from + at[i + 12]), 3);
}

/* n <= 16 rows; k a multiple of SIDE. Turning 4 x 4 inside the quarters puts the rows in order. */
AVX512 static void turn16(int64_t n, int64_t k, const float *from, int64_t row, int64_t next,
                          float *to, int64_t width)
{
    __mmask16 mask = (__mmask16)((1u << n) - 1u);
    int64_t at[16];

    for (int i = 0; i < 16; i++) at[i] = (i < n) ? i * row : 0;
    for (int64_t q = 0; q < k; q += SIDE, from += SIDE) {
        /* a quarter of the rows, some lines before their turn; at the end those of the next panel
         */
        const float *ahead = from + ((q + AHEAD < k) ? AHEAD : AHEAD - k + next);
        int r = (int)(q / SIDE % 4 * 4);

        for (int i = r; i < r + 4; i++) __builtin_prefetch(ahead + at[i]);
        __m512 a = quarters16(from, at, 0), b = quarters16(from, at, 1);
        __m512 c = quarters16(from, at, 2), d = quarters16(from, at, 3);
        __m512d ab_low = _mm512_castps_pd(_mm512_unpacklo_ps(a, b));
        __m512d ab_high = _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
        __m512d cd_low = _mm512_castps_pd(_mm512_unpacklo_ps(c, d));
        __m512d cd_high = _mm512_castps_pd(_mm512_unpackhi_ps(c, d));
        float *y = to + q * width;

        a = _mm512_castpd_ps(_mm512_unpacklo_pd(ab_low, cd_low));
        b = _mm512_castpd_ps(_mm512_unpackhi_pd(ab_low, cd_low));
        c = _mm512_castpd_ps(_mm512_unpacklo_pd(ab_high, cd_high));
        d = _mm512_castpd_ps(_mm512_unpackhi_pd(ab_high, cd_high));
        _mm512_mask_storeu_ps(y, mask, a);
        _mm512_mask_storeu_ps(y + width, mask, b);
        _mm512_mask_storeu_ps(y + 2 * width, mask, c);
        _mm512_mask_storeu_ps(y + 3 * width, mask, d);
    }
}

AVX512 static void copy16(int64_t n, int64_t k, const float *from, int64_t column, float *to,
                          int64_t width)
{
    __mmask16 mask = (__mmask16)((1u << n) - 1u);

    for (int64_t q = 0; q < k; q++) {
        __builtin_prefetch(from + (q + ROWS_AHEAD) * column);
        _mm512_mask_storeu_ps(to + q * width, mask, _mm512_maskz_loadu_ps(mask, from + q * column));
    }
}

__attribute__((target("avx2"))) static inline __m256 quarters8(const float *from, int64_t row)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from)),
                                _mm_loadu_ps(from + 4 * row), 1);
}

__attribute__((target("avx2"))) static void turn8(int64_t k, const float *from, int64_t row,
                                                  float *to, int64_t width)
{
    for (int64_t q = 0; q < k; q += SIDE) {
        __m256 a = quarters8(from + q, row), b = quarters8(from + q + row, row);
        __m256 c = quarters8(from + q + 2 * row, row), d = quarters8(from + q + 3 * row, row);
        __m256d ab_low = _mm256_castps_pd(_mm256_unpacklo_ps(a, b));
        __m256d ab_high = _mm256_castps_pd(_mm256_unpackhi_ps(a, b));
        __m256d cd_low = _mm256_castps_pd(_mm256_unpacklo_ps(c, d));
        __m256d cd_high = _mm256_castps_pd(_mm256_unpackhi_ps(c, d));
        float *at = to + q * width;

        _mm256_storeu_ps(at, _mm256_castpd_ps(_mm256_unpacklo_pd(ab_low, cd_low)));
        _mm256_storeu_ps(at + width, _mm256_castpd_ps(_mm256_unpackhi_pd(ab_low, cd_low)));
        _mm256_storeu_ps(at + 2 * width, _mm256_castpd_ps(_mm256_unpacklo_pd(ab_high, cd_high)));
        _mm256_storeu_ps(at + 3 * width, _mm256_castpd_ps(_mm256_unpackhi_pd(ab_high, cd_high)));
    }
}
#endif

static void turn4(int64_t k, const float *from, int64_t row, float *to, int64_t width)
{
    for (int64_t q = 0; q < k; q += SIDE) {
#if defined(__x86_64__) && defined(__GNUC__)
        __m128 a = _mm_loadu_ps(from + q), b = _mm_loadu_ps(from + q + row);
        __m128 c = _mm_loadu_ps(from + q + 2 * row), d = _mm_loadu_ps(from + q + 3 * row);
        float *at = to + q * width;

        _MM_TRANSPOSE4_PS(a, b, c, d);
        _mm_storeu_ps(at, a);
        _mm_storeu_ps(at + width, b);
        _mm_storeu_ps(at + 2 * width, c);
        _mm_storeu_ps(at + 3 * width, d);
#else
        for (int64_t e = q; e < q + SIDE; e++) {
            for (int64_t i = 0; i < SIDE; i++) to[e * width + i] = from[i * row + e];
        }
#endif
    }
}

/* The last rows overlap those before. */
static void turn_rows(const ct_gemm_set *s, int64_t n, int64_t k, const float *from, int64_t row,
                      float *to, int64_t width)
{
    int64_t i = 0;

#if defined(__x86_64__) && defined(__GNUC__)
    for (; (s->lanes == 16) && (i < n); i += 16)
        turn16(ct_gemm_smaller(16, n - i), k, from + i * row, row, n * row, to + i, width);
    for (; (s->lanes >= 8) && (i + 8 <= n); i += 8) turn8(k, from + i * row, row, to + i, width);
#endif
    (void)s;
    for (; i < n; i += SIDE) {
        int64_t at = (i + SIDE <= n) ? i : n - SIDE;

        turn4(k, from + at * row, row, to + at, width);
    }
}

/* Whether turn_rows() takes fewer rows than a square has. */
static bool turns_few(const ct_gemm_set *s)
{
#if defined(__x86_64__) && defined(__GNUC__)
    return s->lanes == 16;
#else
    (void)s;
    return false;
#endif
}

void ct_gemm_turn(const ct_gemm_set *s, int64_t n, int64_t k, const float *from, int64_t row,
                  float *to, int64_t width)
{
    int64_t squares = ((n < SIDE) && !turns_few(s)) ? 0 : k / SIDE * SIDE;

    turn_rows(s, n, squares, from, row, to, width);
    for (int64_t q = squares; q < k; q++) {
        for (int64_t i = 0; i < n; i++) to[q * width + i] = from[i * row + q];
    }
}

static void copy_panel(const ct_gemm_set *s, int64_t n, int64_t k, const float *from,
                       int64_t column, float *to, int64_t width)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (s->lanes == 16) {
        for (int64_t i = 0; i < n; i += 16)
            copy16(ct_gemm_smaller(16, n - i), k, from + i, column, to + i, width);
        return;
    }
#endif
    (void)s;
    for (int64_t q = 0; q < k; q++) {
        for (int64_t i = 0; i < n; i++) to[q * width + i] = from[q * column + i];
    }
}

CT_SIMD_CLONES static void round_panel(int64_t n, float *v)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) v[i] = ct_bf16_to_f32(ct_bf16_from_f32(v[i]));
}

void ct_gemm_pack_panel(const ct_gemm_set *s, int64_t n, int64_t k, const float *from, int64_t row,
                        int64_t column, float *to, int64_t width)
{
    for (int64_t q = 0; (n < width) && (q < ct_gemm_words(s, k)); q++)
        memset(to + q * width + n, 0, (size_t)(width - n) * sizeof(*to));
    if (s->pair == 2)
        gemm_pack_pairs(n, k, from, row, column, to, width);
    else if (row == 1)
        copy_panel(s, n, k, from, column, to, width);
    else
        ct_gemm_turn(s, n, k, from, row, to, width);
    if (s->rounds) round_panel(k * width, to);
}

/* Pieces of the panel are widened into a room of a first-level cache. Rounded again they are the
 * same. */
void ct_gemm_pack_numbers(const ct_gemm_set *s, bool bf16, int64_t n, int64_t k, const float *from,
                          int64_t row, int64_t column, float *to, int64_t width)
{
    enum { SOME = 64 };
    float room[CT_GEMM_MAX_WIDTH * SOME];
    bool along = (column == 1);

    if (!bf16) {
        ct_gemm_pack_panel(s, n, k, from, row, column, to, width);
        return;
    }
    for (int64_t q = 0; q < k; q += SOME) {
        int64_t len = ct_gemm_smaller(SOME, k - q);

        for (int64_t i = 0; along && (i < n); i++)
            ct_bf16_widen(len, ct_num_at(from, true, i * row + q), room + i * SOME);
        for (int64_t e = 0; !along && (e < len); e++)
            ct_bf16_widen(n, ct_num_at(from, true, (q + e) * column), room + e * CT_GEMM_MAX_WIDTH);
        ct_gemm_pack_panel(s, n, len, room, along ? SOME : 1, along ? 1 : CT_GEMM_MAX_WIDTH,
                           to + q / s->pair * width, width);
    }
}

/* ---- panels of pairs of bf16 numbers: as above, rounded on the way */

enum { PAIR_SIDE = 8 /* values, 4 words: of a row at a time */ };

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

/* n <= 16 rows; k a multiple of PAIR_SIDE. As turn16 of gemm_pack.c, of words. */
BF16 static void turn_words(int64_t n, int64_t k, const float *from, int64_t row, int64_t next,
                            float *to, int64_t width)
{
    __mmask16 mask = (__mmask16)((1u << n) - 1u);
    int64_t at[16];

    for (int i = 0; i < 16; i++) at[i] = (i < n) ? i * row : 0;
    for (int64_t q = 0; q < k; q += PAIR_SIDE, from += PAIR_SIDE, to += PAIR_SIDE / 2 * width) {
        /* half of the rows, some lines before their turn; at the end those of the next panel */
        const float *ahead = from + ((q + AHEAD < k) ? AHEAD : AHEAD - k + next);
        int r = (int)(q / PAIR_SIDE % 2 * 8);

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

static void gemm_pack_pairs(int64_t n, int64_t k, const float *from, int64_t row, int64_t column,
                            float *to, int64_t width)
{
    int64_t squares = k / PAIR_SIDE * PAIR_SIDE;

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

void gemm_pack_pairs(int64_t n, int64_t k, const float *from, int64_t row, int64_t column,
                     float *to, int64_t width)
{
    pack_rest(n, k, 0, from, row, column, to, width);
}

#endif
