/* Which convolutions there are, the reference, and trials for choosing by time. The order of a
 * table is the choice of "auto". */
#include "layers/engine/conv/conv.h"

#include <stdio.h>

#include "framework/base/bf16.h"

const ct_conv_impl *const ct_conv_forward_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_conv_cuda_depth_forward,
#ifdef CT_HAVE_CUDNN
    &ct_conv_cudnn_forward,
#endif
    &ct_conv_cuda_forward,       &ct_conv_cuda_last_forward,
#endif
    &ct_conv_direct_forward,     &ct_conv_gemm_forward,
    &ct_conv_winograd_forward,   &ct_conv_blocked_forward,
    &ct_conv_nd_forward,
#ifdef CT_HAVE_ONEDNN
    &ct_conv_onednn_forward,
#endif
    &ct_conv_ref_forward,        NULL
};
const ct_conv_impl *const ct_conv_backward_data_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_conv_cuda_depth_backward_data,
#ifdef CT_HAVE_CUDNN
    &ct_conv_cudnn_backward_data,
#endif
    &ct_conv_cuda_backward_data,       &ct_conv_cuda_last_backward_data,
#endif
    &ct_conv_direct_backward_data,     &ct_conv_gemm_backward_data,
    &ct_conv_winograd_backward_data,   &ct_conv_fold_backward_data,
    &ct_conv_blocked_backward_data,    &ct_conv_nd_backward_data,
#ifdef CT_HAVE_ONEDNN
    &ct_conv_onednn_backward_data,
#endif
    &ct_conv_ref_backward_data,        NULL
};
const ct_conv_impl *const ct_conv_backward_weight_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_conv_cuda_depth_backward_weight,
#ifdef CT_HAVE_CUDNN
    &ct_conv_cudnn_backward_weight,
#endif
    &ct_conv_cuda_backward_weight,       &ct_conv_cuda_last_backward_weight,
#endif
    &ct_conv_direct_backward_weight,     &ct_conv_gemm_backward_weight,
    &ct_conv_winograd_backward_weight,   &ct_conv_blocked_backward_weight,
    &ct_conv_nd_backward_weight,
#ifdef CT_HAVE_ONEDNN
    &ct_conv_onednn_backward_weight,
#endif
    &ct_conv_ref_backward_weight,        NULL
};

/* ---- The definition, in loops. Sums in double: the oracle's own rounding must not matter. */

static bool ref_supports(const ct_conv_desc *d)
{
    return (d->device == CT_DEVICE_CPU) && is_plain(d);
}

/* x of channel c at (row, col), zero outside */
static double at(const ct_conv_desc *d, const float *x, int64_t n, int64_t c, int64_t row,
                 int64_t col)
{
    if ((row < 0) || (row >= d->h) || (col < 0) || (col >= d->w)) return 0.0;
    return x[((n * d->c + c) * d->h + row) * d->w + col];
}

static double forward_one(const ct_conv_desc *d, const ct_conv_args *a, int64_t n, int64_t m,
                          int64_t i, int64_t j)
{
    int64_t cg = d->c / d->group, first = m / group_m(d) * cg;
    const float *w = a->weight + m * cg * d->kh * d->kw;
    double sum = (a->bias != NULL) ? a->bias[m] : 0.0;

    for (int64_t c = 0; c < cg; c++) {
        for (int64_t p = 0; p < d->kh; p++) {
            for (int64_t q = 0; q < d->kw; q++)
                sum += w[(c * d->kh + p) * d->kw + q] * at(d, a->x, n, first + c,
                                                           i * d->sh - d->ph + p * d->dh,
                                                           j * d->sw - d->pw + q * d->dw);
        }
    }
    return sum;
}

