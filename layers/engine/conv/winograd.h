/** @file winograd.h  Winograd's minimal filtering on blocked layouts; private to conv/.
 *
 * F(m x m, r x r): m x m outputs of a plane from n x n inputs d, n = m + r - 1, and r x r weights
 * g, y = A^T [ (G g G^T) . (B^T d B) ] A, the product taken place by place, so that each place is a
 * product of matrices over channels. (S. Winograd 1980; A. Lavin, S. Gray, CVPR 2016.) With n - 1
 * points p_i and infinity (Toom and Cook; A. Barabasz et al., ACM TOMS 46, 2020), N_i the product
 * of p_i - p_k over k != i and M(x) that of all x - p_k: row i of B^T has the coefficients of M(x)
 * / (x - p_i), the last those of M; row i of G is (1, p_i, … p_i^(r-1)) / N_i, the last (0, …, 0,
 * 1); column i of A^T is p_i^0 … p_i^(m-1), the last (0, …, 0, 1). Points: 0, 1, -1 for n = 4, F(2
 * x 2, 3 x 3); 0, 5/8, -5/8, 3/2, -3/2 for n = 6, F(4 x 4, 3 x 3) and F(2 x 2, 5 x 5), where B and
 * A are exact in f32 and errors half those with 0, 1, -1, 2, -2. The gradients are the transposed
 * maps: by data the same with turned weights, or, where dy has fewer tiles, dd = B [ (G g G^T) . (A
 * dy A^T) ] B^T, which overlap; by weights dg = G^T [ (A dy A^T) . (B^T d B) ] G, summed over all
 * tiles before the outer map.
 *
 * Error, to first order, u = 2^-24 (each value meets at most k roundings on its way; Higham,
 * Accuracy and Stability of Numerical Algorithms, 3.1): element by element
 *   |computed - exact| <= k u |A^T| [ sum over channels of (|G||g||G^T|) . (|B^T||d||B|) ] |A|,
 * k = channels + CT_WINO_ROUNDINGS (by weights: tiles of the batch in place of channels, G^T and A
 * outside and inside; by data with tiles of dy: A inside, B outside, of all tiles that meet, and k
 * is CT_WINO_MEETING more). Where all |d| are one value and all |g| another, compare it with the
 * bound of the plain sum with the same k. It is at most 63 times that, 39 in the mean of a tile
 * (F(4 x 4, 3 x 3)), or 46 and 43 (F(2 x 2, 5 x 5)), or 7 (F(2 x 2, 3 x 3)). In bf16 both mapped
 * operands are rounded once more, by v = 2^-8 at most: k u becomes (1 + v)^2 k u + 2 v + v^2.
 */
#ifndef CT_ENGINE_CONV_WINOGRAD_H
#define CT_ENGINE_CONV_WINOGRAD_H

#include "layers/engine/conv/blocked.h"

enum {
    CT_WINO_ROUNDINGS = 32, /* of three maps along two axes, 5 each at most, and two more */
    CT_WINO_MEETING = 9,    /* tiles of dy that meet in a place of dx, at most            */
    CT_WINO_MAX = 6,        /* inputs of a tile along an axis                             */
    CT_WINO_MAX_TAPS = 5,   /* of weights along an axis                                   */
    CT_WINO_KINDS = 3       /* F(2 x 2, 3 x 3), F(4 x 4, 3 x 3), F(2 x 2, 5 x 5)          */
};

/** Part of a plane of a block: n x n from (row, col) on, zeros outside of h x w. */
typedef struct ct_wino_patch {
    const float *plane;
    int64_t row, col, h, w;
    bool bf16; /* its numbers are */
} ct_wino_patch;

/** Places are `step` floats apart in the transformed tiles. */
typedef struct ct_wino_maps {
    int m, taps; /* outputs of a tile, and weights, along an axis */
    void (*in)(const ct_wino_patch *p, float *to, int64_t step);   /* B^T d B           */
    void (*grad)(const ct_wino_patch *p, float *to, int64_t step); /* A dy A^T          */
    /** B from B^T, added to what lies at `to`, rows `row` floats apart. */
    void (*back)(const float *from, int64_t step, float *to, int64_t row);
    /** A^T from A + bias, into what lies inside of the plane y, of the patch's dtype. */
    void (*out)(const float *from, int64_t step, const float *bias, const ct_wino_patch *at,
                float *y);
    /** G g G^T of taps that are tap_step floats apart. */
    void (*weight)(const float *taps, int64_t tap_step, float *to, int64_t step);
    /** G^T from G, taps one after the other. */
    void (*dweight)(const float *from, int64_t step, float *taps);
} ct_wino_maps;

