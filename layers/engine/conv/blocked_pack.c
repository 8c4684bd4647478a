/* Operands of tiles on blocked layouts: copied between layouts, and rounded into words. */
#include "layers/engine/conv/blocked.h"
#include "framework/base/simd.h"

/* ---- Copies between layouts: places that a stride meets, and those alone; and between rows of
 * weights, as their owner keeps them, and rows of lanes, as tiles want them: small matrices turned
 * over in registers. */

typedef float vec4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t num4 __attribute__((vector_size(16)));

enum { PACK_AHEAD = 64 }; /* floats of a row that are fetched ahead: its next columns come next */

/* to[j][i] = from[i][j], 4 x 4, rows `step` and `to_step` floats apart */
static inline void turn4(const float *from, int64_t step, float *to, int64_t to_step)
{
    vec4 a = *(const vec4 *)from, b = *(const vec4 *)(from + step);
    vec4 c = *(const vec4 *)(from + 2 * step), d = *(const vec4 *)(from + 3 * step);
    vec4 ab_lo = CT_SIMD_MIXED(num4, a, b, 0, 4, 1, 5);
    vec4 ab_hi = CT_SIMD_MIXED(num4, a, b, 2, 6, 3, 7);
    vec4 cd_lo = CT_SIMD_MIXED(num4, c, d, 0, 4, 1, 5);
    vec4 cd_hi = CT_SIMD_MIXED(num4, c, d, 2, 6, 3, 7);

    *(vec4 *)to = CT_SIMD_MIXED(num4, ab_lo, cd_lo, 0, 1, 4, 5);
    *(vec4 *)(to + to_step) = CT_SIMD_MIXED(num4, ab_lo, cd_lo, 2, 3, 6, 7);
    *(vec4 *)(to + 2 * to_step) = CT_SIMD_MIXED(num4, ab_hi, cd_hi, 0, 1, 4, 5);
    *(vec4 *)(to + 3 * to_step) = CT_SIMD_MIXED(num4, ab_hi, cd_hi, 2, 3, 6, 7);
}

CT_SIMD_CLONES void ct_blk_rectify(int64_t n, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = (y[i] < 0.0f) ? 0.0f : y[i];
}

CT_SIMD_CLONES void ct_blk_rectify_bf16(int64_t n, float *y)
{
    ct_bf16 *h = (void *)y;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        uint16_t below = (uint16_t)(h[i] - 0x8001) < 0x7f80; /* -0 and NaN stay */

        h[i] = below ? 0 : h[i];
    }
}

void ct_blk_turn(int64_t rows, int64_t cols, const float *from, int64_t step, float *to,
                 int64_t to_step)
{
    int64_t i = 0;

    for (; i + 4 <= rows; i += 4) {
        int64_t j = 0;

        for (int64_t k = i; k < i + 4; k++) __builtin_prefetch(from + k * step + PACK_AHEAD);
        for (; j + 4 <= cols; j += 4)
            turn4(from + i * step + j, step, to + j * to_step + i, to_step);
        for (; j < cols; j++) {
            for (int64_t k = i; k < i + 4; k++) to[j * to_step + k] = from[k * step + j];
        }
    }
    for (; i < rows; i++) {
        for (int64_t j = 0; j < cols; j++) to[j * to_step + i] = from[i * step + j];
    }
}

bool ct_blk_is_sparse(const ct_conv_desc *d)
{
    return ct_blk_supports(d) && (d->kh == 1) && (d->kw == 1) && (d->ph == 0) && (d->pw == 0) &&
           ((d->sh > 1) || (d->sw > 1));
}

ct_conv_desc ct_blk_dense(const ct_conv_desc *d)
{
    ct_conv_desc dense = *d;

    dense.h = d->oh, dense.w = d->ow;
    dense.sh = dense.sw = 1;
    return dense;
}

static int64_t planes(const ct_conv_desc *d)
{
    return d->n * blk_count(d->c, d->x_block);
}

int64_t ct_blk_dense_floats(const ct_conv_desc *d)
{
    return planes(d) * out_size(d) * d->x_block;
}

/* A place of a block, in floats: bf16 numbers are copied in pairs. */
static int64_t place_floats(const ct_conv_desc *d)
{
    return d->x_bf16 ? d->x_block / 2 : d->x_block;
}

void ct_blk_gather(const ct_conv_desc *d, const float *x, float *dense)
{
    int64_t b = place_floats(d), rows = planes(d) * d->oh;

#pragma omp parallel for schedule(static) num_threads(d->n_thread)
    for (int64_t i = 0; i < rows; i++) {
        const float *from = x + (i / d->oh * d->h + i % d->oh * d->sh) * d->w * b;
        float *to = dense + i * d->ow * b;

        for (int64_t j = 0; j < d->ow; j++) copy_row(to + j * b, from + j * d->sw * b, b);
    }
}

