/* Packing: what a tile reads lies together, in the order in which it is read. */
#include <string.h>

#include "framework/math/gemm_private.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

enum { SIDE = 4 };

#if defined(__x86_64__) && defined(__GNUC__)
/* Four columns of 16 rows: a register holds four of each of the rows i, i + 4, i + 8, i + 12, so
 * that turning 4 x 4 inside its quarters puts the rows in order. */
__attribute__((target("avx512f,avx512dq"))) static inline __m512 quarters16(const float *from,
                                                                            int64_t row)
{
    __m512 v = _mm512_castps128_ps512(_mm_loadu_ps(from));

    v = _mm512_insertf32x4(v, _mm_loadu_ps(from + 4 * row), 1);
    v = _mm512_insertf32x4(v, _mm_loadu_ps(from + 8 * row), 2);
    return _mm512_insertf32x4(v, _mm_loadu_ps(from + 12 * row), 3);
}

__attribute__((target("avx512f,avx512dq"))) static void turn16(int64_t k, const float *from,
                                                               int64_t row, float *to,
                                                               int64_t width)
{
    for (int64_t q = 0; q < k; q += SIDE) {
        __m512 a = quarters16(from + q, row), b = quarters16(from + q + row, row);
        __m512 c = quarters16(from + q + 2 * row, row), d = quarters16(from + q + 3 * row, row);
        __m512d ab_low = _mm512_castps_pd(_mm512_unpacklo_ps(a, b));
        __m512d ab_high = _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
        __m512d cd_low = _mm512_castps_pd(_mm512_unpacklo_ps(c, d));
        __m512d cd_high = _mm512_castps_pd(_mm512_unpackhi_ps(c, d));
        float *at = to + q * width;

        _mm512_storeu_pd(at, _mm512_unpacklo_pd(ab_low, cd_low));
        _mm512_storeu_pd(at + width, _mm512_unpackhi_pd(ab_low, cd_low));
        _mm512_storeu_pd(at + 2 * width, _mm512_unpacklo_pd(ab_high, cd_high));
        _mm512_storeu_pd(at + 3 * width, _mm512_unpackhi_pd(ab_high, cd_high));
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
    for (; (s->lanes == 16) && (i + 16 <= n); i += 16)
        turn16(k, from + i * row, row, to + i, width);
    for (; (s->lanes >= 8) && (i + 8 <= n); i += 8) turn8(k, from + i * row, row, to + i, width);
#endif
    (void)s;
    for (; i < n; i += SIDE) {
        int64_t at = (i + SIDE <= n) ? i : n - SIDE;

        turn4(k, from + at * row, row, to + at, width);
    }
}

/* The rows of `from` lie along q. */
static void turn_panel(const ct_gemm_set *s, int64_t n, int64_t k, const float *from, int64_t row,
                       float *to, int64_t width)
{
    enum { AT_ONCE = 64 }; /* places of a sum: what is read and written stays in the first cache */
    int64_t squares = (n < SIDE) ? 0 : k / SIDE * SIDE;

    for (int64_t q = 0; q < squares; q += AT_ONCE)
        turn_rows(s, n, ct_gemm_smaller(AT_ONCE, squares - q), from + q, row, to + q * width,
                  width);
    for (int64_t q = squares; q < k; q++) {
        for (int64_t i = 0; i < n; i++) to[q * width + i] = from[i * row + q];
    }
}

static void copy_panel(int64_t n, int64_t k, const float *from, int64_t column, float *to,
                       int64_t width)
{
    for (int64_t q = 0; q < k; q++) {
        for (int64_t i = 0; i < n; i++) to[q * width + i] = from[q * column + i];
    }
}

void ct_gemm_pack_panel(const ct_gemm_set *s, int64_t n, int64_t k, const float *from, int64_t row,
                        int64_t column, float *to, int64_t width)
{
    for (int64_t q = 0; (n < width) && (q < k); q++)
        memset(to + q * width + n, 0, (size_t)(width - n) * sizeof(*to));
    if (row == 1)
        copy_panel(n, k, from, column, to, width);
    else
        turn_panel(s, n, k, from, row, to, width);
}

/* One row of a panel, with a length that the compiler knows where it is whole. */
static inline void copy_row(int64_t n, const float *from, float *to)
{
    if (n == 32)
        memcpy(to, from, 32 * sizeof(*to));
    else if (n == 16)
        memcpy(to, from, 16 * sizeof(*to));
    else
        memcpy(to, from, (size_t)n * sizeof(*to));
}

void ct_gemm_pack_panels(const ct_gemm_set *s, int64_t n, int64_t k, const float *from, int64_t row,
                         int64_t column, int64_t step, float *to)
{
    int64_t panel = ct_gemm_panel(s), whole = (row == 1) ? n / panel * panel : 0;

    /* row by row over all panels: `from` is read as it lies in memory */
    for (int64_t q = 0; (whole > 0) && (q < k); q++) {
        for (int64_t j = 0; j < whole; j += panel)
            copy_row(panel, from + q * column + j, to + j * step + q * panel);
    }
    for (int64_t j = whole; j < n; j += panel) {
        int64_t here = ct_gemm_smaller(panel, n - j);

        ct_gemm_pack_panel(s, here, k, from + j * row, row, column, to + j * step,
                           ct_gemm_round_up(here, s->lanes));
    }
}
