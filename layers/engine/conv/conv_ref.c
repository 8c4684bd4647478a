/* The definition, in loops. Sums in double: the oracle's own rounding must not matter. */
#include "layers/engine/conv/conv_private.h"

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
