/* Batch normalisation of channels in blocks: a block's channels stand side by side, so that sums
 * and maps run along the memory whatever the size of the image. Statistics take one pass, with
 * E x^2 - (E x)^2 in double: the squares of floats are exact there. */
#include <string.h>

#include "framework/base/bf16.h"
#include "framework/base/simd.h"
#include "layers/engine/batch_norm/batch_norm_blocked.h"
#include "layers/layer_util.h"

static bool supports(const ct_batch_norm_desc *d)
{
    return (d->device == CT_DEVICE_CPU) && (d->block > 0) && (d->block <= CT_BLOCK_MAX);
}

/* ---- statistics */

typedef struct square_ctx {
    const float *x;
    bool bf16;
} square_ctx;

static void add_squares(const void *ctx, int64_t k, int64_t at, int64_t inner, int block,
                        double *first, double *second)
{
    const square_ctx *q = ctx;

    (void)k;
    ct_batch_norm_square(inner, block, q->bf16, ct_num_at(q->x, q->bf16, at), first, second);
}

static void statistics(const ct_batch_norm_desc *d, int64_t from, int64_t to, const float *x,
                       float *mean, float *var)
{
    ct_blocked v = norm_view(d);
    double m = (double)(d->n * d->spatial);
    double sum[CT_BLOCKED_GROUP * CT_BLOCK_MAX], square[CT_BLOCKED_GROUP * CT_BLOCK_MAX];
    int64_t last = norm_blocks(d, to);

    for (int64_t k = from / d->block; k < last; k += CT_BLOCKED_GROUP) {
        ct_blocked_sums(&v, k, norm_group_end(k, last), add_squares, &(square_ctx){ x, d->bf16 },
                        sum, square);
        for (int64_t c = k * d->block; (c < norm_group_end(k, last) * d->block) && (c < to); c++) {
            double e = sum[c - k * d->block] / m;
            double variance = square[c - k * d->block] / m - e * e;

            mean[c] = (float)e;
            /* a NaN stays one */
            var[c] = (variance < 0) ? 0.0f : (float)variance;
        }
    }
}

/* ---- forward */

CT_SIMD_PART void map_rows(int64_t rows, int block, bool bf16, const norm_factors *f, bool affine,
                           bool relu, const float *x, const float *add, float *y)
{
    for (int64_t r = 0; r < rows; r++) {
#pragma omp simd
        for (int i = 0; i < block; i++) {
            int64_t at = r * block + i;
            float z = (ct_num_get(x, bf16, at) - f->mean[i]) * f->inv_std[i];

            if (affine) z = z * f->scale[i] + f->bias[i];
            if (add != NULL) z += ct_num_get(add, bf16, at);
            if (relu) z = (z < 0.0f) ? 0.0f : z;
            ct_num_put(y, bf16, at, z);
        }
    }
}

/* Each case for itself, so that the loop has none. */
CT_SIMD_PART void map_cases(int64_t rows, int block, bool bf16, const norm_factors *f,
                            const ct_batch_norm_map *m, const float *x, const float *add, float *y)
{
    bool affine = (m->scale != NULL) || (m->bias != NULL);

    if (!affine && !m->relu && (add == NULL))
        map_rows(rows, block, bf16, f, false, false, x, NULL, y);
    else if (!m->relu && (add == NULL))
        map_rows(rows, block, bf16, f, true, false, x, NULL, y);
    else if (add == NULL)
        map_rows(rows, block, bf16, f, affine, true, x, NULL, y);
    else
        map_rows(rows, block, bf16, f, affine, m->relu, x, add, y);
}

/* A plane from `at` on, some rows at a time. */
CT_SIMD_PART void map_pieces(const ct_blocked *v, int64_t at, int block, bool bf16,
                             const norm_factors *f, const ct_batch_norm_map *m)
{
    for (int64_t r = 0; r < v->inner; r += NORM_ROWS, at += NORM_ROWS * block) {
        int64_t rows = (v->inner - r < NORM_ROWS) ? v->inner - r : NORM_ROWS;
        int64_t soon = norm_soon(v, at, r);

        norm_fetch(m->x, bf16, soon, rows * block);
        norm_fetch(m->add, bf16, soon, rows * block);
        if (m->y != m->x) norm_fetch(m->y, bf16, soon, rows * block);
        map_cases(rows, block, bf16, f, m, ct_num_at(m->x, bf16, at), ct_num_at(m->add, bf16, at),
                  ct_num_to(m->y, bf16, at));
    }
}

CT_SIMD_CLONES static void map_block(const ct_blocked *v, int64_t at, const norm_factors *f,
                                     const ct_batch_norm_map *m)
{
    if ((v->block == 16) && v->bf16)
        map_pieces(v, at, 16, true, f, m);
    else if (v->block == 16)
        map_pieces(v, at, 16, false, f, m);
    else if ((v->block == 8) && !v->bf16)
        map_pieces(v, at, 8, false, f, m);
    else
        map_pieces(v, at, v->block, v->bf16, f, m);
}

static void apply(const ct_batch_norm_desc *d, int64_t from, int64_t to, const ct_batch_norm_map *m)
{
    ct_blocked v = norm_view(d);
    int64_t n = ct_blocked_n(&v), row = d->spatial * d->block;
    int64_t first = from / d->block, some = norm_blocks(d, to) - first;

#pragma omp parallel for schedule(static) if (d->n * some * row >= CT_PARALLEL_MIN)
    for (int64_t r = 0; r < d->n * some; r++) {
        int64_t k = first + r % some, at = (r / some * n + k) * row;
        norm_factors f;

        norm_pick(&v, k, m, &f);
        map_block(&v, at, &f, m);
        if (m->normal != NULL)
            memcpy(ct_num_to(m->normal, d->bf16, at), ct_num_at(m->y, d->bf16, at),
                   (size_t)row * ct_num_size(d->bf16));
    }
}

const ct_batch_norm_engine ct_batch_norm_blocked = { "blocked", supports, statistics, apply,
                                                     ct_batch_norm_blocked_backward };
