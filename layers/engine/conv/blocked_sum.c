/* The driver of the tiles: what is summed in which order, and by whom. */

#include "framework/base/memory.h"
#include "framework/base/stream.h"
#include "framework/base/task_loop.h"

#include "layers/engine/conv/blocked.h"

/* How the sum of blocked.h is cut; private to conv/.
 *
 * A task is a strip of outputs of a group (rows of an image, or several small images), for some
 * output blocks. It goes through as many input blocks at a time as a second-level cache holds x of;
 * for these through the pairs of output blocks; for each through the chunks of the sum (some input
 * blocks, or some tap rows of one) whose weights stay near; and for each chunk
 * through the strip. An output's sum is the same for any strips and threads.
 */

typedef struct ct_sum_plan {
    int64_t in_block, out_block;
    int64_t images, rows, cols;    /* of a strip                                         */
    int64_t n_image, n_row, n_col; /* strips along them                                  */
    int64_t n_part, pairs;         /* tasks with the same strip; output pairs of each    */
    int64_t n_task;
    int64_t super, chunk; /* input blocks whose x, whose weights stay in a cache */
    int64_t chunk_p;      /* tap rows of a chunk, where that is one block       */
    int64_t weights;      /* packed words of a pair of input and output blocks  */
    int64_t own;          /* words of x that a thread copies, rounded; 0: none  */
    bool deep;            /* the next input block's x is fetched ahead, not the next tile's      */
    bool stream;          /* y passes the caches by                                    */
    int64_t room;         /* floats of sums that a thread keeps, until they are rounded; 0: none */
} ct_sum_plan;

/** Without neighbours an image is one row. */
static ct_blk_sum ct_sum_flat(const ct_blk_sum *s);
/** Of what ct_sum_flat() gives. */
static ct_sum_plan ct_sum_make_plan(const ct_blk_sum *s);
/** Whether each output is summed up in one go. */
static bool ct_sum_is_at_once(const ct_blk_sum *s, const ct_sum_plan *p);
/** Output blocks whose sums wait as f32 until they are complete, where y is bf16. */
static int64_t ct_sum_kept_blocks(const ct_sum_plan *p);

/* The work: which tap is used where; what sums start with, [group][block][b]; weights, [group][pair
 * of output blocks][input block][p][q][word of channels][vecs][b]; copies of x and room, a thread
 * each. */
/** Makes the first two; before threads pack pieces. */
static void ct_sum_pack_start(const ct_blk_sum *s, const ct_sum_plan *p);
/** Piece i of all: an input block of a pair of output blocks of a group. */
static void ct_sum_pack_piece(const ct_blk_sum *s, const ct_sum_plan *p, int64_t i);
static const float *ct_sum_start(const ct_blk_sum *s, const ct_sum_plan *p, int64_t g);
/** Of the pair that begins at `block`. */
static float *ct_sum_packed(const ct_blk_sum *s, const ct_sum_plan *p, int64_t g, int64_t block);
/** Floats in front of the copies. */
static int64_t ct_sum_copies_at(const ct_blk_sum *s, const ct_sum_plan *p);

typedef ct_sum_plan plan;

/* A part of the sum: blocks [block, block + n_block), tap rows [p, p + n_p). */
typedef struct part {
    int64_t block, n_block, p, n_p;
    bool first, last;
} part;

/* ---- tasks */

typedef struct place {
    int64_t n, n_end, g, i, i_end, j, j_end; /* a strip */
    int64_t block, vecs, first_block;        /* a pair; the first of the task */
    const float *x;                          /* first image, input block k, (top, left) … */
    int64_t k, top, left, cols;              /* … of rows with so many columns            */
    int64_t x_image, x_block;                /* words from one to the next                */
} place;

/* The tap rows of `c` that lie inside for output row i. */
static void clip_rows(const ct_blk_sum *s, const part *c, int64_t i, int64_t *lo_p, int64_t *hi_p)
{
    int64_t first = i * s->si_h + s->row_first + c->p * s->row_step;

    valid_range(first, s->row_step, s->h, c->n_p, lo_p, hi_p);
}

/* Words of channels of an input block that there are. */
static int64_t last_words(const ct_blk_sum *s, int64_t block)
{
    return blk_count(blk_smaller(s->in - block * s->set.b, s->set.b), s->set.pair);
}

