/* Winograd's convolution on blocked layouts: 3 x 3 and 5 x 5, step 1. Which plane and channels it
 * takes, and what it sums. */
#include "framework/base/task_loop.h"
#include "layers/engine/conv/winograd.h"

const ct_wino_maps *ct_wino_maps_of(const ct_conv_desc *d)
{
    const ct_wino_maps *kind = ct_wino_map[ct_simd_pick()];
    int64_t small = blk_count(d->oh, 2) * blk_count(d->ow, 2) * 16;
    int64_t large = blk_count(d->oh, 4) * blk_count(d->ow, 4) * 36;

    if ((d->winograd < 2) || !ct_blk_supports(d)) return NULL;
    if ((d->kh != d->kw) || (d->sh != 1) || (d->sw != 1)) return NULL;
    if ((d->dh != 1) || (d->dw != 1)) return NULL;
    if (d->kh == 5) return (d->winograd >= 4) ? &kind[2] : NULL;
    if (d->kh != 3) return NULL;
    return ((d->winograd >= 4) && (large <= small)) ? &kind[1] : &kind[0];
}

bool ct_wino_is_adjoint(const ct_conv_desc *d)
{
    const ct_wino_maps *map = ct_wino_maps_of(d);
    int64_t of_dx = blk_count(d->h, map->m) * blk_count(d->w, map->m);

    return 4 * blk_count(d->oh, map->m) * blk_count(d->ow, map->m) <= 3 * of_dx;
}

static bool data_supports(const ct_conv_desc *d)
{
    return ct_wino_maps_of(d) != NULL;
}

/* Measured on AVX-512 (docs/results/2026-11-22-convolutions.md): 1.3 times the direct sum at 16
 * channels, 1.5 to 3 times from 32 on, if the mapped weights are used for some tiles at all; more
 * channels and tiles in bf16, which makes products cheaper and maps not. 5 x 5: 1.3 to 1.7 times
 * from some 20 on. */
bool ct_wino_prefers(const ct_conv_desc *d)
{
    enum { CHANNELS = 16, BF16_CHANNELS = 32, CHANNELS_5 = 20, TILES = 16, BF16_TILES = 96 };
    const ct_wino_maps *map = ct_wino_maps_of(d);
    int least = d->bf16 ? BF16_TILES : TILES, channels = d->bf16 ? BF16_CHANNELS : CHANNELS;

    if (d->kh == 5) channels = CHANNELS_5;
    if ((map == NULL) || (d->c / d->group < channels) || (d->m / d->group < channels)) return false;
    return (d->as_one ? 1 : d->n) * blk_count(d->oh, map->m) * blk_count(d->ow, map->m) >= least;
}

/* 5 x 5 in bf16, whose products are twice as fast and maps are not: forward and by data 0.7 to 1.1
 * times the plain sum below 32 channels and where tiles stick out by a fifth, 1.1 to 1.5 times from
 * there on (one of 12: 0.95); weights 1.0 to 2.2 times throughout. */
bool ct_wino_prefers_sum(const ct_conv_desc *d)
{
    enum { CHANNELS = 32 };
    const ct_wino_maps *map = ct_wino_maps_of(d);

    if (!ct_wino_prefers(d)) return false;
    if (!d->bf16 || (d->kh != 5)) return true;
    if ((d->c / d->group < CHANNELS) || (d->m / d->group < CHANNELS)) return false;
    return blk_count(d->oh, map->m) * blk_count(d->ow, map->m) * map->m * map->m * 5 <=
           d->oh * d->ow * 6;
}

/* Of whole groups. */
static ct_wino_sum plain_sum(const ct_conv_desc *d)
{
    ct_blk_set set = ct_blk_pick(d->bf16);

    return (ct_wino_sum){ .set = set,
                          .map = ct_wino_maps_of(d),
                          .n_thread = d->n_thread,
                          .n = d->n,
                          .group = d->group,
                          .in = d->c / d->group,
                          .out = d->m / d->group,
                          .h = d->h,
                          .w = d->w,
                          .oh = d->oh,
                          .ow = d->ow,
                          .row = -d->ph,
                          .col = -d->pw,
                          .w_group = group_m(d) * group_k(d),
                          .w_out = group_k(d),
                          .w_in = d->kh * d->kw,
                          .x_bf16 = d->x_bf16,
                          .y_bf16 = d->y_bf16 };
}

static ct_wino_sum forward_sum(const ct_conv_desc *d)
{
    ct_wino_sum s = plain_sum(d);

    ct_wino_slice(&s);
    return s;
}

