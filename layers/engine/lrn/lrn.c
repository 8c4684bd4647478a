/* Which normalisations there are, the reference, and trials for choosing by time. The order of a
 * table is the choice of "auto". */
#include "layers/engine/lrn/lrn.h"

#include <math.h>
#include <stdio.h>

const ct_lrn_impl *const ct_lrn_forward_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_lrn_cuda_forward,
#endif
#ifdef CT_HAVE_CUDNN
    &ct_lrn_cudnn_forward, /* by name or plan */
#endif
    &ct_lrn_simd_forward,  &ct_lrn_blocked_forward, &ct_lrn_ref_forward, NULL,
};
const ct_lrn_impl *const ct_lrn_backward_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_lrn_cuda_backward,
#endif
#ifdef CT_HAVE_CUDNN
    &ct_lrn_cudnn_backward, /* by name or plan */
#endif
    &ct_lrn_simd_backward,  &ct_lrn_blocked_backward, &ct_lrn_ref_backward, NULL,
};

/* ---- The definition, element by element, in double. */

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

/* ---- Normalisations on made-up data, for choosing engines by timing. */

void ct_lrn_key(const ct_lrn_desc *d, ct_run_kind kind, char *text, size_t size)
{
    snprintf(text, size, "lrn %s %s n%lld c%lld %lldx%lld s%lld b%g k%g B%d%s t%d%s%s",
             (kind == CT_RUN_FORWARD) ? "forward" : "backward_data",
             d->within ? "within" : "across", (long long)d->n, (long long)d->c, (long long)d->h,
             (long long)d->w, (long long)d->size, (double)d->beta, (double)d->k, d->block,
             d->last ? " last" : "", (int)d->dtype, d->kept ? " kept" : "",
             (d->device == CT_DEVICE_CPU) ? "" : " gpu");
}

void ct_lrn_scratch(const ct_lrn_desc *d, ct_run_kind kind, void *block, size_t *bytes_p,
                    ct_lrn_args *a)
{
    int64_t n = d->n * d->c * d->h * d->w;
    bool fill = (d->device == CT_DEVICE_CPU), forward = (kind == CT_RUN_FORWARD);
    float *x = ct_engine_scratch(block, bytes_p, n, fill);
    float *y = ct_engine_scratch(block, bytes_p, n, fill && !forward);
    float *scale = ct_engine_scratch(block, bytes_p, n, fill && !forward);
    float *dy = forward ? NULL : ct_engine_scratch(block, bytes_p, n, fill);
    float *dx = forward ? NULL : ct_engine_scratch(block, bytes_p, n, false);

    *a = (ct_lrn_args){ .x = x, .y = y, .scale = scale, .dy = dy, .dx = dx };
}
