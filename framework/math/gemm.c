/* The loops around the tiles. A thread has a part of C to itself and packs what it needs: with
 * few threads packing twice costs less than waiting for one another.
 *
 *   sums in pieces of kc
 *     mc rows of A packed, for the second cache
 *       a panel of B packed, for the first cache, while the first tile of rows uses it
 *         the other tiles of rows
 *
 * The pieces of a sum follow from the shape alone. */
#include <omp.h>

#include "framework/base/bf16.h"
#include "framework/base/task_loop.h"
#include "framework/math/gemm_private.h"

enum {
    KC = 384,           /* words, x a panel of 32 columns: 48 KB, for the first two caches */
    KC_DEEP = 768,      /* of desc.deep                                                    */
    BLOCK_A = 512 * KC, /* words: 790 KB of a second-level cache                      */
    ALIGN = 16,         /* floats of a cache line */
    AHEAD = 1536,       /* words of B that are fetched before their turn: 6 KB */
    AHEAD_ROWS = 4      /* with so few the processor fetches it by itself      */
};

static const double LARGE_C = 8e6; /* numbers: 32 MB */
/* A millisecond or so. */
static const double PART_FLOP = 4e8;
static const double THREAD_FLOP = 5e5; /* fewer are not worth another thread */

/* Vectors that n columns take, and tiles that m rows take: what is multiplied, with padding. */
static int64_t padded(const ct_gemm_set *s, int64_t m, int64_t n)
{
    return m * ct_gemm_round_up(n, s->lanes);
}

/* ---- plans */

static ct_gemm_desc turn(const ct_gemm_desc *d)
{
    return (ct_gemm_desc){ .ta = !d->tb,
                           .tb = !d->ta,
                           .m = d->n,
                           .n = d->m,
                           .k = d->k,
                           .n_thread = d->n_thread,
                           .bf16 = d->bf16,
                           .deep = d->deep };
}

/* Turned where that leaves a fifth less to do. */
static bool better_turned(const ct_gemm_set *s, const ct_gemm_desc *d)
{
    return 10 * padded(s, d->n, d->m) < 8 * padded(s, d->m, d->n);
}

/* The grid whose largest part costs least: products, and packing, which is worth some 12 of them
 * an element. */
static void pick_grid(ct_gemm_plan *p)
{
    const ct_gemm_desc *d = &p->d;
    int64_t least = INT64_MAX;
    double flop = 2.0 * (double)d->m * (double)d->n * (double)d->k;
    int most = (d->n_thread > 1) ? d->n_thread : 1;

    if (flop < 2e6) most = 1; /* waking a team costs more */
    most = (int)ct_gemm_smaller(most, 1 + (int64_t)(flop / THREAD_FLOP));
    for (int gm = 1; gm <= most; gm++) {
        int gn = most / gm;
        int64_t rows = ct_gemm_ceil_div(d->m, gm);
        int64_t columns = ct_gemm_round_up(ct_gemm_ceil_div(d->n, gn), ct_gemm_panel(p->set));
        int64_t cost = rows * columns + 12 * (rows + columns);

        if (cost >= least) continue;
        least = cost;
        p->grid_m = gm;
        p->grid_n = gn;
    }
    if (p->grid_m > d->m) p->grid_m = (int)d->m;
    p->grid_n = (int)ct_gemm_smaller(p->grid_n, ct_gemm_ceil_div(d->n, ct_gemm_panel(p->set)));
}

/* Rows of A that are packed at a time, at most. */
static int64_t most_rows(const ct_gemm_plan *p)
{
    return BLOCK_A / ct_gemm_words(p->set, (p->kc > 0) ? p->kc : 1);
}

/* More parts than threads where the product is long: who is late takes fewer of them. As many
 * rows as are packed at a time at least, which costs nothing: B is packed for those anyway. */
static void split_grid(ct_gemm_plan *p)
{
    enum { PARTS = 4 };
    double flop = 2.0 * (double)p->d.m * (double)p->d.n * (double)p->d.k;

    p->n_worker = p->grid_m * p->grid_n;
    if (p->n_worker == 1) return;
    for (int i = 1; (i < PARTS) && (flop / (p->grid_m * p->grid_n) > PART_FLOP); i *= 2) {
        if (p->d.m / p->grid_m >= 2 * most_rows(p)) p->grid_m *= 2;
    }
}

