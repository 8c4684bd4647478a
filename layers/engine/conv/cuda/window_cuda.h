/** @file window_cuda.h  im2col and its adjoint over any number of axes, n images at once. */
#ifndef CT_WINDOW_CUDA_H
#define CT_WINDOW_CUDA_H

#include "layers/engine/conv/conv.h"

/** col[n][channel and taps][outputs], numbers of `to`, from x[n][channel][inputs], and dx
 *  (overwritten) from col. */
ct_status ct_cuda_im2col(ct_exec *ex, const ct_conv_desc *d, ct_operand to, int64_t n,
                         const float *x, void *col);
ct_status ct_cuda_col2im(ct_exec *ex, const ct_conv_desc *d, int64_t n, const float *col,
                         float *dx);

#endif
