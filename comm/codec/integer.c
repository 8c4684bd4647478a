#include "comm/codec/integer.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "framework/base/simd.h"

enum {
    BLOCK = CT_INTEGER_BLOCK,
    ALONE = 65536, /* elements: fewer are not worth a team */
    NOT_FINITE = 0x7f800000
};

/* ---- one block */

/* Magnitudes order as their bits do. */
CT_SIMD_CLONES static int32_t most_bits(const float *v, int n)
{
    int32_t most = 0;

#pragma omp simd reduction(max : most)
    for (int i = 0; i < n; ++i) {
        int32_t bits;

        memcpy(&bits, &v[i], sizeof(bits));
        bits &= 0x7fffffff;
        most = (bits > most) ? bits : most;
    }
    return most;
}

/* 1.5 * 2^23 has the last bit of its fraction at 1: an addition to it rounds to the nearest whole
 * number, ties to even, which are then the lowest bits. */
CT_SIMD_CLONES static void round_all(const float *v, int n, float inverse, int8_t *q)
{
    const float magic = 12582912.0f;

#pragma omp simd
    for (int i = 0; i < n; ++i) {
        float sum = v[i] * inverse + magic;
        int32_t bits;

        memcpy(&bits, &sum, sizeof(bits));
        q[i] = (int8_t)(bits & 0xff);
    }
}

CT_SIMD_CLONES static void pack_halves(const int8_t *q, int half, uint8_t *to)
{
#pragma omp simd
    for (int i = 0; i < half; ++i)
        to[i] = (uint8_t)(((uint32_t)q[i] & 15u) | (((uint32_t)q[half + i] & 15u) << 4));
}

CT_SIMD_CLONES static void unpack_halves(const uint8_t *from, int half, int8_t *q)
{
#pragma omp simd
    for (int i = 0; i < half; ++i) { /* bit 3 is the sign */
        q[i] = (int8_t)(((from[i] & 15) ^ 8) - 8);
        q[half + i] = (int8_t)(((from[i] >> 4) ^ 8) - 8);
    }
}

CT_SIMD_CLONES static void put(const int8_t *q, int n, float scale, float *v)
{
#pragma omp simd
    for (int i = 0; i < n; ++i) v[i] = scale * (float)q[i];
}

CT_SIMD_CLONES static void add(const int8_t *q, int n, float scale, float *v)
{
#pragma omp simd
    for (int i = 0; i < n; ++i) v[i] += scale * (float)q[i];
}

CT_SIMD_CLONES static void take_out(const int8_t *q, int n, float scale, float *v)
{
#pragma omp simd
    for (int i = 0; i < n; ++i) v[i] -= scale * (float)q[i];
}

/* 0: nothing of the block is large enough. */
static float scale_of(int bits, int32_t most)
{
    float largest, scale;

    if (most >= NOT_FINITE) return NAN;
    memcpy(&largest, &most, sizeof(largest));
    scale = largest / ((bits == 8) ? 127.0f : 7.0f);
    return (scale < FLT_MIN) ? 0.0f : scale;
}

static bool encode_block(int bits, float *v, int n, bool takes, char *to)
{
    int8_t q[BLOCK] = { 0 };
    float scale = scale_of(bits, most_bits(v, n));
    bool good = !isnan(scale);

    if (good && (scale > 0)) round_all(v, n, 1.0f / scale, q);
    memcpy(to, &scale, sizeof(scale));
    if (bits == 8)
        memcpy(to + sizeof(scale), q, (size_t)n);
    else
        pack_halves(q, (n + 1) / 2, (uint8_t *)to + sizeof(scale));
    if (takes) take_out(q, n, scale, v);
    return good;
}

static void decode_block(int bits, const char *from, int n, bool adds, float *v)
{
    int8_t q[BLOCK];
    float scale;

    memcpy(&scale, from, sizeof(scale));
    if (bits == 8)
        memcpy(q, from + sizeof(scale), (size_t)n);
    else
        unpack_halves((const uint8_t *)from + sizeof(scale), (n + 1) / 2, q);
    if (adds)
        add(q, n, scale, v);
    else
        put(q, n, scale, v);
}

/* ---- vectors */

static int64_t blocks_of(int64_t n)
{
    return (n + BLOCK - 1) / BLOCK;
}

static int length_at(int64_t n, int64_t b)
{
    int64_t left = n - b * BLOCK;

    return (left < BLOCK) ? (int)left : BLOCK;
}

static int64_t block_bytes(int bits)
{
    return (int64_t)sizeof(float) + BLOCK * bits / 8;
}

int64_t ct_integer_bytes(int bits, int64_t n)
{
    return (int64_t)sizeof(float) * blocks_of(n) + ((bits == 8) ? n : (n + 1) / 2);
}

bool ct_integer_encode(int bits, float *v, int64_t n, bool takes, int n_thread, void *payload)
{
    int64_t n_block = blocks_of(n);
    int team = (n > ALONE) ? n_thread : 1, bad = 0;

#pragma omp parallel for schedule(static) num_threads(team) reduction(| : bad)
    for (int64_t b = 0; b < n_block; ++b)
        bad |= !encode_block(bits, v + b * BLOCK, length_at(n, b), takes,
                             (char *)payload + b * block_bytes(bits));
    return bad == 0;
}

void ct_integer_decode(int bits, const void *payload, int64_t n, bool adds, int n_thread, float *v)
{
    int64_t n_block = blocks_of(n);
    int team = (n > ALONE) ? n_thread : 1;

#pragma omp parallel for schedule(static) num_threads(team)
    for (int64_t b = 0; b < n_block; ++b)
        decode_block(bits, (const char *)payload + b * block_bytes(bits), length_at(n, b), adds,
                     v + b * BLOCK);
}
