/* First layers: few input channels, which are not blocked; y is.
 *
 * Forward: a strip of output rows is a task. Its input rows are copied with their padding at the
 * sides, columns sorted by their remainder by the stride, so that what a tap meets at the outputs
 * of a tile is consecutive; taps are a table of addresses. Where operands are rounded, the copies
 * and weights are words (narrow.h), of pairs those of taps q and q + 1 of a tap row. */
#include "framework/base/memory.h"
#include "framework/base/simd.h"
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

typedef struct plan {
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
} plan;

/* Columns of a row that is on its way into words. */
static int64_t line_length(const ct_conv_desc *d, const plan *p)
{
    return p->length + d->dw / d->sw + 1;
}

static plan make_plan(const ct_conv_desc *d)
{
    plan p = { .set = ct_blk_pick(d->bf16),
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
static void pack_word(const ct_conv_desc *d, const plan *p, int64_t lanes, int64_t real, int64_t q,
                      const float *from, float *to)
{
    float one[CT_BLK_MAX_VECS * CT_BLK_MAX] = { 0 }, other[CT_BLK_MAX_VECS * CT_BLK_MAX] = { 0 };

    for (int64_t l = 0; l < real; l++) one[l] = from[l * p->taps];
    for (int64_t l = 0; (q + 1 < d->kw) && (l < real); l++) other[l] = from[l * p->taps + 1];
    if (p->set.narrow != NULL)
        p->set.narrow->across(1, lanes, one, other, 0, to, 0);
    else
        copy_row(to, one, lanes);
}

static void pack(const ct_conv_desc *d, const plan *p, const ct_conv_args *a)
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

static void make_offsets(const ct_conv_desc *d, const plan *p, int64_t *off)
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
static bool reads(const ct_conv_desc *d, const plan *p, int64_t f)
{
    bool any = false;

    for (int64_t q = 0; q < d->kw; q += p->set.pair) any = any || (q * d->dw % d->sw == f);
    return any;
}

/* The same in words: column c's is of c and of c + dw. */
static void copy_words(const ct_conv_desc *d, const plan *p, const float *x, int64_t first,
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
static void finish_row(const ct_conv_desc *d, const plan *p, const ct_conv_args *a, int64_t vecs,
                       float *sum, int64_t step, int64_t y, int64_t y_block)
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
static void run_strip(const ct_conv_desc *d, const plan *p, const ct_conv_args *a, int64_t image,
                      int64_t first, int64_t block, int64_t p0, int64_t p1, float *rows)
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

static void run_task(const ct_conv_desc *d, const plan *p, const ct_conv_args *a, int64_t task,
                     float *rows)
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
    return make_plan(d).total;
}

ct_status ct_blk_first_forward(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    plan p = make_plan(d);
    int64_t n_task = d->n * d->group * p.n_row, nw = d->n_thread;
    ct_status polled = CT_OK;

    pack(d, &p, a);
    make_offsets(d, &p, (int64_t *)((char *)a->work + p.off));
#pragma omp parallel for num_threads(d->n_thread) schedule(static, 1)
    for (int64_t v = 0; v < nw; v++) {
        float *rows = (float *)((char *)a->work + p.worker + (size_t)v * p.worker_step);

        for (int64_t t = n_task * v / nw; t < n_task * (v + 1) / nw; t++) {
            run_task(d, &p, a, t, rows);
            ct_engine_poll(ex, &polled);
        }
    }
    return polled;
}
