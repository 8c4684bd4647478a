/* Copies between tokens as they lie and the rows and panels of flash.h, turned by their positions
 * on the way. */
#include <string.h>

#include "framework/base/bf16.h"
#include "framework/base/simd.h"
#include "layers/engine/attention/flash.h"

enum { LANES = 16 }; /* numbers in the widest vector */

/* Dimensions i and i + half of a row, for i < half; sign -1: the other way. */
CT_SIMD_CLONES static void turn_halves(int64_t half, const float *turn, float sign, float *x)
{
#pragma omp simd
    for (int64_t i = 0; i < half; i++) {
        float c = turn[i], s = sign * turn[half + i], u = x[i], w = x[half + i];

        x[i] = u * c - w * s;
        x[half + i] = w * c + u * s;
    }
}

/* Dimensions 2i and 2i + 1. */
CT_SIMD_CLONES static void turn_pairs(int64_t half, const float *turn, float sign, float *x)
{
#pragma omp simd
    for (int64_t i = 0; i < half; i++) {
        float c = turn[i], s = sign * turn[half + i], u = x[2 * i], w = x[2 * i + 1];

        x[2 * i] = u * c - w * s;
        x[2 * i + 1] = w * c + u * s;
    }
}

static void turn_token(const ct_flash_copy *c, int64_t i, float sign, float *x)
{
    int64_t dim = c->d->rope_dim;
    const float *turn = c->turn + (c->position + i) * dim;

    if (c->d->interleaved)
        turn_pairs(dim / 2, turn, sign, x);
    else
        turn_halves(dim / 2, turn, sign, x);
}

/* Zeros behind a row's last dimension, up to whole vectors. */
static void fill_up(int64_t n, int64_t dim, float *rows)
{
    int64_t whole = ct_gemm_round_up(dim, LANES);

    for (int64_t i = 0; (whole > dim) && (i < n); i++)
        memset(rows + i * CT_FLASH_ROW + dim, 0, (size_t)(whole - dim) * sizeof(*rows));
}

/* to[i to_row + x] = scale from[i step + x] for i < n, x < dim. */
static void take_numbers(const ct_flash_copy *c, int64_t n, int64_t dim, const float *from,
                         int64_t step, float *to, int64_t to_row)
{
    if (!c->bf16) {
        c->rows->copy(n, dim, c->scale, from, step, to, to_row);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        ct_bf16_widen(dim, ct_num_at(from, true, i * step), to + i * to_row);
    if (c->scale != 1.0f) c->rows->copy(n, dim, c->scale, to, to_row, to, to_row);
}

void ct_flash_take(const ct_flash_copy *c, const float *from, int64_t step, float *rows)
{
    int64_t dim = c->d->dim;
    bool turns = (c->turn != NULL) && (c->d->rope_dim > 0);
    float whole[CT_FLASH_DIM];

    for (int64_t at = 0; at < dim; at += CT_FLASH_PIECE) {
        int64_t n = ct_gemm_smaller(CT_FLASH_PIECE, dim - at);
        float *piece = rows + at / CT_FLASH_PIECE * c->capacity * CT_FLASH_ROW;

        if (!turns || (dim <= CT_FLASH_PIECE))
            take_numbers(c, c->n, n, ct_num_at(from, c->bf16, at), step, piece, CT_FLASH_ROW);
        fill_up(c->n, n, piece);
    }
    if (!turns) return;
    for (int64_t i = 0; i < c->n; i++) {
        if (dim <= CT_FLASH_PIECE) {
            turn_token(c, i, 1.0f, rows + i * CT_FLASH_ROW);
            continue;
        }
        take_numbers(c, 1, dim, ct_num_at(from, c->bf16, i * step), step, whole,
                     dim); /* pairs in two pieces */
        turn_token(c, i, 1.0f, whole);
        for (int64_t at = 0; at < dim; at += CT_FLASH_PIECE)
            memcpy(rows + (at / CT_FLASH_PIECE * c->capacity + i) * CT_FLASH_ROW, whole + at,
                   (size_t)ct_gemm_smaller(CT_FLASH_PIECE, dim - at) * sizeof(*rows));
    }
}

/* A token at a time, rounded once. */
static void put_bf16(const ct_flash_copy *c, const float *rows, float *to, int64_t step)
{
    int64_t dim = c->d->dim;
    float whole[CT_FLASH_DIM];

    for (int64_t i = 0; i < c->n; i++) {
        for (int64_t at = 0; at < dim; at += CT_FLASH_PIECE)
            c->rows->copy(1, ct_gemm_smaller(CT_FLASH_PIECE, dim - at), c->scale,
                          rows + (at / CT_FLASH_PIECE * c->capacity + i) * CT_FLASH_ROW,
                          CT_FLASH_ROW, whole + at, dim);
        if ((c->turn != NULL) && (c->d->rope_dim > 0)) turn_token(c, i, -1.0f, whole);
        ct_bf16_narrow(dim, whole, ct_num_to(to, true, i * step));
    }
}

void ct_flash_put(const ct_flash_copy *c, const float *rows, float *to, int64_t step)
{
    int64_t dim = c->d->dim;
    bool turns = (c->turn != NULL) && (c->d->rope_dim > 0);

    if (c->bf16) {
        put_bf16(c, rows, to, step);
        return;
    }
    for (int64_t at = 0; at < dim; at += CT_FLASH_PIECE)
        c->rows->copy(c->n, ct_gemm_smaller(CT_FLASH_PIECE, dim - at), c->scale,
                      rows + at / CT_FLASH_PIECE * c->capacity * CT_FLASH_ROW, CT_FLASH_ROW,
                      to + at, step);
    for (int64_t i = 0; turns && (i < c->n); i++) turn_token(c, i, -1.0f, to + i * step);
}

void ct_flash_fetch(const ct_attention_desc *d, int64_t n, const float *from, int64_t step)
{
    for (int64_t i = 0; i < n; i++) {
        for (int64_t c = 0; c < d->dim; c += LANES)
            __builtin_prefetch(ct_num_at(from, d->bf16, i * step + c), 0, 2);
    }
}

void ct_flash_panel(const ct_attention_desc *d, int64_t width, int64_t n, int64_t capacity,
                    const float *rows, float *to)
{
    const ct_gemm_set *set = ct_gemm_set_pick(false);

    for (int64_t i = 0; (n < width) && (i < d->dim); i++)
        memset(to + i * CT_FLASH_ROW, 0, (size_t)width * sizeof(*to));
    for (int64_t at = 0; at < d->dim; at += CT_FLASH_PIECE)
        ct_gemm_turn(set, n, ct_gemm_smaller(CT_FLASH_PIECE, d->dim - at),
                     rows + at / CT_FLASH_PIECE * capacity * CT_FLASH_ROW, CT_FLASH_ROW,
                     to + at * CT_FLASH_ROW, CT_FLASH_ROW);
}

void ct_flash_turn_bits(uint32_t word[32])
{
    uint32_t mask = 0x0000ffffu;

    /* squares of half the side change places, then squares inside them */
    for (int side = 16; side > 0; side /= 2, mask ^= mask << side) {
        for (int k = 0; k < 32; k = ((k | side) + 1) & ~side) {
            uint32_t moved = ((word[k] >> side) ^ word[k | side]) & mask;

            word[k] ^= moved << side;
            word[k | side] ^= moved;
        }
    }
}