/* dx[i] takes dy[i + pad - p] by tap p: the taps turned, from dy[i + pad - (taps - 1)] on. */
static ct_wino_sum backward_sum(const ct_conv_desc *d)
{
    ct_wino_sum s = plain_sum(d);

    s.in = d->m / d->group, s.out = d->c / d->group;
    s.h = d->oh, s.w = d->ow, s.oh = d->h, s.ow = d->w;
    s.w_out = d->kh * d->kw, s.w_in = group_k(d);
    s.adjoint = ct_wino_is_adjoint(d);
    s.turned = !s.adjoint;
    if (s.turned) s.row = d->ph - (d->kh - 1), s.col = d->pw - (d->kw - 1);
    s.x_bf16 = d->y_bf16, s.y_bf16 = d->x_bf16;
    ct_wino_slice(&s);
    return s;
}

static size_t forward_workspace(const ct_conv_desc *d)
{
    ct_wino_sum s = forward_sum(d);

    return (size_t)ct_wino_sum_work(&s) * sizeof(float);
}

static ct_status forward(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    ct_wino_sum s = forward_sum(d);

    s.x = a->x, s.weight = a->weight, s.bias = a->bias;
    s.y = a->y, s.work = a->work, s.relu = a->relu;
    return ct_wino_sum_run(&s, ex);
}

static size_t backward_workspace(const ct_conv_desc *d)
{
    ct_wino_sum s = backward_sum(d);

    return (size_t)ct_wino_sum_work(&s) * sizeof(float);
}

static ct_status backward_data(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    ct_wino_sum s = backward_sum(d);

    s.x = a->dy, s.weight = a->weight;
    s.y = a->dx, s.work = a->work;
    return ct_wino_sum_run(&s, ex);
}

const ct_conv_impl ct_conv_winograd_forward = { .name = "winograd",
                                                .supports = data_supports,
                                                .workspace = forward_workspace,
                                                .run = forward,
                                                .prefers = ct_wino_prefers_sum,
                                                .can = CT_CONV_CAN_RELU | CT_CONV_CAN_BF16 };
const ct_conv_impl ct_conv_winograd_backward_data = { .name = "winograd",
                                                      .supports = data_supports,
                                                      .workspace = backward_workspace,
                                                      .run = backward_data,
                                                      .prefers = ct_wino_prefers_sum,
                                                      .can = CT_CONV_CAN_BF16 };

/* ---- Weight gradients with Winograd's tiles: x and dy mapped, multiplied over the tiles of a
 * group place by place, added up over groups, and mapped back once.
 *
 * Where the sums are small, tiles are cut into parts with sums of their own, which are added up at
 * last: then a thread has parts to itself ("alone"), and what it has mapped is in its own cache
 * when it multiplies. Otherwise, and where parts cannot be dealt out evenly, all threads work on
 * one group of tiles after the other. Parts are fixed by the shape, and within one each tile is
 * added to what came before: so sums are the same for any threads. */

static const int64_t TILES = 40 << 20;       /* bytes of mapped x and dy of a group …          */
static const int64_t FEW_SUMS = 4 << 20;     /* … unless the sums are fewer bytes than this … */
static const int64_t FEW_TILES = 3 << 20;    /* … then these, and at least …                  */
static const int64_t THREAD_TILES = 3 << 19; /* … these of each thread                        */
static const int64_t UNIT_FLOATS = 9216;     /* of x and dy: part of a first-level cache          */
static const int64_t PARTS = 4;            /* parts, at most …                                  */
static const int64_t PARTS_SUMS = 2 << 20; /* … whose sums are so many bytes altogether, and …  */
static const int64_t PART_TILES = 64;      /* … of so many tiles at least                       */
static const int64_t ALONE_TILES = 400 << 10; /* bytes of mapped x and dy that a thread keeps     */

typedef struct plan {
    ct_blk_set set;
    const ct_wino_maps *map;
    int places;
    int64_t n_group; /* the convolution's, or slices of the output channels, which share x */
    bool same_x;
    int64_t in, out, in_block, out_block, n_pair;
    int64_t tiles_h, tiles_w, n_tile;
    int64_t n_part, part; /* parts, and tiles of one               */
    bool alone;
    int64_t size;                   /* tiles of a group                      */
    int64_t unit;                   /* words of tiles that are added up at a time */
    int64_t block;                  /* from block to block of tiles      */
    int64_t v_step, d_step, s_step; /* from place to place: x, dy, sums  */
    int64_t pair_parts, in_parts;   /* into which the products of a place are cut */
} plan;

