/** @file conv_private.h  Shared by the convolution engines. */
#ifndef CT_ENGINE_CONV_PRIVATE_H
#define CT_ENGINE_CONV_PRIVATE_H

#include "layers/engine/conv/conv.h"

#include <string.h>

extern const ct_conv_impl ct_conv_ref_forward, ct_conv_ref_backward_data,
    ct_conv_ref_backward_weight;
extern const ct_conv_impl ct_conv_gemm_forward, ct_conv_gemm_backward_data,
    ct_conv_gemm_backward_weight;
extern const ct_conv_impl ct_conv_cuda_forward, ct_conv_cuda_backward_data,
    ct_conv_cuda_backward_weight;
extern const ct_conv_impl ct_conv_cudnn_forward, ct_conv_cudnn_backward_data,
    ct_conv_cudnn_backward_weight;
extern const ct_conv_impl ct_conv_cuda_last_forward, ct_conv_cuda_last_backward_data,
    ct_conv_cuda_last_backward_weight;
extern const ct_conv_impl ct_conv_cuda_depth_forward, ct_conv_cuda_depth_backward_data,
    ct_conv_cuda_depth_backward_weight;
extern const ct_conv_impl ct_conv_direct_forward, ct_conv_direct_backward_data,
    ct_conv_direct_backward_weight;
extern const ct_conv_impl ct_conv_blocked_forward, ct_conv_blocked_backward_data,
    ct_conv_blocked_backward_weight;
extern const ct_conv_impl ct_conv_nd_forward, ct_conv_nd_backward_data, ct_conv_nd_backward_weight;
extern const ct_conv_impl ct_conv_winograd_forward, ct_conv_winograd_backward_data,
    ct_conv_winograd_backward_weight, ct_conv_fold_backward_data;

extern const ct_conv_impl ct_conv_onednn_forward, ct_conv_onednn_backward_data,
    ct_conv_onednn_backward_weight;

static inline bool is_plain(const ct_conv_desc *d)
{
    return (d->x_block == 0) && (d->y_block == 0) && (d->n_front == 0) && !d->x_bf16 && !d->y_bf16;
}

/* Products over the axes in front of h and w: 1 where there are none. */
static inline int64_t front_taps(const ct_conv_desc *d)
{
    int64_t n = 1;

    for (int i = 0; i < d->n_front; i++) n *= d->front[i].kernel;
    return n;
}
static inline int64_t front_in(const ct_conv_desc *d)
{
    int64_t n = 1;

    for (int i = 0; i < d->n_front; i++) n *= d->front[i].in;
    return n;
}
static inline int64_t front_out(const ct_conv_desc *d)
{
    int64_t n = 1;

    for (int i = 0; i < d->n_front; i++) n *= d->front[i].out;
    return n;
}

/* Of one group: rows and columns of the products, and the steps from group to group. */
static inline int64_t group_m(const ct_conv_desc *d)
{
    return d->m / d->group;
}
static inline int64_t group_k(const ct_conv_desc *d)
{
    return d->c / d->group * d->kh * d->kw * front_taps(d);
}
static inline int64_t out_size(const ct_conv_desc *d)
{
    return d->oh * d->ow * front_out(d);
}
static inline int64_t in_size(const ct_conv_desc *d)
{
    return d->h * d->w * front_in(d);
}

/** The outputs [*lo_p, *hi_p) of `out` whose input o * stride + offset lies in [0, in). */
static inline void valid_range(int64_t offset, int64_t stride, int64_t in, int64_t out,
                               int64_t *lo_p, int64_t *hi_p)
{
    int64_t lo, hi;

    if ((offset >= 0) && (offset + (out - 1) * stride < in)) { /* usual: no division */
        *lo_p = 0;
        *hi_p = out;
        return;
    }
    lo = (offset >= 0) ? 0 : (-offset + stride - 1) / stride;
    hi = (offset >= in) ? 0 : (in - 1 - offset) / stride + 1;
    if (hi > out) hi = out;
    if (lo > hi) lo = hi;
    *lo_p = lo;
    *hi_p = hi;
}

/* Rows are short (an image's width), where a call of memcpy costs more than the copy. */
static inline void copy_row(float *to, const float *from, int64_t n)
{
    int64_t i = 0;

    for (; i + 8 <= n; i += 8) memcpy(to + i, from + i, 8 * sizeof(float));
    for (; i < n; i++) to[i] = from[i];
}

/* to[i] = from[i * stride]; usual strides as constants, which vectorise. */
static inline void pick_row(float *to, const float *from, int64_t n, int64_t stride)
{
    if (stride == 1) {
        copy_row(to, from, n);
    } else if (stride == 2) {
        for (int64_t i = 0; i < n; i++) to[i] = from[2 * i];
    } else if (stride == 4) {
        for (int64_t i = 0; i < n; i++) to[i] = from[4 * i];
    } else {
        for (int64_t i = 0; i < n; i++) to[i] = from[i * stride];
    }
}

static inline void zero_row(float *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = 0.0f;
}

/** Unfolds channels [c_from, c_to) of one image's group (x at the group's channel 0) into rows of
 *  col[C/G KH KW][OH OW]. */
void ct_im2col(const ct_conv_desc *d, int64_t c_from, int64_t c_to, const float *x, float *col);
/** The adjoint: overwrites channels [c_from, c_to) of dx with the sums of col's entries. */
void ct_col2im(const ct_conv_desc *d, int64_t c_from, int64_t c_to, const float *col, float *dx);
/** The same over any number of axes; threads share the channels. */
void ct_im2col_nd(const ct_conv_desc *d, int64_t channels, const float *x, float *col);
void ct_col2im_nd(const ct_conv_desc *d, int64_t channels, const float *col, float *dx);

#endif
