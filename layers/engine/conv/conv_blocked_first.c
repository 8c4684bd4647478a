/* First layers: few input channels, which are not blocked; y is.
 *
 * Forward: a strip of output rows is a task. Its input rows are copied with their padding at the
 * sides, columns sorted by their remainder by the stride, so that what a tap meets at the outputs
 * of a tile is consecutive; taps are a table of addresses. Where operands are rounded, the copies
 * and weights are words (ct_narrow), of pairs those of taps q and q + 1 of a tap row. */
#include "framework/base/memory.h"
#include "framework/base/simd.h"
#include "framework/base/task_loop.h"
#include "layers/engine/conv/blocked.h"

static const int64_t CHUNK_BYTES = 24 << 10; /* of weights: part of a first-level cache */
static const int64_t STRIP_BYTES = 64 << 10; /* of copied rows                          */
static const int64_t TASKS = 4;              /* for a thread, at least                  */

bool ct_blk_supports_first(const ct_conv_desc *d)
{
    int64_t b = ct_simd_block();

    if ((d->device != CT_DEVICE_CPU) || (d->x_block != 0) || (d->y_block != b)) return false;
    if (d->x_bf16 || (d->y_bf16 && !d->bf16)) return false;
    return (d->c / d->group <= CT_BLK_MAX_PLAIN) && ((d->group == 1) || (d->m / d->group % b == 0));
}

typedef struct data_plan {
    ct_blk_set set;
    const ct_narrow *narrow;    /* for y in bf16 */
    int64_t in, out, out_block; /* channels of a group; its blocks                               */
    int64_t taps, n_q, k;       /* of an output's weights; words of a tap row, and of a sum    */
    int64_t rows, n_row;        /* output rows of a strip; strips of an image                  */
    int64_t in_rows, length;    /* copied rows of a strip; columns with the same remainder     */
    int64_t chunk_p;            /* tap rows whose weights are used together                    */
    size_t start, weights, off, worker, worker_step, total; /* bytes in the workspace             */
    size_t line, room; /* of a worker's part: a row on its way into words; sums of a strip that are
                        * rounded at last */
} data_plan;

/* Columns of a row that is on its way into words. */
static int64_t line_length(const ct_conv_desc *d, const data_plan *p)
{
    return p->length + d->dw / d->sw + 1;
}

static data_plan data_make_plan(const ct_conv_desc *d)
{
    data_plan p = { .set = ct_blk_pick(d->bf16),
                    .narrow = ct_narrow_pick(),
                    .in = d->c / d->group,
                    .out = d->m / d->group };
    int64_t b = p.set.b, images = blk_larger(d->n * d->group, 1), row, halo;

    p.out_block = blk_count(p.out, b);
    p.taps = d->kh * p.in * d->kw;
    p.n_q = blk_count(d->kw, p.set.pair);
    p.k = d->kh * p.in * p.n_q;
    p.length = d->ow + (d->kw - 1) * d->dw / d->sw;
    if (p.set.narrow != NULL) p.length = blk_count(p.length, 8) * 8;
    row = p.in * d->sw * p.length * (int64_t)sizeof(float);
    halo = (d->kh - 1) * d->dh + 1;
    p.rows = blk_larger((STRIP_BYTES / row - halo) / d->sh + 1, 1);
    p.n_row = blk_larger(blk_count(d->oh, p.rows), blk_count(TASKS * d->n_thread, images));
    p.rows = blk_count(d->oh, blk_smaller(p.n_row, d->oh));
    p.n_row = blk_count(d->oh, p.rows);
    p.in_rows = (p.rows - 1) * d->sh + halo;
    p.chunk_p = CHUNK_BYTES / (p.in * p.n_q * CT_BLK_MAX_VECS * b * (int64_t)sizeof(float));
    p.chunk_p = blk_count(d->kh, blk_count(d->kh, blk_larger(p.chunk_p, 1)));
    p.start = 0;
    p.weights = p.start + ct_align_up((size_t)(d->group * p.out_block * b) * sizeof(float));
    p.off = p.weights + ct_align_up((size_t)(d->group * p.out_block * b * p.k) * sizeof(float));
    p.worker = p.off + ct_align_up((size_t)p.k * sizeof(int64_t));
    p.line = ct_align_up((size_t)(p.in_rows * row));
    p.room = p.line;
    if (p.set.narrow != NULL)
        p.room += ct_align_up((size_t)(d->sw * line_length(d, &p)) * sizeof(float));
    p.worker_step = p.room;
    if (d->y_bf16)
        p.worker_step +=
            ct_align_up((size_t)(CT_BLK_MAX_VECS * p.rows * d->ow * b) * sizeof(float));
    p.total = p.worker + (size_t)d->n_thread * p.worker_step;
    return p;
}