static int64_t sum_bytes(const plan *p)
{
    return p->places * p->s_step * (int64_t)sizeof(float);
}

static int64_t whole_words(const plan *p, int64_t tiles)
{
    return blk_count(tiles, p->set.pair) * p->set.pair;
}

/* Whether threads may have them to themselves: where at least three quarters of them then work. */
static void cut_parts(const ct_conv_desc *d, plan *p)
{
    int64_t turns;

    p->n_part = p->same_x ? 1 : PARTS;
    while ((p->n_part > 1) && (p->n_part * sum_bytes(p) > PARTS_SUMS)) p->n_part /= 2;
    p->n_part = blk_larger(blk_smaller(p->n_tile / PART_TILES, p->n_part), 1);
    p->part = whole_words(p, blk_larger(blk_count(p->n_tile, p->n_part), 1));
    p->n_part = blk_larger(blk_count(p->n_tile, p->part), 1);
    turns = blk_count(p->n_part, d->n_thread);
    p->alone = (p->n_part > 1) && (4 * p->n_part >= 3 * turns * d->n_thread);
}

/* Output blocks, parts, and into groups of how many tiles those are cut. */
static void cut(const ct_conv_desc *d, plan *p)
{
    int64_t b = p->set.b, most = TILES, line;

    p->out_block = blk_count(p->out, b);
    p->n_pair = blk_count(p->out_block, CT_BLK_MAX_VECS);
    p->s_step = wino_step(p->in_block * p->out_block * b * b);
    line = p->places * b * (p->in_block + p->out_block) * (int64_t)sizeof(float) / p->set.pair;
    cut_parts(d, p);
    if (p->alone)
        most = ALONE_TILES;
    else if (!p->same_x && (sum_bytes(p) <= FEW_SUMS))
        most = blk_smaller(most, blk_larger(FEW_TILES, d->n_thread * THREAD_TILES));
    most = blk_larger(most / line, 16);
    p->size = whole_words(p, blk_larger(blk_count(p->part, blk_count(p->part, most)), 1));
}

/* What the thread that has most products of two blocks does; reading a block takes about as long
 * as half a product. */
static int64_t longest_share(const ct_conv_desc *d, const plan *p)
{
    int64_t in = blk_count(p->in_block, p->in_parts);
    int64_t out = CT_BLK_MAX_VECS * blk_count(p->n_pair, p->pair_parts);

    return blk_count(p->places * p->pair_parts * p->in_parts, d->n_thread) *
           (2 * in * out + in + out);
}

/* Parts of places, where there are too few of these for the team. */
static void share_out(const ct_conv_desc *d, plan *p)
{
    plan best, t = *p;
    int64_t least;

    t.pair_parts = t.in_parts = 1;
    best = t;
    least = longest_share(d, &t);
    for (t.pair_parts = 1; t.pair_parts <= p->n_pair; t.pair_parts++) {
        for (t.in_parts = 1; t.in_parts <= p->in_block; t.in_parts++) {
            if (longest_share(d, &t) >= least) continue;
            least = longest_share(d, &t);
            best = t;
        }
    }
    *p = best;
}

static plan make_plan(const ct_conv_desc *d)
{
    plan p = { .set = ct_blk_pick(d->bf16), .in = d->c / d->group, .out = d->m / d->group };
    int64_t b = p.set.b, words;
    int m;

    p.map = ct_wino_maps_of(d);
    m = p.map->m;
    p.places = wino_places(p.map) * wino_places(p.map);
    p.in_block = blk_count(p.in, b);
    p.n_group = d->group;
    p.tiles_h = blk_count(d->oh, m);
    p.tiles_w = blk_count(d->ow, m);
    p.n_tile = d->n * p.tiles_h * p.tiles_w;
    cut(d, &p);
    if ((d->group == 1) && (p.n_part == 1) &&
        (p.size >= p.n_tile)) { /* the tiles of x stay: slices cost nothing */
        p.n_group = ct_wino_slices(sum_bytes(&p), p.out, b);
        p.same_x = (p.n_group > 1);
        p.out /= p.n_group;
        if (p.same_x) cut(d, &p);
    }
    p.unit = UNIT_FLOATS / ((CT_BLK_MAX_VECS + 1) * b);
    words = blk_count(p.size, p.set.pair);
    p.unit = blk_count(words, blk_count(words, p.unit));
    p.block = words * b;
    p.v_step = wino_step(p.in_block * p.block);
    p.d_step = wino_step(p.out_block * p.block);
    share_out(d, &p);
    return p;
}

