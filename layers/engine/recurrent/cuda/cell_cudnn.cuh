/** @file cell_cudnn.cuh  cuDNN's description of a recurrent layer. Included by cell*_cudnn.cu. */
#ifndef CT_CELL_CUDNN_CUH
#define CT_CELL_CUDNN_CUH

#include "layers/engine/cudnn.cuh"
#include "layers/engine/recurrent/cell.h"

enum { CT_CELL_GATES = 4, CT_CELL_MATRICES = 2 * CT_CELL_GATES };

typedef struct ct_cell_dnn {
    ct_cell_desc desc;
    cudnnRNNDescriptor_t rnn;
    cudnnRNNDataDescriptor_t x, y;
    cudnnTensorDescriptor_t state;
    size_t weights, work, reserve; /* bytes */
    bool gaps;                     /* parts of the weights' block belong to no weight */
    int64_t w[CT_CELL_MATRICES],
        b[CT_CELL_GATES]; /* its gates' places in the block: of W_x, of W_h  */
    bool there;
} ct_cell_dnn;

/** That of d, until the next call; NULL: no memory. */
const ct_cell_dnn *ct_cell_dnn_find(const ct_cell_desc *d);
bool ct_cell_dnn_supports(const ct_cell_desc *d);

static inline int ct_cell_gates(const ct_cell_desc *d)
{
    return d->lstm ? CT_CELL_GATES : 1;
}

static inline bool ct_cell_is_narrow(const ct_cell_desc *d)
{
    return ct_operand_size(d->operand) == sizeof(uint16_t);
}

#endif
