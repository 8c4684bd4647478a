/* How the sum is cut (blocked_sum.h), and what of it is packed beforehand. */
#include "framework/base/memory.h"
#include "framework/base/stream.h"
#include "layers/engine/conv/blocked_sum.h"

static const int64_t CHUNK_BYTES = 96 << 10;  /* of weights                                */
static const int64_t STRIP_BYTES = 512 << 10; /* of x                                      */
static const int64_t PLACES = 448;            /* outputs of a strip, at least              */
static const int64_t TASKS = 4;               /* for a thread, at least, where it can be so */
static const int64_t DEEP = 8;                /* input blocks of a sum without neighbours  */

static bool is_pointwise(const ct_blk_sum *s)
{
    return (s->n_p == 1) && (s->n_q == 1) && (s->si_h == 1) && (s->si_w == 1) && (s->so_h == 1) &&
           (s->so_w == 1) && (s->row_first == 0) && (s->col_first == 0) && (s->oh == s->h) &&
           (s->ow == s->w) && (s->y_h == s->h) && (s->y_w == s->w);
}

ct_blk_sum ct_sum_flat(const ct_blk_sum *s)
{
    ct_blk_sum f = *s;

    if (!is_pointwise(s)) return f;
    f.w = f.y_w = f.ow = s->h * s->w;
    f.h = f.y_h = f.oh = 1;
    return f;
}

static int64_t even(int64_t whole, int64_t most)
{
    return blk_count(whole, blk_count(whole, blk_larger(most, 1)));
}

/* At least PLACES, so that weights are worth fetching; more where all input blocks of them fit. */
static void choose_strip(const ct_blk_sum *s, ct_sum_plan *p)
{
    int64_t column = s->set.words * (int64_t)sizeof(float), images = blk_larger(s->n, 1);
    int64_t halo = blk_larger((s->n_p - 1) * s->row_step + 1 - s->si_h, 0);
    int64_t want = blk_larger(STRIP_BYTES / (p->in_block * column * s->si_h * s->si_w), PLACES);
    int64_t share = s->n * s->group * s->oh * s->ow / (TASKS * s->n_thread);

    want = blk_larger(blk_smaller(want, share), s->set.max_tile[1]);
    p->images = even(images, blk_smaller(want / (s->oh * s->ow), images));
    p->rows = even(s->oh, blk_smaller(blk_larger(want / s->ow, halo), s->oh));
    p->cols = s->ow;
    if (s->oh == 1) p->cols = blk_smaller(s->ow, want / s->set.max_tile[1] * s->set.max_tile[1]);
    p->n_image = blk_count(s->n, p->images);
    p->n_row = blk_count(s->oh, p->rows);
    p->n_col = blk_count(s->ow, p->cols);
    column *= p->images * (p->rows * s->si_h + halo) * blk_smaller(p->cols * s->si_w, s->w);
    p->super = blk_larger(STRIP_BYTES / column, 1);
}

static int64_t copied_words(const ct_blk_sum *s, const ct_sum_plan *p)
{
    int64_t rows = (p->rows - 1) * s->si_h + (s->n_p - 1) * s->row_step + 1;
    int64_t cols = (p->cols - 1) * s->si_w + (s->n_q - 1) * s->col_step + 1;

    if ((s->set.narrow == NULL) || (s->n_p * s->n_q == 0)) return 0;
    if (s->x_bf16 && (s->set.pair == 2)) return 0; /* words as they lie */
    return blk_count(p->images * blk_smaller(p->super, p->in_block) * blk_smaller(rows, s->h) *
                         blk_smaller(cols, s->w) * s->set.words,
                     16) *
           16;
}

/* Floats of sums that a task keeps until they are rounded: a row of a pair where that is done at
 * once, else the pair at work, or all where the input blocks come in parts. */
bool ct_sum_is_at_once(const ct_blk_sum *s, const ct_sum_plan *p)
{
    return (p->chunk >= p->in_block) && (p->chunk_p >= s->n_p);
}

