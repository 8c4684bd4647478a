/** @file f16.h  IEEE binary16 to and from f32, without branches, so that loops become SIMD. */
#ifndef CT_F16_H
#define CT_F16_H

#include <stdint.h>
#include <string.h>

#include "framework/base/simd.h"

CT_HD static inline float ct_f16_bits_(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

/** Exact; subnormals, infinities and NaNs too. */
CT_HD static inline float ct_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = (uint32_t)(h & 0x7fffu) << 13;
    uint32_t scaled, special = (rest >= 0x0f800000u) ? 0x7f800000u : 0;
    float f = ct_f16_bits_(rest) * 0x1p112f; /* exponents differ by 127 - 15 */

    memcpy(&scaled, &f, sizeof(scaled));
    return ct_f16_bits_(sign | scaled | special);
}

/** To the nearest, ties to even; above 65504 by half a step or more becomes infinity; a NaN stays
 *  one, quiet. */
CT_HD static inline uint16_t ct_f16_from_f32(float f)
{
    uint32_t bits, sign, normal, small;
    float tiny;

    memcpy(&bits, &f, sizeof(bits));
    sign = (bits >> 16) & 0x8000u;
    bits &= 0x7fffffffu;
    normal = (bits + 0xfffu + ((bits >> 13) & 1u) - 0x38000000u) >> 13;
    tiny = ct_f16_bits_(bits) + 0.5f; /* whose last bit is 2^-24: the addition rounds */
    memcpy(&small, &tiny, sizeof(small));
    small -= 0x3f000000u;
    normal = (bits < 0x38800000u) ? small : normal;    /* below 2^-14 */
    normal = (bits >= 0x477ff000u) ? 0x7c00u : normal; /* 65520 and more */
    normal = (bits > 0x7f800000u) ? 0x7e00u | ((bits >> 13) & 0x3ffu) : normal;
    return (uint16_t)(sign | normal);
}

#endif
