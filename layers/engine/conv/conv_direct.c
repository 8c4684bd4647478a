/* Convolution without columns: a product whose right matrix is a table of addresses (tile.h).
 *
 * An image is unfolded along the width only: plane (c, q) holds, for every input row that a block
 * of output rows needs, the OW values that tap column q of channel c meets. Tap (c, p, q) of output
 * rows i, i + 1, … then reads consecutive rows of that plane from row p on, so its K x S columns
 * exist only as addresses: 1 / KH of im2col's traffic. With a vertical stride the rows are sorted
 * by their remainder first, which makes them consecutive again.
 *
 * backward_data with stride 1 is the same with x := dy, padding := (kernel - 1) - padding, and
 * weights turned round and transposed. Other strides are left to conv_gemm.c.
 *
 * Work is dealt out as (image, group, block of output rows), so one large image keeps a team busy
 * as well. Workers are numbers, not threads: what is computed does not depend on the team. */
#include "framework/base/memory.h"
#include "framework/base/simd.h"
#include "layers/engine/conv/conv.h"
#include "layers/engine/conv/tile.h"

static const int64_t BLOCK_FLOATS = 96 << 10; /* of unfolded rows: part of a second-level cache */
static const int64_t MIN_COLUMNS = 96;        /* of a block: below it edges cost too much       */

typedef struct direct_plan {
    const ct_tile_set *set;
    int64_t block, n_block; /* output rows of a block; blocks of an image */
    int64_t phase_rows;     /* rows of one remainder                      */
    int64_t plane;          /* floats from plane to plane                 */
    int64_t packed;         /* floats of one group's packed weights       */
    int64_t start_step;     /* values that rows begin with, one group's   */
    int64_t n_task;
    /* bytes in the workspace */
    size_t off, start, weights, flipped, worker, worker_step, total;
} direct_plan;

static bool is_pointwise(const ct_conv_desc *d)
{
    return (d->kh == 1) && (d->kw == 1) && (d->sh == 1) && (d->sw == 1) && (d->ph == 0) &&
           (d->pw == 0);
}

static int64_t at_least(int64_t a, int64_t b)
{
    return (a > b) ? a : b;
}

static void choose_block(const ct_conv_desc *d, direct_plan *p)
{
    int64_t halo = (d->kh - 1) * d->dh / d->sh;
    int64_t row = d->c / d->group * d->kw * d->sh * d->ow;
    int64_t rows = at_least(BLOCK_FLOATS / row - halo, 1 + (MIN_COLUMNS - 1) / d->ow);
    int64_t images = at_least(d->n * d->group, 1);

    p->n_block = (d->oh + rows - 1) / rows;
    p->n_block = at_least(p->n_block, (d->n_thread + images - 1) / images);
    if (p->n_block > d->oh) p->n_block = d->oh;
    p->block = (d->oh + p->n_block - 1) / p->n_block;
    p->n_block = (d->oh + p->block - 1) / p->block;
    p->n_task = d->n * d->group * p->n_block;
}

static direct_plan direct_make_plan(const ct_conv_desc *d, bool backward)
{
    direct_plan p = { .set = ct_tile_pick() };
    int64_t planes = is_pointwise(d) ? 0 : d->c / d->group * d->kw;

    choose_block(d, &p);
    p.phase_rows = p.block + (d->kh - 1) * d->dh / d->sh;
    p.plane = (d->sh * p.phase_rows * d->ow + 15) / 16;
    p.plane = (p.plane | 1) * 16; /* an odd number of cache lines: planes spread over all sets */
    p.packed = ct_tile_packed(p.set, group_m(d), group_k(d));
    p.off = 0;
    p.start = p.off + ct_align_up((size_t)group_k(d) * sizeof(int64_t));
    p.start_step = ct_tile_packed(p.set, group_m(d), 1);
    p.weights = p.start + ct_align_up((size_t)(p.start_step * d->group) * sizeof(float));
    p.flipped = p.weights + ct_align_up((size_t)(p.packed * d->group) * sizeof(float));
    p.worker = p.flipped;
    if (backward) p.worker += ct_align_up((size_t)(d->m * group_k(d)) * sizeof(float));
    p.worker_step = ct_align_up((size_t)(planes * p.plane) * sizeof(float)) +
                    ct_tile_scratch(p.set, group_k(d));
    p.total = p.worker + (size_t)d->n_thread * p.worker_step;
    return p;
}

