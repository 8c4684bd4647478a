/* Batch normalisation, channels shared among threads. Sums run in double along the contiguous
 * axis; where that axis has one element (after an inner product) a thread takes a block of
 * channels and reads whole rows. Sums do not depend on the number of threads. */
#include "layers/engine/batch_norm/batch_norm.h"

#include <stddef.h>

enum { BLOCK = 32, PARALLEL_MIN = 8192 };

typedef struct block {
    int64_t from, to; /* channels */
} block;

static bool supports(const ct_batch_norm_desc *d)
{
    return (d->device == CT_DEVICE_CPU) && (d->block == 0);
}

static int64_t block_size(const ct_batch_norm_desc *d)
{
    return (d->spatial == 1) ? BLOCK : 1;
}

static int64_t n_block(const ct_batch_norm_desc *d)
{
    return (d->channels + block_size(d) - 1) / block_size(d);
}

static block make_block(const ct_batch_norm_desc *d, int64_t k)
{
    int64_t from = k * block_size(d), to = from + block_size(d);

    return (block){ from, (to < d->channels) ? to : d->channels };
}

static double row_sum(int64_t n, const float *x)
{
    double sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += (double)x[i];
    return sum;
}

static double row_square(int64_t n, const float *x, double mean)
{
    double sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += ((double)x[i] - mean) * ((double)x[i] - mean);
    return sum;
}

static void block_statistics(const ct_batch_norm_desc *d, const float *x, block b, float *mean,
                             float *var)
{
    double m = (double)(d->n * d->spatial), sum[BLOCK] = { 0 }, square[BLOCK] = { 0 };

    for (int64_t n = 0; n < d->n; n++) {
        for (int64_t c = b.from; c < b.to; c++)
            sum[c - b.from] += row_sum(d->spatial, x + (n * d->channels + c) * d->spatial);
    }
    for (int64_t n = 0; n < d->n; n++) {
        for (int64_t c = b.from; c < b.to; c++)
            square[c - b.from] +=
                row_square(d->spatial, x + (n * d->channels + c) * d->spatial, sum[c - b.from] / m);
    }
    for (int64_t c = b.from; c < b.to; c++) {
        mean[c] = (float)(sum[c - b.from] / m);
        var[c] = (float)(square[c - b.from] / m);
    }
}

static void statistics(const ct_batch_norm_desc *d, const float *x, float *mean, float *var)
{
#pragma omp parallel for schedule(static) if (d->n * d->channels * d->spatial >= PARALLEL_MIN)
    for (int64_t k = 0; k < n_block(d); k++) block_statistics(d, x, make_block(d, k), mean, var);
}

static void normalise_row(int64_t n, const float *x, float mean, float inv_std, float *y,
                          float *normal)
{
    if (normal != NULL) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = normal[i] = (x[i] - mean) * inv_std;
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * inv_std;
    }
}

static void normalise(const ct_batch_norm_desc *d, const float *x, const float *mean,
                      const float *inv_std, float *y, float *normal)
{
#pragma omp parallel for schedule(static) if (d->n * d->channels * d->spatial >= PARALLEL_MIN)
    for (int64_t r = 0; r < d->n * d->channels; r++) {
        int64_t c = r % d->channels, i = r * d->spatial;

        normalise_row(d->spatial, x + i, mean[c], inv_std[c], y + i,
                      (normal != NULL) ? normal + i : NULL);
    }
}

/* One channel of one sample: y is (x - mean) inv_std, or x itself where x is already normal. */
static void backward_sums(int64_t n, const float *x, float mean, float inv_std, const float *dy,
                          double *sum, double *dot)
{
    double s = 0, t = 0;

#pragma omp simd reduction(+ : s, t)
    for (int64_t i = 0; i < n; i++) {
        s += (double)dy[i];
        t += (double)dy[i] * (double)((x[i] - mean) * inv_std);
    }
    *sum += s;
    *dot += t;
}

static void backward_row(int64_t n, const float *x, float mean, float inv_std, float scale,
                         float mean_dy, float mean_dot, const float *dy, float *dx)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dx[i] = (dy[i] - mean_dy - (x[i] - mean) * inv_std * mean_dot) * scale;
}

static void block_backward(const ct_batch_norm_desc *d, const float *x, bool is_normal, block b,
                           const float *mean, const float *inv_std, const float *dy, float *dx)
{
    double m = (double)(d->n * d->spatial), sum[BLOCK] = { 0 }, dot[BLOCK] = { 0 };

    for (int pass = 0; pass < 2; pass++) {
        for (int64_t n = 0; n < d->n; n++) {
            for (int64_t c = b.from; c < b.to; c++) {
                int64_t i = (n * d->channels + c) * d->spatial, k = c - b.from;
                float mu = is_normal ? 0.0f : mean[c], is = is_normal ? 1.0f : inv_std[c];

                if (pass == 0)
                    backward_sums(d->spatial, x + i, mu, is, dy + i, &sum[k], &dot[k]);
                else
                    backward_row(d->spatial, x + i, mu, is, inv_std[c], (float)(sum[k] / m),
                                 (float)(dot[k] / m), dy + i, dx + i);
            }
        }
    }
}

static void backward(const ct_batch_norm_desc *d, const float *x, const float *normal,
                     const float *mean, const float *inv_std, const float *dy, float *dx)
{
#pragma omp parallel for schedule(static) if (d->n * d->channels * d->spatial >= PARALLEL_MIN)
    for (int64_t k = 0; k < n_block(d); k++)
        block_backward(d, (normal != NULL) ? normal : x, normal != NULL, make_block(d, k), mean,
                       inv_std, dy, dx);
}

const ct_batch_norm_engine ct_batch_norm_omp = { "omp", supports, statistics, normalise, backward };
