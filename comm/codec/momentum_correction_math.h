/** @file momentum_correction_math.h  What the accumulation (select.h) does to one element: the
 * CPU's loops and the CUDA kernels are made of the same lines, and round alike: on a device no
 * product is fused with the sum behind it. Private to comm/. */
#ifndef CT_ACCUM_MATH_H
#define CT_ACCUM_MATH_H

#include <math.h>
#include <stdbool.h>

#include "framework/base/hd.h"
#include "framework/base/simd.h"

#ifdef __CUDACC__
#define CT_ACCUM_FN CT_HD static inline
#else
#define CT_ACCUM_FN CT_SIMD_PART
#endif

CT_ACCUM_FN float ct_accum_mul(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}

CT_ACCUM_FN float ct_accum_add(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fadd_rn(a, b);
#else
    return a + b;
#endif
}

typedef struct ct_accum_factors {
    float scale, rate, momentum, decay, carry;
} ct_accum_factors;

/** U moves on; returns what the step adds to V. */
CT_ACCUM_FN float ct_accum_step(ct_accum_factors f, bool decays, bool nesterov, float g, float w,
                                float *u)
{
    float scaled = ct_accum_mul(f.scale, g), step = 0;

    if (decays) scaled = ct_accum_add(scaled, ct_accum_mul(f.decay, w));
    scaled = ct_accum_mul(f.rate, scaled);
    step = ct_accum_add(ct_accum_mul(f.momentum, *u), scaled);
    *u = step;
    return nesterov ? ct_accum_add(ct_accum_mul(f.momentum, step), scaled) : step;
}

/** … of a parameter that is not absorbed. */
CT_ACCUM_FN float ct_accum_plain(float scale, float g)
{
    return ct_accum_mul(scale, g);
}

/** V with what it held before, in this step's rate. */
CT_ACCUM_FN float ct_accum_keep(float carry, float v, float step)
{
    return ct_accum_add(ct_accum_mul(carry, v), step);
}

/** How much of V goes along with a dense step, of squares of the update and of V
 * (error_feedback.h). */
CT_HD static inline float ct_accum_share(double update, double v, int n_rank, float least)
{
    double share = (v > 0) ? sqrt(update / (v * n_rank)) : 1;

    if (share < (double)least) share = (double)least;
    return (share < 1) ? (float)share : 1.0f; /* 1 where it is not a number: that shows soon */
}

#endif