/* Work: the parts' sums, [place][pair of output blocks][input block][channel][vecs][b]; mapped x
 * and dy, alone: of each thread */
static float *part_at(const plan *p, float *work, int64_t part)
{
    return work + part * p->places * p->s_step;
}

static float *sum_at(const plan *p, float *sums, int64_t place, int64_t block, int64_t k)
{
    int64_t vecs = blk_smaller(p->out_block - block, CT_BLK_MAX_VECS);

    return sums + place * p->s_step + (block * p->in_block + k * vecs) * p->set.b * p->set.b;
}

static int64_t tile_floats(const plan *p)
{
    return p->places * (p->v_step + p->d_step);
}

static bool weight_supports(const ct_conv_desc *d)
{
    return ct_wino_maps_of(d) != NULL;
}

static size_t workspace(const ct_conv_desc *d)
{
    plan p = make_plan(d);

    return (size_t)(p.n_part * p.places * p.s_step +
                    (p.alone ? d->n_thread : 1) * tile_floats(&p)) *
           sizeof(float);
}

typedef struct group {
    int64_t g, first, n; /* of channels; tiles                  */
    float *v, *d;        /* mapped x and dy                     */
    float *sum;          /* of its part, which it begins or not */
    bool begins;
} group;

enum { AHEAD = 2 }; /* tiles that are fetched ahead */

/* Tile t of x: input block k; or of dy: output block k. */
static ct_wino_patch patch_of(const ct_conv_desc *d, const plan *p, const ct_conv_args *a, bool dy,
                              int64_t g, int64_t k, int64_t t)
{
    int64_t image, blocks = dy ? p->out_block : p->in_block;
    ct_wino_patch at = { .h = dy ? d->oh : d->h, .w = dy ? d->ow : d->w };

    at.bf16 = dy ? d->y_bf16 : d->x_bf16;

    wino_at(t, p->tiles_h, p->tiles_w, p->map->m, &image, &at.row, &at.col);
    if (!dy) at.row -= d->ph, at.col -= d->pw;
    if (dy || !p->same_x) image = image * p->n_group + g;
    at.plane = ct_num_at(dy ? a->dy : a->x, at.bf16, (image * blocks + k) * at.h * at.w * p->set.b);
    return at;
}

static void map_tiles(const ct_conv_desc *d, const plan *p, const ct_conv_args *a, bool dy,
                      const group *r, int64_t k, int64_t first, int64_t n)
{
    int64_t b = p->set.b, pair = p->set.pair, step = dy ? p->d_step : p->v_step;
    float *to = (dy ? r->d : r->v) + k * p->block + first / pair * b;
    float mapped[2][CT_WINO_MAX * CT_WINO_MAX * CT_BLK_MAX];
    bool narrow = (p->set.narrow != NULL);

    for (int64_t i = 0; i < n; i++) {
        ct_wino_patch at = patch_of(d, p, a, dy, r->g, k, r->first + first + i);
        float *here = narrow ? mapped[i % pair] : to;

        if (i + AHEAD < n) {
            ct_wino_patch next = patch_of(d, p, a, dy, r->g, k, r->first + first + i + AHEAD);

            wino_fetch(&next, wino_places(p->map), b);
        }
        (dy ? p->map->grad : p->map->in)(&at, here, narrow ? b : step);
        if ((i % pair < pair - 1) && (i < n - 1)) continue; /* its partner comes */
        if (narrow)
            p->set.narrow->across(p->places, b, mapped[0], (i % pair == 1) ? mapped[1] : NULL, b,
                                  to, step);
        to += b;
    }
}

/* One place: pairs [pair, end) of output blocks, input blocks [first_k, last_k), the tiles of a
 * group. */
