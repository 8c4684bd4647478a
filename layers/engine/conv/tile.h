/** @file tile.h  A matrix product C = C + A B whose B is a table of row addresses; private to
 * conv/.
 *
 * Row k of B starts at b + off[k], so a convolution's columns need not be laid out: rows may
 * overlap. The innermost routine keeps a tile of C in registers (rows x vectors), in one version
 * for AVX-512, one for AVX2 and a portable one; the processor decides which.
 */
#ifndef CT_ENGINE_CONV_TILE_H
#define CT_ENGINE_CONV_TILE_H

#include <stddef.h>
#include <stdint.h>

/** c[i][0..vecs lanes) = start[i], or what stood there where start is NULL, + sum over k < n of
 *  a[k][i] (b + off[k])[0..vecs lanes), for i < rows. */
typedef void (*ct_tile_fn)(int64_t n, const float *a, const float *b, const int64_t *off,
                           const float *start, float *c, int64_t ldc);

enum { CT_TILE_VECS = 3 };

typedef struct ct_tile_set {
    const char *name;
    int lanes, rows; /* floats of a vector; rows of a tile, even  */
    ct_tile_fn full[CT_TILE_VECS], half[CT_TILE_VECS]; /* [vectors - 1]; rows, and rows / 2     */
} ct_tile_set;

/** The set for this processor. */
const ct_tile_set *ct_tile_pick(void);
/** All sets that this processor runs, best first, then NULL; for tests. */
int ct_tile_all(const ct_tile_set *set[4]);

/** C (m x n, row stride ldc) = start + A[:, from..to) B, with A packed over k_total columns and row
 * k of B at b + off[k - from]. Reads n floats of a row, no more. */
typedef struct ct_tile_product {
    int64_t m, n, k_total, from, to;
    const float *a;
    const float *b;
    const int64_t *off;
    const float *start; /* m rounded up to whole tiles: a value for each row of C; NULL: C itself */
    float *c;
    int64_t ldc;
    void *scratch; /* ct_tile_scratch() bytes, 8-byte aligned */
} ct_tile_product;

void ct_tile_run(const ct_tile_set *s, const ct_tile_product *p);
/** Bytes of scratch for products with sums over at most k rows. */
size_t ct_tile_scratch(const ct_tile_set *s, int64_t k);

/** Floats of A (m x k) when packed: panels of `rows` rows, each k columns one after the other; the
 *  last panel is half as high where that holds it. Rows that do not exist are zero. */
int64_t ct_tile_packed(const ct_tile_set *s, int64_t m, int64_t k);
/** Packs columns [k_from, k_from + k) of the panel that begins at row `first` (a multiple of rows)
 *  of A, m x k_total; `a`: row 0, column k_from, as stored with row stride lda. */
void ct_tile_pack_part(const ct_tile_set *s, int64_t first, int64_t m, int64_t k_total,
                       int64_t k_from, int64_t k, const float *a, int64_t lda, float *packed);

#endif