/* Where the outputs of a pair go, from the first of the place on, and steps to others. */
typedef struct target {
    float *y;
    int64_t image, row, col, block;
} target;

static int64_t first_output(const ct_blk_sum *s, const plan *p, const place *l)
{
    int64_t plane = (l->n * s->group + l->g) * p->out_block + l->block;
    int64_t row = s->row + l->i * s->so_h, col = s->col + l->j * s->so_w;

    return ((plane * s->y_h + row) * s->y_w + col) * s->set.b;
}

static target output_of(const ct_blk_sum *s, const plan *p, const place *l)
{
    int64_t b = s->set.b, plane = s->y_h * s->y_w * b;

    return (target){ .y = ct_num_to(s->y, s->y_bf16, first_output(s, p, l)),
                     .image = s->group * p->out_block * plane,
                     .row = s->so_h * s->y_w * b,
                     .col = s->so_w * b,
                     .block = plane };
}

/* Sums that wait as f32: those of the place alone. */
static target room_of(const ct_blk_sum *s, const plan *p, const place *l)
{
    float *first = s->work + ct_sum_copies_at(s, p) + s->n_thread * p->own;
    target t = { .y = first + omp_get_thread_num() * p->room, .col = s->set.b };

    t.block = (l->j_end - l->j) * t.col;
    if (ct_sum_is_at_once(s, p)) return t; /* each row where the one before it was */
    t.row = t.block;
    t.image = (l->i_end - l->i) * t.row;
    t.block = (l->n_end - l->n) * t.image;
    if (ct_sum_kept_blocks(p) > CT_BLK_MAX_VECS) t.y += (l->block - l->first_block) * t.block;
    return t;
}

/* A row of outputs of image r that is complete, rounded. */
static void finish_row(const ct_blk_sum *s, const plan *p, const place *l, const target *sum,
                       int64_t r, int64_t i)
{
    int64_t b = s->set.b, cols = l->j_end - l->j;
    target out = output_of(s, p, l);
    const float *from = sum->y + (r - l->n) * sum->image + (i - l->i) * sum->row;
    int64_t to = (r - l->n) * out.image + (i - l->i) * out.row;

    for (int64_t v = 0; v < l->vecs; v++, from += sum->block, to += out.block) {
        if (out.col == b)
            s->set.narrow->out(1, cols * b, s->relu, from, 0, ct_num_to(out.y, true, to), 0);
        else
            s->set.narrow->out(cols, b, s->relu, from, b, ct_num_to(out.y, true, to), out.col);
    }
}

static void run_rows(const ct_blk_sum *s, const plan *p, const place *l, const part *c)
{
    int64_t b = s->set.b, words = s->set.words;
    int64_t cols = l->j_end - l->j, n_tile = blk_count(cols, s->set.max_tile[l->vecs - 1]);
    const float *weight = ct_sum_packed(s, p, l->g, l->block) + c->block * l->vecs * p->weights;
    const ct_blk_tile_fn *tile = s->set.tiles[l->vecs - 1];
    target y = s->y_bf16 ? room_of(s, p, l) : output_of(s, p, l);
    bool finish = c->last && s->y_bf16;
    ct_blk_tile t = { .x = l->x + (c->block - l->k) * l->x_block,
                      .start = c->first ? ct_sum_start(s, p, l->g) + l->block * b : NULL,
                      .x_row = l->cols * words,
                      .x_block = l->x_block,
                      .weight_block = l->vecs * p->weights,
                      .y_step = y.col,
                      .y_block = y.block,
                      .n_block = c->n_block,
                      .last = last_words(s, c->block + c->n_block - 1),
                      .row_step = s->row_step,
                      .col_step = s->col_step,
                      .n_q = s->n_q,
                      .si = s->si_w,
                      .w = l->cols,
                      .relu = c->last && s->relu && !s->y_bf16,
                      .stream = p->stream,
                      .soon = p->deep ? l->x_block : s->set.max_tile[l->vecs - 1] * words };

    for (int64_t r = l->n; r < l->n_end; r++, t.x += l->x_image) {
        for (int64_t i = l->i; i < l->i_end; i++) {
            float *row = y.y + (r - l->n) * y.image + (i - l->i) * y.row;
            int64_t lo, hi;

            clip_rows(s, c, i, &lo, &hi);
            t.n_p = hi - lo;
            t.row = i * s->si_h + s->row_first + (c->p + lo) * s->row_step - l->top;
            t.weight = weight + (c->p + lo) * s->n_q * words * l->vecs * b;
            for (int64_t v = 0; (v < n_tile) && ((t.n_p > 0) || c->first || t.relu); v++) {
                int64_t j = cols * v / n_tile, end = cols * (v + 1) / n_tile;

                t.col = (l->j + j) * s->si_w + s->col_first - l->left;
                t.y = row + j * y.col;
                tile[end - j - 1](&t);
            }
            if (finish) finish_row(s, p, l, &y, r, i);
        }
    }
}

