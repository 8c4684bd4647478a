#include "framework/base/simd.h"
#include "layers/engine/conv/tile.h"

#include <stdbool.h>
#include <string.h>

#include "framework/base/memory.h"

/* Compiled with -ffp-contract=fast: multiply-adds are fused where the set has them. */
#define UNROLL _Pragma("GCC unroll 8")

#define TILE(_name, _target, _lanes, _rows, _vecs)                                                 \
    _target static void _name(int64_t n, const float *a, const float *b, const int64_t *off,       \
                              const float *start, float *c, int64_t ldc)                           \
    {                                                                                              \
        typedef float vec __attribute__((vector_size(4 * (_lanes)), aligned(4), may_alias));       \
        const vec zero = { 0.0f };                                                                 \
        vec acc[_rows][_vecs];                                                                     \
                                                                                                   \
        UNROLL for (int i = 0; i < (_rows); i++)                                                   \
        {                                                                                          \
            UNROLL for (int j = 0; j < (_vecs); j++)                                               \
            {                                                                                      \
                if (start != NULL)                                                                 \
                    acc[i][j] = zero + start[i];                                                   \
                else                                                                               \
                    acc[i][j] = *(const vec *)(c + i * ldc + j * (_lanes));                        \
            }                                                                                      \
        }                                                                                          \
        for (int64_t k = 0; k < n; k++) {                                                          \
            const float *row = b + off[k];                                                         \
            vec x[_vecs];                                                                          \
                                                                                                   \
            UNROLL for (int j = 0; j < (_vecs); j++) x[j] = *(const vec *)(row + j * (_lanes));    \
            UNROLL for (int i = 0; i < (_rows); i++)                                               \
            {                                                                                      \
                UNROLL for (int j = 0; j < (_vecs); j++) acc[i][j] += a[k * (_rows) + i] * x[j];   \
            }                                                                                      \
        }                                                                                          \
        UNROLL for (int i = 0; i < (_rows); i++)                                                   \
        {                                                                                          \
            UNROLL for (int j = 0; j < (_vecs); j++) * (vec *)(c + i * ldc + j * (_lanes)) =       \
                acc[i][j];                                                                         \
        }                                                                                          \
    }