static ct_status ref_forward(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    (void)ex;
    for (int64_t n = 0; n < d->n; n++) {
        for (int64_t m = 0; m < d->m; m++) {
            for (int64_t i = 0; i < d->oh; i++) {
                for (int64_t j = 0; j < d->ow; j++)
                    a->y[((n * d->m + m) * d->oh + i) * d->ow + j] =
                        (float)forward_one(d, a, n, m, i, j);
            }
        }
    }
    return CT_OK;
}

/* The output index that tap p maps the input index onto; -1 where there is none. */
static int64_t output_of(int64_t index, int64_t p, int64_t stride, int64_t pad, int64_t dilation,
                         int64_t out)
{
    int64_t at_stride = index + pad - p * dilation;

    if ((at_stride < 0) || (at_stride % stride != 0) || (at_stride / stride >= out)) return -1;
    return at_stride / stride;
}

static double backward_data_one(const ct_conv_desc *d, const ct_conv_args *a, int64_t n, int64_t c,
                                int64_t row, int64_t col)
{
    int64_t cg = d->c / d->group, mg = group_m(d), g = c / cg;
    double sum = 0.0;

    for (int64_t p = 0; p < d->kh; p++) {
        int64_t i = output_of(row, p, d->sh, d->ph, d->dh, d->oh);

        for (int64_t q = 0; (i >= 0) && (q < d->kw); q++) {
            int64_t j = output_of(col, q, d->sw, d->pw, d->dw, d->ow);

            for (int64_t m = g * mg; (j >= 0) && (m < (g + 1) * mg); m++)
                sum += (double)a->weight[((m * cg + c % cg) * d->kh + p) * d->kw + q] *
                       a->dy[((n * d->m + m) * d->oh + i) * d->ow + j];
        }
    }
    return sum;
}

static ct_status ref_backward_data(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    (void)ex;
    for (int64_t n = 0; n < d->n; n++) {
        for (int64_t c = 0; c < d->c; c++) {
            for (int64_t i = 0; i < d->h; i++) {
                for (int64_t j = 0; j < d->w; j++)
                    a->dx[((n * d->c + c) * d->h + i) * d->w + j] =
                        (float)backward_data_one(d, a, n, c, i, j);
            }
        }
    }
    return CT_OK;
}

static double backward_weight_one(const ct_conv_desc *d, const ct_conv_args *a, int64_t m,
                                  int64_t c, int64_t p, int64_t q)
{
    double sum = 0.0;

    for (int64_t n = 0; n < d->n; n++) {
        for (int64_t i = 0; i < d->oh; i++) {
            for (int64_t j = 0; j < d->ow; j++)
                sum +=
                    a->dy[((n * d->m + m) * d->oh + i) * d->ow + j] *
                    at(d, a->x, n, c, i * d->sh - d->ph + p * d->dh, j * d->sw - d->pw + q * d->dw);
        }
    }
    return sum;
}

static ct_status ref_backward_weight(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    int64_t cg = d->c / d->group, mg = group_m(d);

    (void)ex;
    for (int64_t m = 0; m < d->m; m++) {
        for (int64_t c = 0; c < cg; c++) {
            for (int64_t p = 0; p < d->kh; p++) {
                for (int64_t q = 0; q < d->kw; q++) {
                    float *dw = &a->dweight[((m * cg + c) * d->kh + p) * d->kw + q];
                    double old = (a->beta != 0.0f) ? (double)a->beta * *dw : 0.0;

                    *dw = (float)(old + backward_weight_one(d, a, m, m / mg * cg + c, p, q));
                }
            }
        }
    }
    return CT_OK;
}

const ct_conv_impl ct_conv_ref_forward = { .name = "ref",
                                           .supports = ref_supports,
                                           .run = ref_forward };
const ct_conv_impl ct_conv_ref_backward_data = { .name = "ref",
                                                 .supports = ref_supports,
                                                 .run = ref_backward_data };
const ct_conv_impl ct_conv_ref_backward_weight = { .name = "ref",
                                                   .supports = ref_supports,
                                                   .run = ref_backward_weight };

