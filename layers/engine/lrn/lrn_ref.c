/* The definition, element by element, in double. */
#include "layers/engine/lrn/lrn_private.h"

#include <math.h>

/* Where element (n, c, place) of the plane is. */
static int64_t index_of(const ct_lrn_desc *d, int64_t n, int64_t c, int64_t place)
{
    int64_t b = (d->block > 0) ? d->block : 1, n_block = (d->c + b - 1) / b;

    return ((n * n_block + c / b) * d->h * d->w + place) * b + c % b;
}

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

                if (inside) sum += v(d, a, index_of(d, n, e, p * d->w + q));
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
    for (int64_t e = 0; e < d->n * d->c * d->h * d->w; e++) {
        int64_t j = e % d->w, i = e / d->w % d->h, c = e / (d->w * d->h) % d->c;
        int64_t n = e / (d->w * d->h * d->c), at = index_of(d, n, c, i * d->w + j);
        double sum = window_sum(d, a, n, c, i, j, square);
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
    for (int64_t e = 0; e < d->n * d->c * d->h * d->w; e++) {
        int64_t j = e % d->w, i = e / d->w % d->h, c = e / (d->w * d->h) % d->c;
        int64_t n = e / (d->w * d->h * d->c), at = index_of(d, n, c, i * d->w + j);
        double sum = window_sum(d, a, n, c, i, j, ratio);

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
