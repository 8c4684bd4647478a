/* im2col, and convolution as im2col and a matrix product. */
#include <string.h>

#include "framework/base/simd.h"
#include "layers/engine/conv/conv.h"
#include "framework/base/memory.h"
#include "framework/math/gemm.h"
#include "framework/math/math.h"

/* One kernel tap (p, q) of one channel: OH x OW values. */
static inline void unfold_tap(const ct_conv_desc *d, int64_t p, int64_t q, const float *x,
                              float *col)
{
    int64_t top = p * d->dh - d->ph, left = q * d->dw - d->pw;
    int64_t i_lo, i_hi, j_lo, j_hi;

    valid_range(top, d->sh, d->h, d->oh, &i_lo, &i_hi);
    valid_range(left, d->sw, d->w, d->ow, &j_lo, &j_hi);
    zero_row(col, i_lo * d->ow);
    for (int64_t i = i_lo; i < i_hi; i++) {
        const float *from = x + (i * d->sh + top) * d->w + left;
        float *to = col + i * d->ow;

        zero_row(to, j_lo);
        pick_row(to + j_lo, from + j_lo * d->sw, j_hi - j_lo, d->sw);
        zero_row(to + j_hi, d->ow - j_hi);
    }
    zero_row(col + i_hi * d->ow, (d->oh - i_hi) * d->ow);
}

CT_SIMD_CLONES void ct_im2col(const ct_conv_desc *d, int64_t c_from, int64_t c_to, const float *x,
                              float *col)
{
    for (int64_t c = c_from; c < c_to; c++) {
        for (int64_t p = 0; p < d->kh; p++) {
            for (int64_t q = 0; q < d->kw; q++)
                unfold_tap(d, p, q, x + c * in_size(d),
                           col + ((c * d->kh + p) * d->kw + q) * out_size(d));
        }
    }
}

static inline void fold_tap(const ct_conv_desc *d, int64_t p, int64_t q, const float *col,
                            float *dx)
{
    int64_t top = p * d->dh - d->ph, left = q * d->dw - d->pw;
    int64_t i_lo, i_hi, j_lo, j_hi;

    valid_range(top, d->sh, d->h, d->oh, &i_lo, &i_hi);
    valid_range(left, d->sw, d->w, d->ow, &j_lo, &j_hi);
    for (int64_t i = i_lo; i < i_hi; i++) {
        float *to = dx + (i * d->sh + top) * d->w + left;
        const float *from = col + i * d->ow;

        if (d->sw == 1) {
#pragma omp simd
            for (int64_t j = j_lo; j < j_hi; j++) to[j] += from[j];
        } else {
            for (int64_t j = j_lo; j < j_hi; j++) to[j * d->sw] += from[j];
        }
    }
}

CT_SIMD_CLONES void ct_col2im(const ct_conv_desc *d, int64_t c_from, int64_t c_to, const float *col,
                              float *dx)
{
    for (int64_t c = c_from; c < c_to; c++) {
        zero_row(dx + c * in_size(d), in_size(d));
        for (int64_t p = 0; p < d->kh; p++) {
            for (int64_t q = 0; q < d->kw; q++)
                fold_tap(d, p, q, col + ((c * d->kh + p) * d->kw + q) * out_size(d),
                         dx + c * in_size(d));
        }
    }
}

/* ---- Convolution as im2col and a matrix product, by packed panels where they suit the processor.
 *
 * With at least as many images as threads, images are dealt out statically: a worker has its own
 * column buffer and calls a single-threaded product, so nobody waits for anybody between images.
 * With fewer images, one image at a time: the team unfolds it together and the product is parallel.
 * A worker is a number, not a thread: the sums are the same whatever team the run time gives.
 *
 * Per group, with K = C/G KH KW and S = OH OW, all row major:
 *   y = W col          M/G x K  times  K x S
 *   dcol = W^T dy      K x M/G  times  M/G x S, then folded onto dx
 *   dW += dy col^T     M/G x S  times  S x K
 * A 1x1 convolution with stride 1 and no padding has col == x, and unfolds nothing. */

/* Private weight gradients of all workers together, at most: beyond it fewer workers run. */
static const int64_t PRIVATE_MAX = (int64_t)512 << 20;

static bool gemm_supports(const ct_conv_desc *d)
{
    return (d->device == CT_DEVICE_CPU) && is_plain(d);
}