/* Input blocks [from, to) for a pair. */
static void run_pair(const ct_blk_sum *s, const plan *p, const place *l, int64_t from, int64_t to)
{
    part c = { .first = (from == 0) };

    for (c.block = from; c.block < to; c.block += p->chunk) {
        c.n_block = blk_smaller(p->chunk, to - c.block);
        c.p = 0;
        do {
            c.n_p = blk_smaller(p->chunk_p, s->n_p - c.p);
            c.last = (c.block + c.n_block == p->in_block) && (c.p + c.n_p >= s->n_p);
            run_rows(s, p, l, &c);
            c.first = false;
            c.p += p->chunk_p;
        } while (c.p < s->n_p);
    }
}

/* Rows, or columns, of x that `count` outputs from `from` on read; they begin at *first_p. */
static int64_t reach(int64_t from, int64_t count, int64_t si, int64_t first, int64_t taps,
                     int64_t step, int64_t size, int64_t *first_p)
{
    int64_t lo = blk_larger(from * si + first, 0);
    int64_t hi = blk_smaller((from + count - 1) * si + first + (taps - 1) * step + 1, size);

    *first_p = blk_smaller(lo, size);
    return blk_larger(hi - lo, 0);
}

/* Input blocks [from, to) of a strip: where they lie, or a copy in words. */
static void look_at(const ct_blk_sum *s, const plan *p, int64_t from, int64_t to, place *l)
{
    int64_t words = s->h * s->w * s->set.words, plane = s->h * s->w * s->set.b;
    ct_blk_patch at = {
        .n = l->n, .images = l->n_end - l->n, .g = l->g, .block = from, .n_block = to - from
    };
    float *own;

    l->k = from;
    if (p->own == 0) {
        l->x = ct_num_at(s->x, s->x_bf16, ((l->n * s->group + l->g) * p->in_block + from) * plane);
        l->top = l->left = 0, l->cols = s->w;
        l->x_block = words;
        l->x_image = s->group * p->in_block * words;
        return;
    }
    own = s->work + ct_sum_copies_at(s, p) + omp_get_thread_num() * p->own;
    at.rows =
        reach(l->i, l->i_end - l->i, s->si_h, s->row_first, s->n_p, s->row_step, s->h, &l->top);
    at.cols =
        reach(l->j, l->j_end - l->j, s->si_w, s->col_first, s->n_q, s->col_step, s->w, &l->left);
    at.top = l->top, at.left = l->left;
    ct_blk_narrow_patch(s, &at, own);
    l->x = own, l->cols = at.cols;
    l->x_block = at.rows * at.cols * s->set.words;
    l->x_image = at.n_block * l->x_block;
}

static void run_task(const ct_blk_sum *s, const plan *p, int64_t task)
{
    int64_t share = task % p->n_part, strip = task / p->n_part;
    int64_t col = strip % p->n_col, row = strip / p->n_col % p->n_row;
    int64_t g = strip / p->n_col / p->n_row % s->group;
    int64_t image = strip / p->n_col / p->n_row / s->group;
    int64_t first = share * p->pairs * CT_BLK_MAX_VECS;
    int64_t end = blk_smaller(first + p->pairs * CT_BLK_MAX_VECS, p->out_block);
    place l = { .first_block = first,
                .n = image * p->images,
                .n_end = blk_smaller((image + 1) * p->images, s->n),
                .g = g,
                .i = row * p->rows,
                .i_end = blk_smaller((row + 1) * p->rows, s->oh),
                .j = col * p->cols,
                .j_end = blk_smaller((col + 1) * p->cols, s->ow) };

    for (int64_t k = 0; k < p->in_block; k += p->super) {
        look_at(s, p, k, blk_smaller(k + p->super, p->in_block), &l);
        for (l.block = first; l.block < end; l.block += CT_BLK_MAX_VECS) {
            l.vecs = blk_smaller(CT_BLK_MAX_VECS, p->out_block - l.block);
            run_pair(s, p, &l, k, blk_smaller(k + p->super, p->in_block));
        }
    }
}

