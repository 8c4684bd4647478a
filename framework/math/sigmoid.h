/** @file sigmoid.h  exp, sigmoid and tanh of one float, made to be inlined into loops that the
 * compiler turns into vectors: no calls, no branches, no tables.
 *
 * Against the exact values: exp within 2 units of the last place, sigmoid within 4, tanh within 3,
 * for every finite argument; results below the smallest normal number may be 0. NaN stays NaN.
 */
#ifndef CT_SIGMOID_H
#define CT_SIGMOID_H

#include <stdint.h>
#include <string.h>

#include "framework/base/simd.h"

/** e^x = (1 + what is returned) 2^*k_p, k whole; |x| at most 110. */
CT_HD static inline float ct_exp_reduce(float x, float *k_p)
{
    const float round_up = 0x1.8p23f; /* adding and taking it off rounds to a whole number */
    float k, r, p;

    k = (x * 0x1.715476p+0f + round_up) - round_up; /* 1 / ln 2 */
    r = x - k * 0x1.62ep-1f;                        /* ln 2 in two parts, the first exact in k r */
    r = r - k * 0x1.0bfbe8p-15f;
    /* Taylor's, to r^7 / 7!: |r| <= 0.35, what is left out is below 6e-9 */
    p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    *k_p = k;
    return p * (r * r) + r;
}

/** 2^k for whole k in [-126, 127]; NaN: some number. */
CT_HD static inline float ct_power_of_two(float k)
{
    /* by its exponent bits; k + 0x1.8p23 has k in its lowest bits, also where k is NaN */
    float power = k + (0x1.8p23f + 127.0f);
    uint32_t bits;

    memcpy(&bits, &power, sizeof(bits));
    bits <<= 23;
    memcpy(&power, &bits, sizeof(power));
    return power;
}

/** e^x, for x in [-87.34, 88]; x beyond is taken as the nearest of the two. */
CT_HD static inline float ct_exp_f32(float x)
{
    float k, rest;

    x = (x < -87.336544f) ? -87.336544f : x; /* NaN passes both */
    x = (x > 88.0f) ? 88.0f : x;
    rest = ct_exp_reduce(x, &k);
    return (rest + 1.0f) * ct_power_of_two(k);
}

/** 1 / (1 + e^-x), and 0 below -87, where it is below 2e-38.
 *
 * Compilers make loops that compute both sides of a bound for each vector. What is multiplied by
 * the tiny value of the far side is then denormal, which takes Intel's processors over a hundred
 * cycles even where nobody uses it; 0 does not. */
CT_HD static inline float ct_sigmoid_f32(float x)
{
    float y = 1.0f / (1.0f + ct_exp_f32(-x));

    return (x < -87.0f) ? 0.0f : y;
}

CT_HD static inline float ct_tanh_f32(float x)
{
    float z = x * x, near, far, size = (x < 0.0f) ? -x : x;

    /* small arguments: x + x^3 q(x^2), least squares in the relative error on |x| <= 0.65 */
    near = 0x1.0d4856p-9f;
    near = near * z - 0x1.08bc2ep-7f;
    near = near * z + 0x1.62e1b2p-6f;
    near = near * z - 0x1.b9deccp-5f;
    near = near * z + 0x1.111014p-3f;
    near = near * z - 0x1.555552p-2f;
    near = x + x * (z * near);
    far = 1.0f - 2.0f / (ct_exp_f32(2.0f * size) + 1.0f);
    far = (x < 0.0f) ? -far : far;
    return (size < 0.625f) ? near : far;
}

#endif
