/* How Winograd's sums are cut, where their work lies, and their weights, mapped. */
#include "layers/engine/conv/winograd_sum.h"

static const int64_t ALONE_WEIGHTS = 12 << 20;  /* bytes of mapped weights of a group of channels */
static const int64_t ALONE_TILES = 1040 << 10;  /* bytes of mapped inputs that a thread keeps     */
static const int64_t TOGETHER_TILES = 40 << 20; /* of mapped inputs and outputs                   */
static const int64_t ALONE_MOST = 56; /* tiles of a thread …                            */
static const int64_t ALONE_FEW = 28;  /* … where what comes next is to fit beside them: with   */
static const int64_t FEW_WEIGHTS = 1 << 20;    /* … so many bytes of mapped weights, or fewer */
static const int64_t SLICE_WEIGHTS = 10 << 20; /* bytes of mapped weights of a slice of channels */
static const int64_t CHUNK_BYTES = 64 << 10;   /* weights of a pair that stay near               */

ct_wino_plan ct_wino_make_plan(const ct_wino_sum *s)
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

float *ct_wino_bias(const ct_wino_sum *s, const ct_wino_plan *p, int64_t g)
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

float *ct_wino_plane(const ct_wino_sum *s, const ct_wino_plan *p)
{
    return s->work + planes_from(s, p) + omp_get_thread_num() * p->plane;
}

float *ct_wino_tiles(const ct_wino_sum *s, const ct_wino_plan *p)
{
    return s->work + tiles_from(s, p);
}

int64_t ct_wino_sum_work(const ct_wino_sum *s)
{
    ct_wino_plan p = ct_wino_make_plan(s);

    return tiles_from(s, &p) + p.own * (p.alone ? s->n_thread : 1);
}

void ct_wino_fill_bias(const ct_wino_sum *s, const ct_wino_plan *p)
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
void ct_wino_pack_piece(const ct_wino_sum *s, const ct_wino_plan *p, int64_t g, int64_t i)
{
    int64_t b = s->set.b, k = i % p->in_block, block = i / p->in_block * CT_BLK_MAX_VECS;
    int64_t vecs = blk_smaller(p->out_block - block, CT_BLK_MAX_VECS);
    const float *from = s->weight + g * s->w_group + block * b * s->w_out + k * b * s->w_in;
    float *to = s->work + (block * p->in_block + k * vecs) * p->words * b;

    for (int64_t v = 0; v < vecs; v++)
        map_weights(s, p, from + v * b * s->w_out, blk_smaller(s->out - (block + v) * b, b),
                    blk_smaller(s->in - k * b, b), vecs * b, to + v * b);
}