static void direct_make_offsets(const ct_conv_desc *d, const direct_plan *p, int64_t *off)
{
    for (int64_t k = 0; k < group_k(d); k++) {
        int64_t c = k / (d->kh * d->kw), row = k / d->kw % d->kh * d->dh, q = k % d->kw;

        off[k] = is_pointwise(d) ? k * in_size(d)
                                 : (c * d->kw + q) * p->plane +
                                       (row % d->sh * p->phase_rows + row / d->sh) * d->ow;
    }
}

/* Output rows [first, first + rows) of one group; x at the group's channel 0. */
CT_SIMD_CLONES static void unfold_width(const ct_conv_desc *d, const direct_plan *p, const float *x,
                                        int64_t first, int64_t rows, float *to)
{
    int64_t n_row = (rows - 1) * d->sh + (d->kh - 1) * d->dh + 1;

    for (int64_t plane = 0; plane < d->c / d->group * d->kw; plane++, to += p->plane) {
        int64_t left = plane % d->kw * d->dw - d->pw, lo, hi;
        const float *from = x + plane / d->kw * in_size(d) + left;

        valid_range(left, d->sw, d->w, d->ow, &lo, &hi);
        for (int64_t r = 0; r < n_row; r++) {
            int64_t i = first * d->sh - d->ph + r;
            float *row = to + (r % d->sh * p->phase_rows + r / d->sh) * d->ow;

            if ((i < 0) || (i >= d->h)) {
                zero_row(row, d->ow);
                continue;
            }
            zero_row(row, lo);
            pick_row(row + lo, from + i * d->w + lo * d->sw, hi - lo, d->sw);
            zero_row(row + hi, d->ow - hi);
        }
    }
}

/* The bias of each group, and zeros for the rows that fill up its last tile. */
static void make_start(const ct_conv_desc *d, const direct_plan *p, const float *bias, float *start)
{
    int64_t mg = group_m(d);

    for (int64_t g = 0; g < d->group; g++) {
        for (int64_t i = 0; i < p->start_step; i++)
            start[g * p->start_step + i] = ((bias != NULL) && (i < mg)) ? bias[g * mg + i] : 0.0f;
    }
}

static void run_task(const ct_conv_desc *d, const direct_plan *p, const ct_conv_args *a,
                     int64_t task, char *worker)
{
    int64_t mg = group_m(d), block = task % p->n_block, g = task / p->n_block % d->group;
    int64_t n = task / p->n_block / d->group, first = block * p->block;
    int64_t rows = (d->oh - first < p->block) ? d->oh - first : p->block;
    const float *x = a->x + (n * d->c + g * (d->c / d->group)) * in_size(d);
    char *work = a->work;
    float *unfolded = (float *)(worker + ct_tile_scratch(p->set, group_k(d)));
    ct_tile_product product = { .m = mg,
                                .n = rows * d->ow,
                                .k_total = group_k(d),
                                .to = group_k(d),
                                .a = (float *)(work + p->weights) + g * p->packed,
                                .b = is_pointwise(d) ? x + first * d->ow : unfolded,
                                .off = (int64_t *)(work + p->off),
                                .start = (float *)(work + p->start) + g * p->start_step,
                                .c = a->y + (n * d->m + g * mg) * out_size(d) + first * d->ow,
                                .ldc = out_size(d),
                                .scratch = worker };

    if (!is_pointwise(d)) unfold_width(d, p, x, first, rows, unfolded);
    ct_tile_run(p->set, &product);
}