static ct_gemm_plan plan_as(const ct_gemm_set *s, const ct_gemm_desc *d, bool turned)
{
    ct_gemm_plan p = { .d = *d, .set = s, .grid_m = 1, .grid_n = 1, .n_worker = 1 };
    int64_t pieces = ct_gemm_ceil_div(d->k, (int64_t)(d->deep ? KC_DEEP : KC) * s->pair), rows;

    p.turned = turned;
    if (p.turned) p.d = turn(d);
    p.kc = (pieces > 0) ? ct_gemm_round_up(ct_gemm_ceil_div(d->k, pieces), s->pair) : 0;
    if ((d->m > 0) && (d->n > 0)) {
        pick_grid(&p);
        split_grid(&p);
    }
    rows = ct_gemm_ceil_div(p.d.m + (p.d.m == 0), p.grid_m);
    p.mc = ct_gemm_ceil_div(rows, ct_gemm_ceil_div(rows, most_rows(&p)));
    return p;
}

ct_gemm_plan ct_gemm_plan_for(const ct_gemm_set *s, const ct_gemm_desc *d)
{
    if (ct_gemm_is_few(d))
        return (ct_gemm_plan){
            .d = *d, .set = s, .few = true, .grid_m = 1, .grid_n = 1, .n_worker = 1
        };
    return plan_as(s, d, better_turned(s, d));
}

ct_gemm_plan ct_gemm_plan_kept(const ct_gemm_desc *d)
{
    ct_gemm_plan p = plan_as(ct_gemm_set_pick(d->bf16), d, false);

    p.streams = (d->m <= p.set->rows) && (!d->bf16 || (p.set->pair == 2));
    return p;
}

ct_gemm_plan ct_gemm_plan_make(const ct_gemm_desc *d)
{
    return ct_gemm_plan_for(ct_gemm_set_pick(d->bf16), d);
}

bool ct_gemm_goes_deep(const ct_gemm_desc *d)
{
    return (double)d->m * (double)d->n >= LARGE_C;
}

/* Words of a thread's packed rows of A, and of its panel of B. */
static int64_t block_a(const ct_gemm_plan *p, int64_t m)
{
    if (p->streams) return ct_gemm_round_up(m * ct_gemm_words(p->set, p->d.k), ALIGN);
    return ct_gemm_round_up(ct_gemm_smaller(most_rows(p), m) * ct_gemm_words(p->set, p->kc), ALIGN);
}

static int64_t block_b(const ct_gemm_plan *p)
{
    return CT_GEMM_MAX_WIDTH * ct_gemm_words(p->set, p->kc);
}

/* Either way round, since parts of a product may lie otherwise than the whole. */
size_t ct_gemm_workspace(const ct_gemm_desc *d)
{
    ct_gemm_desc many = *d;
    ct_gemm_plan p;
    int64_t threads = (d->n_thread > 1) ? d->n_thread : 1, most, few, rows;

    many.m = (d->m > CT_GEMM_FEW) ? d->m : CT_GEMM_FEW + 1;
    p = ct_gemm_plan_make(&many);
    most = threads * (block_a(&p, (d->m > d->n) ? d->m : d->n) + block_b(&p));
    p.streams = true; /* with a B that is kept */
    rows = threads * (block_a(&p, ct_gemm_smaller(d->m, p.set->rows)) + block_b(&p));
    most = (most > rows) ? most : rows;
    few = d->bf16 ? ct_gemm_round_up(CT_GEMM_FEW * d->k, ALIGN) : 0;
    return (size_t)((most > few) ? most : few) * sizeof(float);
}

/* ---- one thread's part */

/* op(A) and op(B) with the steps from one of their rows and columns to the next, the way the plan
 * turned them. */
typedef struct operands {
    const float *a, *b;
    int64_t a_row, a_column, b_row, b_column;
    float alpha, beta;
    float *c;
    int64_t ldc;
    bool a16, b16;
    const char *kept;
} operands;

