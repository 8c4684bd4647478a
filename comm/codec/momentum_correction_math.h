/** @file momentum_correction_math.h  What the accumulation (select.h) does to one element. The
 * CPU's loops and the CUDA kernels are made of the same lines, and round alike: on a device no
 * product is fused with the sum behind it. Private to comm/. */
#ifndef CT_MOMENTUM_CORRECTION_MATH_H
#define CT_MOMENTUM_CORRECTION_MATH_H

#include <math.h>
#include <stdbool.h>

#include "framework/base/simd.h"

#ifdef __CUDACC__
#define CT_MOMENTUM_CORRECTION_FN CT_HD static inline
#else
#define CT_MOMENTUM_CORRECTION_FN CT_SIMD_PART
#endif

CT_MOMENTUM_CORRECTION_FN float ct_momentum_correction_mul(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}

CT_MOMENTUM_CORRECTION_FN float ct_momentum_correction_add(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fadd_rn(a, b);
#else
    return a + b;
#endif
}

typedef struct ct_momentum_correction_factors {
    float scale, rate, momentum, decay, carry;
} ct_momentum_correction_factors;

/** U moves on; returns what the step adds to V. */
CT_MOMENTUM_CORRECTION_FN float ct_momentum_correction_step(ct_momentum_correction_factors f,
                                                            bool decays, bool nesterov, float g,
                                                            float w, float *u)
{
    float scaled = ct_momentum_correction_mul(f.scale, g), step = 0;

    if (decays) scaled = ct_momentum_correction_add(scaled, ct_momentum_correction_mul(f.decay, w));
    scaled = ct_momentum_correction_mul(f.rate, scaled);
    step = ct_momentum_correction_add(ct_momentum_correction_mul(f.momentum, *u), scaled);
    *u = step;
    return nesterov
               ? ct_momentum_correction_add(ct_momentum_correction_mul(f.momentum, step), scaled)
               : step;
}

/** … of a parameter that is not absorbed. */
CT_MOMENTUM_CORRECTION_FN float ct_momentum_correction_plain(float scale, float g)
{
    return ct_momentum_correction_mul(scale, g);
}

/** V with what it held before, in this step's rate. */
CT_MOMENTUM_CORRECTION_FN float ct_momentum_correction_keep(float carry, float v, float step)
{
    return ct_momentum_correction_add(ct_momentum_correction_mul(carry, v), step);
}

/** How much of V goes along with a dense step, of squares of the update and of V
 * (codec_side.h). */
CT_HD static inline float ct_momentum_correction_share(double update, double v, int n_rank,
                                                       float least)
{
    double share = (v > 0) ? sqrt(update / (v * n_rank)) : 1;

    if (share < (double)least) share = (double)least;
    return (share < 1) ? (float)share : 1.0f; /* 1 where it is not a number: that shows soon */
}

#endif