/* y from x, weights M x K (in args or already turned round), bias. */
static ct_status run_forward(const ct_conv_desc *d, ct_exec *ex, const direct_plan *p,
                             const ct_conv_args *a)
{
    int64_t mg = group_m(d), k = group_k(d), n_panel = (mg + p->set->rows - 1) / p->set->rows;
    int64_t nw = d->n_thread;
    char *work = a->work;
    ct_status polled = CT_OK;

    direct_make_offsets(d, p, (int64_t *)(work + p->off));
    make_start(d, p, a->bias, (float *)(work + p->start));
#pragma omp parallel num_threads(d->n_thread)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < d->group * n_panel; i++) {
            int64_t g = i / n_panel;

            ct_tile_pack_part(p->set, i % n_panel * p->set->rows, mg, k, 0, k,
                              a->weight + g * mg * k, k,
                              (float *)(work + p->weights) + g * p->packed);
        }
#pragma omp for schedule(static, 1)
        for (int64_t v = 0; v < nw; v++) {
            char *worker = work + p->worker + (size_t)v * p->worker_step;

            for (int64_t t = p->n_task * v / nw; t < p->n_task * (v + 1) / nw; t++) {
                run_task(d, p, a, t, worker);
                ct_engine_poll(ex, &polled);
            }
        }
    }
    return polled;
}

static bool supports_forward(const ct_conv_desc *d)
{
    return (d->device == CT_DEVICE_CPU) && is_plain(d);
}

static size_t forward_workspace(const ct_conv_desc *d)
{
    return direct_make_plan(d, false).total;
}

static ct_status direct_forward(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    direct_plan p = direct_make_plan(d, false);

    return run_forward(d, ex, &p, a);
}

/* ---- backward by data */

static bool supports_backward(const ct_conv_desc *d)
{
    return (d->device == CT_DEVICE_CPU) && is_plain(d) && (d->sh == 1) && (d->sw == 1) &&
           (d->ph <= (d->kh - 1) * d->dh) && (d->pw <= (d->kw - 1) * d->dw);
}

/* dx needs more products this way where it is larger than dy, and few channels fill no tile. */
static bool prefers_backward(const ct_conv_desc *d)
{
    return (4 * in_size(d) <= 5 * out_size(d)) && (d->c / d->group >= 8);
}

/* The convolution that computes dx from dy. */
static ct_conv_desc turned(const ct_conv_desc *d)
{
    ct_conv_desc t = *d;

    t.c = d->m, t.h = d->oh, t.w = d->ow;
    t.m = d->c, t.oh = d->h, t.ow = d->w;
    t.ph = (d->kh - 1) * d->dh - d->ph;
    t.pw = (d->kw - 1) * d->dw - d->pw;
    return t;
}

static size_t backward_workspace(const ct_conv_desc *d)
{
    ct_conv_desc t = turned(d);

    return direct_make_plan(&t, true).total;
}

/* to[g][c][m][taps] = weight[g][m][c][taps, last first] */
static void turn_weights(const ct_conv_desc *d, const float *weight, float *to)
{
    int64_t cg = d->c / d->group, mg = group_m(d), taps = d->kh * d->kw;

#pragma omp parallel for num_threads(d->n_thread) schedule(static)
    for (int64_t c = 0; c < d->c; c++) {
        for (int64_t m = 0; m < mg; m++) {
            const float *from = weight + ((c / cg * mg + m) * cg + c % cg) * taps;

            for (int64_t p = 0; p < taps; p++) to[(c * mg + m) * taps + p] = from[taps - 1 - p];
        }
    }
}

static ct_status direct_backward_data(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    ct_conv_desc t = turned(d);
    direct_plan p = direct_make_plan(&t, true);
    float *weight = (float *)((char *)a->work + p.flipped);

    turn_weights(d, a->weight, weight);
    return run_forward(
        &t, ex, &p, &(ct_conv_args){ .x = a->dy, .weight = weight, .y = a->dx, .work = a->work });
}