typedef struct part {
    int64_t m0, m1, n0, n1;
    float *work_a, *work_b;
} part;

static operands operands_of(const ct_gemm_plan *p, const ct_gemm_args *g)
{
    bool t = p->turned;
    operands o = { .alpha = g->alpha, .beta = g->beta, .c = g->c, .ldc = g->ldc, .kept = g->kept };
    int64_t lda = t ? g->ldb : g->lda, ldb = t ? g->lda : g->ldb;

    o.a = t ? g->b : g->a;
    o.b = t ? g->a : g->b;
    o.a16 = t ? g->b16 : g->a16;
    o.b16 = t ? g->a16 : g->b16;
    o.a_row = p->d.ta ? 1 : lda;
    o.a_column = p->d.ta ? lda : 1;
    o.b_row = p->d.tb ? 1 : ldb;
    o.b_column = p->d.tb ? ldb : 1;
    return o;
}

static float *at_c(const ct_gemm_plan *p, const operands *o, int64_t i, int64_t j)
{
    return o->c + (p->turned ? j * o->ldc + i : i * o->ldc + j);
}

/* Tiles of rows [i0, i0 + m), sums [q, q + k). */
static void pack_rows(const ct_gemm_plan *p, const operands *o, int64_t i0, int64_t m, int64_t q,
                      int64_t k, float *to)
{
    int64_t tiles = ct_gemm_ceil_div(m, p->set->rows);
    /* where A lies along its rows, all tiles at once: they share cache lines */
    int64_t together = (o->a_row == 1) ? tiles : 1, at_once = (o->a_row == 1) ? 16 : k;
    int64_t words = ct_gemm_words(p->set, k);

    for (int64_t t0 = 0; t0 < tiles; t0 += together) {
        for (int64_t r = 0; r < k; r += at_once) {
            for (int64_t t = t0; (t < t0 + together) && (t < tiles); t++) {
                int64_t i = ct_gemm_tile_row(m, tiles, t);
                int64_t rows = ct_gemm_tile_row(m, tiles, t + 1) - i;

                ct_gemm_pack_numbers(
                    p->set, o->a16, rows, ct_gemm_smaller(at_once, k - r),
                    ct_num_at(o->a, o->a16, (i0 + i) * o->a_row + (q + r) * o->a_column), o->a_row,
                    o->a_column, to + i * words + r / p->set->pair * rows, rows);
            }
        }
    }
}

/* Bytes of a kept panel from one column to the next. */
static int64_t kept_step(const ct_gemm_desc *d)
{
    return d->bf16 ? ct_gemm_round_up(d->k, 2) * (int64_t)sizeof(ct_bf16)
                   : d->k * (int64_t)sizeof(float);
}

static int64_t kept_number(const ct_gemm_desc *d)
{
    return d->bf16 ? (int64_t)sizeof(ct_bf16) : (int64_t)sizeof(float);
}

/* Sums [q, q + k) of the panel of columns from j on, `width` wide: in panel, or where they lie. */
static const float *take_panel(const ct_gemm_plan *p, const operands *o, int64_t q, int64_t k,
                               int64_t j, int64_t n, int64_t width, float *panel)
{
    const void *at;

    if (o->kept == NULL) {
        ct_gemm_pack_numbers(p->set, o->b16, n, k,
                             ct_num_at(o->b, o->b16, j * o->b_column + q * o->b_row), o->b_column,
                             o->b_row, panel, width);
        return panel;
    }
    if (!p->d.bf16)
        return (const float *)(const void *)(o->kept + j * kept_step(&p->d)) + q * width;
    at = o->kept + j * kept_step(&p->d) + q * width * (int64_t)sizeof(ct_bf16);
    if (p->set->pair == 2) return at;
    ct_bf16_widen(k * width, at, panel);
    return panel;
}

/* A kept panel that is read as it lies, to be fetched while the one in front is used: with few rows
 * B comes from memory. NULL: there is none. */