static bool is_pointwise(const ct_conv_desc *d)
{
    return (d->kh == 1) && (d->kw == 1) && (d->sh == 1) && (d->sw == 1) && (d->ph == 0) &&
           (d->pw == 0);
}

/* 1: the images one by one, each with the whole team. */
static int64_t n_worker(const ct_conv_desc *d)
{
    return (d->n >= d->n_thread) ? d->n_thread : 1;
}

static int64_t n_weight_worker(const ct_conv_desc *d)
{
    int64_t bytes = d->m * group_k(d) * (int64_t)sizeof(float);
    int64_t most = 1 + PRIVATE_MAX / bytes;

    return (n_worker(d) < most) ? n_worker(d) : most;
}

static int64_t first_image(const ct_conv_desc *d, int64_t worker, int64_t n)
{
    return d->n * worker / n;
}

/* Floats from one worker's column buffer to the next one's; cache lines are not shared. */
static int64_t col_step(const ct_conv_desc *d)
{
    if (is_pointwise(d)) return 0;
    return (int64_t)ct_align_up((size_t)(group_k(d) * out_size(d)) * sizeof(float)) /
           (int64_t)sizeof(float);
}

static int64_t weight_step(const ct_conv_desc *d)
{
    return (int64_t)ct_align_up((size_t)(d->m * group_k(d)) * sizeof(float)) /
           (int64_t)sizeof(float);
}

/* ---- the products of an image and group */

static ct_gemm_desc forward_product(const ct_conv_desc *d, int n_thread)
{
    return (ct_gemm_desc){ false,      false,    group_m(d), out_size(d),
                           group_k(d), n_thread, d->bf16,    false };
}

static ct_gemm_desc data_product(const ct_conv_desc *d, int n_thread)
{
    return (ct_gemm_desc){ true,       false,    group_k(d), out_size(d),
                           group_m(d), n_thread, d->bf16,    false };
}

static ct_gemm_desc weight_product(const ct_conv_desc *d, int n_thread)
{
    return (ct_gemm_desc){ false,       true,     group_m(d), group_k(d),
                           out_size(d), n_thread, d->bf16,    false };
}

/* Floats that the products of one worker need. */
static int64_t product_step(const ct_gemm_desc *p)
{
    return ct_gemm_prefers(p) ? (int64_t)(ct_align_up(ct_gemm_workspace(p)) / sizeof(float)) : 0;
}

static int team_size(const ct_conv_desc *d, int64_t workers)
{
    return (workers == 1) ? d->n_thread : 1;
}

/* What a worker has to itself. */
typedef struct worker {
    float *col, *work;
    int n_thread; /* of its products; > 1: the team works on one image */
} worker;

/* C = op(A) op(B) + beta C, all rows as long as they are. */
static ct_status multiply(const ct_gemm_desc *p, const worker *w, const float *a, const float *b,
                          float beta, float *c)
{
    int64_t lda = p->ta ? p->m : p->k, ldb = p->tb ? p->k : p->n;
    ct_gemm_plan plan;

    if (!ct_gemm_prefers(p))
        return ct_math_cpu.gemm(NULL, p->ta, p->tb, p->m, p->n, p->k, 1.0f, a, lda, b, ldb, beta, c,
                                p->n);
    plan = ct_gemm_plan_make(p);
    ct_gemm_run(&plan, &(ct_gemm_args){ .alpha = 1.0f,
                                        .beta = beta,
                                        .a = a,
                                        .b = b,
                                        .lda = lda,
                                        .ldb = ldb,
                                        .c = c,
                                        .ldc = p->n,
                                        .work = w->work });
    return CT_OK;
}

static size_t bytes_for(const ct_conv_desc *d, const ct_gemm_desc *p)
{
    return (size_t)(n_worker(d) * (col_step(d) + product_step(p))) * sizeof(float);
}

static size_t gemm_workspace(const ct_conv_desc *d)
{
    ct_gemm_desc p = forward_product(d, team_size(d, n_worker(d)));

    return bytes_for(d, &p);
}

static size_t gemm_data_workspace(const ct_conv_desc *d)
{
    ct_gemm_desc p = data_product(d, team_size(d, n_worker(d)));

    return bytes_for(d, &p);
}

