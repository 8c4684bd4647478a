/** @file head_loss.h  A fully connected layer and the SoftmaxWithLoss behind it as one group, over
 * blocks of rows: scores are in memory a block at a time. Private to layers/.
 *
 * A second product for backward would be a third of the work. So forward makes the gradients, too,
 * where they are wanted: of a block with probabilities P and one-hot labels Y
 *
 *     G = (P - Y) loss_weight / divisor,  dX = G W,  dW += G^T X,  db += the sums of G's columns.
 *
 * The weights' gradients are written where backward would write them. The bottom's is kept until
 * backward. Blocks follow each other, so sums have one order with any number of threads. Of rows
 * whose label is ignored nothing is computed.
 *
 * Parts of the classes exchange three numbers of each row, a block at a time. Blocks have the same
 * rows on all parts, whatever the classes that they have.
 */
#ifndef CT_TYPES_HEAD_LOSS_H
#define CT_TYPES_HEAD_LOSS_H

#include "layers/types/product.h"

/** Scores of fewer bytes are kept whole: layers that run alone then are as fast, or faster. */
#define CT_HEAD_LEAST ((size_t)32 << 20)
/** A block has at least so many rows, since each block reads all weights. */
enum { CT_HEAD_ROWS = 256 };
/** It has more rows where its scores take fewer bytes than this. */
#define CT_HEAD_BLOCK_BYTES ((size_t)8 << 20)

/** The group as its runner, the fully connected layer, sees it. */
typedef struct ct_head {
    ct_instance *loss; /* NULL: there is no such group               */
    int64_t m, n, k;   /* rows, classes, inputs                      */
    int64_t most;      /* classes of the largest part; all: n        */
    bool transpose, bias;
    int64_t rows;                 /* of a block, at most              */
    ct_product product[CT_N_RUN]; /* of so many rows                  */
    float loss_weight;
    bool bf16; /* inputs are bf16 numbers, and so is their gradient */
} ct_head;

/** Buffers of the instance: a block's scores with what stands beside them; the gradient of the
 *  bottom, of the rows that count; where the rows' gradients lie there, or -1. */
enum { CT_HEAD_BLOCK = 5, CT_HEAD_DIFF, CT_HEAD_PLACE };

/** join: h has m, n, k, transpose and bias. False where the group is not worth it, or cannot be:
 *  then nothing has changed. work_p: bytes that the products need of buffer `work`. */
bool ct_head_make(const ct_layer *l, ct_instance *in, ct_head *h, size_t *work_p);
/** Part 0 counts labels, part 1 does the rest: the parts of the loss. */
ct_status ct_head_part(const ct_layer *l, ct_instance *in, ct_exec *ex, const ct_head *h,
                       void *work, int part);
/** Both, with the sum over the ranks between them. */
ct_status ct_head_forward(const ct_layer *l, ct_instance *in, ct_exec *ex, const ct_head *h,
                          void *work);
/** Hands the bottom's gradient on. */
ct_status ct_head_backward(const ct_layer *l, ct_instance *in, ct_exec *ex, const ct_head *h);
void ct_head_drop(ct_head *h);

#endif