/* ---- weights: [group][pair of blocks][p][channel][word of q][vecs][b] */

/* `lanes` outputs, the first `real` of which there are; `from`: tap q of the first's. */
static void pack_word(const ct_conv_desc *d, const data_plan *p, int64_t lanes, int64_t real,
                      int64_t q, const float *from, float *to)
{
    float one[CT_BLK_MAX_VECS * CT_BLK_MAX] = { 0 }, other[CT_BLK_MAX_VECS * CT_BLK_MAX] = { 0 };

    for (int64_t l = 0; l < real; l++) one[l] = from[l * p->taps];
    for (int64_t l = 0; (q + 1 < d->kw) && (l < real); l++) other[l] = from[l * p->taps + 1];
    if (p->set.narrow != NULL)
        p->set.narrow->across(1, lanes, one, other, 0, to, 0);
    else
        copy_row(to, one, lanes);
}

static void pack(const ct_conv_desc *d, const data_plan *p, const ct_conv_args *a)
{
    int64_t b = p->set.b, full = p->out_block * b;
    float *start = (float *)((char *)a->work + p->start);
    float *to = (float *)((char *)a->work + p->weights);

    for (int64_t i = 0; i < d->group * full; i++) {
        int64_t m = i / full * p->out + i % full;

        start[i] = ((a->bias != NULL) && (i % full < p->out)) ? a->bias[m] : 0.0f;
    }
    for (int64_t i = 0; i < d->group * full; i += CT_BLK_MAX_VECS * b) { /* pairs */
        int64_t first = i % full, lanes = blk_smaller(full - first, CT_BLK_MAX_VECS * b);
        const float *from = a->weight + (i / full * p->out + first) * p->taps;

        for (int64_t k = 0; k < p->k; k++, to += lanes) {
            int64_t q = k % p->n_q * p->set.pair, c = k / p->n_q % p->in, row = k / p->n_q / p->in;

            pack_word(d, p, lanes, blk_smaller(lanes, p->out - first), q,
                      from + (c * d->kh + row) * d->kw + q, to);
        }
        i -= CT_BLK_MAX_VECS * b - lanes; /* a group may end with one block */
    }
}

static void make_offsets(const ct_conv_desc *d, const data_plan *p, int64_t *off)
{
    for (int64_t k = 0; k < p->k; k++) {
        int64_t q = k % p->n_q * p->set.pair * d->dw;
        int64_t c = k / p->n_q % p->in, row = k / p->n_q / p->in * d->dh;

        off[k] = ((c * p->in_rows + row) * d->sw + q % d->sw) * p->length + q / d->sw;
    }
}

/* Rows [first, first + n) of one channel's plane x, those inside, to [row][remainder][length]. */
CT_SIMD_CLONES static void copy_rows(const ct_conv_desc *d, int64_t length, const float *x,
                                     int64_t first, int64_t n, float *to)
{
    for (int64_t r = 0; r < n; r++, to += d->sw * length) {
        const float *row = x + (first + r) * d->w;

        if ((first + r < 0) || (first + r >= d->h)) continue;
        for (int64_t f = 0; f < d->sw; f++) {
            float *at = to + f * length;
            int64_t lo, hi;

            valid_range(f - d->pw, d->sw, d->w, length, &lo, &hi);
            zero_row(at, lo);
            pick_row(at + lo, row + f - d->pw + lo * d->sw, hi - lo, d->sw);
            zero_row(at + hi, length - hi);
        }
    }
}

/* Whether a tap's word begins at columns of remainder f. */
static bool reads(const ct_conv_desc *d, const data_plan *p, int64_t f)
{
    bool any = false;

    for (int64_t q = 0; q < d->kw; q += p->set.pair) any = any || (q * d->dw % d->sw == f);
    return any;
}

