/* Convolution on blocked layouts: what the sums of blocked.h are, forward and backward by data. */
#include "layers/engine/conv/blocked.h"
#include "framework/math/gemm.h"

static bool is_depthwise(const ct_conv_desc *d)
{
    return (d->group > 1) && (d->c == d->group) && (d->m == d->group);
}

bool ct_blk_supports(const ct_conv_desc *d)
{
    int64_t b = ct_simd_block();

    if ((d->device != CT_DEVICE_CPU) || (d->x_block != b) || (d->y_block != b)) return false;
    if ((d->x_bf16 || d->y_bf16) && !d->bf16) return false;
    return (d->group == 1) || ((d->c / d->group % b == 0) && (d->m / d->group % b == 0));
}

static int64_t sum_work(const ct_conv_desc *d, const ct_blk_sum *s)
{
    return is_depthwise(d) ? ct_blk_depth_work(s) : ct_blk_sum_work(s);
}

static ct_status run_sum(const ct_conv_desc *d, const ct_blk_sum *s, ct_exec *ex)
{
    return is_depthwise(d) ? ct_blk_depth_run(s, ex) : ct_blk_sum_run(s, ex);
}

/* ---- forward */

static ct_blk_sum forward_sum(const ct_conv_desc *d)
{
    int64_t taps = d->kh * d->kw;

    return (ct_blk_sum){ .set = ct_blk_pick(d->bf16),
                         .n_thread = d->n_thread,
                         .n = d->n,
                         .group = d->group,
                         .in = d->c / d->group,
                         .out = d->m / d->group,
                         .h = d->h,
                         .w = d->w,
                         .y_h = d->oh,
                         .y_w = d->ow,
                         .oh = d->oh,
                         .ow = d->ow,
                         .so_h = 1,
                         .so_w = 1,
                         .si_h = d->sh,
                         .si_w = d->sw,
                         .n_p = d->kh,
                         .row_first = -d->ph,
                         .row_step = d->dh,
                         .n_q = d->kw,
                         .col_first = -d->pw,
                         .col_step = d->dw,
                         .w_group = group_m(d) * group_k(d),
                         .w_out = group_k(d),
                         .w_in = taps,
                         .w_taps = taps,
                         .w_p = d->kw,
                         .w_q = 1,
                         .x_bf16 = d->x_bf16,
                         .y_bf16 = d->y_bf16 };
}

static bool supports_forward(const ct_conv_desc *d)
{
    return ct_blk_supports(d) || ct_blk_supports_first(d) || ct_blk_supports_depth(d);
}

/* Work of a sparse one: what is used of x or dx, then that of the dense one. */
static int64_t sparse_floats(const ct_conv_desc *d)
{
    return blk_count(ct_blk_dense_floats(d), 16) * 16;
}

static size_t forward_workspace(const ct_conv_desc *d)
{
    ct_conv_desc dense = ct_blk_dense(d);
    bool sparse = (d->x_block > 0) && ct_blk_is_sparse(d);
    ct_blk_sum s = forward_sum(sparse ? &dense : d);

    if (d->x_block == 0) return ct_blk_first_workspace(d);
    return (size_t)(sum_work(d, &s) + (sparse ? sparse_floats(d) : 0)) * sizeof(float);
}

static ct_status forward_sparse(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    ct_conv_desc dense = ct_blk_dense(d);
    ct_blk_sum s = forward_sum(&dense);

    ct_blk_gather(d, a->x, a->work);
    s.x = a->work, s.weight = a->weight, s.bias = a->bias;
    s.y = a->y, s.work = (float *)a->work + sparse_floats(d), s.relu = a->relu;
    return run_sum(&dense, &s, ex);
}

static ct_status forward(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    ct_blk_sum s = forward_sum(d);

    if (d->x_block == 0) return ct_blk_first_forward(d, ex, a);
    if (ct_blk_is_sparse(d)) return forward_sparse(d, ex, a);
    s.x = a->x, s.weight = a->weight, s.bias = a->bias;
    s.y = a->y, s.work = a->work, s.relu = a->relu;
    return run_sum(d, &s, ex);
}

/* ---- backward by data */

static bool supports_backward(const ct_conv_desc *d)
{
    return ct_blk_supports(d) || ct_blk_supports_depth(d);
}

/* The taps along one axis that rows r, r + stride, … of dx meet: dx[r + i stride] takes
 * dy[i + first + k step] through tap at + k tap_step. */
typedef struct phase {
    int64_t n, first, step, at, tap_step;
} phase;