extern const ct_wino_maps ct_wino_map[CT_BLK_LEVELS][CT_WINO_KINDS];

/** Places of a tile along an axis. */
static inline int wino_places(const ct_wino_maps *map)
{
    return map->m + map->taps - 1;
}

/** The sum of blocked.h for square weights, step 1, as tiles. */
typedef struct ct_wino_sum {
    ct_blk_set set;
    const ct_wino_maps *map;
    int n_thread;
    int64_t n, group, in, out;    /* channels of a group: of x, of y                */
    int64_t h, w, oh, ow;         /* planes of x and y                              */
    int64_t row, col;             /* in x of the first tap of output (0, 0); adjoint: of y */
    int64_t w_group, w_out, w_in; /* floats from group to group, channel to channel */
    bool relu;                    /* on y at last              */
    bool x_bf16, y_bf16;          /* they are bf16 numbers     */
    bool turned;                  /* the last tap is the first                      */
    bool same_x;                  /* groups are slices of y's channels: x is that of all */
    bool adjoint; /* by data, as the forward pass transposed: tiles of x, not of y */
    const float *x, *weight, *bias;
    float *y, *work;
} ct_wino_sum;

/** Makes slices of y's channels where few tiles meet many weights: of one slice after the other the
 *  weights are mapped, which takes less memory and no more time. Sums stay as they are. */
void ct_wino_slice(ct_wino_sum *s);
/** Slices of `out` channels that bytes which grow with them are cut to, of one group whose tiles
 * are mapped only once; 1: none. */
int64_t ct_wino_slices(int64_t bytes, int64_t out, int64_t b);
int64_t ct_wino_sum_work(const ct_wino_sum *s);
ct_status ct_wino_sum_run(const ct_wino_sum *s, ct_exec *ex);

/** What runs d; NULL: none may. Six places a tile only where d->winograd is 4, four from 2 on. */
const ct_wino_maps *ct_wino_maps_of(const ct_conv_desc *d);

/** Whether the gradient by data is the forward pass transposed, B [ (G g G^T) . (A dy A^T) ] B^T
 * with tiles of dy that meet in dx, which are fewer where kernels reach beyond the plane. */
bool ct_wino_is_adjoint(const ct_conv_desc *d);

/** Whether "auto" takes it. */
bool ct_wino_prefers(const ct_conv_desc *d);
/** The same of forward and by data. */
bool ct_wino_prefers_sum(const ct_conv_desc *d);

/** Floats from place to place of transformed tiles of n floats: those of one tile then lie in
 *  different sets of a cache. */
static inline int64_t wino_step(int64_t n)
{
    return (n + 1023) / 1024 * 1024 + 16;
}

/** Tile t of all images: image, and where its outputs begin. */
static inline void wino_at(int64_t t, int64_t tiles_h, int64_t tiles_w, int m, int64_t *image_p,
                           int64_t *row_p, int64_t *col_p)
{
    *image_p = t / (tiles_h * tiles_w);
    *row_p = t / tiles_w % tiles_h * m;
    *col_p = t % tiles_w * m;
}

/** Fetches what the n x n from (row, col) on of a plane hold beyond the tile before it. */
static inline void wino_fetch(const ct_wino_patch *p, int64_t n, int64_t b)
{
    int64_t last = blk_smaller(p->row + n, p->h);

    for (int64_t i = blk_larger(p->row, 0); i < last; i++) {
        for (int64_t j = blk_larger(2, -p->col); j < blk_smaller(n, p->w - p->col); j++)
            __builtin_prefetch(ct_num_at(p->plane, p->bf16, (i * p->w + p->col + j) * b));
    }
}

/** Fetches tile t's share of a plane, one of `per` after the other, into a second-level cache. */
static inline void wino_fetch_share(const float *plane, bool bf16, int64_t size, int64_t t,
                                    int64_t per)
{
    int64_t line = bf16 ? 32 : 16, end = size * (t + 1) / per;

    for (int64_t i = size * t / per; i < end; i += line)
        __builtin_prefetch(ct_num_at(plane, bf16, i), 0, 2);
}

#endif
