/* Forward and backward by data with Winograd's tiles: tiles are mapped, multiplied
 * and mapped back. */

#include "framework/base/task_loop.h"
#include "layers/engine/conv/winograd.h"

/* How the sum of winograd.h is cut; private to conv/.
 *
 * Weights are mapped once in each call, then tiles go through in groups: mapped, multiplied over
 * channels place by place, mapped back. Where the mapped weights fit beside it into a nearby cache,
 * each thread takes groups of its own, whose mapped tiles stay in its second-level cache ("alone");
 * otherwise all threads work on one group, large enough that weights are worth fetching
 * ("together"). An output's sum is the same both ways.
 */

typedef struct ct_wino_plan {
    int n; /* places of a tile along an axis         */
    int64_t in_block, out_block, n_pair;
    int64_t words;            /* of a block of channels of mapped inputs */
    int64_t tiles_h, tiles_w; /* of an image                             */
    int64_t n_tile, size;     /* of all images; of a group               */
    bool alone;
    int64_t chunk;           /* input blocks that are added at a time   */
    int64_t u_step, v_step;  /* from place to place: weights, inputs …  */
    int64_t v_block;         /* blocks of inputs                        */
    int64_t z_step, z_block; /* … outputs, and blocks of outputs        */
    int64_t u, own;          /* floats: weights, a thread's or all's    */
    int64_t plane_row;       /* adjoint: floats of a row of the plane where tiles meet … */
    int64_t plane;           /* … and of the plane, one a thread; else 0                 */
} ct_wino_plan;

static ct_wino_plan ct_wino_make_plan(const ct_wino_sum *s);

/* The work: mapped weights, [place][pair of output blocks][input block][word of channels][vecs][b];
 * bias of all groups; planes; mapped tiles. */
static float *ct_wino_bias(const ct_wino_sum *s, const ct_wino_plan *p, int64_t g);
/** Of the calling thread. */
static float *ct_wino_plane(const ct_wino_sum *s, const ct_wino_plan *p);
static float *ct_wino_tiles(const ct_wino_sum *s, const ct_wino_plan *p);

/** Before threads work. */
static void ct_wino_fill_bias(const ct_wino_sum *s, const ct_wino_plan *p);
/** Piece i of the weights of group g: an input block of a pair of output blocks. */
static void ct_wino_pack_piece(const ct_wino_sum *s, const ct_wino_plan *p, int64_t g, int64_t i);

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
                         ct_task_loop *loop, ct_exec *ex, ct_status *polled)
{
    enum { PIECE = 16 }; /* tiles that are mapped at a time */
    int64_t t = group * p->size, n = blk_smaller(p->size, p->n_tile - t), places = p->n * p->n;
    int64_t n_piece = blk_count(n, PIECE);
    int64_t piece_out = s->adjoint ? p->tiles_h * p->tiles_w : PIECE;
    int64_t n_in = (s->same_x && (g > 0)) ? 0 : p->in_block * n_piece;
    int64_t n_part = blk_cut_pairs(places, p->n_pair, 0, s->n_thread);
    float *v = ct_wino_tiles(s, p), *z = v + places * p->v_step;

    /* of slices, the tiles are all there since the first */
    for (int64_t i = ct_task_first(loop, n_in); i >= 0; i = ct_task_next(loop)) {
        int64_t first = i % n_piece * PIECE;

        map_in(s, p, g, i / n_piece, t, t + first, blk_smaller(PIECE, n - first), v);
    }
#pragma omp barrier
    for (int64_t i = ct_task_first(loop, places * n_part); i >= 0; i = ct_task_next(loop)) {
        int64_t place = i / n_part, part = i % n_part;

        for (int64_t k = p->n_pair * part / n_part; k < p->n_pair * (part + 1) / n_part; k++) {
            int64_t block = k * CT_BLK_MAX_VECS;

            multiply(s, p, place, block, n, v, z + place * p->z_step + block * p->z_block);
        }
        ct_engine_poll(ex, polled);
    }
#pragma omp barrier
    if (s->adjoint) n_piece = n / piece_out;
    for (int64_t i = ct_task_first(loop, p->out_block * n_piece); i >= 0; i = ct_task_next(loop)) {
        int64_t first = i % n_piece * piece_out, block = i / n_piece;

        (s->adjoint ? fold_out : map_out)(s, p, g, block, t, t + first,
                                          blk_smaller(piece_out, n - first), z, block);
    }
#pragma omp barrier
}

/* Inside a parallel region. */
static void run_slice(const ct_wino_sum *s, const ct_wino_plan *p, int64_t g, int64_t n_group,
                      ct_task_loop *loop, ct_exec *ex, ct_status *polled)
{
    int64_t n_piece = p->n_pair * p->in_block;

    for (int64_t i = ct_task_first(loop, n_piece); i >= 0; i = ct_task_next(loop)) {
        ct_wino_pack_piece(s, p, g, i);
        ct_engine_poll(ex, polled);
    }
#pragma omp barrier
    if (!p->alone) {
        for (int64_t i = 0; i < n_group; i++) run_together(s, p, g, i, loop, ex, polled);
        return;
    }
    for (int64_t i = ct_task_first(loop, n_group); i >= 0; i = ct_task_next(loop)) {
        run_alone(s, p, g, i);
        ct_engine_poll(ex, polled);
    }
#pragma omp barrier
}