static phase phase_of(int64_t r, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation)
{
    phase f = { .step = 1, .tap_step = 0 };

    for (int64_t p = kernel - 1; p >= 0; p--) { /* backwards: dy's rows ascend */
        int64_t row = r + pad - p * dilation;

        if (row % stride != 0) continue;
        if (f.n == 0) f.first = row / stride, f.at = p;
        if (f.n == 1) f.step = row / stride - f.first, f.tap_step = p - f.at;
        f.n++;
    }
    return f;
}

static ct_blk_sum backward_sum(const ct_conv_desc *d, int64_t row, int64_t col)
{
    phase p = phase_of(row, d->kh, d->sh, d->ph, d->dh);
    phase q = phase_of(col, d->kw, d->sw, d->pw, d->dw);

    return (ct_blk_sum){ .set = ct_blk_pick(d->bf16),
                         .n_thread = d->n_thread,
                         .n = d->n,
                         .group = d->group,
                         .in = d->m / d->group,
                         .out = d->c / d->group,
                         .h = d->oh,
                         .w = d->ow,
                         .y_h = d->h,
                         .y_w = d->w,
                         .oh = (d->h - row + d->sh - 1) / d->sh,
                         .ow = (d->w - col + d->sw - 1) / d->sw,
                         .row = row,
                         .col = col,
                         .so_h = d->sh,
                         .so_w = d->sw,
                         .si_h = 1,
                         .si_w = 1,
                         .n_p = p.n,
                         .row_first = p.first,
                         .row_step = p.step,
                         .n_q = q.n,
                         .col_first = q.first,
                         .col_step = q.step,
                         .w_group = group_m(d) * group_k(d),
                         .w_out = d->kh * d->kw,
                         .w_in = group_k(d),
                         .w_taps = d->kh * d->kw,
                         .w_first = p.at * d->kw + q.at,
                         .w_p = p.tap_step * d->kw,
                         .w_q = q.tap_step,
                         .x_bf16 = d->y_bf16,
                         .y_bf16 = d->x_bf16 };
}

static size_t backward_workspace(const ct_conv_desc *d)
{
    int64_t most = 0;

    if (ct_blk_is_sparse(d)) {
        ct_conv_desc dense = ct_blk_dense(d);
        ct_blk_sum s = backward_sum(&dense, 0, 0);

        return (size_t)(sum_work(d, &s) + sparse_floats(d)) * sizeof(float);
    }
    for (int64_t i = 0; i < blk_smaller(d->sh, d->h); i++) {
        for (int64_t j = 0; j < blk_smaller(d->sw, d->w); j++) {
            ct_blk_sum s = backward_sum(d, i, j);

            most = blk_larger(most, sum_work(d, &s));
        }
    }
    return (size_t)most * sizeof(float);
}

static ct_status backward_sparse(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    ct_conv_desc dense = ct_blk_dense(d);
    ct_blk_sum s = backward_sum(&dense, 0, 0);

    s.x = a->dy, s.weight = a->weight;
    s.y = a->work, s.work = (float *)a->work + sparse_floats(d);
    CT_TRY(run_sum(&dense, &s, ex));
    ct_blk_spread(d, a->work, a->dx);
    return CT_OK;
}

static ct_status backward_data(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    if (ct_blk_is_sparse(d)) return backward_sparse(d, ex, a);
    for (int64_t i = 0; i < blk_smaller(d->sh, d->h); i++) {
        for (int64_t j = 0; j < blk_smaller(d->sw, d->w); j++) {
            ct_blk_sum s = backward_sum(d, i, j);

            s.x = a->dy, s.weight = a->weight;
            s.y = a->dx, s.work = a->work;
            CT_TRY(run_sum(d, &s, ex));
        }
    }
    return CT_OK;
}

const ct_conv_impl ct_conv_blocked_forward = { .name = "blocked",
                                               .supports = supports_forward,
                                               .workspace = forward_workspace,
                                               .run = forward,
                                               .can = CT_CONV_CAN_RELU | CT_CONV_CAN_BF16 };
const ct_conv_impl ct_conv_blocked_backward_data = { .name = "blocked",
                                                     .supports = supports_backward,
                                                     .workspace = backward_workspace,
                                                     .run = backward_data,
                                                     .can = CT_CONV_CAN_BF16 };

/* ---- dx on blocked layouts by a matrix product, folded: for a place of dy all that it adds to dx,
 *   col[place][tap][c] = sum over m of dy[place][m] weight[m][c][tap]
 * is one row of a product with packed weights, and is added to dx where its taps lie.
 *
 * Sums over dx (conv_blocked.c) spend registers on whole blocks of channels and on taps that lie
 * outside; this spends neither, but writes and reads col. So it is for few channels and for planes
 * that kernels reach far beyond.
 *
 * A worker is a number and has its images to itself, so sums are the same for any team. */

