/** @file conv.h  2-D convolution (cross-correlation, as in Caffe), its three directions.
 *
 *   y[n][m][i][j] = bias[m] + sum over c, p, q of
 *                   weight[m][c][p][q] x[n][g C/G + c][i sh - ph + p dh][j sw - pw + q dw]
 * with g = m / (M/G) and x zero outside; NCHW, weight M x C/G x KH x KW.
 */
#ifndef CT_ENGINE_CONV_CONV_H
#define CT_ENGINE_CONV_CONV_H

#include <string.h>

#include "layers/engine/engine.h"

/** One spatial axis. */
typedef struct ct_conv_axis {
    int64_t in, out, kernel, stride, pad, dilation;
} ct_conv_axis;

enum { CT_CONV_FRONT = 5 };

typedef struct ct_conv_desc {
    ct_device_kind device;
    int n_thread;
    int64_t n, group;
    int64_t c, h, w;   /* input channels (of all groups) and size */
    int64_t m, oh, ow; /* output                                  */
    int64_t kh, kw, sh, sw, ph, pw, dh, dw;
    int x_block, y_block; /* layout of x and dx, and of y and dy: 0 is NCHW, as weights always are;
                           * b [N][C / b][H][W][b], where channels beyond C hold anything finite */
    int n_front;          /* spatial axes in front of h and w: "nd" alone has them */
    ct_conv_axis front[CT_CONV_FRONT]; /* outermost first                                        */
    bool bf16;           /* x, weight and dy may be rounded to bfloat16 where they are multiplied */
    bool x_bf16, y_bf16; /* x and dx, y and dy are bf16 numbers: in blocks, and where bf16 is set */
    bool x_last,
        y_last;         /* on devices: x and dx, y and dy are numbers of `operand`'s 16 bits, and
                         * channels come last: [N][H][W][C]. x_last without y_last is not asked for */
    ct_operand operand; /* the same on devices; on the CPU only bf16 counts */
    int winograd; /* outputs, along an axis, of the largest tile that it may use: 4, 2, 0 never */
    bool as_one; /* "auto" chooses as for one sample, so that its bits are the same beside others */
} ct_conv_desc;

typedef struct ct_conv_args {
    const float *x, *weight, *bias; /* bias NULL: none              */
    const float *dy;
    float *y;       /* forward: overwritten                         */
    float *dx;      /* backward_data: overwritten                   */
    float *dweight; /* backward_weight: beta dweight + the gradient */
    float beta;     /* 0 overwrites even NaN                        */
    void *work;     /* workspace() bytes                            */
    bool relu;      /* forward: y is 0 where it would be below; only where the engine can */
} ct_conv_args;

/** In ct_conv_impl.can: of a forward engine, that it heeds args.relu; of any, desc.bf16. */
enum { CT_CONV_CAN_RELU = 1, CT_CONV_CAN_BF16 = 2 };

CT_ENGINE_TIMED(conv)

extern const ct_conv_impl *const ct_conv_forward_table[];
extern const ct_conv_impl *const ct_conv_backward_data_table[];
extern const ct_conv_impl *const ct_conv_backward_weight_table[];

/** Output length along an axis; less than 1 where the kernel does not fit. */
static inline int64_t ct_conv_out(int64_t in, int64_t kernel, int64_t stride, int64_t pad,
                                  int64_t dilation)
{
    int64_t room = in + 2 * pad - (dilation * (kernel - 1) + 1);

    return (room < 0) ? 0 : room / stride + 1;
}

/* ---- Shared by the convolution engines. */

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

/* ---- the same on CUDA, n images at once */

#ifdef __cplusplus
extern "C" {
#endif

/** col[n][channel and taps][outputs], numbers of `to`, from x[n][channel][inputs], and dx
 *  (overwritten) from col. */
ct_status ct_cuda_im2col(ct_exec *ex, const ct_conv_desc *d, ct_operand to, int64_t n,
                         const float *x, void *col);
ct_status ct_cuda_col2im(ct_exec *ex, const ct_conv_desc *d, int64_t n, const float *col,
                         float *dx);

#ifdef __cplusplus
}
#endif

#endif