static size_t gemm_weight_workspace(const ct_conv_desc *d)
{
    int64_t n = n_weight_worker(d);
    ct_gemm_desc p = weight_product(d, team_size(d, n));

    return (size_t)(n * (col_step(d) + product_step(&p)) + (n - 1) * weight_step(d)) *
           sizeof(float);
}

/* Worker v of nw: column buffers first, then what products need. */
static worker make_worker(const ct_conv_desc *d, const ct_conv_args *a, const ct_gemm_desc *p,
                          int64_t v, int64_t nw)
{
    float *work = a->work;

    return (worker){ work + v * col_step(d), work + nw * col_step(d) + v * product_step(p),
                     p->n_thread };
}

/* The columns of group g of image n: unfolded into col, or x itself. */
static const float *columns(const ct_conv_desc *d, const float *x, float *col, bool team)
{
    int64_t cg = d->c / d->group;

    if (is_pointwise(d)) return x;
    if (!team) {
        ct_im2col(d, 0, cg, x, col);
        return col;
    }
#pragma omp parallel for num_threads(d->n_thread) schedule(static)
    for (int64_t c = 0; c < cg; c++) ct_im2col(d, c, c + 1, x, col);
    return col;
}

static const float *group_x(const ct_conv_desc *d, const float *x, int64_t n, int64_t g)
{
    return x + (n * d->c + g * (d->c / d->group)) * in_size(d);
}

static int64_t group_y(const ct_conv_desc *d, int64_t n, int64_t g)
{
    return (n * d->m + g * group_m(d)) * out_size(d);
}

CT_SIMD_CLONES static void fill_bias(int64_t m, int64_t s, const float *bias, float *y)
{
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < s; j++) y[i * s + j] = bias[i];
    }
}

static ct_status forward_image(const ct_conv_desc *d, const ct_conv_args *a, int64_t n,
                               const ct_gemm_desc *p, const worker *w)
{
    int64_t mg = group_m(d), k = group_k(d), s = out_size(d);

    for (int64_t g = 0; g < d->group; g++) {
        const float *b = columns(d, group_x(d, a->x, n, g), w->col, w->n_thread > 1);
        float *y = a->y + group_y(d, n, g);

        if (a->bias != NULL) fill_bias(mg, s, a->bias + g * mg, y);
        CT_TRY(multiply(p, w, a->weight + g * mg * k, b, (a->bias != NULL) ? 1.0f : 0.0f, y));
    }
    return CT_OK;
}

/* One image by a worker. */
typedef ct_status (*image_fn)(const ct_conv_desc *d, const ct_conv_args *a, int64_t n,
                              const ct_gemm_desc *p, const worker *w);

/* All images: nw workers have some each. */
static ct_status run_images(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a, int64_t nw,
                            const ct_gemm_desc *p, image_fn image)
{
    ct_status polled = CT_OK;
    int bad = CT_OK;

#pragma omp parallel for num_threads(d->n_thread) schedule(static, 1) reduction(max                \
                                                                                : bad) if (nw > 1)
    for (int64_t v = 0; v < nw; v++) {
        worker w = make_worker(d, a, p, v, nw);

        for (int64_t n = first_image(d, v, nw); n < first_image(d, v + 1, nw); n++) {
            int status = (int)image(d, a, n, p, &w);

            bad = (status > bad) ? status : bad;
            ct_engine_poll(ex, &polled);
        }
    }
    return (bad != CT_OK) ? (ct_status)bad : polled;
}

static ct_status gemm_forward(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    int64_t nw = n_worker(d);
    ct_gemm_desc p = forward_product(d, team_size(d, nw));

    return run_images(d, ex, a, nw, &p, forward_image);
}

static ct_status backward_data_image(const ct_conv_desc *d, const ct_conv_args *a, int64_t n,
                                     const ct_gemm_desc *p, const worker *w)
{
    int64_t mg = group_m(d), k = group_k(d), cg = d->c / d->group;
    float *col = w->col;

    for (int64_t g = 0; g < d->group; g++) {
        float *dx = a->dx + (n * d->c + g * cg) * in_size(d);
        float *to = is_pointwise(d) ? dx : col;

        CT_TRY(multiply(p, w, a->weight + g * mg * k, a->dy + group_y(d, n, g), 0.0f, to));
        if (is_pointwise(d)) continue;
        if (w->n_thread == 1) {
            ct_col2im(d, 0, cg, col, dx);
            continue;
        }
#pragma omp parallel for num_threads(d->n_thread) schedule(static)
        for (int64_t c = 0; c < cg; c++) ct_col2im(d, c, c + 1, col, dx);
    }
    return CT_OK;
}

