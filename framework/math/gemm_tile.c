/* Tiles of C that stay in registers. Compiled with -ffp-contract=fast: its sums are products added
 * up, fused where the processor can. */
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
#define TILE_BODY(_add, _lanes, _rows, _vecs, _b_step, _take)                                      \
    typedef float vec __attribute__((vector_size(4 * (_lanes)), aligned(4), may_alias));           \
    const vec zero = { 0.0f };                                                                     \
    vec acc[_rows][_vecs];                                                                         \
                                                                                                   \
    UNROLL for (int i = 0; i < (_rows); i++)                                                       \
    {                                                                                              \
        UNROLL for (int j = 0; j < (_vecs); j++)                                                   \
            __builtin_prefetch(c + i * ldc + j * (_lanes), 1);                                     \
        __builtin_prefetch(c + i * ldc + (_vecs) * (_lanes)-1, 1);                                 \
        UNROLL for (int j = 0; j < (_vecs); j++) acc[i][j] = zero;                                 \
    }                                                                                              \
    for (int64_t q = 0; q < k; q++) {                                                              \
        vec x[_vecs];                                                                              \
                                                                                                   \
        UNROLL for (int j = 0; j < (_vecs); j++) x[j] = *(const vec *)(b + j * (_lanes));          \
        _take UNROLL for (int i = 0; i < (_rows); i++)                                             \
        {                                                                                          \
            UNROLL for (int j = 0; j < (_vecs); j++) _add(acc[i][j], a[i], x[j]);                  \
        }                                                                                          \
        a += (_rows);                                                                              \
        b += (_b_step);                                                                            \
    }                                                                                              \
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

/* Row q of what is read next. */
#define SOON(_lanes, _vecs)                                                                        \
    UNROLL for (int j = 0; j < (_vecs); j++) __builtin_prefetch(next + j * (_lanes));              \
    next += (_vecs) * (_lanes);

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
    keep += (_vecs) * (_lanes);

#define TILE_OF(_add, _name, _target, _lanes, _rows, _vecs)                                        \
    _target static void _name(int64_t k, const float *a, const float *b, const float *next,        \
                              float alpha, float beta, float *c, int64_t ldc)                      \
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

enum { AHEAD = 32 };

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
                  const float *b, const float *next, int vecs, float alpha, float beta, float *c,
                  int64_t ldc, bool turned)
{
    float tile[CT_GEMM_MAX_ROWS * CT_GEMM_MAX_WIDTH];
    int64_t width = (int64_t)vecs * s->lanes;
    int64_t step_i = turned ? 1 : ldc, step_j = turned ? ldc : 1;

    s->tile[vecs - 1][rows - 1](k, a, b, next, alpha, 0.0f, tile, width);
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
