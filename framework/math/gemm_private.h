/** @file gemm_private.h  The innermost routines of gemm.h; private to framework/math, tests, and
 * engines with products inside other loops (layers/engine/attention). */
#ifndef CT_GEMM_PRIVATE_H
#define CT_GEMM_PRIVATE_H

#include "framework/math/gemm.h"

enum { CT_GEMM_MAX_ROWS = 14, CT_GEMM_VECS = 2, CT_GEMM_MAX_WIDTH = 32 /* floats */ };
enum { CT_GEMM_MAX_SETS = 5 };

/* Panels are counted in words of 32 bits. A word is one value, or a pair of bf16 numbers that
 * follow one another in the sum, the first in the lower half. An odd sum's last word has a zero. */

/** c[i][0..vecs lanes) = alpha sum over q < k words of a[q][i] b[q][0..vecs lanes) + beta c[i][..]
 * for i of rows; a: k x rows, b: k x vecs lanes; beta == 0 does not read c. next: vecs lanes
 * floats there are fetched meanwhile a word, and next_step further on with the following one. */
typedef void (*ct_gemm_fn)(int64_t k, const float *a, const float *b, const float *next,
                           int64_t next_step, float alpha, float beta, float *c, int64_t ldc);

/** The same with b as it is stored, k rows ldb apart, of which keep gets a packed copy. */
typedef void (*ct_gemm_first_fn)(int64_t k, const float *a, const float *b, int64_t ldb,
                                 float *keep, float alpha, float beta, float *c, int64_t ldc);

struct ct_gemm_set {
    const char *name;
    int lanes, rows;                                 /* floats of a vector, most rows of a tile */
    int pair;                                        /* values of a word                        */
    bool rounds;                                     /* values to bf16, where they stay floats  */
    ct_gemm_fn tile[CT_GEMM_VECS][CT_GEMM_MAX_ROWS]; /* [vectors - 1][rows - 1]     */
    ct_gemm_first_fn first[CT_GEMM_MAX_ROWS];        /* [rows - 1], of two vectors; NULL: none */
};

/** The best set that ct_simd_pick() allows. */
const ct_gemm_set *ct_gemm_set_pick(bool bf16);
/** All of them, best first, then NULL; for tests. */
int ct_gemm_set_all(bool bf16, const ct_gemm_set *set[CT_GEMM_MAX_SETS]);

/** to[q][i] = from[i row + q column] for i < n, q < k; to: words(k) x width, zero where i >= n. One
 *  of row and column is 1. */
void ct_gemm_pack_panel(const ct_gemm_set *s, int64_t n, int64_t k, const float *from, int64_t row,
                        int64_t column, float *to, int64_t width);

/** The same from bf16 numbers, which are n <= CT_GEMM_MAX_WIDTH, where bf16 is set. */
void ct_gemm_pack_numbers(const ct_gemm_set *s, bool bf16, int64_t n, int64_t k, const float *from,
                          int64_t row, int64_t column, float *to, int64_t width);

/** to[q width + i] = from[i row + q] for i < n, q < k, and nothing else: of floats as they are. */
void ct_gemm_turn(const ct_gemm_set *s, int64_t n, int64_t k, const float *from, int64_t row,
                  float *to, int64_t width);

/** Tile t of `tiles` that rows [0, m) are cut into: heights that differ by at most 1. */
static inline int64_t ct_gemm_tile_row(int64_t m, int64_t tiles, int64_t t)
{
    int64_t least = m / tiles, more = m % tiles;

    return t * least + ((t < more) ? t : more);
}

/** A panel of `rows` rows times one of n <= vecs lanes columns, where a whole tile would not fit
 *  into C, or C lies turned (c[j ldc + i]). */
void ct_gemm_edge(const ct_gemm_set *s, int64_t rows, int64_t n, int64_t k, const float *a,
                  const float *b, const float *next, int64_t next_step, int vecs, float alpha,
                  float beta, float *c, int64_t ldc, bool turned);

static inline int64_t ct_gemm_smaller(int64_t a, int64_t b)
{
    return (a < b) ? a : b;
}

static inline int64_t ct_gemm_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t ct_gemm_round_up(int64_t a, int64_t b)
{
    return ct_gemm_ceil_div(a, b) * b;
}

/** Of k values. */
static inline int64_t ct_gemm_words(const ct_gemm_set *s, int64_t k)
{
    return ct_gemm_ceil_div(k, s->pair);
}

static inline int64_t ct_gemm_panel(const ct_gemm_set *s)
{
    return (int64_t)CT_GEMM_VECS * s->lanes;
}

enum { CT_GEMM_FEW = 16 /* rows, at most */ };
/** Whether few rows of A meet a B that is read as it lies. By m and the transpositions alone. */
bool ct_gemm_is_few(const ct_gemm_desc *d);
/** The product of a plan that is `few`; alpha, k and all sizes are not 0. work: of bf16 alone, m k
 *  floats. */
void ct_gemm_run_few(const ct_gemm_plan *p, const ct_gemm_args *g);

/** The versions for another set. */
ct_gemm_plan ct_gemm_plan_for(const ct_gemm_set *s, const ct_gemm_desc *d);
void ct_gemm_pack_for(const ct_gemm_set *s, const ct_gemm_desc *d, const float *b, int64_t ldb,
                      float *packed);
void ct_gemm_run_packed_for(const ct_gemm_set *s, const ct_gemm_desc *d, const ct_gemm_args *g,
                            const float *packed, bool last_first);

#endif