/* The same in words: column c's is of c and of c + dw. */
static void copy_words(const ct_conv_desc *d, const data_plan *p, const float *x, int64_t first,
                       int64_t n, float *line, float *to)
{
    int64_t whole = line_length(d, p);

    for (int64_t r = 0; r < n; r++, to += d->sw * p->length) {
        if ((first + r < 0) || (first + r >= d->h)) continue;
        copy_rows(d, whole, x, first + r, 1, line);
        for (int64_t f = 0; f < d->sw; f++) {
            int64_t other = f + d->dw;

            if (reads(d, p, f))
                p->set.narrow->across(1, p->length, line + f * whole,
                                      line + other % d->sw * whole + other / d->sw, 0,
                                      to + f * p->length, 0);
        }
    }
}

/* A row of a pair that is complete: `sum` of it to y, `step` and y_block numbers to the next block.
 */
static void finish_row(const ct_conv_desc *d, const data_plan *p, const ct_conv_args *a,
                       int64_t vecs, float *sum, int64_t step, int64_t y, int64_t y_block)
{
    int64_t n = d->ow * d->y_block;

    for (int64_t v = 0; v < vecs; v++, sum += step, y += y_block) {
        if (d->y_bf16)
            p->narrow->out(1, n, a->relu, sum, 0, ct_num_to(a->y, true, y), 0);
        else
            ct_blk_rectify(n, sum);
    }
}

/* A pair of output blocks, a chunk of tap rows [p0, p1), for a strip. */
static void run_strip(const ct_conv_desc *d, const data_plan *p, const ct_conv_args *a,
                      int64_t image, int64_t first, int64_t block, int64_t p0, int64_t p1,
                      float *rows)
{
    int64_t b = p->set.b, vecs = blk_smaller(p->out_block - block, CT_BLK_MAX_VECS);
    int64_t g = image % d->group, end = blk_smaller(first + p->rows, d->oh);
    int64_t n_tile = blk_count(d->ow, p->set.max_tile[vecs - 1]), step = p->in * p->n_q;
    int64_t y_block = out_size(d) * b, y_row = d->ow * b, at;
    bool finish = (p1 == d->kh) && (a->relu || d->y_bf16);
    char *work = a->work;
    const float *weight = (float *)(work + p->weights) + (g * p->out_block + block) * b * p->k;
    float *y = (float *)((char *)rows + p->room);
    ct_blk_list t = { .y_step = b, .y_block = d->y_bf16 ? p->rows * y_row : y_block };

    at = (image * p->out_block + block) * y_block + first * y_row;
    if (!d->y_bf16) y = a->y + at;
    if (p0 == 0) t.start = (float *)(work + p->start) + (g * p->out_block + block) * b;
    for (int64_t i = first; i < end; i++, y += y_row, at += y_row) {
        const float *x = rows + (i - first) * d->sh * d->sw * p->length;
        int64_t lo, hi;

        valid_range(i * d->sh - d->ph + p0 * d->dh, d->dh, d->h, p1 - p0, &lo, &hi);
        lo += p0, hi += p0;
        t.n = (hi - lo) * step;
        t.off = (int64_t *)(work + p->off) + lo * step;
        t.weight = weight + lo * step * vecs * b;
        for (int64_t v = 0; (v < n_tile) && ((lo < hi) || (p0 == 0)); v++) {
            int64_t j = d->ow * v / n_tile, j_end = d->ow * (v + 1) / n_tile;

            t.x = x + j;
            t.y = y + j * b;
            p->set.lists[vecs - 1][j_end - j - 1](&t);
        }
        if (finish) finish_row(d, p, a, vecs, y, t.y_block, at, y_block);
    }
}