static const float *next_kept(const ct_gemm_plan *p, const operands *o, int64_t q, int64_t j)
{
    int64_t width = ct_gemm_panel(p->set);
    bool lies = (o->kept != NULL) && (!p->d.bf16 || (p->set->pair == 2));

    if (!lies || (j + width > p->d.n)) return NULL;
    return (const float *)(const void *)(o->kept + j * kept_step(&p->d) +
                                         q * width * kept_number(&p->d));
}

/* Columns [j, j + n), one panel, of all tiles of m rows from i0 on. */
static void run_panel(const ct_gemm_plan *p, const operands *o, int64_t q, int64_t k, int64_t i0,
                      int64_t m, const float *a, int64_t j, int64_t n, float *panel)
{
    const ct_gemm_set *s = p->set;
    int vecs = (n > s->lanes) ? 2 : 1;
    int64_t tiles = ct_gemm_ceil_div(m, s->rows), width = (int64_t)vecs * s->lanes;
    int64_t words = ct_gemm_words(s, k);
    const float *b = panel;
    float beta = (q == 0) ? o->beta : 1.0f;
    bool whole = !p->turned && (n == width);
    /* B as it is stored, while it packs */
    bool uses = whole && (vecs == CT_GEMM_VECS) && (o->b_column == 1) && (s->first[0] != NULL) &&
                !o->b16 && (o->kept == NULL);
    /* rows of the next panel, one a tile, where they lie along the sum */
    bool soon = (o->b_row == 1) && !o->b16 && (o->kept == NULL) && (j + 2 * width <= p->d.n);
    const float *kept = next_kept(p, o, q, j + width);
    int64_t share = (kept != NULL) ? ct_gemm_ceil_div(width, tiles) : s->pair;

    if (!uses) b = take_panel(p, o, q, k, j, n, width, panel);
    for (int64_t t = 0; t < tiles; t++) {
        int64_t i = ct_gemm_tile_row(m, tiles, t), rows = ct_gemm_tile_row(m, tiles, t + 1) - i;
        float *c = at_c(p, o, i0 + i, j);
        const float *next = (soon && (t < width)) ? o->b + (j + width + t) * o->b_column + q
                            : (kept != NULL)      ? kept + t * share * words
                                                  : b;

        if (uses && (t == 0))
            s->first[rows - 1](k, a, o->b + j * o->b_column + q * o->b_row, o->b_row, panel,
                               o->alpha, beta, c, o->ldc);
        else if (whole)
            s->tile[vecs - 1][rows - 1](words, a + i * words, b, next, share, o->alpha, beta, c,
                                        o->ldc);
        else
            ct_gemm_edge(s, rows, n, words, a + i * words, b, next, share, vecs, o->alpha, beta, c,
                         o->ldc, p->turned);
    }
}

/* Columns [j, j + n), one panel, of m rows that are one tile: the pieces of the sum as above. */
static void stream_panel(const ct_gemm_plan *p, const operands *o, const part *w, int64_t j,
                         int64_t n)
{
    const ct_gemm_set *s = p->set;
    int vecs = (n > s->lanes) ? 2 : 1;
    int64_t m = w->m1 - w->m0, width = (int64_t)vecs * s->lanes;
    int64_t ahead = (m > AHEAD_ROWS) ? AHEAD : 0;
    float *c = at_c(p, o, w->m0, j);

    for (int64_t q = 0; q < p->d.k; q += p->kc) {
        int64_t words = ct_gemm_words(s, ct_gemm_smaller(p->kc, p->d.k - q));
        const float *a = w->work_a + m * ct_gemm_words(s, q);
        const float *b = take_panel(p, o, q, 0, j, n, width, NULL);
        float beta = (q == 0) ? o->beta : 1.0f;

        if (n == width)
            s->tile[vecs - 1][m - 1](words, a, b, b + ahead, width, o->alpha, beta, c, o->ldc);
        else
            ct_gemm_edge(s, m, n, words, a, b, b + ahead, width, vecs, o->alpha, beta, c, o->ldc,
                         false);
    }
}

/* Few rows and a B that lies packed: it is read from its first word to its last, panel by panel,
 * since memory is fastest so. */
