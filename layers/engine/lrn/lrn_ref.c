/* The definition, element by element, in double. */
#include "layers/engine/lrn/lrn_private.h"

#include <math.h>

/* v(place) summed over the window around element (n, c, i, j) */
static double window_sum(const ct_lrn_desc *d, const ct_lrn_args *a, int64_t n, int64_t c,
                         int64_t i, int64_t j,
                         double (*v)(const ct_lrn_desc *d, const ct_lrn_args *a, int64_t at))
{
    int64_t half = (d->size - 1) / 2;
    int64_t dc = d->within ? 0 : half, ds = d->within ? half : 0;
    double sum = 0.0;

    for (int64_t e = c - dc; e <= c + dc; e++) {
        for (int64_t p = i - ds; p <= i + ds; p++) {
            for (int64_t q = j - ds; q <= j + ds; q++) {
                bool inside =
                    (e >= 0) && (e < d->c) && (p >= 0) && (p < d->h) && (q >= 0) && (q < d->w);

                if (inside) sum += v(d, a, ((n * d->c + e) * d->h + p) * d->w + q);
            }
        }
    }
    return sum;
}

static double square(const ct_lrn_desc *d, const ct_lrn_args *a, int64_t at)
{
    (void)d;
    return (double)a->x[at] * a->x[at];
}

static double ratio(const ct_lrn_desc *d, const ct_lrn_args *a, int64_t at)
{
    return (double)a->dy[at] * a->x[at] * pow(a->scale[at], -(double)d->beta - 1.0);
}

static ct_status ref_forward(const ct_lrn_desc *d, ct_exec *ex, const ct_lrn_args *a)
{
    (void)ex;
    for (int64_t at = 0; at < d->n * d->c * d->h * d->w; at++) {
        int64_t j = at % d->w, i = at / d->w % d->h, c = at / (d->w * d->h) % d->c;
        double sum = window_sum(d, a, at / (d->w * d->h * d->c), c, i, j, square);
        double scale = d->k + (double)ct_lrn_factor(d) * sum;

        a->scale[at] = (float)scale;
        a->y[at] = (float)(a->x[at] * pow(scale, -(double)d->beta));
    }
    return CT_OK;
}

static ct_status ref_backward(const ct_lrn_desc *d, ct_exec *ex, const ct_lrn_args *a)
{
    double factor = 2.0 * (double)ct_lrn_factor(d) * d->beta;

    (void)ex;
    for (int64_t at = 0; at < d->n * d->c * d->h * d->w; at++) {
        int64_t j = at % d->w, i = at / d->w % d->h, c = at / (d->w * d->h) % d->c;
        double sum = window_sum(d, a, at / (d->w * d->h * d->c), c, i, j, ratio);

        a->dx[at] =
            (float)(a->dy[at] * pow(a->scale[at], -(double)d->beta) - factor * a->x[at] * sum);
    }
    return CT_OK;
}

const ct_lrn_impl ct_lrn_ref_forward = { .name = "ref",
                                         .supports = ct_lrn_on_cpu,
                                         .run = ref_forward };
const ct_lrn_impl ct_lrn_ref_backward = { .name = "ref",
                                          .supports = ct_lrn_on_cpu,
                                          .run = ref_backward };
