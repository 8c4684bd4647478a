/** @file blocked.h  Convolution on blocked layouts: its sums, its tiles, and operands rounded to
 * bfloat16; private to conv/. */
#ifndef CT_ENGINE_CONV_BLOCKED_H
#define CT_ENGINE_CONV_BLOCKED_H

#include "framework/base/bf16.h"
#include "framework/base/simd.h"
#include "layers/engine/conv/conv.h"

/* ---- Operands of products rounded to bfloat16 (to the nearest, ties to even), on
 * their way into the buffers that tiles read.
 *
 * Buffers are counted in words of 32 bits, which pass as floats. Where the processor multiplies
 * pairs (AVX512_BF16), a word is a pair of bf16 numbers, the first in the lower half, and tiles of
 * pairs read them. Elsewhere it is a float that was rounded, and the usual tiles do. Rounding moves
 * a number by 2^-8 of itself at most (below 2^-126: to 0, with pairs). */

typedef struct ct_narrow {
    int pair; /* values of a word: 2 or 1 */
    /** Neighbours in words: to[r to_step + k] = x[r step + pair k and on], k < n / pair, of `rows`
     *  rows. n is a multiple of 8. */
    void (*along)(int64_t rows, int64_t n, const float *x, int64_t step, float *to,
                  int64_t to_step);
    /** Two arrays in words: to[r to_step + k] = (a, b)[r step + k], k < n, a multiple of 8; b NULL:
     *  zeros. With words of one value a alone is there. */
    void (*across)(int64_t rows, int64_t n, const float *a, const float *b, int64_t step, float *to,
                   int64_t to_step);
    /** The same of arrays of bf16 numbers. */
    void (*across_bf16)(int64_t rows, int64_t n, const float *a, const float *b, int64_t step,
                        float *to, int64_t to_step);
    /** Results as bf16 numbers: `rows` runs of n of them, a multiple of 8, step and to_step numbers
     *  apart. relu: 0 where they are below. */
    void (*out)(int64_t rows, int64_t n, bool relu, const float *x, int64_t step, float *to,
                int64_t to_step);
} ct_narrow;

/** As ct_simd_has_bf16() says. */
const ct_narrow *ct_narrow_pick(void);

/* ---- Convolution on blocked layouts, [N][C / b][H][W][b].
 *
 * Both directions by data are one sum. For outputs (i, j) of a grid, with affine input positions,
 *   y[i][j][lanes of a block] = start + sum over input blocks, p, q and channels c of
 *       x[i si_h + row_first + p row_step][j si_w + col_first + q col_step][c]
 * weight[p][q][c][lanes] where taps outside of x are left out, not multiplied by zeros. Forward has
 * si = stride; backward by data one such sum for each remainder of dx's rows and columns by the
 * stride, with si = 1.
 *
 * The innermost routine, a tile, keeps some outputs of a row x 1 or 2 output blocks in registers,
 * over a part of the input blocks whose weights stay in a first-level cache. */

enum {
    CT_BLK_MAX = 16,      /* channels of a block, at most               */
    CT_BLK_MAX_TILE = 16, /* outputs of a tile, at most                 */
    CT_BLK_MAX_VECS = 2,  /* output blocks of a tile, at most           */
    CT_BLK_MAX_PLAIN = 4  /* channels of a group that are read unblocked */
};

/** One tile. Steps in floats; weights [block][p][q][channel][vecs][b]. */
typedef struct ct_blk_tile {
    const float *x;      /* row 0, column 0 of the first block                  */
    const float *weight; /* of the first block, tap row p_lo                    */
    const float *start;  /* [vecs][b]; NULL: what stands in y                   */
    float *y;            /* the first output                                    */
    int64_t x_row, x_block, weight_block, y_step, y_block;
    int64_t n_block, last;      /* input blocks; channels of the last one, 1 to b      */
    int64_t row, row_step;      /* input row of tap row p_lo                           */
    int64_t n_p;                /* tap rows, all inside                                */
    int64_t col, col_step, n_q; /* of the first output; may lie outside                */
    int64_t si, w;              /* from output to output; columns of x                 */
    int64_t soon;               /* words from a place to one that is fetched ahead     */
    bool relu;                  /* on what is stored                                   */
    bool stream;                /* y passes the caches by                              */
} ct_blk_tile;

