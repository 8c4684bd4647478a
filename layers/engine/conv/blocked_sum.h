/** @file blocked_sum.h  How the sum of blocked.h is cut; private to conv/.
 *
 * A task is a strip of outputs of a group (rows of an image, or several small images), for some
 * output blocks. It goes through as many input blocks at a time as a second-level cache holds x of;
 * for these through the pairs of output blocks; for each through the chunks of the sum (some input
 * blocks, or some tap rows of one) whose weights stay near; and for each chunk
 * through the strip. An output's sum is the same for any strips and threads.
 */
#ifndef CT_ENGINE_CONV_BLOCKED_SUM_H
#define CT_ENGINE_CONV_BLOCKED_SUM_H

#include "layers/engine/conv/blocked.h"

typedef struct ct_sum_plan {
    int64_t in_block, out_block;
    int64_t images, rows, cols;    /* of a strip                                         */
    int64_t n_image, n_row, n_col; /* strips along them                                  */
    int64_t n_part, pairs;         /* tasks with the same strip; output pairs of each    */
    int64_t n_task;
    int64_t super, chunk; /* input blocks whose x, whose weights stay in a cache */
    int64_t chunk_p;      /* tap rows of a chunk, where that is one block       */
    int64_t weights;      /* packed words of a pair of input and output blocks  */
    int64_t own;          /* words of x that a thread copies, rounded; 0: none  */
    bool deep;            /* the next input block's x is fetched ahead, not the next tile's      */
    bool stream;          /* y passes the caches by                                    */
    int64_t room;         /* floats of sums that a thread keeps, until they are rounded; 0: none */
} ct_sum_plan;

/** Without neighbours an image is one row. */
ct_blk_sum ct_sum_flat(const ct_blk_sum *s);
/** Of what ct_sum_flat() gives. */
ct_sum_plan ct_sum_make_plan(const ct_blk_sum *s);
/** Whether each output is summed up in one go. */
bool ct_sum_is_at_once(const ct_blk_sum *s, const ct_sum_plan *p);
/** Output blocks whose sums wait as f32 until they are complete, where y is bf16. */
int64_t ct_sum_kept_blocks(const ct_sum_plan *p);

/* The work: which tap is used where; what sums start with, [group][block][b]; weights, [group][pair
 * of output blocks][input block][p][q][word of channels][vecs][b]; copies of x and room, a thread
 * each. */
/** Makes the first two; before threads pack pieces. */
void ct_sum_pack_start(const ct_blk_sum *s, const ct_sum_plan *p);
/** Piece i of all: an input block of a pair of output blocks of a group. */
void ct_sum_pack_piece(const ct_blk_sum *s, const ct_sum_plan *p, int64_t i);
const float *ct_sum_start(const ct_blk_sum *s, const ct_sum_plan *p, int64_t g);
/** Of the pair that begins at `block`. */
float *ct_sum_packed(const ct_blk_sum *s, const ct_sum_plan *p, int64_t g, int64_t block);
/** Floats in front of the copies. */
int64_t ct_sum_copies_at(const ct_blk_sum *s, const ct_sum_plan *p);

#endif
