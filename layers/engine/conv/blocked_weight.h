/** @file blocked_weight.h  Weight gradients on blocked layouts; private to conv/.
 *
 * A task is some output blocks x some input blocks of a group, for a slice of the places of all
 * images; its part of dW stays in a second-level cache. It goes through its places in units, some
 * rows of an image or several small images, which stay in a first-level cache while all taps of a
 * pair of output blocks and an input block take them.
 */
#ifndef CT_ENGINE_CONV_BLOCKED_WEIGHT_H
#define CT_ENGINE_CONV_BLOCKED_WEIGHT_H

#include "layers/engine/conv/blocked.h"

typedef struct ct_grad_plan {
    ct_blk_set set;
    int64_t in, out, in_block, out_block; /* channels of a group, and its blocks               */
    int64_t in_step, out_step;            /* blocks of a task                                  */
    int64_t n_in, n_out;                  /* tasks along them                                  */
    int64_t images, rows, cols;           /* of a unit                                         */
    int64_t n_image, n_row, n_col;        /* units along them                                  */
    int64_t n_task, n_slice;
    int64_t weights; /* floats of a pair of an input and an output block  */
    int64_t part;    /* floats of a task's dW                             */
    int64_t own;     /* words of a unit that a thread copies, rounded     */
} ct_grad_plan;

/** A place where things are: the unit, and the blocks. */
typedef struct ct_grad_place {
    int64_t n, images, i, i_end, j, j_end, g, block, k;
    int64_t first_k, first_block; /* of the task                    */
    const float *x, *dy;          /* copies of them, where there are */
    int64_t x_top, x_rows;        /* rows of the copy of x          */
} ct_grad_place;

/** Words that a thread needs for copies of a unit, where operands are rounded; else 0. */
int64_t ct_grad_copied(const ct_conv_desc *d, const ct_grad_plan *p);
/** What blocks [first_k, last_k) of x and [first_block, last_block) of dy hold of a unit, to `own`.
 */
void ct_grad_copy_unit(const ct_conv_desc *d, const ct_grad_plan *p, const ct_conv_args *a,
                       ct_grad_place *l, int64_t last_k, int64_t last_block, float *own);
/** All taps of one pair of output blocks and one input block over a unit, from its copies. */
void ct_grad_add_copies(const ct_conv_desc *d, const ct_grad_plan *p, const ct_grad_place *l,
                        float *dw);

#endif