static void run_stream(const ct_gemm_plan *p, const operands *o, const part *w)
{
    int64_t width = ct_gemm_panel(p->set), m = w->m1 - w->m0;

    if (m == 0) return;
    for (int64_t q = 0; q < p->d.k; q += p->kc)
        pack_rows(p, o, w->m0, m, q, ct_gemm_smaller(p->kc, p->d.k - q),
                  w->work_a + m * ct_gemm_words(p->set, q));
    for (int64_t j = w->n0; j < w->n1; j += width)
        stream_panel(p, o, w, j, ct_gemm_smaller(width, w->n1 - j));
}

static void run_part(const ct_gemm_plan *p, const operands *o, const part *w)
{
    int64_t width = ct_gemm_panel(p->set);

    if (p->streams && (o->kept != NULL)) {
        run_stream(p, o, w);
        return;
    }
    for (int64_t q = 0; q < p->d.k; q += p->kc) {
        int64_t k = ct_gemm_smaller(p->kc, p->d.k - q);

        for (int64_t i = w->m0; i < w->m1; i += p->mc) {
            int64_t m = ct_gemm_smaller(p->mc, w->m1 - i);

            pack_rows(p, o, i, m, q, k, w->work_a);
            for (int64_t j = w->n0; j < w->n1; j += width)
                run_panel(p, o, q, k, i, m, w->work_a, j, ct_gemm_smaller(width, w->n1 - j),
                          w->work_b);
        }
    }
}

/* C (m x n) = beta C: what is left where there is nothing to add up. */
static void gemm_scale(int64_t m, int64_t n, float beta, float *c, int64_t ldc)
{
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++)
            c[i * ldc + j] = (beta == 0.0f) ? 0.0f : beta * c[i * ldc + j];
    }
}

/* Piece v of the grid, by one thread in its part of the work. */
static void run_piece(const ct_gemm_plan *p, const operands *o, float *work, int v)
{
    const ct_gemm_desc *d = &p->d;
    int64_t width = ct_gemm_panel(p->set), panels = ct_gemm_ceil_div(d->n, width);
    int64_t y = v / p->grid_n, x = v % p->grid_n;
    int64_t step = block_a(p, d->m) + block_b(p);
    part w = { .m0 = d->m * y / p->grid_m,
               .m1 = d->m * (y + 1) / p->grid_m,
               .n0 = panels * x / p->grid_n * width,
               .n1 = ct_gemm_smaller(panels * (x + 1) / p->grid_n * width, d->n),
               .work_a = work + omp_get_thread_num() * step };

    w.work_b = w.work_a + block_a(p, d->m);
    run_part(p, o, &w);
}

void ct_gemm_run(const ct_gemm_plan *p, const ct_gemm_args *g)
{
    const ct_gemm_desc *d = &p->d;
    operands o = operands_of(p, g);
    int parts = p->grid_m * p->grid_n;
    bool team = (p->n_worker > 1) && !omp_in_parallel();
    ct_task_team shared;

    if ((d->k == 0) || (g->alpha == 0.0f)) {
        gemm_scale(p->turned ? d->n : d->m, p->turned ? d->m : d->n, g->beta, g->c, g->ldc);
        return;
    }
    if ((d->m == 0) || (d->n == 0)) return;
    if (p->few && (g->b16 || (g->a16 && !d->bf16))) { /* which do not read them so */
        ct_gemm_plan other = plan_as(p->set, d, false);

        ct_gemm_run(&other, g);
        return;
    }
    if (p->few) {
        ct_gemm_run_few(p, g);
        return;
    }
    /* mostly the same thread each time: what it reads again is in its own cache */
    ct_task_team_init(&shared, d->n_thread);
#pragma omp parallel num_threads(d->n_thread) if (team)
    {
        ct_task_loop loop = ct_task_loop_of(&shared);

        for (int64_t v = ct_task_first(&loop, parts); v >= 0; v = ct_task_next(&loop))
            run_piece(p, &o, (float *)g->work, (int)v);
    }
}

