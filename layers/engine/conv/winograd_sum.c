/* Forward and backward by data with Winograd's tiles (winograd_sum.h): tiles are mapped, multiplied
 * and mapped back. */
#include "layers/engine/conv/winograd_sum.h"

static const float zeros[CT_BLK_MAX_VECS * CT_BLK_MAX];

/* ---- tiles */

static ct_wino_patch in_patch(const ct_wino_sum *s, const ct_wino_plan *p, int64_t g, int64_t k,
                              int64_t t)
{
    ct_wino_patch at = { .h = s->h, .w = s->w, .bf16 = s->x_bf16 };
    int64_t image;

    wino_at(t, p->tiles_h, p->tiles_w, s->map->m, &image, &at.row, &at.col);
    if (!s->adjoint) at.row += s->row, at.col += s->col;
    if (!s->same_x) image = image * s->group + g;
    at.plane = ct_num_at(s->x, s->x_bf16, (image * p->in_block + k) * s->h * s->w * s->set.b);
    return at;
}

enum { AHEAD = 2 }; /* tiles that are fetched ahead */

/* Tiles [first, first + n) of input block k, to places first - t on of a group that begins at t. */
static void map_in(const ct_wino_sum *s, const ct_wino_plan *p, int64_t g, int64_t k, int64_t t,
                   int64_t first, int64_t n, float *v)
{
    int64_t b = s->set.b;
    void (*map)(const ct_wino_patch *, float *, int64_t) = s->adjoint ? s->map->grad : s->map->in;
    float mapped[CT_WINO_MAX * CT_WINO_MAX * CT_BLK_MAX];

    for (int64_t i = first; i < first + n; i++) {
        ct_wino_patch at = in_patch(s, p, g, k, i);
        float *to = v + k * p->v_block + (i - t) * p->words;

        if (i + AHEAD < first + n) {
            ct_wino_patch next = in_patch(s, p, g, k, i + AHEAD);

            wino_fetch(&next, s->adjoint ? s->map->m : p->n, b);
        }
        if (s->set.narrow == NULL) {
            map(&at, to, p->v_step);
        } else {
            map(&at, mapped, b);
            s->set.narrow->along((int64_t)p->n * p->n, b, mapped, b, to, p->v_step);
        }
    }
}

/* What of a tile lies inside, just written. */
static void rectify(const ct_wino_patch *at, int64_t m, int64_t b, float *y)
{
    int64_t n = blk_smaller(m, at->w - at->col) * b;

    for (int64_t i = at->row; i < blk_smaller(at->row + m, at->h); i++) {
        float *row = ct_num_to(y, at->bf16, (i * at->w + at->col) * b);

        if (at->bf16)
            ct_blk_rectify_bf16(n, row);
        else
            ct_blk_rectify(n, row);
    }
}

/* Tiles of output block `block`, which is number `at` of z. */
static void map_out(const ct_wino_sum *s, const ct_wino_plan *p, int64_t g, int64_t block,
                    int64_t t, int64_t first, int64_t n, const float *z, int64_t at)
{
    int64_t b = s->set.b, image;
    ct_wino_patch patch = { .h = s->oh, .w = s->ow, .bf16 = s->y_bf16 };
    float *y;

    for (int64_t i = first; i < first + n; i++) {
        wino_at(i, p->tiles_h, p->tiles_w, s->map->m, &image, &patch.row, &patch.col);
        y = ct_num_to(s->y, s->y_bf16,
                      ((image * s->group + g) * p->out_block + block) * s->oh * s->ow * b);
        s->map->out(z + at * p->z_block + (i - t) * b, p->z_step, ct_wino_bias(s, p, g) + block * b,
                    &patch, y);
        if (s->relu) rectify(&patch, s->map->m, b, y);
    }
}