static ct_status gemm_backward_data(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    int64_t nw = n_worker(d);
    ct_gemm_desc p = data_product(d, team_size(d, nw));

    return run_images(d, ex, a, nw, &p, backward_data_image);
}

static ct_status backward_weight_image(const ct_conv_desc *d, const ct_conv_args *a, int64_t n,
                                       float beta, float *dw, const ct_gemm_desc *p,
                                       const worker *w)
{
    int64_t mg = group_m(d), k = group_k(d);

    for (int64_t g = 0; g < d->group; g++) {
        const float *b = columns(d, group_x(d, a->x, n, g), w->col, w->n_thread > 1);

        CT_TRY(multiply(p, w, a->dy + group_y(d, n, g), b, beta, dw + g * mg * k));
    }
    return CT_OK;
}

/* dw[i] += part[0][i] + part[1][i] + …, in this order for any team. */
CT_SIMD_CLONES static void add_parts(int64_t n, int64_t n_part, int64_t step, const float *part,
                                     float *dw)
{
    for (int64_t p = 0; p < n_part; p++) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) dw[i] += part[p * step + i];
    }
}

static void reduce_parts(const ct_conv_desc *d, int64_t n_part, const float *part, float *dw)
{
    enum { BLOCK = 4096 };
    int64_t n = d->m * group_k(d);

    if (n_part == 0) return;
#pragma omp parallel for num_threads(d->n_thread) schedule(static)
    for (int64_t i = 0; i < n; i += BLOCK)
        add_parts((n - i < BLOCK) ? n - i : BLOCK, n_part, weight_step(d), part + i, dw + i);
}

/* Worker 0 adds into dweight itself, the others into private copies that are then added up. */
static ct_status gemm_backward_weight(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    int64_t nw = n_weight_worker(d);
    ct_gemm_desc p = weight_product(d, team_size(d, nw));
    float *part = (float *)a->work + nw * (col_step(d) + product_step(&p));
    ct_status polled = CT_OK;
    int bad = CT_OK;

    if (d->n == 0) { /* a rank without samples in this step */
        if (a->beta == 0.0f) return ct_math_cpu.set(NULL, d->m * group_k(d), 0.0f, a->dweight);
        return ct_math_cpu.scale(NULL, d->m * group_k(d), a->beta, a->dweight);
    }
#pragma omp parallel for num_threads(d->n_thread) schedule(static, 1) reduction(max                \
                                                                                : bad) if (nw > 1)
    for (int64_t v = 0; v < nw; v++) {
        worker w = make_worker(d, a, &p, v, nw);
        float *dw = (v == 0) ? a->dweight : part + (v - 1) * weight_step(d);
        float beta = (v == 0) ? a->beta : 0.0f;

        for (int64_t n = first_image(d, v, nw); n < first_image(d, v + 1, nw); n++) {
            int status = (int)backward_weight_image(d, a, n, beta, dw, &p, &w);

            bad = (status > bad) ? status : bad;
            beta = 1.0f;
            ct_engine_poll(ex, &polled);
        }
    }
    reduce_parts(d, nw - 1, part, a->dweight);
    return (bad != CT_OK) ? (ct_status)bad : polled;
}

const ct_conv_impl ct_conv_gemm_forward = {
    .name = "gemm",
    .supports = gemm_supports,
    .workspace = gemm_workspace,
    .run = gemm_forward,
    .can = CT_CONV_CAN_BF16,
};
const ct_conv_impl ct_conv_gemm_backward_data = { .name = "gemm",
                                                  .supports = gemm_supports,
                                                  .workspace = gemm_data_workspace,
                                                  .run = gemm_backward_data,
                                                  .can = CT_CONV_CAN_BF16 };
const ct_conv_impl ct_conv_gemm_backward_weight = { .name = "gemm",
                                                    .supports = gemm_supports,
                                                    .workspace = gemm_weight_workspace,
                                                    .run = gemm_backward_weight,
                                                    .can = CT_CONV_CAN_BF16 };
