#include "comm/codec/cast.h"

#include <math.h>
#include <string.h>

#include "framework/base/bf16.h"
#include "framework/base/f16.h"
#include "framework/base/simd.h"

enum {
    BLOCK = 16384,
    ALONE = 65536, /* elements: fewer are not worth a team */
    HEAD = 1024    /* … so many go by a copy, where they lie */
};

CT_SIMD_CLONES static void to_bf16(const float *v, int64_t n, uint16_t *out)
{
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = ct_bf16_from_f32(v[i]);
}

CT_SIMD_CLONES static void to_f16(const float *v, int64_t n, float scale, uint16_t *out)
{
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = ct_f16_from_f32(scale * v[i]);
}

CT_SIMD_CLONES static void from_bf16(const uint16_t *in, int64_t n, float *v)
{
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) v[i] = ct_bf16_to_f32(in[i]);
}

CT_SIMD_CLONES static void from_f16(const uint16_t *in, int64_t n, float scale, float *v)
{
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) v[i] = scale * ct_f16_to_f32(in[i]);
}

/* Magnitudes order as their bits do. */
CT_SIMD_CLONES static uint32_t most_bits(const float *v, int64_t n)
{
    uint32_t most = 0;

#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; ++i) {
        uint32_t bits;

        memcpy(&bits, &v[i], sizeof(bits));
        bits &= 0x7fffffffu;
        most = (bits > most) ? bits : most;
    }
    return most;
}

static int64_t length_of(int64_t n, int64_t first)
{
    return (n - first < BLOCK) ? n - first : BLOCK;
}

void ct_cast_encode(ct_dtype dtype, const float *v, int64_t n, float scale, int n_thread,
                    uint16_t *out)
{
#pragma omp parallel for schedule(static) num_threads(n_thread) if (n > ALONE)
    for (int64_t first = 0; first < n; first += BLOCK) {
        if (dtype == CT_BF16)
            to_bf16(v + first, length_of(n, first), out + first);
        else
            to_f16(v + first, length_of(n, first), scale, out + first);
    }
}

void ct_cast_decode(ct_dtype dtype, const uint16_t *in, int64_t n, float scale, int n_thread,
                    float *v)
{
#pragma omp parallel for schedule(static) num_threads(n_thread) if (n > ALONE)
    for (int64_t first = 0; first < n; first += BLOCK) {
        if (dtype == CT_BF16)
            from_bf16(in + first, length_of(n, first), v + first);
        else
            from_f16(in + first, length_of(n, first), scale, v + first);
    }
}

/* [at, 2 at) go to where [at / 2, at) were, which are encoded by then. */
void ct_cast_encode_in_place(ct_dtype dtype, float *v, int64_t n, float scale, int n_thread)
{
    uint16_t *out = (uint16_t *)(void *)v, head[HEAD];
    int64_t at = (n < HEAD) ? n : HEAD;

    ct_cast_encode(dtype, v, at, scale, 1, head);
    memcpy(out, head, sizeof(*out) * (size_t)at);
    for (; at < n; at *= 2)
        ct_cast_encode(dtype, v + at, (n - at < at) ? n - at : at, scale, n_thread, out + at);
}

/* The other way: the last half first. */
void ct_cast_decode_in_place(ct_dtype dtype, float *v, int64_t first, int64_t n, float scale,
                             int n_thread)
{
    const uint16_t *in = (const uint16_t *)(const void *)v;
    uint16_t head[HEAD];
    int64_t end = first + n;

    while ((end > first) && (end > HEAD)) {
        int64_t from = (end + 1) / 2;

        if (from < first) from = first;
        ct_cast_decode(dtype, in + from, end - from, scale, n_thread, v + from);
        end = from;
    }
    memcpy(head, in + first, sizeof(*in) * (size_t)(end - first));
    ct_cast_decode(dtype, head, end - first, scale, 1, v + first);
}

uint8_t ct_cast_exponent(const float *v, int64_t n, int n_thread)
{
    uint32_t most = 0;

#pragma omp parallel for schedule(static) num_threads(n_thread) reduction(max : most) if (n > ALONE)
    for (int64_t first = 0; first < n; first += BLOCK) {
        uint32_t bits = most_bits(v + first, length_of(n, first));

        most = (bits > most) ? bits : most;
    }
    return (uint8_t)(most >> 23);
}

/* All ranks together reach 2^14 before rounding. To the nearest, an addition cannot make more than
 * twice the smaller term of it: 2^15 in a row of additions; in a tree it is far less. */
float ct_cast_scale(uint8_t exponent, int ranks)
{
    int room = 14, power = 0;

    while (((int64_t)1 << (14 - room)) < ranks) room -= 1;
    power = room + 126 - exponent;
    if (power > 126) power = 126;
    if (power < -126) power = -126;
    return ldexpf(1, power);
}