/** One tile whose taps are a table: y[i] = start (y[i] where NULL) + sum over k < n of (x +
 * off[k])[i] weight[k]. */
typedef struct ct_blk_list {
    const float *x, *weight, *start;
    const int64_t *off;
    float *y;
    int64_t n, y_step, y_block;
} ct_blk_list;

/** A tile of weight gradients: dw[r] += sum over images n, rows i and columns j of
 *  (x + n x_image + i x_row + j x_step)[r] (dy + n dy_image + i dy_row + j b)[lanes], r < height.
 */
typedef struct ct_blk_grad {
    const float *x, *dy;
    float *dw; /* [r][vecs][b] */
    int64_t images, rows, cols;
    int64_t x_image, x_row, x_step, dy_image, dy_row, dy_block;
} ct_blk_grad;

/* Operands of tiles are counted in words of 32 bits: floats, or pairs of bf16 numbers (ct_narrow).
 * In pairs, channels c and c + 1 of x and of the weights are a word. So a block of x has half as
 * many, and `last` counts those. Of weight gradients, places j and j + 1 of x and of dy are a
 * word. */
typedef void (*ct_blk_tile_fn)(const ct_blk_tile *t);
typedef void (*ct_blk_list_fn)(const ct_blk_list *t);
typedef void (*ct_blk_grad_fn)(const ct_blk_grad *t);

enum { CT_BLK_LEVELS = CT_SIMD_AVX512 + 1 };

/** [instruction set][vecs - 1][outputs - 1]; NULL beyond max_tile. */
extern const ct_blk_tile_fn ct_blk_tiles[CT_BLK_LEVELS][CT_BLK_MAX_VECS][CT_BLK_MAX_TILE];
extern const ct_blk_list_fn ct_blk_lists[CT_BLK_LEVELS][CT_BLK_MAX_VECS][CT_BLK_MAX_TILE];
extern const ct_blk_grad_fn ct_blk_grads[CT_BLK_LEVELS][CT_BLK_MAX_VECS][CT_BLK_MAX_TILE];
/** Of pairs, for AVX512_BF16. */
extern const ct_blk_tile_fn ct_blk_tiles_pair[CT_BLK_MAX_VECS][CT_BLK_MAX_TILE];
extern const ct_blk_list_fn ct_blk_lists_pair[CT_BLK_MAX_VECS][CT_BLK_MAX_TILE];
extern const ct_blk_grad_fn ct_blk_grads_pair[CT_BLK_MAX_VECS][CT_BLK_MAX_TILE];

/** What of them fits into the registers. */
typedef struct ct_blk_set {
    ct_simd_level level;
    int b;
    int max_tile[CT_BLK_MAX_VECS]; /* outputs, with so many vecs less 1 */
    const ct_narrow *narrow;       /* NULL: operands stay f32                         */
    int pair, words;               /* values of a word; words of a block of channels  */
    const ct_blk_tile_fn (*tiles)[CT_BLK_MAX_TILE];
    const ct_blk_list_fn (*lists)[CT_BLK_MAX_TILE];
    const ct_blk_grad_fn (*grads)[CT_BLK_MAX_TILE];
} ct_blk_set;

/** The set of ct_simd_pick(); operands rounded to bf16, or not. */
ct_blk_set ct_blk_pick(bool bf16);

/** to[j][i] = from[i][j] for i < rows, j < cols; rows are `step` and `to_step` floats apart. */
void ct_blk_turn(int64_t rows, int64_t cols, const float *from, int64_t step, float *to,
                 int64_t to_step);

/** The sum above over all images, groups and blocks. Sizes of blocks in channels of one group. */
typedef struct ct_blk_sum {
    ct_blk_set set;
    int n_thread;
    int64_t n, group, in, out;         /* channels of a group: of x, of y                  */
    int64_t h, w, y_h, y_w;            /* planes of x and y                                */
    int64_t oh, ow;                    /* the grid of outputs, at …                        */
    int64_t row, col, so_h, so_w;      /* … (row + i so_h, col + j so_w) of y              */
    int64_t si_h, si_w;                /* from output to output in x                       */
    int64_t n_p, row_first, row_step;  /* tap rows; row_step > 0                           */
    int64_t n_q, col_first, col_step;  /* tap columns; col_step > 0                        */
    const float *x, *weight, *bias;    /* weight as its owner keeps it; bias NULL: none    */
    int64_t w_group, w_out, w_in;      /* floats from group to group, channel to channel   */
    int64_t w_taps, w_first, w_p, w_q; /* taps, KH KW; the first one used, steps to others */
    float *y, *work;                   /* ct_blk_sum_work() floats                         */
    bool relu;                         /* on what stands in y at last                      */
    bool x_bf16, y_bf16;               /* they are bf16 numbers                            */
} ct_blk_sum;

