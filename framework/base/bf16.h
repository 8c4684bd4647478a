/** @file bf16.h  bfloat16: the upper half of an f32.
 *
 * Arrays that may hold either come as pointers to f32 and a flag that says that the numbers there
 * are bf16 (ct_num_…): the pointer is then an address and no more.
 */
#ifndef CT_BF16_H
#define CT_BF16_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "framework/base/simd.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint16_t ct_bf16;

CT_HD static inline float ct_bf16_to_f32(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

/** To the nearest, ties to even; too large becomes infinity; a NaN stays one, quiet. */
CT_HD static inline uint16_t ct_bf16_from_f32(float f)
{
    uint32_t bits, rounded, nan;

    memcpy(&bits, &f, sizeof(bits));
    rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    nan = (bits >> 16) | 0x40u;
    return (uint16_t)(((bits & 0x7fffffffu) > 0x7f800000u) ? nan : rounded);
}

/** y[i] = x[i], n of them, on the calling thread, in vectors. x is bf16, y f32; no overlap. */
void ct_bf16_widen(int64_t n, const void *x, float *y);
/** The other way: rounded as ct_bf16_from_f32() does. */
void ct_bf16_narrow(int64_t n, const float *x, void *y);
/** The same by a team. */
void ct_bf16_widen_all(int64_t n, const void *x, float *y);
void ct_bf16_narrow_all(int64_t n, const float *x, void *y);

/** Bytes of a number. */
CT_HD static inline size_t ct_num_size(bool bf16)
{
    return bf16 ? sizeof(ct_bf16) : sizeof(float);
}
/** Where number i of x stands; x NULL: NULL. */
static inline const float *ct_num_at(const float *x, bool bf16, int64_t i)
{
    return (x != NULL) ? (const float *)((const char *)x + i * (int64_t)ct_num_size(bf16)) : NULL;
}
static inline float *ct_num_to(float *y, bool bf16, int64_t i)
{
    return (y != NULL) ? (float *)((char *)y + i * (int64_t)ct_num_size(bf16)) : NULL;
}
/** Number i of x. In loops that shall be vectorised `bf16` must be a constant. */
CT_HD static inline float ct_num_get(const float *x, bool bf16, int64_t i)
{
    return bf16 ? ct_bf16_to_f32(((const ct_bf16 *)(const void *)x)[i]) : x[i];
}
CT_HD static inline void ct_num_put(float *y, bool bf16, int64_t i, float value)
{
    if (bf16)
        ((ct_bf16 *)(void *)y)[i] = ct_bf16_from_f32(value);
    else
        y[i] = value;
}
/** n numbers as f32: where they stand, or widened into room[n]. */
static inline const float *ct_num_read(const float *x, bool bf16, int64_t n, float *room)
{
    if (!bf16) return x;
    ct_bf16_widen(n, x, room);
    return room;
}

#ifdef __cplusplus
}
#endif

#endif