static void data_run_task(const ct_conv_desc *d, const data_plan *p, const ct_conv_args *a,
                          int64_t task, float *rows)
{
    int64_t image = task / p->n_row, first = task % p->n_row * p->rows;
    int64_t last = blk_smaller(first + p->rows, d->oh) - 1;
    int64_t n = (last - first) * d->sh + (d->kh - 1) * d->dh + 1;

    for (int64_t c = 0; c < p->in; c++) {
        const float *x = a->x + (image * p->in + c) * in_size(d);
        float *to = rows + c * p->in_rows * d->sw * p->length;

        if (p->set.narrow != NULL)
            copy_words(d, p, x, first * d->sh - d->ph, n, (float *)((char *)rows + p->line), to);
        else
            copy_rows(d, p->length, x, first * d->sh - d->ph, n, to);
    }
    for (int64_t block = 0; block < p->out_block; block += CT_BLK_MAX_VECS) {
        for (int64_t k = 0; k < d->kh; k += p->chunk_p)
            run_strip(d, p, a, image, first, block, k, blk_smaller(k + p->chunk_p, d->kh), rows);
    }
}

size_t ct_blk_first_workspace(const ct_conv_desc *d)
{
    return data_make_plan(d).total;
}

ct_status ct_blk_first_forward(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    data_plan p = data_make_plan(d);
    int64_t n_task = d->n * d->group * p.n_row;
    ct_task_team team;
    ct_status polled = CT_OK;

    pack(d, &p, a);
    make_offsets(d, &p, (int64_t *)((char *)a->work + p.off));
    ct_task_team_init(&team, d->n_thread);
#pragma omp parallel num_threads(d->n_thread)
    {
        ct_task_loop loop = ct_task_loop_of(&team);
        float *rows =
            (float *)((char *)a->work + p.worker + (size_t)omp_get_thread_num() * p.worker_step);

        for (int64_t t = ct_task_first(&loop, n_task); t >= 0; t = ct_task_next(&loop)) {
            data_run_task(d, &p, a, t, rows);
            ct_engine_poll(ex, &polled);
        }
    }
    return polled;
}

/* ---- Weight gradients of first layers: x plain with few channels, dY blocked.
 *
 * A unit is a strip of output rows of one image and group. Its input rows are turned into (row,
 * column, channel) order with their padding at the sides: what a tap row meets at a place is then
 * one run of KW C values, and a tile sums up to 14 of them times one or two blocks of dY.
 *
 * Where operands are rounded, both are words (ct_narrow), of pairs those of places j and j + 1: a
 * turned row's value and the one a stride further.
 *
 * Slices are some units each, fixed by the shape, with a dW of their own; they are added up in
 * their order. Threads share slices, and where these are too few, their output blocks. */

static const int64_t STRIP_FLOATS = 16 << 10; /* of turned rows                                   */
static const int64_t UNIT_FLOATS = 7168;      /* of dY at a time: part of a first-level cache     */
static const int64_t SLICES = 256;        /* at most: turns of all threads, however many …    */
static const int64_t SLICE_PLACES = 2048; /* at least: adding up costs little beside          */
static const int64_t SLICE_BYTES = 16ll << 20; /* of all slices, at most                          */

typedef struct weight_plan {
    ct_blk_set set;
    int64_t in, out, out_block;
    int64_t run, n_run; /* consecutive values of a tap row, runs of them (1, or KW with dilation) */
    int64_t wp;         /* columns of a turned row                                             */
    int64_t rows, n_row; /* of a unit; units of an image                                        */
    int64_t n_unit, n_slice;
    int64_t n_part;  /* parts of a slice: some pairs of output blocks of each group             */
    int64_t weights; /* floats of a block of dW                                             */
    int64_t few;     /* rows of dY at a time                                                */
    size_t dw, dw_step, turned, turned_step, total; /* bytes in the workspace                     */
    size_t line, words; /* of a thread's part: a turned row on its way into words; words of dY */
} weight_plan;

/* Words of a row of dY's places, and floats of a turned row that is on its way into words. */
static int64_t row_words(const ct_conv_desc *d, const weight_plan *p)
{
    return blk_count(d->ow, p->set.pair);
}

static int64_t line_floats(const ct_conv_desc *d, const weight_plan *p)
{
    return blk_count(p->wp * p->in, 8) * 8 + d->sw * p->in;
}

