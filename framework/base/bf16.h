/** @file bf16.h  bfloat16: the upper half of an f32. */
#ifndef CT_BF16_H
#define CT_BF16_H

#include <stdint.h>
#include <string.h>

static inline float ct_bf16_to_f32(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

/** To the nearest, ties to even; too large becomes infinity; a NaN stays one, quiet. */
static inline uint16_t ct_bf16_from_f32(float f)
{
    uint32_t bits, rounded, nan;

    memcpy(&bits, &f, sizeof(bits));
    rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    nan = (bits >> 16) | 0x40u;
    return (uint16_t)(((bits & 0x7fffffffu) > 0x7f800000u) ? nan : rounded);
}

#endif