const ct_conv_impl ct_conv_direct_forward = { .name = "direct",
                                              .supports = supports_forward,
                                              .workspace = forward_workspace,
                                              .run = direct_forward };
const ct_conv_impl ct_conv_direct_backward_data = { .name = "direct",
                                                    .supports = supports_backward,
                                                    .prefers = prefers_backward,
                                                    .workspace = backward_workspace,
                                                    .run = direct_backward_data };

/* ---- Weight gradients by the register tiles of tile.h.
 *
 * dW (M x K) = dY (M x S) times the columns (S x K): here the sum runs over places, so the vectors
 * of the product lie along K. An image is turned into (row, column, channel) order, with its
 * padding: then what kernel row p meets at a place is one run of KW C consecutive values, and again
 * the columns exist only as addresses. dW is gathered in the same order (m, p, q, c).
 *
 * Where a run would fill vectors badly (few channels) and K fills them well, the runs of a place
 * are copied behind one another first; with few rows that costs little, as a run is short.
 *
 * Several images form one sum, so that dW is read and written once in about K_SUM places. Every
 * worker has its own dW; they are added up in the order of the workers, for any team. */

static const int64_t K_SUM = 768;                /* places summed at a time, at least          */
static const int64_t COPY_FLOATS = 48 << 10;     /* of copied runs                             */
static const int64_t GRADIENT_BYTES = 512 << 20; /* of all workers' dW: beyond, fewer workers  */

enum { PIECE = 8 }; /* floats of a copy */

typedef struct weight_plan {
    const ct_tile_set *set;
    int64_t hp, wp;    /* padded image, as far as it is read                        */
    int64_t image;     /* floats of one group of it                                 */
    int64_t run;       /* KW C/G                                                    */
    int64_t n_image;   /* images of one sum                                         */
    bool copies;       /* runs of a place are copied behind one another …           */
    int64_t copy_rows; /* … for so many places at a time                            */
    int64_t n_worker;
    size_t worker, worker_step, total;       /* bytes in the workspace                  */
    size_t images, packed, copied, gradient; /* bytes in a worker's part               */
} weight_plan;

static int64_t smaller(int64_t a, int64_t b)
{
    return (a < b) ? a : b;
}

static size_t floats(int64_t n)
{
    return ct_align_up((size_t)n * sizeof(float));
}

/* Share of the lanes that n columns use. */
static double filling(const ct_tile_set *s, int64_t n)
{
    int64_t vectors = (n + s->lanes - 1) / s->lanes;

    return (double)n / (double)(vectors * s->lanes);
}

static weight_plan weight_make_plan(const ct_conv_desc *d)
{
    weight_plan p = { .set = ct_tile_pick() };
    int64_t cg = d->c / d->group, k = group_k(d), s = out_size(d);
    int64_t bytes = d->m * k * (int64_t)sizeof(float);

    p.hp = (d->oh - 1) * d->sh + (d->kh - 1) * d->dh + 1;
    p.wp = (d->ow - 1) * d->sw + d->kw;
    p.image = p.hp * p.wp * cg;
    p.run = d->kw * cg;
    p.n_image = smaller((K_SUM + s - 1) / s, (d->n + d->n_thread - 1) / d->n_thread);
    if (p.n_image < 1) p.n_image = 1;
    /* a copy costs about as much as three rows' products */
    p.copies = (d->kh > 1) &&
               (filling(p.set, k) / (1.0 + 3.0 / (double)group_m(d)) > filling(p.set, p.run));
    p.copy_rows = smaller(p.n_image * s, 1 + COPY_FLOATS / k);
    p.n_worker = smaller(d->n_thread, 1 + GRADIENT_BYTES / bytes);
    p.worker = ct_align_up((size_t)(p.n_image * s + p.copy_rows) * sizeof(int64_t));
    p.images = ct_tile_scratch(p.set, p.copies ? p.copy_rows : p.n_image * s);
    p.packed = p.images + floats(p.n_image * p.image + PIECE);
    p.copied = p.packed + floats(ct_tile_packed(p.set, group_m(d), p.n_image * s));
    p.gradient = p.copied + (p.copies ? floats(p.copy_rows * k + PIECE) : 0);
    p.worker_step = p.gradient + floats(d->m * k);
    p.total = p.worker + (size_t)p.n_worker * p.worker_step;
    return p;
}