ct_status ct_wino_sum_run(const ct_wino_sum *s, ct_exec *ex)
{
    ct_wino_plan p = ct_wino_make_plan(s);
    int64_t n_group;
    ct_task_team team;
    ct_status polled = CT_OK;

    if (p.n_tile == 0) return CT_OK;
    n_group = blk_count(p.n_tile, p.size);
    ct_wino_fill_bias(s, &p);
    ct_task_team_init(&team, s->n_thread);
#pragma omp parallel num_threads(s->n_thread)
    {
        ct_task_loop loop = ct_task_loop_of(&team);

        for (int64_t g = 0; g < s->group; g++) run_slice(s, &p, g, n_group, &loop, ex, &polled);
    }
    return polled;
}

/* ---- How Winograd's sums are cut, where their work lies, and their weights, mapped. */

static const int64_t ALONE_WEIGHTS = 12 << 20;  /* bytes of mapped weights of a group of channels */
static const int64_t ALONE_TILES = 1040 << 10;  /* bytes of mapped inputs that a thread keeps     */
static const int64_t TOGETHER_TILES = 40 << 20; /* of mapped inputs and outputs                   */
static const int64_t ALONE_MOST = 56; /* tiles of a thread …                            */
static const int64_t ALONE_FEW = 28;  /* … where what comes next is to fit beside them: with   */
static const int64_t FEW_WEIGHTS = 1 << 20;    /* … so many bytes of mapped weights, or fewer */
static const int64_t SLICE_WEIGHTS = 10 << 20; /* bytes of mapped weights of a slice of channels */
static const int64_t CHUNK_BYTES = 64 << 10;   /* weights of a pair that stay near               */

static ct_wino_plan ct_wino_make_plan(const ct_wino_sum *s)
{
    int64_t b = s->set.b, step = s->set.max_tile[1], bytes, count, most, per;
    ct_wino_plan p = { .n = wino_places(s->map),
                       .words = s->set.words,
                       .in_block = blk_count(s->in, b),
                       .out_block = blk_count(s->out, b),
                       .tiles_h = blk_count(s->adjoint ? s->h : s->oh, s->map->m),
                       .tiles_w = blk_count(s->adjoint ? s->w : s->ow, s->map->m) };
    int64_t places = (int64_t)p.n * p.n, line = places * (int64_t)sizeof(float);

    per = s->adjoint ? p.tiles_h * p.tiles_w : 1; /* images stay whole */
    p.n_pair = blk_count(p.out_block, CT_BLK_MAX_VECS);
    p.n_tile = s->n * p.tiles_h * p.tiles_w;
    p.u_step = wino_step(p.in_block * p.out_block * p.words * b);
    p.u = places * p.u_step;
    bytes = p.u * (int64_t)sizeof(float);
    most = blk_smaller(ALONE_TILES / (line * p.words * p.in_block),
                       (bytes <= FEW_WEIGHTS) ? ALONE_FEW : ALONE_MOST);
    count = blk_count(p.n_tile, blk_larger(most, step));
    p.alone = !s->same_x && (bytes <= ALONE_WEIGHTS) && (per <= 4 * ALONE_MOST) &&
              ((count >= 2 * s->n_thread) || (s->n_thread == 1));
    if (p.alone) { /* all threads have as many groups, if those do not get too small */
        int64_t even = blk_count(count, s->n_thread) * s->n_thread;

        if (p.n_tile >= even * step) count = even;
    } else {
        most = TOGETHER_TILES / (line * (p.words * p.in_block + b * p.out_block));
        count = blk_count(p.n_tile, blk_larger(most, step));
    }
    p.size = blk_count(blk_count(p.n_tile, blk_larger(count, 1)), per) * per;
    p.chunk = CHUNK_BYTES / (CT_BLK_MAX_VECS * p.words * b * (int64_t)sizeof(float));
    p.chunk = blk_larger(p.chunk, 1);
    p.z_block = p.size * b;
    p.v_block = p.size * p.words;
    p.v_step = wino_step(p.in_block * p.v_block);
    p.z_step = wino_step((p.alone ? CT_BLK_MAX_VECS : p.out_block) * p.z_block);
    p.own = places * (p.v_step + p.z_step);
    if (s->adjoint) {
        p.plane_row = (p.tiles_w * s->map->m + s->map->taps - 1) * b;
        p.plane = (p.tiles_h * s->map->m + s->map->taps - 1) * p.plane_row;
    }
    return p;
}

int64_t ct_wino_slices(int64_t bytes, int64_t out, int64_t b)
{
    int64_t n = 1, pair = CT_BLK_MAX_VECS * b;

    while ((bytes / n > SLICE_WEIGHTS) && (out % (2 * n * pair) == 0)) n *= 2;
    return n;
}

