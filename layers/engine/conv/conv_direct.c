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
#include "layers/engine/conv/conv_private.h"
#include "layers/engine/conv/tile.h"

static const int64_t BLOCK_FLOATS = 96 << 10; /* of unfolded rows: part of a second-level cache */
static const int64_t MIN_COLUMNS = 96;        /* of a block: below it edges cost too much       */

typedef struct plan {
    const ct_tile_set *set;
    int64_t block, n_block; /* output rows of a block; blocks of an image */
    int64_t phase_rows;     /* rows of one remainder                      */
    int64_t plane;          /* floats from plane to plane                 */
    int64_t packed;         /* floats of one group's packed weights       */
    int64_t start_step;     /* values that rows begin with, one group's   */
    int64_t n_task;
    /* bytes in the workspace */
    size_t off, start, weights, flipped, worker, worker_step, total;
} plan;

static bool is_pointwise(const ct_conv_desc *d)
{
    return (d->kh == 1) && (d->kw == 1) && (d->sh == 1) && (d->sw == 1) && (d->ph == 0) &&
           (d->pw == 0);
}

static int64_t at_least(int64_t a, int64_t b)
{
    return (a > b) ? a : b;
}

static void choose_block(const ct_conv_desc *d, plan *p)
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

static plan make_plan(const ct_conv_desc *d, bool backward)
{
    plan p = { .set = ct_tile_pick() };
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

static void make_offsets(const ct_conv_desc *d, const plan *p, int64_t *off)
{
    for (int64_t k = 0; k < group_k(d); k++) {
        int64_t c = k / (d->kh * d->kw), row = k / d->kw % d->kh * d->dh, q = k % d->kw;

        off[k] = is_pointwise(d) ? k * in_size(d)
                                 : (c * d->kw + q) * p->plane +
                                       (row % d->sh * p->phase_rows + row / d->sh) * d->ow;
    }
}

/* Output rows [first, first + rows) of one group; x at the group's channel 0. */
CT_SIMD_CLONES static void unfold_width(const ct_conv_desc *d, const plan *p, const float *x,
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
static void make_start(const ct_conv_desc *d, const plan *p, const float *bias, float *start)
{
    int64_t mg = group_m(d);

    for (int64_t g = 0; g < d->group; g++) {
        for (int64_t i = 0; i < p->start_step; i++)
            start[g * p->start_step + i] = ((bias != NULL) && (i < mg)) ? bias[g * mg + i] : 0.0f;
    }
}

static void run_task(const ct_conv_desc *d, const plan *p, const ct_conv_args *a, int64_t task,
                     char *worker)
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
static ct_status run_forward(const ct_conv_desc *d, ct_exec *ex, const plan *p,
                             const ct_conv_args *a)
{
    int64_t mg = group_m(d), k = group_k(d), n_panel = (mg + p->set->rows - 1) / p->set->rows;
    int64_t nw = d->n_thread;
    char *work = a->work;
    ct_status polled = CT_OK;

    make_offsets(d, p, (int64_t *)(work + p->off));
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
    return make_plan(d, false).total;
}

static ct_status direct_forward(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    plan p = make_plan(d, false);

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

    return make_plan(&t, true).total;
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
    plan p = make_plan(&t, true);
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