static weight_plan weight_make_plan(const ct_conv_desc *d)
{
    weight_plan p = { .set = ct_blk_pick(d->bf16), .in = d->c / d->group, .out = d->m / d->group };
    int64_t b = p.set.b, halo = (d->kh - 1) * d->dh + 1, dw_floats;

    p.out_block = blk_count(p.out, b);
    p.n_run = (d->dw == 1) ? 1 : d->kw;
    p.run = d->kw * p.in / p.n_run;
    p.wp = (d->ow - 1) * d->sw + (d->kw - 1) * d->dw + 1;
    p.rows = (STRIP_FLOATS / (p.wp * p.in) - halo) / d->sh + 1;
    p.rows = blk_smaller(blk_larger(p.rows, 1), d->oh);
    p.n_row = blk_count(d->oh, p.rows);
    p.rows = blk_count(d->oh, p.n_row);
    p.n_row = blk_count(d->oh, p.rows);
    p.n_unit = d->n * p.n_row;
    p.weights = d->kh * d->kw * p.in * b;
    dw_floats = d->group * p.out_block * p.weights;
    p.n_slice = blk_smaller(SLICES, p.n_unit);
    p.n_slice = blk_smaller(p.n_slice, d->n * out_size(d) / SLICE_PLACES);
    p.n_slice = blk_smaller(p.n_slice, SLICE_BYTES / (dw_floats * (int64_t)sizeof(float)));
    p.n_slice = blk_larger(p.n_slice, 1);
    /* each part turns x again, a sixteenth of a pair's sums */
    p.n_part = blk_cut_pairs(p.n_slice, blk_count(p.out_block, CT_BLK_MAX_VECS), 1, d->n_thread);
    p.dw_step = ct_align_up((size_t)dw_floats * sizeof(float));
    p.turned = p.dw + (size_t)p.n_slice * p.dw_step;
    p.turned_step =
        ct_align_up((size_t)(((p.rows - 1) * d->sh + halo) * p.wp * p.in + 8) * sizeof(float));
    p.few = blk_smaller(blk_larger(UNIT_FLOATS / (d->ow * b * CT_BLK_MAX_VECS), 1), p.rows);
    p.line = p.turned_step;
    p.words = p.line + ct_align_up((size_t)line_floats(d, &p) * sizeof(float));
    if (p.set.narrow != NULL)
        p.turned_step =
            p.words +
            ct_align_up((size_t)(CT_BLK_MAX_VECS * p.few * row_words(d, &p) * b) * sizeof(float));
    p.total = p.turned + (size_t)d->n_thread * p.turned_step;
    return p;
}

/* Rows [first, first + n) of a group of an image, those inside, to [row][column][channel]. */
CT_SIMD_CLONES static void turn_rows(const ct_conv_desc *d, const weight_plan *p, const float *x,
                                     int64_t first, int64_t n, float *to)
{
    int64_t in = p->in, lo = blk_smaller(d->pw, p->wp), hi = blk_smaller(d->pw + d->w, p->wp);

    for (int64_t r = 0; r < n; r++, to += p->wp * in) {
        if ((first + r < 0) || (first + r >= d->h)) continue;
        zero_row(to, lo * in);
        for (int64_t c = 0; c < in; c++) {
            const float *from = x + (c * d->h + first + r) * d->w - d->pw;

            if (in == 3) { /* the usual number as a constant */
                for (int64_t j = lo; j < hi; j++) to[j * 3 + c] = from[j];
            } else {
                for (int64_t j = lo; j < hi; j++) to[j * in + c] = from[j];
            }
        }
        zero_row(to + hi * in, (p->wp - hi) * in);
    }
}

/* The same in words. The last of a row spill into the next one, which is written afterwards. */
static void turn_words(const ct_conv_desc *d, const weight_plan *p, const float *x, int64_t first,
                       int64_t n, float *line, float *to)
{
    int64_t row = p->wp * p->in, step = d->sw * p->in;

    zero_row(line + row, line_floats(d, p) - row);
    for (int64_t r = first; r < first + n; r++, to += row) {
        if ((r < 0) || (r >= d->h)) continue;
        turn_rows(d, p, x, r, 1, line);
        p->set.narrow->across(1, blk_count(row, 8) * 8, line, line + step, 0, to, 0);
    }
}

