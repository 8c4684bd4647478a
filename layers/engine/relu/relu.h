/** @file relu.h  Rectifier: y = x where x >= 0, else slope x (0 where slope is 0, even of -inf).
 *  NaN passes. The gradient at 0 is slope, as in Caffe. */
#ifndef CT_ENGINE_RELU_RELU_H
#define CT_ENGINE_RELU_RELU_H

#include "layers/engine/engine.h"

typedef struct ct_relu_desc {
    ct_device_kind device;
    int n_thread;
    int64_t count;
    float slope;
    bool bf16;      /* all arrays are: addresses of bf16 numbers */
    ct_dtype dtype; /* of all arrays, on devices */
} ct_relu_desc;

typedef struct ct_relu_args {
    const float *x; /* count; backward: its sign counts, so y may stand here where slope >= 0 */
    float *y;       /* may be x                                                               */
    const float *dy;
    float *dx; /* dy where x > 0, else slope dy; may be dy                                    */
} ct_relu_args;

CT_ENGINE(relu)

extern const ct_relu_impl *const ct_relu_forward_table[];
extern const ct_relu_impl *const ct_relu_backward_table[];

/* ---- The implementations that relu's tables list. */

extern const ct_relu_impl ct_relu_simd_forward, ct_relu_simd_backward;
extern const ct_relu_impl ct_relu_ref_forward, ct_relu_ref_backward;
extern const ct_relu_impl ct_relu_cuda_forward, ct_relu_cuda_backward;

#endif
