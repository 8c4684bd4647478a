/* Packing: what a tile reads lies together, in the order in which it is read. */
#include <string.h>

#include "framework/base/bf16.h"
#include "framework/base/simd.h"
#include "framework/math/gemm_private.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

enum { SIDE = 4, AHEAD = 128 /* floats fetched before their turn */ };

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

    for (int64_t q = 0; q < k; q++)
        _mm512_mask_storeu_ps(to + q * width, mask, _mm512_maskz_loadu_ps(mask, from + q * column));
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

/* The rows of `from` lie along q. */
static void turn_panel(const ct_gemm_set *s, int64_t n, int64_t k, const float *from, int64_t row,
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
        ct_gemm_pack_pairs(n, k, from, row, column, to, width);
    else if (row == 1)
        copy_panel(s, n, k, from, column, to, width);
    else
        turn_panel(s, n, k, from, row, to, width);
    if (s->rounds) round_panel(k * width, to);
}
