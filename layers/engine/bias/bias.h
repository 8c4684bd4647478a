/** @file bias.h  A vector along the channel axis of an array n x c x s, both ways. */
#ifndef CT_ENGINE_BIAS_BIAS_H
#define CT_ENGINE_BIAS_BIAS_H

#include "layers/engine/engine.h"

typedef struct ct_bias_desc {
    ct_device_kind device;
    int n_thread;
    int64_t n, c, s; /* outer, channels, inner */
    int block;       /* of dy, channels that stand together, as in tensor.h; 0: plain order */
    bool bf16;       /* dy: in blocks, or with s = 1 */
    bool last;       /* on devices: dy is n x s x c, numbers of dtype; for gradients alone */
    ct_dtype dtype;
} ct_bias_desc;

typedef struct ct_bias_args {
    const float *bias; /* c                                              */
    float *y;          /* n x c x s: y[i][j][:] = bias[j]                */
    const float *dy;   /* n x c x s                                      */
    float *dbias;      /* c: beta dbias[j] + sum over i and s of dy      */
    float beta;        /* 0 overwrites                                   */
    const float *top;  /* NULL, or of engines that can: values of a ReLU. Where they are not
                        * positive dy becomes 0, and is added up so */
    float *masked;     /* then dy, to be written                         */
} ct_bias_args;

/** In ct_bias_impl.can: heeds args.top. */
enum { CT_BIAS_CAN_RELU = 1 };

CT_ENGINE(bias)

/** Fills y, in plain order alone; and the gradient by the vector. "simd", "ref", and of gradients
 * in blocks "blocked". */
extern const ct_bias_impl *const ct_bias_fill_table[];
extern const ct_bias_impl *const ct_bias_backward_table[];

/* ---- The implementations that bias's tables list. */

extern const ct_bias_impl ct_bias_simd_fill, ct_bias_simd_backward;
extern const ct_bias_impl ct_bias_ref_fill, ct_bias_ref_backward;
extern const ct_bias_impl ct_bias_blocked_backward;
extern const ct_bias_impl ct_bias_cuda_fill, ct_bias_cuda_backward;

#endif
