/* Tiles of C that stay in registers, and products of few rows. Compiled with -ffp-contract=fast:
 * its sums are products added up, fused where the processor can. */
#include <omp.h>
#include <string.h>

#include "framework/base/bf16.h"
#include "framework/base/simd.h"
#include "framework/math/gemm_private.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

#define UNROLL _Pragma("GCC unroll 16")

/* _acc += _a times the word or words _x */
#define ADD(_acc, _a, _x) (_acc) += (_a) * (_x)
#define ADD_PAIRS(_acc, _a, _x)                                                                    \
    (_acc) = (vec)_mm512_dpbf16_ps((__m512)(_acc), (__m512bh)_mm512_set1_ps(_a), (__m512bh)(_x))

/* _add: one of them; _take: what is done with row q of B once it is in registers. */
#define TILE_STEP(_add, _lanes, _rows, _vecs, _b_step, _take)                                      \
    {                                                                                              \
        vec x[_vecs];                                                                              \
                                                                                                   \
        UNROLL for (int j = 0; j < (_vecs); j++) x[j] = *(const vec *)(b + j * (_lanes));          \
        _take UNROLL for (int i = 0; i < (_rows); i++)                                             \
        {                                                                                          \
            UNROLL for (int j = 0; j < (_vecs); j++) _add(acc[i][j], a[i], x[j]);                  \
        }                                                                                          \
        a += (_rows);                                                                              \
        b += (_b_step);                                                                            \
    }

/* Rows of C are fetched one a step, LATE steps before the end: before that, what the steps read
 * would drive them out of the first cache again, since they often lie a page apart. */
#define TILE_BODY(_add, _lanes, _rows, _vecs, _b_step, _take)                                      \
    typedef float vec __attribute__((vector_size(4 * (_lanes)), aligned(4), may_alias));           \
    const vec zero = { 0.0f };                                                                     \
    vec acc[_rows][_vecs];                                                                         \
    int64_t q = 0, early = (k > LATE) ? k - LATE : 0;                                              \
    int64_t fetched = (k - early < (_rows)) ? k : early + (_rows);                                 \
                                                                                                   \
    UNROLL for (int i = 0; i < (_rows); i++)                                                       \
    {                                                                                              \
        UNROLL for (int j = 0; j < (_vecs); j++) acc[i][j] = zero;                                 \
    }                                                                                              \
    for (; q < early; q++) TILE_STEP(_add, _lanes, _rows, _vecs, _b_step, _take)                   \
    for (; q < fetched; q++) {                                                                     \
        const float *row = c + (q - early) * ldc;                                                  \
                                                                                                   \
        UNROLL for (int j = 0; j < (_vecs); j++) __builtin_prefetch(row + j * (_lanes), 1);        \
        __builtin_prefetch(row + (_vecs) * (_lanes)-1, 1);                                         \
        TILE_STEP(_add, _lanes, _rows, _vecs, _b_step, _take)                                      \
    }                                                                                              \
    for (; q < k; q++) TILE_STEP(_add, _lanes, _rows, _vecs, _b_step, _take)                       \
    UNROLL for (int i = 0; i < (_rows); i++)                                                       \
    {                                                                                              \
        UNROLL for (int j = 0; j < (_vecs); j++)                                                   \
        {                                                                                          \
            vec *at = (vec *)(c + i * ldc + j * (_lanes));                                         \
                                                                                                   \
            if (beta == 0.0f)                                                                      \
                *at = alpha * acc[i][j];                                                           \
            else                                                                                   \
                *at = beta * *at + alpha * acc[i][j];                                              \
        }                                                                                          \
    }

/* Of what is read next, `_vecs` vectors a step, into the second cache: more lines may be on their
 * way there at once than to the first, which reads ahead in the second by itself. */
#define SOON(_lanes, _vecs)                                                                        \
    UNROLL for (int j = 0; j < (_vecs); j++) __builtin_prefetch(next + j * (_lanes), 0, 2);        \
    next += next_step;

/* Fetched some rows before its turn, the next panel's at the end: rows of B as it is stored may lie
 * a page apart. */