/* Beside OpenBLAS 0.3.21 with its best kernels for the processor, two cores, all transpositions
 * (tests/bench/bench_gemm): with AVX-512 1.3 to 1.5 times as fast in the geometric mean of shapes
 * from fully connected, recurrent and convolutional layers, and as fast on large squares; with AVX2
 * as fast. Elsewhere nothing is measured. BLAS rounds nothing to bf16. */
bool ct_gemm_prefers(const ct_gemm_desc *d)
{
    return (d->m > 0) && (d->n > 0) && (d->k > 0) &&
           (d->bf16 || (ct_gemm_set_pick(false)->lanes >= 8));
}

/* ---- products whose B stays packed: few rows, so B is read once from memory and used while it
 * passes. A panel of B lies together over the whole sum, and is used in pieces that a first-level
 * cache holds: all tiles of rows take a piece before the next one comes. */

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

/* Tile t of A over the whole sum: pieces one after the other, as run_kept_panel wants them. */
static void pack_tile(const ct_gemm_set *s, const ct_gemm_desc *d, const ct_gemm_args *g,
                      int64_t tiles, int64_t t, float *packed)
{
    int64_t i = ct_gemm_tile_row(d->m, tiles, t), rows = ct_gemm_tile_row(d->m, tiles, t + 1) - i;

    ct_gemm_pack_panel(s, rows, d->k, g->a + (d->ta ? i : i * g->lda), d->ta ? 1 : g->lda,
                       d->ta ? g->lda : 1, packed + i * ct_gemm_words(s, d->k), rows);
}

/* The columns from j on, as wide as a panel. Each tile fetches its share of the next piece: all in
 * the time of one would be more than a core may have on its way from memory. */
