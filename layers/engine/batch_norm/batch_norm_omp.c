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

/* Of channels [from, to). */
static int64_t n_block(const ct_batch_norm_desc *d, int64_t from, int64_t to)
{
    return (to - from + block_size(d) - 1) / block_size(d);
}

static block make_block(const ct_batch_norm_desc *d, int64_t from, int64_t to, int64_t k)
{
    int64_t at = from + k * block_size(d), end = at + block_size(d);

    return (block){ at, (end < to) ? end : to };
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

static void statistics(const ct_batch_norm_desc *d, int64_t from, int64_t to, const float *x,
                       float *mean, float *var)
{
#pragma omp parallel for schedule(static) if (d->n * (to - from) * d->spatial >= PARALLEL_MIN)
    for (int64_t k = 0; k < n_block(d, from, to); k++)
        block_statistics(d, x, make_block(d, from, to, k), mean, var);
}

/* ---- what a channel is mapped by */

typedef struct factors {
    float mean, inv_std, scale, bias;
} factors;

static factors pick(const ct_batch_norm_map *m, int64_t c)
{
    return (
        factors){ (m->mean != NULL) ? m->mean[c] : 0.0f, (m->mean != NULL) ? m->inv_std[c] : 1.0f,
                  (m->scale != NULL) ? m->scale[c] : 1.0f, (m->bias != NULL) ? m->bias[c] : 0.0f };
}

static inline float normal(const factors *f, float x)
{
    return (x - f->mean) * f->inv_std;
}

/* A row in one loop where nothing follows, else in as many as there are steps. */
static void map_row(const ct_batch_norm_map *m, int64_t c, int64_t at, int64_t n)
{
    factors f = pick(m, c);
    const float *x = m->x + at;
    float *y = m->y + at;

    if (m->add != NULL) {
        const float *add = m->add + at;

#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            float z = normal(&f, x[i]) * f.scale + f.bias + add[i];

            y[i] = (m->relu && (z < 0.0f)) ? 0.0f : z;
        }
    } else if (m->relu) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            float z = normal(&f, x[i]) * f.scale + f.bias;

            y[i] = (z < 0.0f) ? 0.0f : z;
        }
    } else if ((m->scale != NULL) || (m->bias != NULL)) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = normal(&f, x[i]) * f.scale + f.bias;
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = normal(&f, x[i]);
    }
    for (int64_t i = 0; (m->normal != NULL) && (i < n); i++) m->normal[at + i] = y[i];
}

static void apply(const ct_batch_norm_desc *d, int64_t from, int64_t to, const ct_batch_norm_map *m)
{
    int64_t some = to - from;

#pragma omp parallel for schedule(static) if (d->n * some * d->spatial >= PARALLEL_MIN)
    for (int64_t r = 0; r < d->n * some; r++) {
        int64_t c = from + r % some;

        map_row(m, c, (r / some * d->channels + c) * d->spatial, d->spatial);
    }
}

/* ---- backward */

/* g of n elements of a channel from `at` on: in room, or where it stands already. */
static const float *make_row(const ct_batch_norm_back *b, const factors *f, int64_t at, int64_t n,
                             float *room)
{
    const ct_batch_norm_map *m = &b->map;
    const float *g = b->dy[0] + at;

    for (int k = 1; k < b->n_dy; k++, g = room) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) room[i] = g[i] + b->dy[k][at + i];
    }
    if (!m->relu) return g;
    if (m->add != NULL) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) room[i] = (m->y[at + i] > 0.0f) ? g[i] : 0.0f;
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            room[i] = (normal(f, m->x[at + i]) * f->scale + f->bias > 0.0f) ? g[i] : 0.0f;
    }
    return room;
}

static void sum_row(const factors *f, int64_t n, const float *x, const float *g, double *sum,
                    double *dot)
{
    double s = 0, t = 0;

#pragma omp simd reduction(+ : s, t)
    for (int64_t i = 0; i < n; i++) {
        s += (double)g[i];
        t += (double)g[i] * (double)normal(f, x[i]);
    }
    *sum += s;
    *dot += t;
}

/* What a channel's dx is made with. */
typedef struct slope {
    float less, dot, inv_std; /* E dn, E(dn normal) */
} slope;

static void put_row(const factors *f, slope s, int64_t n, const float *x, const float *g, float *dx)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dx[i] = (g[i] * f->scale - s.less - normal(f, x[i]) * s.dot) * s.inv_std;
}

/* One channel of one sample, a few elements at a time; s NULL: the sums, else dx. The first pass
 * keeps g where it is wanted, or where several gradients meet; the second finds it there. */
static void back_row(const ct_batch_norm_back *b, const ct_batch_norm_back *made, int64_t c,
                     int64_t at, int64_t n, const slope *s)
{
    enum { PIECE = 512 };
    factors f = pick(&b->map, c);
    float room[PIECE];

    for (int64_t i = 0; i < n; i += PIECE, at += PIECE) {
        int64_t len = (n - i < PIECE) ? n - i : PIECE;
        const float *x = b->map.x + at;

        if (s == NULL) {
            const float *g = make_row(b, &f, at, len, room);

            sum_row(&f, len, x, g, &b->sum[c], &b->dot[c]);
            for (int64_t j = 0; (b->g != NULL) && (g != b->g + at) && (j < len); j++)
                b->g[at + j] = g[j];
        } else {
            put_row(&f, *s, len, x, make_row(made, &f, at, len, room), b->dx + at);
        }
    }
}

static void block_backward(const ct_batch_norm_desc *d, const ct_batch_norm_back *whole, block of)
{
    ct_batch_norm_back b = *whole, made;
    double m = (double)(d->n * d->spatial);

    if ((b.g == NULL) && (b.n_dy > 1)) b.g = b.dx;
    made = b;
    if (b.g != NULL) {
        made.dy[0] = b.g;
        made.n_dy = 1;
        made.map.relu = false;
    }
    for (int64_t c = of.from; c < of.to; c++) b.sum[c] = b.dot[c] = 0;
    for (int pass = 0; pass < ((b.dx != NULL) ? 2 : 1); pass++) {
        for (int64_t n = 0; n < d->n; n++) {
            for (int64_t c = of.from; c < of.to; c++) {
                double scale = (b.map.scale != NULL) ? (double)b.map.scale[c] : 1;
                slope s = { (float)(scale * b.sum[c] / m), (float)(scale * b.dot[c] / m),
                            b.map.inv_std[c] };

                if (b.fixed) s.less = s.dot = 0;
                back_row(&b, &made, c, (n * d->channels + c) * d->spatial, d->spatial,
                         (pass == 0) ? NULL : &s);
            }
        }
    }
}

static void backward(const ct_batch_norm_desc *d, int64_t from, int64_t to,
                     const ct_batch_norm_back *b)
{
#pragma omp parallel for schedule(static) if (d->n * (to - from) * d->spatial >= PARALLEL_MIN)
    for (int64_t k = 0; k < n_block(d, from, to); k++)
        block_backward(d, b, make_block(d, from, to, k));
}

const ct_batch_norm_engine ct_batch_norm_omp = { "omp", supports, statistics, apply, backward };
