/* Convolution on blocked layouts: what the sums of blocked.h are, forward and backward by data. */
#include "layers/engine/conv/blocked.h"

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