void ct_wino_slice(ct_wino_sum *s)
{
    ct_wino_plan p = ct_wino_make_plan(s);
    int64_t n = ct_wino_slices(p.u * (int64_t)sizeof(float), s->out, s->set.b);

    if ((s->group != 1) || p.alone || (p.size < p.n_tile)) return;
    s->same_x = (n > 1);
    s->group = n;
    s->out /= n;
    s->w_group = s->out * s->w_out;
}

static float *ct_wino_bias(const ct_wino_sum *s, const ct_wino_plan *p, int64_t g)
{
    return s->work + p->u + g * p->out_block * s->set.b;
}

static int64_t planes_from(const ct_wino_sum *s, const ct_wino_plan *p)
{
    return p->u + blk_count(s->group * p->out_block * s->set.b, 16) * 16;
}

static int64_t tiles_from(const ct_wino_sum *s, const ct_wino_plan *p)
{
    return planes_from(s, p) + blk_count(s->n_thread * p->plane, 16) * 16;
}

static float *ct_wino_plane(const ct_wino_sum *s, const ct_wino_plan *p)
{
    return s->work + planes_from(s, p) + omp_get_thread_num() * p->plane;
}

static float *ct_wino_tiles(const ct_wino_sum *s, const ct_wino_plan *p)
{
    return s->work + tiles_from(s, p);
}

int64_t ct_wino_sum_work(const ct_wino_sum *s)
{
    ct_wino_plan p = ct_wino_make_plan(s);

    return tiles_from(s, &p) + p.own * (p.alone ? s->n_thread : 1);
}

static void ct_wino_fill_bias(const ct_wino_sum *s, const ct_wino_plan *p)
{
    for (int64_t g = 0; g < s->group; g++) {
        for (int64_t i = 0; i < p->out_block * s->set.b; i++)
            ct_wino_bias(s, p, g)[i] =
                ((s->bias != NULL) && (i < s->out)) ? s->bias[g * s->out + i] : 0.0f;
    }
}

/* ---- weights: [place][pair of output blocks][input block][word of channels][vecs][b] */

/* Rounded: channel c, turned, and the one behind it, if it is there. */
static void map_words(const ct_wino_sum *s, const ct_wino_plan *p, const float *taps, int64_t next,
                      int64_t step, float *to)
{
    int64_t b = s->set.b, places = (int64_t)p->n * p->n;
    float mapped[2][CT_WINO_MAX * CT_WINO_MAX * CT_BLK_MAX];

    s->map->weight(taps, step, mapped[0], b);
    if (next > 0) s->map->weight(taps + next, step, mapped[1], b);
    s->set.narrow->across(places, b, mapped[0], (next > 0) ? mapped[1] : NULL, b, to, p->u_step);
}

/* `real` lanes of an output block, `n` channels of an input block. */
static void map_weights(const ct_wino_sum *s, const ct_wino_plan *p, const float *from,
                        int64_t real, int64_t n, int64_t lanes, float *to)
{
    int64_t b = s->set.b, taps_n = s->map->taps * s->map->taps;
    int64_t first = s->turned ? taps_n - 1 : 0, step = s->turned ? -1 : 1;
    float turned[CT_BLK_MAX * CT_WINO_MAX_TAPS * CT_WINO_MAX_TAPS * CT_BLK_MAX];

    memset(turned, 0, (size_t)(n * taps_n * b) * sizeof(float));
    if (s->w_in == taps_n) {
        ct_blk_turn(real, n * taps_n, from, s->w_out, turned, b);
    } else {
        for (int64_t c = 0; c < n; c++)
            ct_blk_turn(real, taps_n, from + c * s->w_in, s->w_out, turned + c * taps_n * b, b);
    }
    for (int64_t c = 0; c < n; c += s->set.pair, to += lanes) {
        const float *taps = turned + (c * taps_n + first) * b;
        bool two = (s->set.pair == 2) && (c + 1 < n);

        if (s->set.narrow != NULL)
            map_words(s, p, taps, two ? taps_n * b : 0, step * b, to);
        else
            s->map->weight(taps, step * b, to, p->u_step);
    }
}

/* Piece i: an input block of a pair of output blocks. */
static void ct_wino_pack_piece(const ct_wino_sum *s, const ct_wino_plan *p, int64_t g, int64_t i)
{
    int64_t b = s->set.b, k = i % p->in_block, block = i / p->in_block * CT_BLK_MAX_VECS;
    int64_t vecs = blk_smaller(p->out_block - block, CT_BLK_MAX_VECS);
    const float *from = s->weight + g * s->w_group + block * b * s->w_out + k * b * s->w_in;
    float *to = s->work + (block * p->in_block + k * vecs) * p->words * b;

    for (int64_t v = 0; v < vecs; v++)
        map_weights(s, p, from + v * b * s->w_out, blk_smaller(s->out - (block + v) * b, b),
                    blk_smaller(s->in - k * b, b), vecs * b, to + v * b);
}