int64_t ct_sum_kept_blocks(const ct_sum_plan *p)
{
    return (p->super >= p->in_block) ? CT_BLK_MAX_VECS : p->pairs * CT_BLK_MAX_VECS;
}

static int64_t kept_floats(const ct_blk_sum *s, const ct_sum_plan *p)
{
    int64_t row = p->cols * s->set.b;

    if (!s->y_bf16) return 0;
    return ct_sum_is_at_once(s, p) ? CT_BLK_MAX_VECS * row
                                   : ct_sum_kept_blocks(p) * p->images * p->rows * row;
}

/* Whether y, written once, passes the caches by. */
static bool streams(const ct_blk_sum *s, const ct_sum_plan *p)
{
    int64_t floats = s->n * s->group * p->out_block * s->y_h * s->y_w * s->set.b;

    return !s->y_bf16 && (s->so_h == 1) && (s->so_w == 1) && (p->super >= p->in_block) &&
           ct_sum_is_at_once(s, p) && ct_stream_pays(s->y, (size_t)floats * sizeof(float));
}

ct_sum_plan ct_sum_make_plan(const ct_blk_sum *s)
{
    int64_t b = s->set.b, taps = s->n_p * s->n_q, tasks, row;
    ct_sum_plan p = { .in_block = blk_count(s->in, b), .out_block = blk_count(s->out, b) };
    int64_t n_pair = blk_count(p.out_block, CT_BLK_MAX_VECS);

    p.weights = taps * s->set.words * b;
    choose_strip(s, &p);
    tasks = p.n_image * s->group * p.n_row * p.n_col;
    p.n_part = blk_smaller(n_pair, blk_count(TASKS * s->n_thread, blk_larger(tasks, 1)));
    p.pairs = blk_count(n_pair, p.n_part);
    p.n_part = blk_count(n_pair, p.pairs);
    p.n_task = tasks * p.n_part;
    row = s->n_q * s->set.words * b * CT_BLK_MAX_VECS * (int64_t)sizeof(float);
    p.chunk = blk_larger(CHUNK_BYTES / blk_larger(row * s->n_p, 1), 1);
    p.chunk = even(p.in_block, p.chunk);
    p.chunk_p = s->n_p;
    if (p.chunk == 1) p.chunk_p = blk_larger(CHUNK_BYTES / blk_larger(row, 1), 1);
    p.super = even(p.in_block, p.super);
    p.super = blk_count(p.super, p.chunk) * p.chunk;
    p.chunk_p = blk_larger(blk_smaller(p.chunk_p, s->n_p), 1);
    p.own = copied_words(s, &p);
    p.room = kept_floats(s, &p);
    p.deep = is_pointwise(s) && (p.in_block >= DEEP);
    p.stream = streams(s, &p);
    return p;
}

/* ---- the work */

static int64_t map_floats(const ct_blk_sum *s)
{
    return (int64_t)(ct_align_up((size_t)s->w_taps * sizeof(int64_t)) / sizeof(float));
}

/* Where tap t of the owner's is among those used; -1: it is not. */
static int64_t *tap_map(const ct_blk_sum *s)
{
    return (int64_t *)s->work;
}

static void make_map(const ct_blk_sum *s)
{
    for (int64_t t = 0; t < s->w_taps; t++) tap_map(s)[t] = -1;
    for (int64_t p = 0; p < s->n_p; p++) {
        for (int64_t q = 0; q < s->n_q; q++)
            tap_map(s)[s->w_first + p * s->w_p + q * s->w_q] = p * s->n_q + q;
    }
}

/* `real` lanes of one output block, columns [0, n) of the owner's (channel, tap) from channel c on.
 */
static void pack_columns(const ct_blk_sum *s, int64_t real, int64_t lanes, int64_t c, int64_t n,
                         const float *from, float *to)
{
    enum { COLUMNS = 16 };
    const int64_t *map = tap_map(s);
    int64_t b = s->set.b, t = 0;
    float turned[COLUMNS * CT_BLK_MAX] = { 0.0f };

    for (int64_t j = 0; j < n; j += COLUMNS) {
        int64_t here = blk_smaller(n - j, COLUMNS);

        ct_blk_turn(real, here, from + j, s->w_out, turned, b);
        for (int64_t k = 0; k < here; k++) {
            if (map[t] >= 0) copy_row(to + (map[t] * b + c) * lanes, turned + k * b, b);
            if (++t == s->w_taps) t = 0, c++;
        }
    }
}

