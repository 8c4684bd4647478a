#include "framework/tensor/reorder.h"

#include "framework/base/simd.h"

/* Places at a time: with 16 channels each row of a piece is a line of the cache. */
enum { PIECE = 16, TEAM_MIN = 1 << 15 };

/* rows channels of one block, s places. block is a constant where these are inlined. */
static inline void block_to_plain(int64_t rows, int64_t s, int block, const float *from, float *to)
{
    for (int64_t first = 0; first < s; first += PIECE) {
        int64_t m = (s - first < PIECE) ? s - first : PIECE;

        for (int64_t i = 0; i < rows; i++) {
            for (int64_t j = first; j < first + m; j++) to[i * s + j] = from[j * block + i];
        }
    }
}

static inline void block_from_plain(int64_t rows, int64_t s, int block, const float *from,
                                    float *to)
{
    for (int64_t first = 0; first < s; first += PIECE) {
        int64_t m = (s - first < PIECE) ? s - first : PIECE;

        for (int64_t j = first; j < first + m; j++) {
            for (int64_t i = 0; i < rows; i++) to[j * block + i] = from[i * s + j];
            for (int64_t i = rows; i < block; i++) to[j * block + i] = 0.0f;
        }
    }
}

CT_SIMD_CLONES static void one_to_plain(int64_t rows, int64_t s, int block, const float *from,
                                        float *to)
{
    if ((block == 16) && (rows == 16))
        block_to_plain(16, s, 16, from, to);
    else if ((block == 8) && (rows == 8))
        block_to_plain(8, s, 8, from, to);
    else
        block_to_plain(rows, s, block, from, to);
}

CT_SIMD_CLONES static void one_from_plain(int64_t rows, int64_t s, int block, const float *from,
                                          float *to)
{
    if ((block == 16) && (rows == 16))
        block_from_plain(16, s, 16, from, to);
    else if ((block == 8) && (rows == 8))
        block_from_plain(8, s, 8, from, to);
    else
        block_from_plain(rows, s, block, from, to);
}

void ct_reorder_to_plain(int64_t n, int64_t c, int64_t s, int block, const float *blocked,
                         float *plain)
{
    int64_t n_block = (c + block - 1) / block;

#pragma omp parallel for schedule(static) if (n * c * s >= TEAM_MIN)
    for (int64_t i = 0; i < n * n_block; i++) {
        int64_t first = i % n_block * block, rows = (c - first < block) ? c - first : block;

        one_to_plain(rows, s, block, blocked + i * s * block,
                     plain + (i / n_block * c + first) * s);
    }
}

void ct_reorder_to_blocked(int64_t n, int64_t c, int64_t s, int block, const float *plain,
                           float *blocked)
{
    int64_t n_block = (c + block - 1) / block;

#pragma omp parallel for schedule(static) if (n * c * s >= TEAM_MIN)
    for (int64_t i = 0; i < n * n_block; i++) {
        int64_t first = i % n_block * block, rows = (c - first < block) ? c - first : block;

        one_from_plain(rows, s, block, plain + (i / n_block * c + first) * s,
                       blocked + i * s * block);
    }
}