/* Where place j of image i begins: in the images, or in the copied rows. */
static void weight_make_offsets(const ct_conv_desc *d, const weight_plan *p, int64_t *off)
{
    for (int64_t j = 0; j < p->n_image * out_size(d); j++) {
        int64_t place = j % out_size(d);

        off[j] = j / out_size(d) * p->image +
                 (place / d->ow * d->sh * p->wp + place % d->ow * d->sw) * (d->c / d->group);
    }
}

/* One group of one image, x at its channel 0, into (row, column, channel) order with padding. */
CT_SIMD_CLONES static void turn_image(const ct_conv_desc *d, const weight_plan *p, const float *x,
                                      float *to)
{
    int64_t cg = d->c / d->group;
    int64_t lo = smaller(d->pw, p->wp), hi = smaller(d->pw + d->w, p->wp);

    for (int64_t r = 0; r < p->hp; r++) {
        float *row = to + r * p->wp * cg;
        int64_t i = r - d->ph;

        if ((i < 0) || (i >= d->h)) {
            zero_row(row, p->wp * cg);
            continue;
        }
        zero_row(row, lo * cg);
        for (int64_t c = 0; c < cg; c++) {
            const float *from = x + (c * d->h + i) * d->w - d->pw;

            if (cg == 1) {
                copy_row(row + lo, from + lo, hi - lo);
            } else {
                for (int64_t j = lo; j < hi; j++) row[j * cg + c] = from[j];
            }
        }
        zero_row(row + hi * cg, (p->wp - hi) * cg);
    }
}

/* Of n places, one after the other, in pieces of eight floats: what is too much of a run the next
 * one overwrites, and both buffers have room for seven more. */
CT_SIMD_CLONES static void copy_runs(const ct_conv_desc *d, const weight_plan *p,
                                     const float *images, const int64_t *off, int64_t n, float *to)
{
    int64_t step = d->dh * p->wp * (d->c / d->group);

    for (int64_t j = 0; j < n; j++) {
        for (int64_t q = 0; q < d->kh; q++, to += p->run) {
            const float *from = images + off[j] + q * step;

            for (int64_t i = 0; i < p->run; i += PIECE) memcpy(to + i, from + i, PIECE * 4);
        }
    }
}

/* dw[mg x K] += over `n` images that lie turned in the worker's part, dY packed. */
static void add_products(const ct_conv_desc *d, const weight_plan *p, const int64_t *off,
                         const int64_t *linear, int64_t n, char *worker, float *dw)
{
    int64_t k = group_k(d), total = n * out_size(d);
    const float *images = (float *)(worker + p->images);
    float *copied = (float *)(worker + p->copied);
    ct_tile_product product = { .m = group_m(d),
                                .n = p->run,
                                .k_total = total,
                                .to = total,
                                .a = (float *)(worker + p->packed),
                                .b = images,
                                .off = off,
                                .c = dw,
                                .ldc = k,
                                .scratch = worker };

    for (int64_t q = 0; !p->copies && (q < d->kh); q++) {
        ct_tile_run(p->set, &product);
        product.b += d->dh * p->wp * (d->c / d->group);
        product.c += p->run;
    }
    for (int64_t j = 0; p->copies && (j < total); j += p->copy_rows) {
        product.from = j;
        product.to = smaller(j + p->copy_rows, total);
        product.n = k;
        product.b = copied;
        product.off = linear;
        copy_runs(d, p, images, off + j, product.to - j, copied);
        ct_tile_run(p->set, &product);
    }
}