static void run_kept_panel(const ct_gemm_set *s, const ct_gemm_desc *d, const ct_gemm_args *g,
                           int64_t tiles, int64_t j, const float *a, const float *b)
{
    int64_t n = ct_gemm_smaller(ct_gemm_panel(s), d->n - j), width = width_at(s, d->n, j);
    int64_t words = ct_gemm_words(s, d->k);
    int64_t share = ct_gemm_ceil_div(width, tiles);
    int vecs = (int)(width / s->lanes);

    for (int64_t q = 0; q < words; q += PIECE) {
        int64_t k = ct_gemm_smaller(PIECE, words - q);
        float beta = (q == 0) ? g->beta : 1.0f;

        for (int64_t t = 0; t < tiles; t++) {
            int64_t i = ct_gemm_tile_row(d->m, tiles, t);
            int64_t rows = ct_gemm_tile_row(d->m, tiles, t + 1) - i;
            float *c = g->c + i * g->ldc + j;
            const float *from = a + i * words + q * rows;
            const float *here = b + q * width, *next = here + PIECE * (width + t * share);

            if (n == width)
                s->tile[vecs - 1][rows - 1](k, from, here, next, share, g->alpha, beta, c, g->ldc);
            else
                ct_gemm_edge(s, rows, n, k, from, here, next, share, vecs, g->alpha, beta, c,
                             g->ldc, false);
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
    ct_task_team shared;

    if ((d->k == 0) || (g->alpha == 0.0f)) {
        gemm_scale(d->m, d->n, g->beta, g->c, g->ldc);
        return;
    }
    ct_task_team_init(&shared, d->n_thread);
#pragma omp parallel num_threads(d->n_thread) if (team && !omp_in_parallel())
    {
        ct_task_loop loop = ct_task_loop_of(&shared);

#pragma omp for schedule(static, 1)
        for (int64_t t = 0; t < tiles; t++) pack_tile(s, d, g, tiles, t, a);
        for (int64_t p = ct_task_first(&loop, panels); p >= 0; p = ct_task_next(&loop)) {
            int64_t j = (last_first ? loop.first + loop.end - 1 - p : p) * step;

            run_kept_panel(s, d, g, tiles, j, a, packed + j * ct_gemm_words(s, d->k));
        }
    }
}

void ct_gemm_run_packed(const ct_gemm_desc *d, const ct_gemm_args *g, const float *packed,
                        bool last_first)
{
    ct_gemm_run_packed_for(ct_gemm_set_pick(d->bf16), d, g, packed, last_first);
}

/* ---- a B that is packed once */

size_t ct_gemm_kept_bytes(const ct_gemm_desc *d)
{
    return (size_t)(ct_gemm_round_up(d->n, CT_GEMM_MAX_WIDTH) * kept_step(d));
}

/* One panel of floats or pairs as it is; of floats for bf16 in pieces, which are narrowed. */
static void keep_panel(const ct_gemm_set *s, const ct_gemm_desc *d, const float *b, int64_t ldb,
                       int64_t j, char *to)
{
    enum { SOME = 64 };
    int64_t n = ct_gemm_smaller(ct_gemm_panel(s), d->n - j), width = width_at(s, d->n, j);
    int64_t row = d->tb ? ldb : 1, column = d->tb ? 1 : ldb;
    float room[CT_GEMM_MAX_WIDTH * SOME];

    b += j * row;
    if (!d->bf16 || (s->pair == 2)) {
        ct_gemm_pack_panel(s, n, d->k, b, row, column, (float *)(void *)to, width);
        return;
    }
    for (int64_t q = 0; q < d->k; q += SOME) {
        int64_t len = ct_gemm_smaller(SOME, d->k - q);

        ct_gemm_pack_panel(s, n, len, b + q * column, row, column, room, width);
        ct_bf16_narrow(len * width, room, to + q * width * (int64_t)sizeof(ct_bf16));
    }
}

void ct_gemm_keep(const ct_gemm_desc *d, const float *b, int64_t ldb, void *kept)
{
    const ct_gemm_set *s = ct_gemm_set_pick(d->bf16);
    int64_t step = ct_gemm_panel(s);

#pragma omp parallel for num_threads(d->n_thread) schedule(static) if (!omp_in_parallel())
    for (int64_t j = 0; j < d->n; j += step)
        keep_panel(s, d, b, ldb, j, (char *)kept + j * kept_step(d));
}

/* ---- many products of one shape: whole products to threads, or, with fewer products than threads,
 * all threads to one after the other. */

static bool deals_out(const ct_gemm_desc *d, int64_t count)
{
    return count >= d->n_thread;
}

static ct_gemm_desc alone(const ct_gemm_desc *d)
{
    ct_gemm_desc one = *d;

    one.n_thread = 1;
    return one;
}

size_t ct_gemm_batch_workspace(const ct_gemm_desc *d, int64_t count)
{
    ct_gemm_desc one = alone(d);
    size_t threads = (d->n_thread > 1) ? (size_t)d->n_thread : 1;

    return deals_out(d, count) ? threads * ct_gemm_workspace(&one) : ct_gemm_workspace(d);
}

static ct_gemm_args product(const ct_gemm_batch *batch, const ct_gemm_args *g, int64_t i)
{
    ct_gemm_args one = *g;

    one.a += i * batch->step_a;
    one.b += i * batch->step_b;
    one.c += i * batch->step_c;
    return one;
}

void ct_gemm_run_batch(const ct_gemm_desc *d, const ct_gemm_batch *batch, const ct_gemm_args *g)
{
    ct_gemm_desc single = alone(d);
    bool deal = deals_out(d, batch->count);
    ct_gemm_plan p = ct_gemm_plan_make(deal ? &single : d);
    size_t step = ct_gemm_workspace(&single);
    int workers = (d->n_thread > 1) ? d->n_thread : 1;

    if (!deal) {
        for (int64_t i = 0; i < batch->count; i++) {
            ct_gemm_args one = product(batch, g, i);

            ct_gemm_run(&p, &one);
        }
        return;
    }
#pragma omp parallel for num_threads(workers)                                                      \
    schedule(static, 1) if ((workers > 1) && !omp_in_parallel())
    for (int v = 0; v < workers; v++) {
        for (int64_t i = batch->count * v / workers; i < batch->count * (v + 1) / workers; i++) {
            ct_gemm_args one = product(batch, g, i);

            one.work = (char *)g->work + (size_t)v * step;
            ct_gemm_run(&p, &one);
        }
    }
}