#define KEEP(_lanes, _vecs)                                                                        \
    int64_t ahead = (q + AHEAD < k) ? AHEAD * ldb : (AHEAD - k) * ldb + (_vecs) * (_lanes);        \
                                                                                                   \
    UNROLL for (int j = 0; j < (_vecs); j++)                                                       \
    {                                                                                              \
        __builtin_prefetch(b + ahead + j * (_lanes));                                              \
        *(vec *)(keep + j * (_lanes)) = x[j];                                                      \
    }                                                                                              \
    __builtin_prefetch(b + ahead + (_vecs) * (_lanes)-1); /* rows may begin inside a line */       \
    keep += (_vecs) * (_lanes);

#define TILE_OF(_add, _name, _target, _lanes, _rows, _vecs)                                        \
    _target static void _name(int64_t k, const float *a, const float *b, const float *next,        \
                              int64_t next_step, float alpha, float beta, float *c, int64_t ldc)   \
    {                                                                                              \
        TILE_BODY(_add, _lanes, _rows, _vecs, (_vecs) * (_lanes), SOON(_lanes, _vecs))             \
    }

#define TILE(_name, _target, _lanes, _rows, _vecs)                                                 \
    TILE_OF(ADD, _name, _target, _lanes, _rows, _vecs)
#define TILE_PAIRS(_name, _target, _lanes, _rows, _vecs)                                           \
    TILE_OF(ADD_PAIRS, _name, _target, _lanes, _rows, _vecs)

#define FIRST(_name, _target, _lanes, _rows, _vecs)                                                \
    _target static void _name##_first(int64_t k, const float *a, const float *b, int64_t ldb,      \
                                      float *keep, float alpha, float beta, float *c, int64_t ldc) \
    {                                                                                              \
        TILE_BODY(ADD, _lanes, _rows, _vecs, ldb, KEEP(_lanes, _vecs))                             \
    }

enum { AHEAD = 32, LATE = 48 };