/** Rounded on the way to where tiles read it (set.narrow is there). Of one input and one output
 * block, `real` lanes and `n` channels of it: words of weights to[(map[tap] words + word) lanes +
 * lane]; `map` says where a tap of the owner's is among those used. -1: it is not. `to` has zeros
 * for all else. */
void ct_blk_pack_words(const ct_blk_sum *s, const int64_t *map, int64_t real, int64_t n,
                       int64_t lanes, const float *from, float *to);
/** The place in x that a task reads: blocks [block, block + n_block) of n images, rows and columns
 *  from (top, left) on; and its copy in words, [image][block][rows][cols][words]. */
typedef struct ct_blk_patch {
    int64_t n, images, g, block, n_block, top, rows, left, cols;
} ct_blk_patch;
void ct_blk_narrow_patch(const ct_blk_sum *s, const ct_blk_patch *at, float *to);

/** y[i] = 0 where it is below. For what was just written, a row at a time. */
void ct_blk_rectify(int64_t n, float *y);
/** The same of bf16 numbers. */
void ct_blk_rectify_bf16(int64_t n, float *y);

/** x plain f32 with few channels, y blocked: first layers. Nothing by data. In bf16 x is rounded on
 *  the way. */
bool ct_blk_supports_first(const ct_conv_desc *d);
size_t ct_blk_first_workspace(const ct_conv_desc *d);
ct_status ct_blk_first_forward(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a);
size_t ct_blk_first_weight_workspace(const ct_conv_desc *d);
ct_status ct_blk_first_weight(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a);

/** Depthwise, both layouts blocked, all f32: s->group channels, each with a kernel; s->in and out
 * unused. */
bool ct_blk_supports_depth(const ct_conv_desc *d);
int64_t ct_blk_depth_work(const ct_blk_sum *s);
ct_status ct_blk_depth_run(const ct_blk_sum *s, ct_exec *ex);
size_t ct_blk_depth_weight_workspace(const ct_conv_desc *d);
ct_status ct_blk_depth_weight(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a);

/** Both layouts blocked, and groups that are whole blocks. */
bool ct_blk_supports(const ct_conv_desc *d);

/** 1 x 1 with a stride, which skips most of x: what is used of it is copied together first, since
 *  strided lines fall into few sets of a cache. Backward by data the other way round. */
bool ct_blk_is_sparse(const ct_conv_desc *d);
/** The same convolution of what is used. */
ct_conv_desc ct_blk_dense(const ct_conv_desc *d);
/** Floats of what is used of x. */
int64_t ct_blk_dense_floats(const ct_conv_desc *d);
/** Both in parallel: x to dense, and dense to dx, with zeros between. */
void ct_blk_gather(const ct_conv_desc *d, const float *x, float *dense);
void ct_blk_spread(const ct_conv_desc *d, const float *dense, float *dx);
int64_t ct_blk_sum_work(const ct_blk_sum *s);
ct_status ct_blk_sum_run(const ct_blk_sum *s, ct_exec *ex);

static inline int64_t blk_count(int64_t channels, int64_t b)
{
    return (channels + b - 1) / b;
}

/** Into how many parts the pairs of output blocks of each of some items are cut, so that the thread
 *  that has most to do has least. extra: what a part costs besides, in sixteenths of a pair. */
static inline int64_t blk_cut_pairs(int64_t items, int64_t pairs, int64_t extra, int n_thread)
{
    int64_t best = 1, least = INT64_MAX;

    for (int64_t n = 1; n <= pairs; n++) {
        int64_t share = blk_count(items * n, n_thread) * (16 * blk_count(pairs, n) + extra);

        if (share < least) best = n, least = share;
    }
    return best;
}
static inline int64_t blk_smaller(int64_t a, int64_t b)
{
    return (a < b) ? a : b;
}
static inline int64_t blk_larger(int64_t a, int64_t b)
{
    return (a > b) ? a : b;
}

#endif
