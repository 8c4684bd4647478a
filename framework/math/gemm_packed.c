/* Products whose B stays packed: few rows, so B is read once from memory and used while it passes.
 * A panel of B lies together over the whole sum, and is used in pieces that a first-level cache
 * holds: all tiles of rows take a piece before the next one comes. */
#include <omp.h>

#include "framework/math/gemm_private.h"

enum {
    PIECE = 128 /* words, x a panel: 16 KB */,
    TEAM_FLOP = 2000000 /* less is not worth waking a team */
};

int64_t ct_gemm_packed_size(const ct_gemm_desc *d)
{
    return ct_gemm_round_up(d->n, CT_GEMM_MAX_WIDTH) *
           ct_gemm_words(ct_gemm_set_pick(d->bf16), d->k);
}

size_t ct_gemm_packed_workspace(const ct_gemm_desc *d)
{
    int64_t words = ct_gemm_words(ct_gemm_set_pick(d->bf16), d->k);

    return (size_t)ct_gemm_round_up(d->m * words, 16) * sizeof(float);
}

size_t ct_gemm_packed_bytes(const ct_gemm_desc *d)
{
    return (size_t)ct_gemm_packed_size(d) * sizeof(float) + ct_gemm_packed_workspace(d);
}

/* Laying B out costs about as much as 10 rows of a product; many rows pay for it by themselves. */
bool ct_gemm_packed_prefers(const ct_gemm_desc *d, int64_t products)
{
    return (products >= 4) && (d->m <= 128);
}

/* The last panel is one vector wide where that holds it. */
static int64_t width_at(const ct_gemm_set *s, int64_t n, int64_t j)
{
    int64_t left = ct_gemm_round_up(n - j, s->lanes);

    return ct_gemm_smaller(left, ct_gemm_panel(s));
}

void ct_gemm_pack_for(const ct_gemm_set *s, const ct_gemm_desc *d, const float *b, int64_t ldb,
                      float *packed)
{
    int64_t step = ct_gemm_panel(s), panels = ct_gemm_ceil_div(d->n, step);
    int64_t words = ct_gemm_words(s, d->k);

#pragma omp parallel for num_threads(d->n_thread) schedule(static) if (!omp_in_parallel())
    for (int64_t t = 0; t < panels; t++) {
        int64_t j = t * step;

        ct_gemm_pack_panel(s, ct_gemm_smaller(step, d->n - j), d->k, b + (d->tb ? j * ldb : j),
                           d->tb ? ldb : 1, d->tb ? 1 : ldb, packed + j * words,
                           width_at(s, d->n, j));
    }
}

void ct_gemm_pack(const ct_gemm_desc *d, const float *b, int64_t ldb, float *packed)
{
    ct_gemm_pack_for(ct_gemm_set_pick(d->bf16), d, b, ldb, packed);
}

/* Tile t of A over the whole sum: pieces one after the other, as run_panel wants them. */
static void pack_tile(const ct_gemm_set *s, const ct_gemm_desc *d, const ct_gemm_args *g,
                      int64_t tiles, int64_t t, float *packed)
{
    int64_t i = ct_gemm_tile_row(d->m, tiles, t), rows = ct_gemm_tile_row(d->m, tiles, t + 1) - i;

    ct_gemm_pack_panel(s, rows, d->k, g->a + (d->ta ? i : i * g->lda), d->ta ? 1 : g->lda,
                       d->ta ? g->lda : 1, packed + i * ct_gemm_words(s, d->k), rows);
}

/* The columns from j on, as wide as a panel. */
static void run_panel(const ct_gemm_set *s, const ct_gemm_desc *d, const ct_gemm_args *g,
                      int64_t tiles, int64_t j, const float *a, const float *b)
{
    int64_t n = ct_gemm_smaller(ct_gemm_panel(s), d->n - j), width = width_at(s, d->n, j);
    int64_t words = ct_gemm_words(s, d->k);
    int vecs = (int)(width / s->lanes);

    for (int64_t q = 0; q < words; q += PIECE) {
        int64_t k = ct_gemm_smaller(PIECE, words - q);
        float beta = (q == 0) ? g->beta : 1.0f;

        for (int64_t t = 0; t < tiles; t++) {
            int64_t i = ct_gemm_tile_row(d->m, tiles, t);
            int64_t rows = ct_gemm_tile_row(d->m, tiles, t + 1) - i;
            float *c = g->c + i * g->ldc + j;
            const float *from = a + i * words + q * rows;
            const float *here = b + q * width, *next = here + ((t == 0) ? PIECE * width : 0);

            if (n == width)
                s->tile[vecs - 1][rows - 1](k, from, here, next, g->alpha, beta, c, g->ldc);
            else
                ct_gemm_edge(s, rows, n, k, from, here, next, vecs, g->alpha, beta, c, g->ldc,
                             false);
        }
    }
}

void ct_gemm_run_packed_for(const ct_gemm_set *s, const ct_gemm_desc *d, const ct_gemm_args *g,
                            const float *packed, bool last_first)
{
    int64_t step = ct_gemm_panel(s), panels = ct_gemm_ceil_div(d->n, step);
    int64_t tiles = ct_gemm_ceil_div(d->m, s->rows);
    bool team = (2.0 * (double)d->m * (double)d->n * (double)d->k >= TEAM_FLOP);
    float *a = g->work;

    if ((d->k == 0) || (g->alpha == 0.0f)) {
        ct_gemm_scale(d->m, d->n, g->beta, g->c, g->ldc);
        return;
    }
#pragma omp parallel num_threads(d->n_thread) if (team && !omp_in_parallel())
    {
        int64_t n_part = omp_get_num_threads(), v = omp_get_thread_num();
        int64_t from = panels * v / n_part, to = panels * (v + 1) / n_part;

#pragma omp for schedule(static, 1)
        for (int64_t t = 0; t < tiles; t++) pack_tile(s, d, g, tiles, t, a);
        for (int64_t p = from; p < to; p++) {
            int64_t j = (last_first ? from + to - 1 - p : p) * step;

            run_panel(s, d, g, tiles, j, a, packed + j * ct_gemm_words(s, d->k));
        }
    }
}

void ct_gemm_run_packed(const ct_gemm_desc *d, const ct_gemm_args *g, const float *packed,
                        bool last_first)
{
    ct_gemm_run_packed_for(ct_gemm_set_pick(d->bf16), d, g, packed, last_first);
}
