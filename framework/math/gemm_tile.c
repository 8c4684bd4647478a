/* Tiles of C that stay in registers. Compiled with -ffp-contract=fast: its sums are products added
 * up, fused where the processor can. */
#include "framework/base/simd.h"
#include "framework/math/gemm_private.h"

#define UNROLL _Pragma("GCC unroll 16")

#define TILE(_name, _target, _lanes, _rows, _vecs)                                                 \
    _target static void _name(int64_t k, const float *a, const float *b, float alpha, float beta,  \
                              float *c, int64_t ldc)                                               \
    {                                                                                              \
        typedef float vec __attribute__((vector_size(4 * (_lanes)), aligned(4), may_alias));       \
        const vec zero = { 0.0f };                                                                 \
        vec acc[_rows][_vecs];                                                                     \
                                                                                                   \
        UNROLL for (int i = 0; i < (_rows); i++)                                                   \
        {                                                                                          \
            __builtin_prefetch(c + i * ldc, 1);                                                    \
            __builtin_prefetch(c + i * ldc + (_vecs) * (_lanes)-1, 1);                             \
            UNROLL for (int j = 0; j < (_vecs); j++) acc[i][j] = zero;                             \
        }                                                                                          \
        for (int64_t q = 0; q < k; q++) {                                                          \
            vec x[_vecs];                                                                          \
                                                                                                   \
            UNROLL for (int j = 0; j < (_vecs); j++) x[j] = *(const vec *)(b + j * (_lanes));      \
            UNROLL for (int i = 0; i < (_rows); i++)                                               \
            {                                                                                      \
                UNROLL for (int j = 0; j < (_vecs); j++) acc[i][j] += a[i] * x[j];                 \
            }                                                                                      \
            a += (_rows);                                                                          \
            b += (_vecs) * (_lanes);                                                               \
        }                                                                                          \
        UNROLL for (int i = 0; i < (_rows); i++)                                                   \
        {                                                                                          \
            UNROLL for (int j = 0; j < (_vecs); j++)                                               \
            {                                                                                      \
                vec *to = (vec *)(c + i * ldc + j * (_lanes));                                     \
                                                                                                   \
                if (beta == 0.0f)                                                                  \
                    *to = alpha * acc[i][j];                                                       \
                else                                                                               \
                    *to = beta * *to + alpha * acc[i][j];                                          \
            }                                                                                      \
        }                                                                                          \
    }

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
#define NAMES_4(_s, _v) _s##_##_v##_1, _s##_##_v##_2, _s##_##_v##_3, _s##_##_v##_4
#define NAMES_6(_s, _v) NAMES_4(_s, _v), _s##_##_v##_5, _s##_##_v##_6
#define NAMES_14(_s, _v)                                                                           \
    NAMES_6(_s, _v), _s##_##_v##_7, _s##_##_v##_8, _s##_##_v##_9, _s##_##_v##_10, _s##_##_v##_11,  \
        _s##_##_v##_12, _s##_##_v##_13, _s##_##_v##_14

#define SET(_set, _target, _lanes, _rows)                                                          \
    EACH_##_rows(TILE, _set, _target, _lanes, 1) EACH_##_rows(TILE, _set, _target, _lanes, 2)      \
        static const ct_gemm_set set_##_set = {                                                    \
            .name = #_set,                                                                         \
            .lanes = (_lanes),                                                                     \
            .rows = (_rows),                                                                       \
            .tile = { { NAMES_##_rows(_set, 1) }, { NAMES_##_rows(_set, 2) } },                    \
        };

#if defined(__x86_64__) && defined(__GNUC__)
SET(avx512, __attribute__((target("avx512f,fma"))), 16, 14)
SET(avx2, __attribute__((target("avx2,fma"))), 8, 6)
#endif
#if defined(__aarch64__)
SET(portable, , 4, 14)
#else
SET(portable, , 4, 4)
#endif

int ct_gemm_set_all(const ct_gemm_set *set[4])
{
    ct_simd_level level = ct_simd_pick();
    int n = 0;

#if defined(__x86_64__) && defined(__GNUC__)
    if (level >= CT_SIMD_AVX512) set[n++] = &set_avx512;
    if (level >= CT_SIMD_AVX2) set[n++] = &set_avx2;
#endif
    (void)level;
    set[n++] = &set_portable;
    set[n] = NULL;
    return n;
}

const ct_gemm_set *ct_gemm_set_pick(void)
{
    const ct_gemm_set *set[4];

    (void)ct_gemm_set_all(set);
    return set[0];
}

void ct_gemm_edge(const ct_gemm_set *s, int64_t rows, int64_t n, int64_t k, const float *a,
                  const float *b, int vecs, float alpha, float beta, float *c, int64_t ldc,
                  bool turned)
{
    float tile[CT_GEMM_MAX_ROWS * CT_GEMM_MAX_WIDTH];
    int64_t width = (int64_t)vecs * s->lanes;
    int64_t step_i = turned ? 1 : ldc, step_j = turned ? ldc : 1;

    s->tile[vecs - 1][rows - 1](k, a, b, alpha, 0.0f, tile, width);
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