/* One run of one tap row, a pair of blocks, output rows [i, i_end). */
static void add_run(const weight_plan *p, int64_t vecs, ct_blk_grad *t)
{
    const float *x = t->x;
    float *dw = t->dw;
    int64_t n = blk_count(p->run, p->set.max_tile[vecs - 1]);

    for (int64_t v = 0; v < n; v++) {
        int64_t at = p->run * v / n, end = p->run * (v + 1) / n;

        t->x = x + at;
        t->dw = dw + at * vecs * p->set.b;
        p->set.grads[vecs - 1][end - at - 1](t);
    }
}

/* All taps of a pair of blocks for output rows [i, i_end) of a unit that begins with row `first`.
 * dy: at row i, dy_block floats from block to block. */
static void add_rows(const ct_conv_desc *d, const weight_plan *p, const float *turned,
                     int64_t first, int64_t i, int64_t i_end, const float *dy, int64_t dy_block,
                     int64_t vecs, float *dw)
{
    int64_t b = p->set.b;
    ct_blk_grad t = { .images = 1,
                      .cols = row_words(d, p),
                      .x_row = d->sh * p->wp * p->in,
                      .x_step = p->set.pair * d->sw * p->in,
                      .dy_row = row_words(d, p) * b,
                      .dy_block = dy_block };

    for (int64_t k = 0; k < d->kh; k++) {
        int64_t lo, hi;

        valid_range(k * d->dh - d->ph, d->sh, d->h, d->oh, &lo, &hi);
        lo = blk_larger(lo, i), hi = blk_smaller(hi, i_end);
        if (lo >= hi) continue;
        t.rows = hi - lo;
        for (int64_t q = 0; q < p->n_run; q++) {
            t.x = turned + (((lo - first) * d->sh + k * d->dh) * p->wp + q * d->dw) * p->in;
            t.dy = dy + (lo - i) * t.dy_row;
            t.dw = dw + (k * p->n_run + q) * p->run * vecs * b;
            add_run(p, vecs, &t);
        }
    }
}

/* A row of dY in words: pairs of its places, the last one alone where they are odd. */
static void copy_row_words(const ct_conv_desc *d, const weight_plan *p, const float *dy, float *to)
{
    const ct_narrow *way = p->set.narrow;
    bool h = d->y_bf16;
    void (*across)(int64_t, int64_t, const float *, const float *, int64_t, float *, int64_t) =
        h ? way->across_bf16 : way->across;
    int64_t b = p->set.b, pair = p->set.pair, n = d->ow / pair;

    across(n, b, dy, ct_num_at(dy, h, b), pair * b, to, b);
    if (n * pair < d->ow) across(1, b, ct_num_at(dy, h, n * pair * b), NULL, 0, to + n * b, 0);
}

/* Rows [i, i_end) of a pair of blocks, of which dy is the first's beginning. */
static void add_strip(const ct_conv_desc *d, const weight_plan *p, float *turned, int64_t first,
                      int64_t i, int64_t i_end, const float *dy, int64_t vecs, float *dw)
{
    float *words = (float *)((char *)turned + p->words), *to = words;
    int64_t row = d->ow * p->set.b, plane = out_size(d) * p->set.b;
    int64_t row_to = row_words(d, p) * p->set.b;

    if (p->set.narrow == NULL) {
        add_rows(d, p, turned, first, i, i_end, dy + i * row, plane, vecs, dw);
        return;
    }
    for (int64_t v = 0; v < vecs; v++) {
        for (int64_t r = i; r < i_end; r++, to += row_to)
            copy_row_words(d, p, ct_num_at(dy, d->y_bf16, v * plane + r * row), to);
    }
    add_rows(d, p, turned, first, i, i_end, words, (i_end - i) * row_to, vecs, dw);
}