#define TILE_SET(_set, _target, _lanes, _rows, _half)                                              \
    TILE(_set##_full1, _target, _lanes, _rows, 1)                                                  \
    TILE(_set##_full2, _target, _lanes, _rows, 2)                                                  \
    TILE(_set##_full3, _target, _lanes, _rows, 3)                                                  \
    TILE(_set##_half1, _target, _lanes, _half, 1)                                                  \
    TILE(_set##_half2, _target, _lanes, _half, 2)                                                  \
    TILE(_set##_half3, _target, _lanes, _half, 3)                                                  \
    static const ct_tile_set set_##_set = { .name = #_set,                                         \
                                            .lanes = (_lanes),                                     \
                                            .rows = (_rows),                                       \
                                            .full = { _set##_full1, _set##_full2, _set##_full3 },  \
                                            .half = { _set##_half1, _set##_half2,                  \
                                                      _set##_half3 } };

/* rows x 3 accumulators, 3 values and a factor must fit into the registers: 32, or 16 */
#if defined(__x86_64__) && defined(__GNUC__)
TILE_SET(avx512, __attribute__((target("avx512f,fma"))), 16, 8, 4)
TILE_SET(avx2, __attribute__((target("avx2,fma"))), 8, 4, 2)
#endif
#if defined(__aarch64__)
TILE_SET(portable, , CT_SIMD_ANY_LANES, 8, 4)
#else
TILE_SET(portable, , 4, 4, 2)
#endif

int ct_tile_all(const ct_tile_set *set[4])
{
    int n = 0;

#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx512f")) set[n++] = &set_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) set[n++] = &set_avx2;
#endif
    set[n++] = &set_portable;
    set[n] = NULL;
    return n;
}

const ct_tile_set *ct_tile_pick(void)
{
    const ct_tile_set *set[4];

    (void)ct_tile_all(set);
    return set[0];
}

enum {
    K_BLOCK = 768, /* rows of B per pass: with a tile's width it stays in a second-level cache */
    MAX_ROWS = 8,
    MAX_COLUMNS = 16 * CT_TILE_VECS
};

typedef struct tile_scratch {
    float edge[MAX_ROWS * MAX_COLUMNS];
    int64_t off[K_BLOCK];
    float b[]; /* the rows of a pass, as wide as a tile */
} tile_scratch;

static int64_t smaller(int64_t a, int64_t b)
{
    return (a < b) ? a : b;
}

size_t ct_tile_scratch(const ct_tile_set *s, int64_t k)
{
    int64_t columns = (int64_t)s->lanes * CT_TILE_VECS;

    return ct_align_up(sizeof(tile_scratch) +
                       (size_t)(smaller(k, K_BLOCK) * columns) * sizeof(float));
}

/* Width of the packed panel of the rows from `first` on. */
static int64_t panel_width(const ct_tile_set *s, int64_t first, int64_t m)
{
    return (m - first <= s->rows / 2) ? s->rows / 2 : s->rows;
}

int64_t ct_tile_packed(const ct_tile_set *s, int64_t m, int64_t k)
{
    int64_t last = (m > 0) ? (m - 1) / s->rows * s->rows : 0;

    return (m > 0) ? (last + panel_width(s, last, m)) * k : 0;
}

/* to[q][i] = a[i][q]; called with constant rows. */
static inline void transpose(int64_t rows, int64_t k, const float *a, int64_t lda, float *to)
{
    for (int64_t q = 0; q < k; q++) {
        for (int64_t i = 0; i < rows; i++) to[q * rows + i] = a[i * lda + q];
    }
}

void ct_tile_pack_part(const ct_tile_set *s, int64_t first, int64_t m, int64_t k_total,
                       int64_t k_from, int64_t k, const float *a, int64_t lda, float *packed)
{
    int64_t width = panel_width(s, first, m), rows = smaller(m - first, width);
    float *to = packed + first * k_total + k_from * width;

    a += first * lda;
    if ((rows == 8) && (width == 8)) {
        transpose(8, k, a, lda, to);
        return;
    }
    if ((rows == 4) && (width == 4)) {
        transpose(4, k, a, lda, to);
        return;
    }
    for (int64_t q = 0; q < k; q++) {
        for (int64_t i = 0; i < rows; i++) to[q * width + i] = a[i * lda + q];
        for (int64_t i = rows; i < width; i++) to[q * width + i] = 0.0f;
    }
}

/* The last columns, fewer than whole vectors, laid out with zeros behind them. */
static void pack_columns(const float *b, const int64_t *off, int64_t k, int64_t n, int64_t padded,
                         tile_scratch *t)
{
    for (int64_t q = 0; q < k; q++) {
        float *to = t->b + q * padded;

        for (int64_t j = 0; j < n; j++) to[j] = b[off[q] + j];
        for (int64_t j = n; j < padded; j++) to[j] = 0.0f;
        t->off[q] = q * padded;
    }
}

static void copy_tile(int64_t rows, int64_t n, const float *from, int64_t ld_from, float *to,
                      int64_t ld_to)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < n; j++) to[i * ld_to + j] = from[i * ld_from + j];
    }
}

/* One panel of A times one column of tiles; padded == n where the tile has whole vectors. */
static void run_tile(const ct_tile_set *s, const ct_tile_product *p, int64_t first, int64_t k_from,
                     int64_t k, const float *b, const int64_t *off, int64_t n, int64_t padded,
                     float *c, tile_scratch *t)
{
    int64_t width = panel_width(s, first, p->m), rows = smaller(p->m - first, width);
    const float *a = p->a + first * p->k_total + k_from * width;
    const float *start = ((p->start != NULL) && (k_from == p->from)) ? p->start + first : NULL;
    int64_t vecs = padded / s->lanes;
    ct_tile_fn fn = (width == s->rows) ? s->full[vecs - 1] : s->half[vecs - 1];

    if ((rows == width) && (n == padded)) {
        fn(k, a, b, off, start, c, p->ldc);
        return;
    }
    if (start == NULL) {
        memset(t->edge, 0, sizeof(t->edge));
        copy_tile(rows, n, c, p->ldc, t->edge, MAX_COLUMNS);
    }
    fn(k, a, b, off, start, t->edge, MAX_COLUMNS);
    copy_tile(rows, n, t->edge, MAX_COLUMNS, c, p->ldc);
}

void ct_tile_run(const ct_tile_set *s, const ct_tile_product *p)
{
    int64_t columns = (int64_t)s->lanes * CT_TILE_VECS;
    tile_scratch *t = p->scratch;

    for (int64_t k = p->from; k < p->to; k += K_BLOCK) {
        int64_t nk = smaller(p->to - k, K_BLOCK);

        for (int64_t j = 0; j < p->n; j += columns) {
            int64_t n = smaller(p->n - j, columns);
            int64_t padded = (n + s->lanes - 1) / s->lanes * s->lanes;
            const int64_t *off = p->off + (k - p->from);
            const float *b = p->b + j;

            if (n < padded) {
                pack_columns(b, off, nk, n, padded, t);
                b = t->b;
                off = t->off;
            }
            for (int64_t i = 0; i < p->m; i += s->rows)
                run_tile(s, p, i, k, nk, b, off, n, padded, p->c + i * p->ldc + j, t);
        }
    }
}