/* dY of `n` images side by side, packed as the left matrix. */
static void pack_gradients(const ct_conv_desc *d, const weight_plan *p, const float *dy, int64_t n,
                           float *packed)
{
    int64_t s = out_size(d);

    for (int64_t i = 0; i < group_m(d); i += p->set->rows) {
        for (int64_t v = 0; v < n; v++)
            ct_tile_pack_part(p->set, i, group_m(d), n * s, v * s, s, dy + v * d->m * s, s, packed);
    }
}

static void run_worker(const ct_conv_desc *d, ct_exec *ex, const weight_plan *p,
                       const ct_conv_args *a, int64_t v, ct_status *polled_p)
{
    int64_t cg = d->c / d->group, mg = group_m(d), k = group_k(d);
    int64_t last = d->n * (v + 1) / p->n_worker;
    const int64_t *off = a->work, *linear = off + p->n_image * out_size(d);
    char *worker = (char *)a->work + p->worker + (size_t)v * p->worker_step;
    float *images = (float *)(worker + p->images), *dw = (float *)(worker + p->gradient);

    memset(dw, 0, (size_t)(d->m * k) * sizeof(float));
    for (int64_t n = d->n * v / p->n_worker; n < last; n += p->n_image) {
        int64_t here = smaller(p->n_image, last - n);

        for (int64_t g = 0; g < d->group; g++) {
            for (int64_t i = 0; i < here; i++)
                turn_image(d, p, a->x + ((n + i) * d->c + g * cg) * in_size(d),
                           images + i * p->image);
            pack_gradients(d, p, a->dy + (n * d->m + g * mg) * out_size(d), here,
                           (float *)(worker + p->packed));
            add_products(d, p, off, linear, here, worker, dw + g * mg * k);
            ct_engine_poll(ex, polled_p);
        }
    }
}

/* Row m of dweight from all workers, back into (c, p, q) order. */
static void add_row(const ct_conv_desc *d, const weight_plan *p, const ct_conv_args *a, int64_t m)
{
    int64_t cg = d->c / d->group, k = group_k(d), taps = d->kh * d->kw;
    const char *first = (const char *)a->work + p->worker + p->gradient;

    for (int64_t t = 0; t < taps; t++) {
        for (int64_t c = 0; c < cg; c++) {
            float *dw = a->dweight + m * k + c * taps + t;
            float sum = (a->beta != 0.0f) ? a->beta * *dw : 0.0f;

            for (int64_t v = 0; v < p->n_worker; v++) {
                const float *part = (const float *)(first + (size_t)v * p->worker_step);

                sum += part[m * k + t * cg + c];
            }
            *dw = sum;
        }
    }
}

static ct_status run(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    weight_plan p = weight_make_plan(d);
    int64_t *off = a->work;
    ct_status polled = CT_OK;

    weight_make_offsets(d, &p, off);
    for (int64_t j = 0; p.copies && (j < p.copy_rows); j++)
        off[p.n_image * out_size(d) + j] = j * group_k(d);
#pragma omp parallel num_threads(d->n_thread)
    {
#pragma omp for schedule(static, 1)
        for (int64_t v = 0; v < p.n_worker; v++) run_worker(d, ex, &p, a, v, &polled);
#pragma omp for schedule(static)
        for (int64_t m = 0; m < d->m; m++) add_row(d, &p, a, m);
    }
    return polled;
}

static bool supports(const ct_conv_desc *d)
{
    return (d->device == CT_DEVICE_CPU) && is_plain(d) && (d->dw == 1);
}

/* Images are the only parts it deals out; and packing pays only for a certain number of columns. */
static bool prefers(const ct_conv_desc *d)
{
    return (d->n >= d->n_thread) && (group_k(d) >= 48);
}

static size_t workspace(const ct_conv_desc *d)
{
    return weight_make_plan(d).total;
}

const ct_conv_impl ct_conv_direct_backward_weight = {
    .name = "direct", .supports = supports, .prefers = prefers, .workspace = workspace, .run = run
};