/* ---- Convolutions on made-up data, for choosing engines by timing. */

static const char *kind_of(bool bf16, bool last)
{
    return last ? "l" : bf16 ? "h" : "";
}

void ct_conv_key(const ct_conv_desc *d, ct_run_kind kind, char *text, size_t size)
{
    static const char *const pass[CT_N_RUN] = { "forward", "backward_data", "backward_weight" };
    static const char *const operand[] = { "", " tf32", " bf16", " f16" };
    bool host = (d->device == CT_DEVICE_CPU);
    int at;

    at = snprintf(
        text, size,
        "conv %s n%lld g%lld c%lld %lldx%lld m%lld %lldx%lld k%lldx%lld s%lldx%lld p%lldx%lld "
        "d%lldx%lld x%d%s y%d%s t%d%s%s",
        pass[kind], (long long)d->n, (long long)d->group, (long long)d->c, (long long)d->h,
        (long long)d->w, (long long)d->m, (long long)d->oh, (long long)d->ow, (long long)d->kh,
        (long long)d->kw, (long long)d->sh, (long long)d->sw, (long long)d->ph, (long long)d->pw,
        (long long)d->dh, (long long)d->dw, d->x_block, kind_of(d->x_bf16, d->x_last), d->y_block,
        kind_of(d->y_bf16, d->y_last), d->winograd,
        host ? (d->bf16 ? " bf16" : "") : operand[d->operand], host ? "" : " gpu");
    for (int i = 0; (i < d->n_front) && (at >= 0) && ((size_t)at < size); i++) {
        const ct_conv_axis *f = &d->front[i];

        at += snprintf(text + at, size - (size_t)at, " %lld>%lld k%lld s%lld p%lld d%lld",
                       (long long)f->in, (long long)f->out, (long long)f->kernel,
                       (long long)f->stride, (long long)f->pad, (long long)f->dilation);
    }
}

/* Floats of n images with c channels and s places, in blocks or not. */
static int64_t stored(int64_t n, int64_t c, int64_t s, int block)
{
    return n * s * ((block > 0) ? (c + block - 1) / block * block : c);
}

/* As ct_engine_scratch(), of bf16 numbers where they are such. */
static float *values(void *block, size_t *bytes_p, int64_t n, bool bf16, bool fill)
{
    float *v = ct_engine_scratch(block, bytes_p, bf16 ? (n + 1) / 2 : n, fill && !bf16);

    if ((v == NULL) || !fill || !bf16) return v;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        ct_num_put(v, true, i, (float)((int32_t)((uint32_t)i * 2654435761u) | 0x10000) * 0x1p-31f);
    return v;
}

void ct_conv_scratch(const ct_conv_desc *d, ct_run_kind kind, void *block, size_t *bytes_p,
                     ct_conv_args *a)
{
    int64_t n_x = stored(d->n, d->c, in_size(d), d->x_block);
    int64_t n_y = stored(d->n, d->m, out_size(d), d->y_block);
    int64_t n_w = d->m * group_k(d);
    bool forward = (kind == CT_RUN_FORWARD), data = (kind == CT_RUN_BACKWARD_DATA);
    bool fill = (d->device == CT_DEVICE_CPU); /* a device's memory comes as zeros, which do */
    float *x = values(block, bytes_p, n_x, d->x_bf16, fill && !data);
    float *y = values(block, bytes_p, n_y, d->y_bf16, fill && !forward);
    float *w = ct_engine_scratch(block, bytes_p, n_w, fill && (forward || data));

    *a = (ct_conv_args){ .work = NULL };
    if (forward) a->bias = ct_engine_scratch(block, bytes_p, d->m, fill);
    if (!data) a->x = x;
    if (data) a->dx = x;
    if (forward) a->y = y;
    if (!forward) a->dy = y;
    if (forward || data) a->weight = w;
    if (!forward && !data) a->dweight = w;
}
