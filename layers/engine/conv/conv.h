/** @file conv.h  2-D convolution (cross-correlation, as in Caffe), its three directions.
 *
 *   y[n][m][i][j] = bias[m] + sum over c, p, q of
 *                   weight[m][c][p][q] x[n][g C/G + c][i sh - ph + p dh][j sw - pw + q dw]
 * with g = m / (M/G) and x zero outside; NCHW, weight M x C/G x KH x KW.
 */
#ifndef CT_ENGINE_CONV_H
#define CT_ENGINE_CONV_H

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

#endif