static void add_place(const plan *p, const group *r, int64_t place, int64_t pair, int64_t end,
                      int64_t first_k, int64_t last_k)
{
    int64_t b = p->set.b, words = blk_count(r->n, p->set.pair);
    ct_blk_grad t = { .images = 1, .rows = 1, .x_step = b, .dy_block = p->block };

    for (; pair < end; pair++) {
        int64_t block = pair * CT_BLK_MAX_VECS;
        int64_t vecs = blk_smaller(p->out_block - block, CT_BLK_MAX_VECS);

        if (r->begins)
            memset(sum_at(p, r->sum, place, block, first_k), 0,
                   (size_t)((last_k - first_k) * vecs * b * b) * sizeof(float));
        for (int64_t i = 0; i < words; i += p->unit) {
            t.cols = blk_smaller(p->unit, words - i);
            t.dy = r->d + place * p->d_step + block * p->block + i * b;
            for (int64_t k = first_k; k < last_k; k++) {
                int64_t real = blk_smaller(p->in - k * b, b);
                int64_t n_part = blk_count(real, p->set.max_tile[vecs - 1]);
                float *sum = sum_at(p, r->sum, place, block, k);

                for (int64_t c = 0; c < n_part; c++) {
                    int64_t lo = real * c / n_part, hi = real * (c + 1) / n_part;

                    t.x = r->v + place * p->v_step + k * p->block + i * b + lo;
                    t.dw = sum + lo * vecs * b;
                    p->set.grads[vecs - 1][hi - lo - 1](&t);
                }
            }
        }
    }
}

/* Inside a parallel region. */
static void add_group(const ct_conv_desc *d, const plan *p, const ct_conv_args *a, const group *r,
                      ct_task_loop *loop, ct_exec *ex, ct_status *polled)
{
    enum { PIECE = 16 };
    int64_t n_piece = blk_count(r->n, PIECE);
    int64_t n_x = (p->same_x && (r->g > 0)) ? 0 : p->in_block * n_piece; /* there since the first */
    int64_t n_part = p->pair_parts * p->in_parts, n_map = n_x + p->out_block * n_piece;

    for (int64_t i = ct_task_first(loop, n_map); i >= 0; i = ct_task_next(loop)) {
        int64_t first = i % n_piece * PIECE, n = blk_smaller(PIECE, r->n - first);

        map_tiles(d, p, a, i >= n_x, r, (i - ((i < n_x) ? 0 : n_x)) / n_piece, first, n);
    }
#pragma omp barrier
    for (int64_t i = ct_task_first(loop, p->places * n_part); i >= 0; i = ct_task_next(loop)) {
        int64_t pair = i % n_part / p->in_parts, k = i % p->in_parts;

        add_place(p, r, i / n_part, p->n_pair * pair / p->pair_parts,
                  p->n_pair * (pair + 1) / p->pair_parts, p->in_block * k / p->in_parts,
                  p->in_block * (k + 1) / p->in_parts);
        ct_engine_poll(ex, polled);
    }
#pragma omp barrier
}

/* Fetches part i of the group behind r, which has as many tiles, or fewer. */
static void fetch_next(const ct_conv_desc *d, const plan *p, const ct_conv_args *a, const group *r,
                       int64_t i)
{
    int64_t per = p->tiles_h * p->tiles_w, x_size = d->h * d->w * p->set.b;
    int64_t y_size = d->oh * d->ow * p->set.b, first = r->first + r->n;
    int64_t end = blk_smaller(first + r->n * (i + 1) / p->places, p->n_tile);

    for (int64_t t = first + r->n * i / p->places; t < end; t++) {
        int64_t image = t / per * p->n_group + r->g;

        for (int64_t k = 0; k < p->in_block; k++)
            wino_fetch_share(ct_num_at(a->x, d->x_bf16, (image * p->in_block + k) * x_size),
                             d->x_bf16, x_size, t % per, per);
        for (int64_t k = 0; k < p->out_block; k++)
            wino_fetch_share(ct_num_at(a->dy, d->y_bf16, (image * p->out_block + k) * y_size),
                             d->y_bf16, y_size, t % per, per);
    }
}

/* By one thread. */
static void add_group_alone(const ct_conv_desc *d, const plan *p, const ct_conv_args *a,
                            const group *r)
{
    for (int64_t k = 0; k < p->in_block; k++) map_tiles(d, p, a, false, r, k, 0, r->n);
    for (int64_t k = 0; k < p->out_block; k++) map_tiles(d, p, a, true, r, k, 0, r->n);
    for (int64_t i = 0; i < p->places; i++) {
        fetch_next(d, p, a, r, i);
        add_place(p, r, i, 0, p->n_pair, 0, p->in_block);
    }
}

