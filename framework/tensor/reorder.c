#include "framework/tensor/tensor.h"

#include "framework/base/bf16.h"
#include "framework/base/simd.h"

/* Places at a time: with 16 channels each row of a piece is a line of the cache. */
enum { PIECE = 16, TEAM_MIN = 1 << 15 };

/* rows channels of one block, s places. block and bf16 are constants where these are inlined. */
CT_SIMD_PART void block_to_plain(int64_t rows, int64_t s, int block, bool bf16, const float *from,
                                 float *to)
{
    for (int64_t first = 0; first < s; first += PIECE) {
        int64_t m = (s - first < PIECE) ? s - first : PIECE;

        for (int64_t i = 0; i < rows; i++) {
            for (int64_t j = first; j < first + m; j++)
                to[i * s + j] = ct_num_get(from, bf16, j * block + i);
        }
    }
}

CT_SIMD_PART void block_from_plain(int64_t rows, int64_t s, int block, bool bf16, const float *from,
                                   float *to)
{
    for (int64_t first = 0; first < s; first += PIECE) {
        int64_t m = (s - first < PIECE) ? s - first : PIECE;

        for (int64_t j = first; j < first + m; j++) {
            for (int64_t i = 0; i < rows; i++) ct_num_put(to, bf16, j * block + i, from[i * s + j]);
            for (int64_t i = rows; i < block; i++) ct_num_put(to, bf16, j * block + i, 0.0f);
        }
    }
}

/* to_plain: the direction */
CT_SIMD_PART void move(bool to_plain, int64_t rows, int64_t s, int block, bool bf16,
                       const float *from, float *to)
{
    if (to_plain)
        block_to_plain(rows, s, block, bf16, from, to);
    else
        block_from_plain(rows, s, block, bf16, from, to);
}

#define ONE(_name, _to_plain, _bf16)                                                               \
    CT_SIMD_CLONES static void _name(int64_t rows, int64_t s, int block, const float *from,        \
                                     float *to)                                                    \
    {                                                                                              \
        if ((block == 16) && (rows == 16))                                                         \
            move(_to_plain, 16, s, 16, _bf16, from, to);                                           \
        else if ((block == 8) && (rows == 8))                                                      \
            move(_to_plain, 8, s, 8, _bf16, from, to);                                             \
        else                                                                                       \
            move(_to_plain, rows, s, block, _bf16, from, to);                                      \
    }

ONE(one_to_plain, true, false)
ONE(one_from_plain, false, false)
ONE(one_to_plain_bf16, true, true)
ONE(one_from_plain_bf16, false, true)

static void to_plain(int64_t n, int64_t c, int64_t s, int block, bool bf16, const float *blocked,
                     float *plain)
{
    int64_t n_block = (c + block - 1) / block;

#pragma omp parallel for schedule(static) if (n * c * s >= TEAM_MIN)
    for (int64_t i = 0; i < n * n_block; i++) {
        int64_t first = i % n_block * block, rows = (c - first < block) ? c - first : block;
        const float *from = ct_num_at(blocked, bf16, i * s * block);

        (bf16 ? one_to_plain_bf16 : one_to_plain)(rows, s, block, from,
                                                  plain + (i / n_block * c + first) * s);
    }
}

static void to_blocked(int64_t n, int64_t c, int64_t s, int block, bool bf16, const float *plain,
                       float *blocked)
{
    int64_t n_block = (c + block - 1) / block;

#pragma omp parallel for schedule(static) if (n * c * s >= TEAM_MIN)
    for (int64_t i = 0; i < n * n_block; i++) {
        int64_t first = i % n_block * block, rows = (c - first < block) ? c - first : block;

        (bf16 ? one_from_plain_bf16 : one_from_plain)(rows, s, block,
                                                      plain + (i / n_block * c + first) * s,
                                                      ct_num_to(blocked, bf16, i * s * block));
    }
}

void ct_reorder_to_plain(int64_t n, int64_t c, int64_t s, int block, const float *blocked,
                         float *plain)
{
    to_plain(n, c, s, block, false, blocked, plain);
}

void ct_reorder_to_blocked(int64_t n, int64_t c, int64_t s, int block, const float *plain,
                           float *blocked)
{
    to_blocked(n, c, s, block, false, plain, blocked);
}

void ct_reorder_to_plain_bf16(int64_t n, int64_t c, int64_t s, int block, const void *blocked,
                              float *plain)
{
    to_plain(n, c, s, block, true, blocked, plain);
}

void ct_reorder_to_blocked_bf16(int64_t n, int64_t c, int64_t s, int block, const float *plain,
                                void *blocked)
{
    to_blocked(n, c, s, block, true, plain, blocked);
}
