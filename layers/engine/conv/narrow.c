#include "layers/engine/conv/narrow.h"

#include "framework/base/simd.h"

/* ---- words of one value */

CT_SIMD_CLONES static void along_one(int64_t rows, int64_t n, const float *x, int64_t step,
                                     float *to, int64_t to_step)
{
    for (int64_t r = 0; r < rows; r++, x += step, to += to_step) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) to[i] = ct_bf16_to_f32(ct_bf16_from_f32(x[i]));
    }
}

static void across_one(int64_t rows, int64_t n, const float *a, const float *b, int64_t step,
                       float *to, int64_t to_step)
{
    (void)b;
    along_one(rows, n, a, step, to, to_step);
}

static void across_one_bf16(int64_t rows, int64_t n, const float *a, const float *b, int64_t step,
                            float *to, int64_t to_step)
{
    (void)b;
    for (int64_t r = 0; r < rows; r++)
        ct_bf16_widen(n, ct_num_at(a, true, r * step), to + r * to_step);
}

CT_SIMD_CLONES static void out_one(int64_t rows, int64_t n, bool relu, const float *x, int64_t step,
                                   float *to, int64_t to_step)
{
    for (int64_t r = 0; r < rows; r++, x += step) {
        float *row = ct_num_to(to, true, r * to_step);

#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            ct_num_put(row, true, i, (relu && (x[i] < 0.0f)) ? 0.0f : x[i]);
    }
}

static const ct_narrow one = { .pair = 1,
                               .along = along_one,
                               .across = across_one,
                               .across_bf16 = across_one_bf16,
                               .out = out_one };

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

/* ---- pairs; blocks have 16 channels then */

enum { AHEAD = 512 /* floats that are fetched before their turn */ };

#define BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

BF16 static void along_two(int64_t rows, int64_t n, const float *x, int64_t step, float *to,
                           int64_t to_step)
{
    for (int64_t r = 0; r < rows; r++, x += step, to += to_step) {
        int64_t i = 0;

        for (; i + 32 <= n; i += 32) {
            __builtin_prefetch(x + i + AHEAD);
            __builtin_prefetch(x + i + AHEAD + 16);
            _mm512_storeu_si512(
                to + i / 2,
                (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + i + 16), _mm512_loadu_ps(x + i)));
        }
        for (; i < n; i += 8)
            _mm_storeu_si128((__m128i *)(to + i / 2),
                             (__m128i)_mm256_cvtneps_pbh(_mm256_loadu_ps(x + i)));
    }
}

/* Of 16 first and 16 second values: first, second, first … */
BF16 static inline __m512i turns(void)
{
    static const uint16_t order[32] = { 0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                        21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                        11, 27, 12, 28, 13, 29, 14, 30, 15, 31 };

    return _mm512_loadu_si512(order);
}

BF16 static void across_two(int64_t rows, int64_t n, const float *a, const float *b, int64_t step,
                            float *to, int64_t to_step)
{
    __m512i order = turns();

    for (int64_t r = 0; r < rows; r++, a += step, to += to_step) {
        for (int64_t i = 0; i < n; i += 16) {
            __mmask16 mask = (n - i < 16) ? 0xff : 0xffff;
            __m512 second =
                (b != NULL) ? _mm512_maskz_loadu_ps(mask, b + r * step + i) : _mm512_setzero_ps();
            __m512i both;

            __builtin_prefetch(a + i + AHEAD);
            both = (__m512i)_mm512_cvtne2ps_pbh(second, _mm512_maskz_loadu_ps(mask, a + i));

            _mm512_mask_storeu_epi32(to + i, mask, _mm512_permutexvar_epi16(order, both));
        }
    }
}

BF16 static void across_two_bf16(int64_t rows, int64_t n, const float *a, const float *b,
                                 int64_t step, float *to, int64_t to_step)
{
    for (int64_t r = 0; r < rows; r++, to += to_step) {
        const ct_bf16 *first = (const void *)ct_num_at(a, true, r * step);
        const ct_bf16 *second = (const void *)ct_num_at(b, true, r * step);

        for (int64_t i = 0; i < n; i += 16) {
            __mmask16 mask = (n - i < 16) ? 0xff : 0xffff;
            __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, first + i));

            __builtin_prefetch(first + i + AHEAD);
            if (second != NULL)
                low = _mm512_or_si512(
                    low,
                    _mm512_slli_epi32(
                        _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, second + i)), 16));
            _mm512_mask_storeu_epi32(to + i, mask, low);
        }
    }
}

/* A NaN stays one: of two, the largest is the second where one is no number. */
BF16 static void out_two(int64_t rows, int64_t n, bool relu, const float *x, int64_t step,
                         float *to, int64_t to_step)
{
    __m512 least = _mm512_set1_ps(relu ? 0.0f : -__builtin_inff());

    for (int64_t r = 0; r < rows; r++, x += step) {
        ct_bf16 *row = (void *)ct_num_to(to, true, r * to_step);
        int64_t i = 0;

        for (; i + 32 <= n; i += 32)
            _mm512_storeu_si512(row + i, (__m512i)_mm512_cvtne2ps_pbh(
                                             _mm512_max_ps(least, _mm512_loadu_ps(x + i + 16)),
                                             _mm512_max_ps(least, _mm512_loadu_ps(x + i))));
        for (; i < n; i += 8)
            _mm_storeu_si128((__m128i *)(row + i),
                             (__m128i)_mm256_cvtneps_pbh(_mm256_max_ps(
                                 _mm512_castps512_ps256(least), _mm256_loadu_ps(x + i))));
    }
}

static const ct_narrow two = { .pair = 2,
                               .along = along_two,
                               .across = across_two,
                               .across_bf16 = across_two_bf16,
                               .out = out_two };
#endif

const ct_narrow *ct_narrow_pick(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (ct_simd_has_bf16()) return &two;
#endif
    return &one;
}