ct_status ct_blk_sum_run(const ct_blk_sum *whole, ct_exec *ex)
{
    ct_blk_sum s = ct_sum_flat(whole);
    plan p = ct_sum_make_plan(&s);
    int64_t n_piece = s.group * blk_count(p.out_block, CT_BLK_MAX_VECS) * p.in_block;
    int64_t taps = s.n_p * s.n_q;
    ct_task_team team;
    ct_status polled = CT_OK;

    if (p.n_task == 0) return CT_OK;
    ct_sum_pack_start(&s, &p);
    ct_task_team_init(&team, s.n_thread);
#pragma omp parallel num_threads(s.n_thread)
    {
        ct_task_loop loop = ct_task_loop_of(&team);

#pragma omp for schedule(static)
        for (int64_t i = 0; i < n_piece * (taps > 0); i++) ct_sum_pack_piece(&s, &p, i);
        for (int64_t t = ct_task_first(&loop, p.n_task); t >= 0; t = ct_task_next(&loop)) {
            run_task(&s, &p, t);
            if (p.stream) ct_stream_end();
            ct_engine_poll(ex, &polled);
        }
    }
    return polled;
}

/* ---- How the sum is cut, and what of it is packed beforehand. */

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

static ct_blk_sum ct_sum_flat(const ct_blk_sum *s)
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
static bool ct_sum_is_at_once(const ct_blk_sum *s, const ct_sum_plan *p)
{
    return (p->chunk >= p->in_block) && (p->chunk_p >= s->n_p);
}

static int64_t ct_sum_kept_blocks(const ct_sum_plan *p)
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

static ct_sum_plan ct_sum_make_plan(const ct_blk_sum *s)
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

static const float *ct_sum_start(const ct_blk_sum *s, const ct_sum_plan *p, int64_t g)
{
    return start_of(s, p, g);
}

static int64_t packed_at(const ct_blk_sum *s, const ct_sum_plan *p, int64_t g, int64_t block)
{
    return map_floats(s) + s->group * p->out_block * s->set.b +
           (g * p->out_block + block) * p->in_block * p->weights;
}

static float *ct_sum_packed(const ct_blk_sum *s, const ct_sum_plan *p, int64_t g, int64_t block)
{
    return s->work + packed_at(s, p, g, block);
}

/* Where the copies of x begin, one a thread. */
static int64_t ct_sum_copies_at(const ct_blk_sum *s, const ct_sum_plan *p)
{
    return packed_at(s, p, s->group, 0);
}

int64_t ct_blk_sum_work(const ct_blk_sum *whole)
{
    ct_blk_sum s = ct_sum_flat(whole);
    ct_sum_plan p = ct_sum_make_plan(&s);

    return ct_sum_copies_at(&s, &p) + s.n_thread * (p.own + p.room);
}

static void ct_sum_pack_start(const ct_blk_sum *s, const ct_sum_plan *p)
{
    make_map(s);
    for (int64_t g = 0; g < s->group; g++) {
        float *to = start_of(s, p, g);

        for (int64_t i = 0; i < p->out_block * s->set.b; i++)
            to[i] = ((s->bias != NULL) && (i < s->out)) ? s->bias[g * s->out + i] : 0.0f;
    }
}

/* Piece i of all: an input block of a pair of output blocks of a group. */
static void ct_sum_pack_piece(const ct_blk_sum *s, const ct_sum_plan *p, int64_t i)
{
    int64_t n_pair = blk_count(p->out_block, CT_BLK_MAX_VECS), k = i % p->in_block;
    int64_t first = i / p->in_block % n_pair * CT_BLK_MAX_VECS, g = i / p->in_block / n_pair;
    int64_t vecs = blk_smaller(p->out_block - first, CT_BLK_MAX_VECS);

    pack_block(s, first, vecs, k, s->weight + g * s->w_group,
               ct_sum_packed(s, p, g, first) + k * vecs * p->weights);
}