/* The same of the tiles of whole images, which meet in a plane. */
static void fold_out(const ct_wino_sum *s, const ct_wino_plan *p, int64_t g, int64_t block,
                     int64_t t, int64_t first, int64_t n, const float *z, int64_t at)
{
    int64_t b = s->set.b, m = s->map->m, per = p->tiles_h * p->tiles_w, size = s->ow * b;
    float *plane = ct_wino_plane(s, p);
    const float *inside = plane - s->row * p->plane_row - s->col * b;

    for (int64_t i = first; i < first + n; i += per) {
        const float *from = z + at * p->z_block + (i - t) * b;
        float *y = ct_num_to(s->y, s->y_bf16,
                             ((i / per * s->group + g) * p->out_block + block) * s->oh * size);

        memset(plane, 0, (size_t)p->plane * sizeof(float));
        for (int64_t k = 0; k < per; k++)
            s->map->back(from + k * b, p->z_step,
                         plane + k / p->tiles_w * m * p->plane_row + k % p->tiles_w * m * b,
                         p->plane_row);
        for (int64_t k = 0; k < s->oh; k++) {
            if (s->y_bf16)
                ct_bf16_narrow(size, inside + k * p->plane_row, ct_num_to(y, true, k * size));
            else
                memcpy(y + k * size, inside + k * p->plane_row, (size_t)size * sizeof(float));
        }
    }
}

/* One place: a pair of output blocks of n tiles. */
static void multiply(const ct_wino_sum *s, const ct_wino_plan *p, int64_t place, int64_t block,
                     int64_t n, const float *v, float *z)
{
    int64_t b = s->set.b, vecs = blk_smaller(p->out_block - block, CT_BLK_MAX_VECS);
    int64_t n_part = blk_count(n, s->set.max_tile[vecs - 1]);
    const ct_blk_tile_fn *tile = s->set.tiles[vecs - 1];
    const float *weight = s->work + place * p->u_step + block * p->in_block * p->words * b;
    ct_blk_tile t = { .x_block = p->v_block,
                      .weight_block = vecs * p->words * b,
                      .y_step = b,
                      .y_block = p->z_block,
                      .n_p = 1,
                      .n_q = 1,
                      .si = 1,
                      .w = n };

    for (int64_t k = 0; k < p->in_block; k += p->chunk) {
        t.n_block = blk_smaller(p->chunk, p->in_block - k);
        t.last = blk_count(blk_smaller(s->in - (k + t.n_block - 1) * b, b), s->set.pair);
        t.x = v + place * p->v_step + k * p->v_block;
        t.weight = weight + k * vecs * p->words * b;
        t.start = (k == 0) ? zeros : NULL;
        for (int64_t i = 0; i < n_part; i++) {
            int64_t end = n * (i + 1) / n_part;

            t.col = n * i / n_part;
            t.y = z + t.col * b;
            tile[end - t.col - 1](&t);
        }
    }
}

/* ---- alone */

/* Fetches tiles [from, to) of blocks [k, k_end) of x, or of y where they will be written: while
 * products run, which need nothing from afar, what the maps before and behind them would wait for.
 */
static void fetch_tiles(const ct_wino_sum *s, const ct_wino_plan *p, int64_t g, bool y, int64_t k,
                        int64_t k_end, int64_t from, int64_t to)
{
    int64_t per = p->tiles_h * p->tiles_w, blocks = y ? p->out_block : p->in_block;
    int64_t size = (y ? s->oh * s->ow : s->h * s->w) * s->set.b;
    bool bf16 = y ? s->y_bf16 : s->x_bf16;

    for (int64_t t = from; t < blk_smaller(to, p->n_tile); t++) {
        int64_t plane = (t / per * s->group + g) * blocks;

        for (int64_t i = k; i < k_end; i++)
            wino_fetch_share(ct_num_at(y ? s->y : s->x, bf16, (plane + i) * size), bf16, size,
                             t % per, per);
    }
}