/* Output blocks [first_block, last_block) of each group. */
static void run_unit(const ct_conv_desc *d, const weight_plan *p, const ct_conv_args *a,
                     int64_t unit, int64_t first_block, int64_t last_block, float *dw,
                     float *turned)
{
    int64_t n = unit / p->n_row, first = unit % p->n_row * p->rows, b = p->set.b;
    int64_t end = blk_smaller(first + p->rows, d->oh);

    for (int64_t g = 0; g < d->group; g++) {
        const float *x = a->x + (n * d->group + g) * p->in * in_size(d);
        int64_t rows = (end - 1 - first) * d->sh + (d->kh - 1) * d->dh + 1;

        if (p->set.narrow != NULL)
            turn_words(d, p, x, first * d->sh - d->ph, rows, (float *)((char *)turned + p->line),
                       turned);
        else
            turn_rows(d, p, x, first * d->sh - d->ph, rows, turned);
        for (int64_t block = first_block; block < last_block; block += CT_BLK_MAX_VECS) {
            int64_t at = g * p->out_block + block;
            int64_t vecs = blk_smaller(p->out_block - block, CT_BLK_MAX_VECS);
            const float *dy =
                ct_num_at(a->dy, d->y_bf16, (n * d->group * p->out_block + at) * out_size(d) * b);

            for (int64_t i = first; i < end; i += p->few)
                add_strip(d, p, turned, first, i, blk_smaller(i + p->few, end), dy, vecs,
                          dw + at * p->weights);
        }
    }
}

/* The weights of output channel m, from all slices. */
static void add_channel(const ct_conv_desc *d, const weight_plan *p, const ct_conv_args *a,
                        int64_t m)
{
    int64_t b = p->set.b, g = m / p->out, block = m % p->out / (CT_BLK_MAX_VECS * b);
    int64_t vecs = blk_smaller(p->out_block - block * CT_BLK_MAX_VECS, CT_BLK_MAX_VECS);
    int64_t lane = m % p->out - block * CT_BLK_MAX_VECS * b, taps = d->kh * d->kw;
    const char *first = (const char *)a->work + p->dw;
    int64_t at = (g * p->out_block + block * CT_BLK_MAX_VECS) * p->weights + lane;

    for (int64_t k = 0; k < taps * p->in; k++) {
        int64_t from = at + (k % taps * p->in + k / taps) * vecs * b;
        float *dw = a->dweight + m * taps * p->in + k, sum = 0.0f;

        for (int64_t s = 0; s < p->n_slice; s++)
            sum += ((const float *)(first + (size_t)s * p->dw_step))[from];
        *dw = (a->beta != 0.0f) ? a->beta * *dw + sum : sum;
    }
}

size_t ct_blk_first_weight_workspace(const ct_conv_desc *d)
{
    return weight_make_plan(d).total;
}

/* Part t % n_part of slice t / n_part. */
static void weight_run_task(const ct_conv_desc *d, const weight_plan *p, ct_exec *ex,
                            const ct_conv_args *a, int64_t t, ct_status *polled)
{
    int64_t s = t / p->n_part, part = t % p->n_part;
    int64_t pairs = blk_count(p->out_block, CT_BLK_MAX_VECS);
    int64_t first = pairs * part / p->n_part * CT_BLK_MAX_VECS;
    int64_t last = blk_smaller(pairs * (part + 1) / p->n_part * CT_BLK_MAX_VECS, p->out_block);
    float *dw = (float *)((char *)a->work + p->dw + (size_t)s * p->dw_step);
    float *turned =
        (float *)((char *)a->work + p->turned + (size_t)omp_get_thread_num() * p->turned_step);

    for (int64_t g = 0; g < d->group; g++)
        memset(dw + (g * p->out_block + first) * p->weights, 0,
               (size_t)((last - first) * p->weights) * sizeof(float));
    for (int64_t u = p->n_unit * s / p->n_slice; u < p->n_unit * (s + 1) / p->n_slice; u++) {
        run_unit(d, p, a, u, first, last, dw, turned);
        ct_engine_poll(ex, polled);
    }
}

ct_status ct_blk_first_weight(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    weight_plan p = weight_make_plan(d);
    ct_task_team team;
    ct_status polled = CT_OK;

    ct_task_team_init(&team, d->n_thread);
#pragma omp parallel num_threads(d->n_thread)
    {
        ct_task_loop loop = ct_task_loop_of(&team);

        for (int64_t t = ct_task_first(&loop, p.n_slice * p.n_part); t >= 0;
             t = ct_task_next(&loop))
            weight_run_task(d, &p, ex, a, t, &polled);
#pragma omp barrier
#pragma omp for schedule(static)
        for (int64_t m = 0; m < d->m; m++) add_channel(d, &p, a, m);
    }
    return polled;
}
