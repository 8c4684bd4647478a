#include "layers/types/stochastic_pool.h"

#include "framework/base/rng.h"

#include <float.h>
#include <string.h>

/* Window of output o of a plane: rows [top, bottom), columns [left, right). */
typedef struct window {
    int64_t top, bottom, left, right;
} window;

static window window_of(const ct_pool_desc *d, int64_t o)
{
    window v;
    int64_t all;

    ct_pool_window(o / d->ow, d->kh, d->sh, 0, d->h, &v.top, &v.bottom, &all);
    ct_pool_window(o % d->ow, d->kw, d->sw, 0, d->w, &v.left, &v.right, &all);
    return v;
}

/* Sums of a window: of values, of their squares. */
static void sums(const ct_pool_desc *d, const window *v, const float *x, float *sum_p,
                 float *square_p)
{
    float sum = 0, square = 0;

    for (int64_t i = v->top; i < v->bottom; i++) {
        for (int64_t j = v->left; j < v->right; j++) {
            float here = x[i * d->w + j];

            sum += here;
            square += here * here;
        }
    }
    *sum_p = sum;
    *square_p = square;
}

/* The first element at which the running sum reaches share * sum; the last where rounding keeps it
 * below. */
static int32_t reach(const ct_pool_desc *d, const window *v, const float *x, float share)
{
    float sum, square, run = 0, limit;
    int64_t at = v->top * d->w + v->left;

    sums(d, v, x, &sum, &square);
    limit = share * sum;
    for (int64_t i = v->top; i < v->bottom; i++) {
        for (int64_t j = v->left; j < v->right; j++) {
            at = i * d->w + j;
            run += x[at];
            if (run >= limit) return (int32_t)at;
        }
    }
    return (int32_t)at;
}

void ct_stochastic_draw(const ct_pool_desc *d, uint64_t key, uint64_t first, const float *x,
                        float *y, int32_t *place)
{
    int64_t n = d->oh * d->ow;

#pragma omp parallel for schedule(static) num_threads(d->n_thread)
    for (int64_t p = 0; p < d->planes; p++) {
        const float *from = x + p * d->h * d->w;

        for (int64_t o = 0; o < n; o++) {
            window v = window_of(d, o);
            float share = ct_rng_uniform_at(key, first + (uint64_t)(p * n + o));

            place[p * n + o] = reach(d, &v, from, share);
            y[p * n + o] = from[place[p * n + o]];
        }
    }
}

void ct_stochastic_draw_back(const ct_pool_desc *d, const int32_t *place, const float *dy,
                             float *dx)
{
    int64_t n = d->oh * d->ow, size = d->h * d->w;

#pragma omp parallel for schedule(static) num_threads(d->n_thread)
    for (int64_t p = 0; p < d->planes; p++) {
        memset(dx + p * size, 0, (size_t)size * sizeof(*dx));
        for (int64_t o = p * n; o < (p + 1) * n; o++) dx[p * size + place[o]] += dy[o];
    }
}

void ct_stochastic_mean(const ct_pool_desc *d, const float *x, float *y)
{
    int64_t n = d->oh * d->ow;

#pragma omp parallel for schedule(static) num_threads(d->n_thread)
    for (int64_t p = 0; p < d->planes; p++) {
        for (int64_t o = 0; o < n; o++) {
            window v = window_of(d, o);
            float sum, square;

            sums(d, &v, x + p * d->h * d->w, &sum, &square);
            y[p * n + o] = (sum > 0.0f) ? square / (sum + FLT_MIN) : 0.0f;
        }
    }
}

void ct_stochastic_mean_back(const ct_pool_desc *d, const float *x, const float *dy, float *dx)
{
    int64_t n = d->oh * d->ow, size = d->h * d->w;

#pragma omp parallel for schedule(static) num_threads(d->n_thread)
    for (int64_t p = 0; p < d->planes; p++) {
        const float *from = x + p * size;

        memset(dx + p * size, 0, (size_t)size * sizeof(*dx));
        for (int64_t o = 0; o < n; o++) {
            window v = window_of(d, o);
            float sum, square;

            sums(d, &v, from, &sum, &square);
            if (!(sum > 0.0f)) continue;
            for (int64_t i = v.top; i < v.bottom; i++) {
                for (int64_t j = i * d->w + v.left; j < i * d->w + v.right; j++)
                    dx[p * size + j] += dy[p * n + o] * (2.0f * from[j] - square / sum) / sum;
            }
        }
    }
}