/* One input block of one pair. */
static void pack_block(const ct_blk_sum *s, int64_t first, int64_t vecs, int64_t k,
                       const float *from, float *to)
{
    int64_t b = s->set.b, n = blk_smaller(s->in - k * b, b), lanes = vecs * b;

    from += first * b * s->w_out + k * b * s->w_in;
    for (int64_t v = 0; v < vecs; v++, from += b * s->w_out, to += b) {
        int64_t real = blk_smaller(s->out - (first + v) * b, b);

        if (s->set.narrow != NULL) {
            ct_blk_pack_words(s, tap_map(s), real, n, lanes, from, to);
        } else if ((s->w_out == 1) && (real == b)) { /* one tap: lanes are neighbours already */
            for (int64_t c = 0; c < n; c++) copy_row(to + c * lanes, from + c * s->w_in, b);
        } else if ((s->w_taps == 1) && (s->w_in == 1) && (real == b)) {
            ct_blk_turn(b, n, from, s->w_out, to, lanes);
        } else if (s->w_in == s->w_taps) {
            pack_columns(s, real, lanes, 0, n * s->w_taps, from, to);
        } else {
            for (int64_t c = 0; c < n; c++)
                pack_columns(s, real, lanes, c, s->w_taps, from + c * s->w_in, to);
        }
    }
}

static float *start_of(const ct_blk_sum *s, const ct_sum_plan *p, int64_t g)
{
    return s->work + map_floats(s) + g * p->out_block * s->set.b;
}

const float *ct_sum_start(const ct_blk_sum *s, const ct_sum_plan *p, int64_t g)
{
    return start_of(s, p, g);
}

static int64_t packed_at(const ct_blk_sum *s, const ct_sum_plan *p, int64_t g, int64_t block)
{
    return map_floats(s) + s->group * p->out_block * s->set.b +
           (g * p->out_block + block) * p->in_block * p->weights;
}

float *ct_sum_packed(const ct_blk_sum *s, const ct_sum_plan *p, int64_t g, int64_t block)
{
    return s->work + packed_at(s, p, g, block);
}

/* Where the copies of x begin, one a thread. */
int64_t ct_sum_copies_at(const ct_blk_sum *s, const ct_sum_plan *p)
{
    return packed_at(s, p, s->group, 0);
}

int64_t ct_blk_sum_work(const ct_blk_sum *whole)
{
    ct_blk_sum s = ct_sum_flat(whole);
    ct_sum_plan p = ct_sum_make_plan(&s);

    return ct_sum_copies_at(&s, &p) + s.n_thread * (p.own + p.room);
}

void ct_sum_pack_start(const ct_blk_sum *s, const ct_sum_plan *p)
{
    make_map(s);
    for (int64_t g = 0; g < s->group; g++) {
        float *to = start_of(s, p, g);

        for (int64_t i = 0; i < p->out_block * s->set.b; i++)
            to[i] = ((s->bias != NULL) && (i < s->out)) ? s->bias[g * s->out + i] : 0.0f;
    }
}

/* Piece i of all: an input block of a pair of output blocks of a group. */
void ct_sum_pack_piece(const ct_blk_sum *s, const ct_sum_plan *p, int64_t i)
{
    int64_t n_pair = blk_count(p->out_block, CT_BLK_MAX_VECS), k = i % p->in_block;
    int64_t first = i / p->in_block % n_pair * CT_BLK_MAX_VECS, g = i / p->in_block / n_pair;
    int64_t vecs = blk_smaller(p->out_block - first, CT_BLK_MAX_VECS);

    pack_block(s, first, vecs, k, s->weight + g * s->w_group,
               ct_sum_packed(s, p, g, first) + k * vecs * p->weights);
}
