/* Convolution as im2col and a matrix product.
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
#include "framework/base/memory.h"
#include "framework/base/simd.h"
#include "framework/math/math.h"
#include "layers/engine/conv/conv_private.h"

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

static size_t gemm_workspace(const ct_conv_desc *d)
{
    return (size_t)(n_worker(d) * col_step(d)) * sizeof(float);
}

static size_t gemm_weight_workspace(const ct_conv_desc *d)
{
    int64_t n = n_weight_worker(d);

    return (size_t)(n * col_step(d) + (n - 1) * weight_step(d)) * sizeof(float);
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

static ct_status forward_image(const ct_conv_desc *d, const ct_conv_args *a, int64_t n, float *col,
                               bool team)
{
    int64_t mg = group_m(d), k = group_k(d), s = out_size(d);

    for (int64_t g = 0; g < d->group; g++) {
        const float *b = columns(d, group_x(d, a->x, n, g), col, team);
        float *y = a->y + group_y(d, n, g);

        if (a->bias != NULL) fill_bias(mg, s, a->bias + g * mg, y);
        CT_TRY(ct_math_cpu.gemm(NULL, false, false, mg, s, k, 1.0f, a->weight + g * mg * k, k, b, s,
                                (a->bias != NULL) ? 1.0f : 0.0f, y, s));
    }
    return CT_OK;
}

static ct_status gemm_forward(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    int64_t nw = n_worker(d);
    ct_status polled = CT_OK;
    int bad = CT_OK;

#pragma omp parallel for num_threads((int)nw) schedule(static, 1) reduction(max : bad) if (nw > 1)
    for (int64_t v = 0; v < nw; v++) {
        float *col = (float *)a->work + v * col_step(d);

        for (int64_t n = first_image(d, v, nw); n < first_image(d, v + 1, nw); n++) {
            int status = (int)forward_image(d, a, n, col, nw == 1);

            bad = (status > bad) ? status : bad;
            ct_engine_poll(ex, &polled);
        }
    }
    return (bad != CT_OK) ? (ct_status)bad : polled;
}

static ct_status backward_data_image(const ct_conv_desc *d, const ct_conv_args *a, int64_t n,
                                     float *col, bool team)
{
    int64_t mg = group_m(d), k = group_k(d), s = out_size(d), cg = d->c / d->group;

    for (int64_t g = 0; g < d->group; g++) {
        float *dx = a->dx + (n * d->c + g * cg) * in_size(d);
        float *to = is_pointwise(d) ? dx : col;

        CT_TRY(ct_math_cpu.gemm(NULL, true, false, k, s, mg, 1.0f, a->weight + g * mg * k, k,
                                a->dy + group_y(d, n, g), s, 0.0f, to, s));
        if (is_pointwise(d)) continue;
        if (!team) {
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
    ct_status polled = CT_OK;
    int bad = CT_OK;

#pragma omp parallel for num_threads((int)nw) schedule(static, 1) reduction(max : bad) if (nw > 1)
    for (int64_t v = 0; v < nw; v++) {
        float *col = (float *)a->work + v * col_step(d);

        for (int64_t n = first_image(d, v, nw); n < first_image(d, v + 1, nw); n++) {
            int status = (int)backward_data_image(d, a, n, col, nw == 1);

            bad = (status > bad) ? status : bad;
            ct_engine_poll(ex, &polled);
        }
    }
    return (bad != CT_OK) ? (ct_status)bad : polled;
}

static ct_status backward_weight_image(const ct_conv_desc *d, const ct_conv_args *a, int64_t n,
                                       float beta, float *dw, float *col, bool team)
{
    int64_t mg = group_m(d), k = group_k(d), s = out_size(d);

    for (int64_t g = 0; g < d->group; g++) {
        const float *b = columns(d, group_x(d, a->x, n, g), col, team);

        CT_TRY(ct_math_cpu.gemm(NULL, false, true, mg, k, s, 1.0f, a->dy + group_y(d, n, g), s, b,
                                s, beta, dw + g * mg * k, k));
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
    float *part = (float *)a->work + nw * col_step(d);
    ct_status polled = CT_OK;
    int bad = CT_OK;

    if (d->n == 0) { /* a rank without samples in this step */
        if (a->beta == 0.0f) return ct_math_cpu.set(NULL, d->m * group_k(d), 0.0f, a->dweight);
        return ct_math_cpu.scale(NULL, d->m * group_k(d), a->beta, a->dweight);
    }
#pragma omp parallel for num_threads((int)nw) schedule(static, 1) reduction(max : bad) if (nw > 1)
    for (int64_t v = 0; v < nw; v++) {
        float *col = (float *)a->work + v * col_step(d);
        float *dw = (v == 0) ? a->dweight : part + (v - 1) * weight_step(d);
        float beta = (v == 0) ? a->beta : 0.0f;

        for (int64_t n = first_image(d, v, nw); n < first_image(d, v + 1, nw); n++) {
            int status = (int)backward_weight_image(d, a, n, beta, dw, col, nw == 1);

            bad = (status > bad) ? status : bad;
            beta = 1.0f;
            ct_engine_poll(ex, &polled);
        }
    }
    reduce_parts(d, nw - 1, part, a->dweight);
    return (bad != CT_OK) ? (ct_status)bad : polled;
}

const ct_conv_impl ct_conv_gemm_forward = {
    .name = "gemm", .supports = gemm_supports, .workspace = gemm_workspace, .run = gemm_forward
};
const ct_conv_impl ct_conv_gemm_backward_data = { .name = "gemm",
                                                  .supports = gemm_supports,
                                                  .workspace = gemm_workspace,
                                                  .run = gemm_backward_data };
const ct_conv_impl ct_conv_gemm_backward_weight = { .name = "gemm",
                                                    .supports = gemm_supports,
                                                    .workspace = gemm_weight_workspace,
                                                    .run = gemm_backward_weight };