/* Inside a parallel region, unless alone. */
static void add_part(const ct_conv_desc *d, const plan *p, const ct_conv_args *a, int64_t g,
                     int64_t part, ct_task_loop *loop, ct_exec *ex, ct_status *polled)
{
    int64_t end = blk_smaller((part + 1) * p->part, p->n_tile);
    float *tiles = part_at(p, a->work, p->n_part);
    group r = { .g = g, .first = part * p->part, .begins = true };

    if (p->alone) tiles += omp_get_thread_num() * tile_floats(p);
    r.sum = part_at(p, a->work, part);
    r.v = tiles, r.d = tiles + p->places * p->v_step;
    for (; r.first < end; r.first += p->size, r.begins = false) {
        r.n = blk_smaller(p->size, end - r.first);
        if (!p->alone) {
            add_group(d, p, a, &r, loop, ex, polled);
            continue;
        }
        add_group_alone(d, p, a, &r);
        ct_engine_poll(ex, polled);
    }
}

/* All parts, into the first one's sums. Inside a parallel region. */
static void add_parts(const ct_conv_desc *d, const plan *p, const ct_conv_args *a, int64_t g,
                      ct_task_loop *loop, ct_exec *ex, ct_status *polled)
{
    float *sum = a->work;

    if (!p->alone) {
        for (int64_t i = 0; i < p->n_part; i++) add_part(d, p, a, g, i, loop, ex, polled);
    } else {
        for (int64_t i = ct_task_first(loop, p->n_part); i >= 0; i = ct_task_next(loop))
            add_part(d, p, a, g, i, loop, ex, polled);
#pragma omp barrier
    }
    if (p->n_part == 1) return;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < p->places * p->s_step; i += 16) {
        for (int64_t part = 1; part < p->n_part; part++) {
            const float *from = part_at(p, a->work, part);

            for (int64_t k = i; k < i + 16; k++) sum[k] += from[k];
        }
    }
}

/* The sums of an input block and a pair of output blocks, in Caffe's order. */
static void map_back(const plan *p, const ct_conv_args *a, int64_t g, int64_t piece)
{
    enum { ROW = CT_BLK_MAX * CT_WINO_MAX_TAPS * CT_WINO_MAX_TAPS };
    int64_t taps_n = p->map->taps * p->map->taps;
    int64_t b = p->set.b, k = piece % p->in_block, block = piece / p->in_block * CT_BLK_MAX_VECS;
    int64_t vecs = blk_smaller(p->out_block - block, CT_BLK_MAX_VECS);
    int64_t n = blk_smaller(p->in - k * b, b) * taps_n, step = p->in * taps_n;
    float taps[ROW * CT_BLK_MAX] __attribute__((aligned(64))), turned[CT_BLK_MAX * ROW];

    for (int64_t v = 0; v < vecs; v++) {
        int64_t real = blk_smaller(p->out - (block + v) * b, b);
        const float *sum = sum_at(p, a->work, 0, block, k) + v * b;
        float *dw = a->dweight + (g * p->out + (block + v) * b) * step + k * b * taps_n;

        for (int64_t c = 0; c < n / taps_n; c++)
            p->map->dweight(sum + c * vecs * b, p->s_step, taps + c * taps_n * b);
        if (a->beta == 0.0f) {
            ct_blk_turn(n, real, taps, b, dw, step);
            continue;
        }
        ct_blk_turn(n, real, taps, b, turned, ROW);
        for (int64_t m = 0; m < real; m++) {
            for (int64_t i = 0; i < n; i++)
                dw[m * step + i] = turned[m * ROW + i] + a->beta * dw[m * step + i];
        }
    }
}

static ct_status run(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    plan p = make_plan(d);
    float *work = a->work;
    ct_task_team team;
    ct_status polled = CT_OK;

    if (p.n_tile == 0) memset(work, 0, (size_t)(p.places * p.s_step) * sizeof(float));
    ct_task_team_init(&team, d->n_thread);
#pragma omp parallel num_threads(d->n_thread)
    {
        ct_task_loop loop = ct_task_loop_of(&team);

        for (int64_t g = 0; g < p.n_group; g++) {
            add_parts(d, &p, a, g, &loop, ex, &polled);
            for (int64_t i = ct_task_first(&loop, p.n_pair * p.in_block); i >= 0;
                 i = ct_task_next(&loop))
                map_back(&p, a, g, i);
#pragma omp barrier
        }
    }
    return polled;
}

const ct_conv_impl ct_conv_winograd_backward_weight = { .name = "winograd",
                                                        .supports = weight_supports,
                                                        .workspace = workspace,
                                                        .run = run,
                                                        .prefers = ct_wino_prefers,
                                                        .can = CT_CONV_CAN_BF16 };