/* Accumulators, a factor and the values of a row must fit into the registers: 32, or 16. */
#define EACH_4(_x, _s, _t, _l, _v)                                                                 \
    _x(_s##_##_v##_1, _t, _l, 1, _v) _x(_s##_##_v##_2, _t, _l, 2, _v)                              \
        _x(_s##_##_v##_3, _t, _l, 3, _v) _x(_s##_##_v##_4, _t, _l, 4, _v)
#define EACH_6(_x, _s, _t, _l, _v)                                                                 \
    EACH_4(_x, _s, _t, _l, _v)                                                                     \
    _x(_s##_##_v##_5, _t, _l, 5, _v) _x(_s##_##_v##_6, _t, _l, 6, _v)
#define EACH_14(_x, _s, _t, _l, _v)                                                                \
    EACH_6(_x, _s, _t, _l, _v)                                                                     \
    _x(_s##_##_v##_7, _t, _l, 7, _v) _x(_s##_##_v##_8, _t, _l, 8, _v)                              \
        _x(_s##_##_v##_9, _t, _l, 9, _v) _x(_s##_##_v##_10, _t, _l, 10, _v)                        \
            _x(_s##_##_v##_11, _t, _l, 11, _v) _x(_s##_##_v##_12, _t, _l, 12, _v)                  \
                _x(_s##_##_v##_13, _t, _l, 13, _v) _x(_s##_##_v##_14, _t, _l, 14, _v)
#define NAMES_4(_s, _v, _k)                                                                        \
    _s##_##_v##_1##_k, _s##_##_v##_2##_k, _s##_##_v##_3##_k, _s##_##_v##_4##_k
#define NAMES_6(_s, _v, _k) NAMES_4(_s, _v, _k), _s##_##_v##_5##_k, _s##_##_v##_6##_k
#define NAMES_14(_s, _v, _k)                                                                       \
    NAMES_6(_s, _v, _k), _s##_##_v##_7##_k, _s##_##_v##_8##_k, _s##_##_v##_9##_k,                  \
        _s##_##_v##_10##_k, _s##_##_v##_11##_k, _s##_##_v##_12##_k, _s##_##_v##_13##_k,            \
        _s##_##_v##_14##_k

#define SET(_set, _target, _lanes, _rows)                                                          \
    EACH_##_rows(TILE, _set, _target, _lanes, 1) EACH_##_rows(TILE, _set, _target, _lanes, 2)      \
        EACH_##_rows(FIRST, _set, _target, _lanes, 2) static const ct_gemm_set set_##_set = {      \
            .name = #_set,                                                                         \
            .lanes = (_lanes),                                                                     \
            .rows = (_rows),                                                                       \
            .pair = 1,                                                                             \
            .tile = { { NAMES_##_rows(_set, 1, ) }, { NAMES_##_rows(_set, 2, ) } },                \
            .first = { NAMES_##_rows(_set, 2, _first) },                                           \
        };                                                                                         \
    static const ct_gemm_set set_##_set##_rounds = {                                               \
        .name = #_set " rounds",                                                                   \
        .lanes = (_lanes),                                                                         \
        .rows = (_rows),                                                                           \
        .pair = 1,                                                                                 \
        .rounds = true,                                                                            \
        .tile = { { NAMES_##_rows(_set, 1, ) }, { NAMES_##_rows(_set, 2, ) } },                    \
    };

#if defined(__x86_64__) && defined(__GNUC__)
SET(avx512, __attribute__((target("avx512f,fma"))), 16, 14)
SET(avx2, __attribute__((target("avx2,fma"))), 8, 6)

#define BF16 __attribute__((target("avx512f,avx512bf16,fma")))
EACH_14(TILE_PAIRS, bf16, BF16, 16, 1)
EACH_14(TILE_PAIRS, bf16, BF16, 16, 2)
static const ct_gemm_set set_bf16 = {
    .name = "bf16",
    .lanes = 16,
    .rows = 14,
    .pair = 2,
    .tile = { { NAMES_14(bf16, 1, ) }, { NAMES_14(bf16, 2, ) } },
};
#endif
#if defined(__aarch64__)
SET(portable, , CT_SIMD_ANY_LANES, 14)
#else
SET(portable, , 4, 4)
#endif

int ct_gemm_set_all(bool bf16, const ct_gemm_set *set[CT_GEMM_MAX_SETS])
{
    ct_simd_level level = ct_simd_pick();
    int n = 0;

#if defined(__x86_64__) && defined(__GNUC__)
    if (bf16 && ct_simd_has_bf16()) set[n++] = &set_bf16;
    if (level >= CT_SIMD_AVX512) set[n++] = bf16 ? &set_avx512_rounds : &set_avx512;
    if (level >= CT_SIMD_AVX2) set[n++] = bf16 ? &set_avx2_rounds : &set_avx2;
#endif
    (void)level;
    set[n++] = bf16 ? &set_portable_rounds : &set_portable;
    set[n] = NULL;
    return n;
}

const ct_gemm_set *ct_gemm_set_pick(bool bf16)
{
    const ct_gemm_set *set[CT_GEMM_MAX_SETS];

    (void)ct_gemm_set_all(bf16, set);
    return set[0];
}

void ct_gemm_edge(const ct_gemm_set *s, int64_t rows, int64_t n, int64_t k, const float *a,
                  const float *b, const float *next, int64_t next_step, int vecs, float alpha,
                  float beta, float *c, int64_t ldc, bool turned)
{
    float tile[CT_GEMM_MAX_ROWS * CT_GEMM_MAX_WIDTH];
    int64_t width = (int64_t)vecs * s->lanes;
    int64_t step_i = turned ? 1 : ldc, step_j = turned ? ldc : 1;

    s->tile[vecs - 1][rows - 1](k, a, b, next, next_step, alpha, 0.0f, tile, width);
    if (turned) {
        for (int64_t j = 0; j < n; j++) {
            for (int64_t i = 0; i < rows; i++) {
                float *to = c + j * step_j + i;

                *to = ((beta == 0.0f) ? 0.0f : beta * *to) + tile[i * width + j];
            }
        }
        return;
    }
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < n; j++) {
            float *to = c + i * step_i + j;

            *to = ((beta == 0.0f) ? 0.0f : beta * *to) + tile[i * width + j];
        }
    }
}

/* ---- Products of few rows with a B that comes from memory: each number of B is read once, where
 * it lies, and nothing is packed.
 *
 * B transposed (rows lie along the sum): 16 partial sums an element, whatever the vectors are; term
 * q goes to sum q % 16. Some rows of B and some of A at a time stay in registers.
 * B as it is multiplied: rows of C take DEPTH rows of B at a time.
 *
 * Of bf16, A is rounded once, and B as it passes. */

enum {
    SUMS = 16,     /* partial sums of an element                           */
    MOST_ROWS = 8, /* of A, that a kernel takes at once                    */
    MOST_B = 4,    /* rows of B, likewise                                  */
    DEPTH = 8,     /* rows of B as it is multiplied                        */
    GRAIN = 64,    /* columns: parts of threads are whole ones of these    */
    TAKES_TURNED = CT_GEMM_FEW,
    TAKES_PLAIN = 4
};
/* Of B: less is not worth waking a team. */
static const double TEAM_BYTES = 5e5;

/** sum[row of B][row of A][SUMS] over k numbers, a multiple of SUMS; next: rows of B that will be
 *  read then, a stride further on. */
typedef void (*dot_fn)(int64_t k, const float *const *b, int64_t next, const float *a, int64_t lda,
                       float *sum);
/** c[row][0..n) += sum over q < k of a[row][q] b[q][..], n a multiple of two vectors. */
typedef void (*add_fn)(int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                       int64_t ldb, float *c, int64_t ldc);

typedef struct few_set {
    int lanes, most; /* most rows of A at once */
    int rows_b[MOST_ROWS];
    dot_fn dot[2][MOST_ROWS]; /* [rounds][rows of A - 1] */
    add_fn add[2][TAKES_PLAIN];
} few_set;

#define PLAIN(_x) (_x)
/* ct_bf16_from_f32() of a vector, as floats */
#define ROUND(_x)                                                                                  \
    ({                                                                                             \
        uvec bits = (uvec)(_x), odd = (bits >> 16) & 1;                                            \
        uvec near = (bits + odd + 0x7fff) & 0xffff0000u, is_nan = (uvec)((_x) != (_x));            \
        (vec)((near & ~is_nan) | ((bits | 0x400000) & 0xffff0000u & is_nan));                      \
    })

#define VECTORS(_lanes)                                                                            \
    typedef float vec __attribute__((vector_size(4 * (_lanes)), aligned(4), may_alias));           \
    typedef uint32_t uvec __attribute__((vector_size(4 * (_lanes)), aligned(4), may_alias, unused));

#define DOT(_name, _target, _lanes, _rows_b, _rows, _take)                                         \
    _target static void _name(int64_t k, const float *const *b, int64_t next, const float *a,      \
                              int64_t lda, float *sum)                                             \
    {                                                                                              \
        VECTORS(_lanes)                                                                            \
        enum { PARTS = SUMS / (_lanes) };                                                          \
        const vec zero = { 0.0f };                                                                 \
        vec acc[_rows_b][_rows][PARTS];                                                            \
                                                                                                   \
        UNROLL for (int r = 0; r < (_rows_b); r++)                                                 \
        {                                                                                          \
            UNROLL for (int i = 0; i < (_rows); i++)                                               \
            {                                                                                      \
                UNROLL for (int p = 0; p < PARTS; p++) acc[r][i][p] = zero;                        \
            }                                                                                      \
        }                                                                                          \
        for (int64_t q = 0; q < k; q += SUMS) {                                                    \
            UNROLL for (int r = 0; r < (_rows_b); r++) __builtin_prefetch(b[r] + next + q);        \
            UNROLL for (int p = 0; p < PARTS; p++)                                                 \
            {                                                                                      \
                vec x[_rows_b];                                                                    \
                                                                                                   \
                UNROLL for (int r = 0; r < (_rows_b); r++)                                         \
                {                                                                                  \
                    x[r] = *(const vec *)(b[r] + q + p * (_lanes));                                \
                    x[r] = _take(x[r]);                                                            \
                }                                                                                  \
                UNROLL for (int i = 0; i < (_rows); i++)                                           \
                {                                                                                  \
                    vec y = *(const vec *)(a + i * lda + q + p * (_lanes));                        \
                                                                                                   \
                    UNROLL for (int r = 0; r < (_rows_b); r++) acc[r][i][p] += x[r] * y;           \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        UNROLL for (int r = 0; r < (_rows_b); r++)                                                 \
        {                                                                                          \
            UNROLL for (int i = 0; i < (_rows); i++)                                               \
            {                                                                                      \
                UNROLL for (int p = 0; p < PARTS; p++) *                                           \
                    (vec *)(sum + (r * (_rows) + i) * SUMS + p * (_lanes)) = acc[r][i][p];         \
            }                                                                                      \
        }                                                                                          \
    }

#define FEW_ADD(_name, _target, _lanes, _rows, _take)                                              \
    _target static void _name(int64_t n, int64_t k, const float *a, int64_t lda, const float *b,   \
                              int64_t ldb, float *c, int64_t ldc)                                  \
    {                                                                                              \
        VECTORS(_lanes)                                                                            \
        for (int64_t j = 0; j < n; j += 2 * (_lanes)) {                                            \
            vec acc[_rows][2];                                                                     \
                                                                                                   \
            UNROLL for (int i = 0; i < (_rows); i++)                                               \
            {                                                                                      \
                UNROLL for (int v = 0; v < 2; v++) acc[i][v] =                                     \
                    *(const vec *)(c + i * ldc + j + v * (_lanes));                                \
            }                                                                                      \
            for (int64_t q = 0; q < k; q++) {                                                      \
                UNROLL for (int v = 0; v < 2; v++)                                                 \
                {                                                                                  \
                    vec x = *(const vec *)(b + q * ldb + j + v * (_lanes));                        \
                                                                                                   \
                    x = _take(x);                                                                  \
                    UNROLL for (int i = 0; i < (_rows); i++) acc[i][v] += a[i * lda + q] * x;      \
                }                                                                                  \
            }                                                                                      \
            UNROLL for (int i = 0; i < (_rows); i++)                                               \
            {                                                                                      \
                UNROLL for (int v = 0; v < 2; v++) * (vec *)(c + i * ldc + j + v * (_lanes)) =     \
                    acc[i][v];                                                                     \
            }                                                                                      \
        }                                                                                          \
    }

#define BOTH(_s, _t, _l, _b, _r)                                                                   \
    DOT(_s##_dot_##_r, _t, _l, _b, _r, PLAIN) DOT(_s##_dot_##_r##_rounds, _t, _l, _b, _r, ROUND)
#define ADDS(_s, _t, _l, _r)                                                                       \
    FEW_ADD(_s##_add_##_r, _t, _l, _r, PLAIN) FEW_ADD(_s##_add_##_r##_rounds, _t, _l, _r, ROUND)
#define ALL_ADDS(_s, _t, _l)                                                                       \
    ADDS(_s, _t, _l, 1) ADDS(_s, _t, _l, 2) ADDS(_s, _t, _l, 3) ADDS(_s, _t, _l, 4)
#define FEW_2(_s, _k) _s##_1##_k, _s##_2##_k
#define FEW_4(_s, _k) FEW_2(_s, _k), _s##_3##_k, _s##_4##_k
#define FEW_8(_s, _k) FEW_4(_s, _k), _s##_5##_k, _s##_6##_k, _s##_7##_k, _s##_8##_k
#define TABLES(_s, _most)                                                                          \
    .dot = { { FEW_##_most(_s##_dot, ) }, { FEW_##_most(_s##_dot, _rounds) } },                    \
    .add = { { FEW_4(_s##_add, ) }, { FEW_4(_s##_add, _rounds) } }

/* Sums, rows of B and one of A must fit into the registers: 32, or 16. */
#if defined(__x86_64__) && defined(__GNUC__)
#define AVX512 __attribute__((target("avx512f,fma")))
BOTH(avx512, AVX512, 16, 4, 1)
BOTH(avx512, AVX512, 16, 4, 2)
BOTH(avx512, AVX512, 16, 4, 3)
BOTH(avx512, AVX512, 16, 4, 4)
BOTH(avx512, AVX512, 16, 2, 5)
BOTH(avx512, AVX512, 16, 2, 6)
BOTH(avx512, AVX512, 16, 2, 7)
BOTH(avx512, AVX512, 16, 2, 8)
ALL_ADDS(avx512, AVX512, 16)
static const few_set few_avx512 = {
    .lanes = 16, .most = 8, .rows_b = { 4, 4, 4, 4, 2, 2, 2, 2 }, TABLES(avx512, 8)
};

#define AVX2 __attribute__((target("avx2,fma")))
BOTH(avx2, AVX2, 8, 4, 1)
BOTH(avx2, AVX2, 8, 2, 2)
BOTH(avx2, AVX2, 8, 1, 3)
BOTH(avx2, AVX2, 8, 1, 4)
ALL_ADDS(avx2, AVX2, 8)
static const few_set few_avx2 = {
    .lanes = 8, .most = 4, .rows_b = { 4, 2, 1, 1 }, TABLES(avx2, 4)
};
#endif
BOTH(any, , CT_SIMD_ANY_LANES, 2, 1)
BOTH(any, , CT_SIMD_ANY_LANES, 1, 2)
ALL_ADDS(any, , CT_SIMD_ANY_LANES)
static const few_set few_any = {
    .lanes = CT_SIMD_ANY_LANES, .most = 2, .rows_b = { 2, 1 }, TABLES(any, 2)
};

static const few_set *set_of(const ct_gemm_set *s)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (s->lanes == 16) return &few_avx512;
    if (s->lanes == 8) return &few_avx2;
#endif
    (void)s;
    return &few_any;
}

bool ct_gemm_is_few(const ct_gemm_desc *d)
{
    return !d->ta && (d->m <= (d->tb ? TAKES_TURNED : TAKES_PLAIN));
}

/* ---- B transposed */

static float total(const float *sum)
{
    float s[SUMS / 2];

    for (int i = 0; i < SUMS / 2; i++) s[i] = sum[i] + sum[i + SUMS / 2];
    for (int w = SUMS / 4; w > 0; w /= 2) {
        for (int i = 0; i < w; i++) s[i] += s[i + w];
    }
    return s[0];
}

/* Adds the terms behind the last whole SUMS. */
static void add_tail(const few_set *s, bool rounds, int rows, int rows_b, int64_t k, int64_t left,
                     const float *const *b, const float *a, int64_t lda, float *sum)
{
    float more[MOST_B * MOST_ROWS * SUMS], tail_b[MOST_B][SUMS] = { { 0 } };
    float tail_a[MOST_ROWS * SUMS] = { 0 };
    const float *at[MOST_B];

    for (int r = 0; r < rows_b; r++) {
        memcpy(tail_b[r], b[r] + k, (size_t)left * sizeof(float));
        at[r] = tail_b[r];
    }
    for (int i = 0; i < rows; i++)
        memcpy(tail_a + i * SUMS, a + i * lda + k, (size_t)left * sizeof(float));
    s->dot[rounds][rows - 1](SUMS, at, 0, tail_a, SUMS, more);
    for (int i = 0; i < rows_b * rows * SUMS; i++) sum[i] += more[i];
}

/* Columns [j, j + n) of C, at most as many as a kernel takes, of the rows [i, i + rows). */
static void run_dots(const few_set *s, const ct_gemm_desc *d, const ct_gemm_args *g, int64_t i,
                     int rows, int64_t j, int n)
{
    float sum[MOST_B * MOST_ROWS * SUMS];
    int64_t whole = d->k / SUMS * SUMS;
    int rows_b = s->rows_b[rows - 1];
    const float *b[MOST_B] = { NULL }, *a = g->a + i * g->lda;

    for (int r = 0; r < rows_b; r++) b[r] = g->b + (j + ((r < n) ? r : n - 1)) * g->ldb;
    s->dot[d->bf16][rows - 1](whole, b, rows_b * g->ldb, a, g->lda, sum);
    if (whole < d->k) add_tail(s, d->bf16, rows, rows_b, whole, d->k - whole, b, a, g->lda, sum);
    for (int r = 0; r < n; r++) {
        for (int p = 0; p < rows; p++) {
            float *c = g->c + (i + p) * g->ldc + j + r, v = total(sum + (r * rows + p) * SUMS);

            *c = g->alpha * v + ((g->beta == 0.0f) ? 0.0f : g->beta * *c);
        }
    }
}

/* All rows of A take some rows of B before the next ones come. */
static void run_turned(const few_set *s, const ct_gemm_desc *d, const ct_gemm_args *g, int64_t from,
                       int64_t to)
{
    int64_t tiles = ct_gemm_ceil_div(d->m, s->most);

    for (int64_t j = from; j < to; j += s->rows_b[0]) {
        int64_t end = ct_gemm_smaller(j + s->rows_b[0], to);

        for (int64_t t = 0; t < tiles; t++) {
            int64_t i = ct_gemm_tile_row(d->m, tiles, t);
            int rows = (int)(ct_gemm_tile_row(d->m, tiles, t + 1) - i), n = s->rows_b[rows - 1];

            for (int64_t c = j; c < end; c += n)
                run_dots(s, d, g, i, rows, c, (int)ct_gemm_smaller(n, end - c));
        }
    }
}

/* ---- B as it is multiplied */

static float round_value(bool bf16, float v)
{
    return bf16 ? ct_bf16_to_f32(ct_bf16_from_f32(v)) : v;
}

/* The columns [from, to) of C. */
static void run_plain(const few_set *s, const ct_gemm_desc *d, const ct_gemm_args *g, int64_t from,
                      int64_t to)
{
    int64_t step = 2 * (int64_t)s->lanes, whole = (to - from) / step * step;
    float a[TAKES_PLAIN * DEPTH];

    for (int64_t i = 0; i < d->m; i++) {
        float *c = g->c + i * g->ldc;

        for (int64_t j = from; j < to; j++) c[j] = (g->beta == 0.0f) ? 0.0f : g->beta * c[j];
    }
    for (int64_t q = 0; q < d->k; q += DEPTH) {
        int64_t deep = ct_gemm_smaller(DEPTH, d->k - q);
        const float *b = g->b + q * g->ldb;

        for (int64_t i = 0; i < d->m; i++) {
            for (int64_t p = 0; p < deep; p++)
                a[i * DEPTH + p] = g->alpha * g->a[i * g->lda + q + p];
        }
        s->add[d->bf16][d->m - 1](whole, deep, a, DEPTH, b + from, g->ldb, g->c + from, g->ldc);
        for (int64_t i = 0; i < d->m; i++) {
            for (int64_t j = from + whole; j < to; j++) {
                for (int64_t p = 0; p < deep; p++)
                    g->c[i * g->ldc + j] +=
                        a[i * DEPTH + p] * round_value(d->bf16, b[p * g->ldb + j]);
            }
        }
    }
}

void ct_gemm_run_few(const ct_gemm_plan *p, const ct_gemm_args *g)
{
    const ct_gemm_desc *d = &p->d;
    const few_set *s = set_of(p->set);
    int64_t grains = ct_gemm_ceil_div(d->n, GRAIN);
    double bytes = (double)d->n * (double)d->k * sizeof(float);
    int parts = (int)ct_gemm_smaller((d->n_thread > 1) ? d->n_thread : 1, grains);
    ct_gemm_args own = *g;

    if (d->bf16) {
        float *a = g->work;

        for (int64_t i = 0; i < d->m * d->k; i++)
            a[i] = round_value(true, ct_num_get(g->a, g->a16, i / d->k * g->lda + i % d->k));
        own.a = a;
        own.lda = d->k;
    }
    if ((bytes < TEAM_BYTES) || omp_in_parallel()) parts = 1;
#pragma omp parallel for num_threads(parts) schedule(static, 1) if (parts > 1)
    for (int v = 0; v < parts; v++) {
        int64_t from = grains * v / parts * GRAIN;
        int64_t to = ct_gemm_smaller(grains * (v + 1) / parts * GRAIN, d->n);

        (d->tb ? run_turned : run_plain)(s, d, &own, from, to);
    }
}