void ct_blk_spread(const ct_conv_desc *d, const float *dense, float *dx)
{
    int64_t b = place_floats(d), rows = planes(d) * d->h;

#pragma omp parallel for schedule(static) num_threads(d->n_thread)
    for (int64_t i = 0; i < rows; i++) {
        int64_t row = i % d->h;
        const float *from = dense + (i / d->h * d->oh + row / d->sh) * d->ow * b;
        float *to = dx + i * d->w * b;

        memset(to, 0, (size_t)(d->w * b) * sizeof(float));
        if ((row % d->sh != 0) || (row / d->sh >= d->oh)) continue;
        for (int64_t j = 0; j < d->ow; j++) copy_row(to + j * d->sw * b, from + j * b, b);
    }
}

/* ---- Operands of sums on blocked layouts in words of rounded numbers. */

/* Of channel c, or c and c + 1: `taps` rows of lanes each, from tap `first` on. */
static void put_taps(const ct_blk_sum *s, const int64_t *map, int64_t c, int64_t first,
                     int64_t taps, int64_t lanes, const float *a, const float *b, float *to)
{
    int64_t w = s->set.words;

    for (int64_t t = 0; t < taps; t++) {
        int64_t at = map[first + t], row = t * s->set.b;

        if (at < 0) continue;
        s->set.narrow->across(1, s->set.b, a + row, (b != NULL) ? b + row : NULL, 0,
                              to + (at * w + c / s->set.pair) * lanes, 0);
    }
}

void ct_blk_pack_words(const ct_blk_sum *s, const int64_t *map, int64_t real, int64_t n,
                       int64_t lanes, const float *from, float *to)
{
    enum { COLUMNS = 64 }; /* (channel, tap) that are turned at a time */
    float turned[COLUMNS * CT_BLK_MAX] = { 0.0f };
    int64_t b = s->set.b, taps = blk_smaller(s->w_taps, COLUMNS / 2);
    int64_t channels = blk_smaller(COLUMNS / taps / 2 * 2, b);
    bool at_once = (s->w_in == s->w_taps) && (taps == s->w_taps);

    for (int64_t c = 0; c < n; c += channels) {
        int64_t here = blk_smaller(channels, n - c);

        for (int64_t t = 0; t < s->w_taps; t += taps) {
            int64_t some = blk_smaller(taps, s->w_taps - t), rows = some * b;
            const float *at = from + c * s->w_in + t;

            if (at_once) ct_blk_turn(real, here * some, at, s->w_out, turned, b);
            for (int64_t k = 0; !at_once && (k < here); k++)
                ct_blk_turn(real, some, at + k * s->w_in, s->w_out, turned + k * rows, b);
            for (int64_t k = 0; k < here; k += s->set.pair)
                put_taps(s, map, c + k, t, some, lanes, turned + k * rows,
                         (k + 1 < here) ? turned + (k + 1) * rows : NULL, to);
        }
    }
}

void ct_blk_narrow_patch(const ct_blk_sum *s, const ct_blk_patch *at, float *to)
{
    int64_t b = s->set.b, row = s->w * b, step = at->cols * s->set.words;
    int64_t in_block = blk_count(s->in, b);

    for (int64_t n = at->n; n < at->n + at->images; n++) {
        for (int64_t k = at->block; k < at->block + at->n_block; k++, to += at->rows * step) {
            int64_t plane = (n * s->group + at->g) * in_block + k;
            const float *x =
                ct_num_at(s->x, s->x_bf16, (plane * s->h + at->top) * row + at->left * b);

            if (s->x_bf16) { /* words of one value: pairs are read where they stand */
                for (int64_t r = 0; r < at->rows; r++)
                    ct_bf16_widen(at->cols * b, ct_num_at(x, true, r * row), to + r * step);
                continue;
            }
            if (at->cols == s->w) /* rows lie together */
                s->set.narrow->along(1, at->rows * row, x, 0, to, 0);
            else
                s->set.narrow->along(at->rows, at->cols * b, x, row, to, step);
        }
    }
}

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

enum { NARROW_AHEAD = 512 /* floats that are fetched before their turn */ };

#define BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

BF16 static void along_two(int64_t rows, int64_t n, const float *x, int64_t step, float *to,
                           int64_t to_step)
{
    for (int64_t r = 0; r < rows; r++, x += step, to += to_step) {
        int64_t i = 0;

        for (; i + 32 <= n; i += 32) {
            __builtin_prefetch(x + i + NARROW_AHEAD);
            __builtin_prefetch(x + i + NARROW_AHEAD + 16);
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

            __builtin_prefetch(a + i + NARROW_AHEAD);
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

            __builtin_prefetch(first + i + NARROW_AHEAD);
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
