/** @file device_norm.h  Batch normalisation on devices with the tail that it runs, whole passes at
 * a time: the table that engines are chosen from, by name or by timing. The maths is
 * batch_norm.h's.
 */
#ifndef CT_DEVICE_NORM_H
#define CT_DEVICE_NORM_H

#include "layers/engine/batch_norm/batch_norm.h"
#include "layers/engine/engine.h"

typedef struct ct_device_norm_desc {
    ct_device_kind device;
    ct_dtype dtype;  /* of all that has places; the rest is f32 */
    int64_t n, c, s; /* samples, channels, places of each       */
    bool last;       /* channels come last                      */
    bool in_place;   /* y is x, and dx is dy                    */
    bool fixed;      /* statistics are given, not the batch's   */
    float eps;
    bool affine, add, relu; /* the tail                                             */
    bool by_top;            /* backward: whether the ReLU passed is read from y, not made again */
    int n_dy;               /* gradients of y                                                 */
    bool wants_g;           /* the gradient of `add`                                          */
    bool wants_dx;          /* of x                                                           */
} ct_device_norm_desc;

/** Vectors have c numbers. `back.map` is forward's; its mean and inv_std are these. */
typedef struct ct_device_norm_args {
    ct_batch_norm_back back;
    float *mean, *inv_std; /* what x is normalised by: forward writes, backward reads them */
    /* Forward: sums that decay, as Caffe's layer keeps them. Fixed statistics are moving_mean and
     * moving_var over factor[0], or 0 where that is; otherwise each becomes decay times itself plus
     * the batch's (of the variance m / (m - 1) of it, over m values), the factor plus 1. */
    float *moving_mean, *moving_var, *factor;
    float decay;
    float *scale_diff, *bias_diff; /* backward: of the tail's weights; NULL: not wanted */
    bool add_scale, add_bias;      /* to what is there */
    void *work;
} ct_device_norm_args;

/** In ct_device_norm_impl.can. Of forward: its y can be made again from x with mean and inv_std, so
 *  backward need not read it; of backward: dx may be a dy. */
enum { CT_DEVICE_NORM_REMADE = 1, CT_DEVICE_NORM_OVER = 2 };

CT_ENGINE_TIMED(device_norm)

extern const ct_device_norm_impl ct_device_norm_cuda_forward, ct_device_norm_cuda_backward;
extern const ct_device_norm_impl ct_device_norm_cudnn_forward, ct_device_norm_cudnn_backward;
extern const ct_device_norm_impl *const ct_device_norm_forward_table[];
extern const ct_device_norm_impl *const ct_device_norm_backward_table[];

#endif