enum {
    STEP = 4,              /* channels are rounded up to so many in col */
    COL_FLOATS = 48 << 10, /* of a unit: part of a second-level cache    */
    ALIGN = 16             /* floats                                     */
};

typedef struct fold {
    int64_t b, step;                   /* channels of a block; of a tap in col                */
    int64_t width, m;                  /* columns of col; its sums' length                    */
    int64_t images;                    /* of a unit                                         */
    int64_t n_worker, a, col, product; /* floats of a worker's buffers         */
    int64_t packed;
    bool bf16; /* the product's operands */
} fold;

static int64_t aligned(int64_t floats)
{
    return blk_count(floats, ALIGN) * ALIGN;
}

/* Of so many places. */
static ct_gemm_desc product_of(const fold *f, int64_t places)
{
    return (ct_gemm_desc){ .m = places, .n = f->width, .k = f->m, .n_thread = 1, .bf16 = f->bf16 };
}

static fold make_fold(const ct_conv_desc *d)
{
    fold f = { .b = d->x_block, .step = blk_count(d->c, STEP) * STEP, .m = d->m, .bf16 = d->bf16 };
    int64_t places;
    ct_gemm_desc p;

    f.width = d->kh * d->kw * f.step;
    places = blk_larger(COL_FLOATS / f.width, 1);
    f.images = blk_larger(blk_smaller(places / out_size(d), blk_count(d->n, d->n_thread)), 1);
    places = f.images * out_size(d);
    p = product_of(&f, places);
    f.n_worker = blk_larger(blk_smaller(d->n_thread, d->n), 1);
    f.a = aligned(places * f.m);
    f.col = aligned(places * f.width);
    f.product = aligned((int64_t)(ct_gemm_packed_workspace(&p) / sizeof(float)));
    f.packed = aligned(ct_gemm_packed_size(&p));
    return f;
}

static bool supports(const ct_conv_desc *d)
{
    return ct_blk_supports(d) && (d->group == 1) && (d->sh == 1) && (d->sw == 1) && (d->dh == 1) &&
           (d->dw == 1);
}

/* Measured on AVX-512 (docs/results/2026-11-22-convolutions.md): 1.4 to 2 times the sums over dx
 * where dy is much the smaller plane, less than them elsewhere. */
static bool prefers(const ct_conv_desc *d)
{
    enum { TAPS = 25 };

    return supports(d) && (d->kh * d->kw >= TAPS) && (d->n >= d->n_thread) &&
           (4 * in_size(d) >= 7 * out_size(d));
}

/* ---- the product */

/* weight[m][c][tap] as [m][tap][c], then packed. */
static void pack_weights(const ct_conv_desc *d, const fold *f, const float *weight, float *turned,
                         float *packed)
{
    int64_t taps = d->kh * d->kw;
    ct_gemm_desc p = product_of(f, 1);

#pragma omp parallel for num_threads(d->n_thread) schedule(static)
    for (int64_t m = 0; m < d->m; m++) {
        float *row = turned + m * f->width;

        for (int64_t t = 0; t < taps; t++) {
            for (int64_t c = 0; c < f->step; c++)
                row[t * f->step + c] = (c < d->c) ? weight[(m * d->c + c) * taps + t] : 0.0f;
        }
    }
    p.n_thread = d->n_thread;
    ct_gemm_pack(&p, turned, f->width, packed);
}

/* `places` of an image's dy, the channels of each together. */
CT_SIMD_CLONES static void unblock(const ct_conv_desc *d, int64_t places, const float *dy,
                                   float *to)
{
    int64_t b = d->y_block;

    for (int64_t m = 0; m < d->m; m += b, dy = ct_num_at(dy, d->y_bf16, out_size(d) * b)) {
        int64_t here = blk_smaller(d->m - m, b);

        for (int64_t i = 0; (i < places) && !d->y_bf16; i++)
            copy_row(to + i * d->m + m, dy + i * b, here);
        for (int64_t i = 0; (i < places) && d->y_bf16; i++) {
            for (int64_t k = 0; k < here; k++)
                to[i * d->m + m + k] = ct_num_get(dy, true, i * b + k);
        }
    }
}

/* ---- the fold */

/* A row of a block of an image's dx: n lanes of what each place's taps have in col. `n` is a
 * constant where it matters; the lanes of the block beyond it become 0. */
