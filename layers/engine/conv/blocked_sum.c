/* The driver of the tiles: what is summed in which order, and by whom (blocked_sum.h). */
#include "framework/base/memory.h"
#include "framework/base/stream.h"
#include "layers/engine/conv/blocked_sum.h"

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
    ct_status polled = CT_OK;

    if (p.n_task == 0) return CT_OK;
    ct_sum_pack_start(&s, &p);
#pragma omp parallel num_threads(s.n_thread)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < n_piece * (taps > 0); i++) ct_sum_pack_piece(&s, &p, i);
#pragma omp for schedule(static)
        for (int64_t t = 0; t < p.n_task; t++) {
            run_task(&s, &p, t);
            if (p.stream) ct_stream_end();
            ct_engine_poll(ex, &polled);
        }
    }
    return polled;
}
