/** @file scalar.h  More functions of one float like those of sigmoid.h: exp over its whole range,
 * e^x - 1, ln, ln(1 + e^x).
 *
 * Against the exact values: exp and ln within 3 units of the last place, e^x - 1 and ln(1 + e^x)
 * within 4; NaN stays NaN.
 */
#ifndef CT_SCALAR_H
#define CT_SCALAR_H

#include <float.h>
#include <math.h>
#include <stdbool.h>

#include "framework/math/sigmoid.h"

/** e^x of every x: 0 and infinity where it leaves the range. */
CT_HD static inline float ct_exp_whole_f32(float x)
{
    const float round_up = 0x1.8p23f;
    float k, half, rest;

    x = (x < -105.0f) ? -105.0f : x; /* NaN passes both */
    x = (x > 90.0f) ? 90.0f : x;
    rest = ct_exp_reduce(x, &k);
    half = (0.5f * k + round_up) - round_up; /* 2^k itself may be out of range */
    return (rest + 1.0f) * ct_power_of_two(half) * ct_power_of_two(k - half);
}

/** e^x - 1, for x at most 88; without cancellation near 0. */
CT_HD static inline float ct_expm1_f32(float x)
{
    float k, rest, power;

    x = (x < -87.336544f) ? -87.336544f : x;
    x = (x > 88.0f) ? 88.0f : x;
    rest = ct_exp_reduce(x, &k);
    power = ct_power_of_two(k);
    return power * rest + (power - 1.0f);
}

/** ln x: -infinity at 0, NaN below. */
CT_HD static inline float ct_log_f32(float x)
{
    const uint32_t root_half = 0x3f3504f3; /* bits of sqrt(1/2) */
    bool tiny = x < FLT_MIN;
    float m = tiny ? x * 0x1p23f : x, k, s, z, p, y;
    uint32_t bits, exponent;

    memcpy(&bits, &m, sizeof(bits));
    exponent = ((bits - root_half) >> 23) & 0x1ff; /* of x / m with m in [sqrt(1/2), sqrt(2)) */
    k = (float)(int32_t)exponent;
    k = (exponent >= 256) ? k - 512.0f : k;
    bits -= exponent << 23;
    memcpy(&m, &bits, sizeof(m));
    k = tiny ? k - 23.0f : k;
    /* ln m = 2 atanh s, s = (m - 1) / (m + 1); |s| <= 0.1716, what is left out is below 1e-9 */
    s = (m - 1.0f) / (m + 1.0f);
    z = s * s;
    p = 1.0f / 9.0f;
    p = p * z + 1.0f / 7.0f;
    p = p * z + 1.0f / 5.0f;
    p = p * z + 1.0f / 3.0f;
    s = s + s;
    y = s * z * p + k * 0x1.0bfbe8p-15f; /* ln 2 in two parts */
    y = k * 0x1.62ep-1f + (s + y);
    y = (x == 0.0f) ? -INFINITY : y;
    y = (x < 0.0f) ? NAN : y;
    return (x < INFINITY) ? y : x; /* infinity and NaN */
}

/** ln(1 + e^x) */
CT_HD static inline float ct_softplus_f32(float x)
{
    float size = (x < 0.0f) ? -x : x, e = ct_exp_f32(-size), s, z, p;

    /* ln(1 + e) = 2 atanh s, s = e / (2 + e) <= 1/3; what is left out is below 2e-9 */
    s = e / (2.0f + e);
    z = s * s;
    p = 1.0f / 15.0f;
    p = p * z + 1.0f / 13.0f;
    p = p * z + 1.0f / 11.0f;
    p = p * z + 1.0f / 9.0f;
    p = p * z + 1.0f / 7.0f;
    p = p * z + 1.0f / 5.0f;
    p = p * z + 1.0f / 3.0f;
    s = s + s;
    p = s * z * p + s;
    return (x > 0.0f) ? x + p : (x == x) ? p : x;
}

#endif