CT_SIMD_PART void sum_row(const ct_conv_desc *d, const fold *f, int64_t y, int n, bool bf16,
                          const float *restrict col, float *restrict dx)
{
    int64_t p_lo = blk_larger(0, y + d->ph - d->oh + 1), p_hi = blk_smaller(d->kh - 1, y + d->ph);

    for (int64_t x = 0; x < d->w; x++, dx = ct_num_to(dx, bf16, f->b)) {
        int64_t q_lo = blk_larger(0, x + d->pw - d->ow + 1);
        int64_t q_hi = blk_smaller(d->kw - 1, x + d->pw);
        float sum[CT_BLK_MAX] = { 0 };

        for (int64_t p = p_lo; p <= p_hi; p++) {
            const float *restrict from = col + (p * d->kw + q_lo) * f->step +
                                         ((y + d->ph - p) * d->ow + x + d->pw - q_lo) * f->width;

            for (int64_t q = q_lo; q <= q_hi; q++, from += f->step - f->width) {
                for (int k = 0; k < n; k++) sum[k] += from[k];
            }
        }
        for (int k = 0; k < n; k++) ct_num_put(dx, bf16, k, sum[k]);
        for (int64_t k = n; k < f->b; k++) ct_num_put(dx, bf16, k, 0.0f);
    }
}

CT_SIMD_PART void sum_planes(const ct_conv_desc *d, const fold *f, bool bf16, const float *col,
                             float *dx)
{
    int64_t row = d->w * f->b;

    for (int64_t c = 0; c < f->step; c += f->b, col += f->b) {
        int n = (int)blk_smaller(f->step - c, f->b);

        for (int64_t y = 0; y < d->h; y++, dx = ct_num_to(dx, bf16, row)) {
            if (n == 16)
                sum_row(d, f, y, 16, bf16, col, dx);
            else if (n == 8)
                sum_row(d, f, y, 8, bf16, col, dx);
            else if (n == 4)
                sum_row(d, f, y, 4, bf16, col, dx);
            else
                sum_row(d, f, y, n, bf16, col, dx);
        }
    }
}

CT_SIMD_CLONES static void sum_image(const ct_conv_desc *d, const fold *f, const float *col,
                                     float *dx)
{
    if (d->x_bf16)
        sum_planes(d, f, true, col, dx);
    else
        sum_planes(d, f, false, col, dx);
}

/* What one worker has. */
typedef struct worker {
    const float *packed;
    float *a, *col, *product;
} worker;

/* `images` images from n on. */
static void run_unit(const ct_conv_desc *d, const fold *f, const ct_conv_args *a, const worker *w,
                     int64_t n, int64_t images)
{
    int64_t places = out_size(d), y_image = blk_count(d->m, f->b) * f->b * places;
    int64_t x_image = blk_count(d->c, f->b) * f->b * in_size(d);
    ct_gemm_desc p = product_of(f, images * places);

    for (int64_t k = 0; k < images; k++)
        unblock(d, places, ct_num_at(a->dy, d->y_bf16, (n + k) * y_image),
                w->a + k * places * f->m);
    ct_gemm_run_packed(&p,
                       &(ct_gemm_args){ .alpha = 1.0f,
                                        .a = w->a,
                                        .lda = f->m,
                                        .c = w->col,
                                        .ldc = f->width,
                                        .work = w->product },
                       w->packed, false);
    for (int64_t k = 0; k < images; k++)
        sum_image(d, f, w->col + k * places * f->width,
                  ct_num_to(a->dx, d->x_bf16, (n + k) * x_image));
}

static size_t workspace(const ct_conv_desc *d)
{
    fold f = make_fold(d);

    return (size_t)(f.packed +
                    blk_larger(f.n_worker * (f.a + f.col + f.product), aligned(f.m * f.width))) *
           sizeof(float);
}

static ct_status run(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    fold f = make_fold(d);
    float *packed = a->work, *rest = packed + f.packed;
    ct_status polled = CT_OK;

    pack_weights(d, &f, a->weight, rest, packed);
#pragma omp parallel for num_threads(d->n_thread) schedule(static, 1) if (f.n_worker > 1)
    for (int64_t v = 0; v < f.n_worker; v++) {
        float *own = rest + v * (f.a + f.col + f.product);
        worker w = { packed, own, own + f.a, own + f.a + f.col };
        int64_t last = d->n * (v + 1) / f.n_worker, images;

        for (int64_t n = d->n * v / f.n_worker; n < last; n += images) {
            images = blk_smaller(f.images, last - n);
            run_unit(d, &f, a, &w, n, images);
            ct_engine_poll(ex, &polled);
        }
    }
    return polled;
}

const ct_conv_impl ct_conv_fold_backward_data = {
    .name = "fold",
    .supports = supports,
    .workspace = workspace,
    .run = run,
    .prefers = prefers,
    .can = CT_CONV_CAN_BF16,
};