static void run_alone(const ct_wino_sum *s, const ct_wino_plan *p, int64_t g, int64_t group)
{
    int64_t t = group * p->size, n = blk_smaller(p->size, p->n_tile - t), places = p->n * p->n;
    float *v = ct_wino_tiles(s, p) + omp_get_thread_num() * p->own;
    float *z = v + places * p->v_step;

    for (int64_t k = 0; k < p->in_block; k++) map_in(s, p, g, k, t, t, n, v);
    for (int64_t block = 0; block < p->out_block; block += CT_BLK_MAX_VECS) {
        int64_t end = blk_smaller(block + CT_BLK_MAX_VECS, p->out_block);

        for (int64_t i = 0; i < places; i++) {
            int64_t from = t + n * i / places, to = t + n * (i + 1) / places;

            fetch_tiles(s, p, g, true, block, end, from, to);
            if (end == p->out_block) fetch_tiles(s, p, g, false, 0, p->in_block, from + n, to + n);
            multiply(s, p, i, block, n, v, z + i * p->z_step);
        }
        for (int64_t k = block; k < end; k++)
            (s->adjoint ? fold_out : map_out)(s, p, g, k, t, t, n, z, k - block);
    }
}

/* ---- together */

/* Inside a parallel region. */
static void run_together(const ct_wino_sum *s, const ct_wino_plan *p, int64_t g, int64_t group,
                         ct_exec *ex, ct_status *polled)
{
    enum { PIECE = 16 }; /* tiles that are mapped at a time */
    int64_t t = group * p->size, n = blk_smaller(p->size, p->n_tile - t), places = p->n * p->n;
    int64_t n_piece = blk_count(n, PIECE);
    int64_t piece_out = s->adjoint ? p->tiles_h * p->tiles_w : PIECE;
    int64_t n_part = blk_cut_pairs(places, p->n_pair, 0, s->n_thread);
    float *v = ct_wino_tiles(s, p), *z = v + places * p->v_step;

    /* of slices, the tiles are all there since the first */
#pragma omp for schedule(static)
    for (int64_t i = 0; i < ((s->same_x && (g > 0)) ? 0 : p->in_block * n_piece); i++) {
        int64_t first = i % n_piece * PIECE;

        map_in(s, p, g, i / n_piece, t, t + first, blk_smaller(PIECE, n - first), v);
    }
#pragma omp for schedule(static)
    for (int64_t i = 0; i < places * n_part; i++) {
        int64_t place = i / n_part, part = i % n_part;

        for (int64_t k = p->n_pair * part / n_part; k < p->n_pair * (part + 1) / n_part; k++) {
            int64_t block = k * CT_BLK_MAX_VECS;

            multiply(s, p, place, block, n, v, z + place * p->z_step + block * p->z_block);
        }
        ct_engine_poll(ex, polled);
    }
    if (s->adjoint) n_piece = n / piece_out;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < p->out_block * n_piece; i++) {
        int64_t first = i % n_piece * piece_out, block = i / n_piece;

        (s->adjoint ? fold_out : map_out)(s, p, g, block, t, t + first,
                                          blk_smaller(piece_out, n - first), z, block);
    }
}

ct_status ct_wino_sum_run(const ct_wino_sum *s, ct_exec *ex)
{
    ct_wino_plan p = ct_wino_make_plan(s);
    int64_t n_group;
    ct_status polled = CT_OK;

    if (p.n_tile == 0) return CT_OK;
    n_group = blk_count(p.n_tile, p.size);
    ct_wino_fill_bias(s, &p);
#pragma omp parallel num_threads(s->n_thread)
    for (int64_t g = 0; g < s->group; g++) {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < p.n_pair * p.in_block; i++) {
            ct_wino_pack_piece(s, &p, g, i);
            ct_engine_poll(ex, &polled);
        }
        if (p.alone) {
#pragma omp for schedule(static)
            for (int64_t i = 0; i < n_group; i++) {
                run_alone(s, &p, g, i);
                ct_engine_poll(ex, &polled);
            }
        } else {
            for (int64_t i = 0; i < n_group; i++) run_together(s, &p, g, i, ex, &polled);
        }
    }
    return polled;
}
