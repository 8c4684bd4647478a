/* Pooling row by row: for each tap of the window one loop over the outputs of a row, which the
 * compiler vectorises. Planes are dealt out to the threads. */
#include "framework/base/simd.h"
#include "layers/engine/pool/pool_private.h"

/* Output columns whose window's column q is inside the plane. */
static inline void columns_of(const ct_pool_desc *d, int64_t q, int64_t *lo_p, int64_t *hi_p)
{
    int64_t offset = q - d->pw;
    int64_t lo = (offset >= 0) ? 0 : (-offset + d->sw - 1) / d->sw;
    int64_t hi = (offset >= d->w) ? 0 : (d->w - 1 - offset) / d->sw + 1;

    if (hi > d->ow) hi = d->ow;
    *lo_p = lo;
    *hi_p = hi;
}

/* One tap over the outputs [lo, hi) of a row; at: the place of output 0's tap in the plane. Called
 * with the usual strides as constants, which makes shuffles out of gathers. */
static inline void max_tap(int64_t lo, int64_t hi, int stride, int64_t at, const float *x, float *y,
                           int32_t *mask)
{
    int first = (int)lo, end = (int)hi, place = (int)at;

    x += at;
#pragma omp simd
    for (int j = first; j < end; j++) {
        float v = x[j * stride];
        int more = v > y[j];

        y[j] = more ? v : y[j];
        mask[j] = more ? place + j * stride : mask[j];
    }
}

static inline void max_row(const ct_pool_desc *d, int64_t i, const float *x, float *y,
                           int32_t *mask)
{
    int64_t top, bottom, padded;

    ct_pool_window(i, d->kh, d->sh, d->ph, d->h, &top, &bottom, &padded);
    for (int64_t j = 0; j < d->ow; j++) {
        int64_t left = j * d->sw - d->pw;
        int64_t at = top * d->w + ((left > 0) ? left : 0);

        y[j] = x[at];
        mask[j] = (int32_t)at;
    }
    for (int64_t r = top; r < bottom; r++) {
        for (int64_t q = 0; q < d->kw; q++) {
            int64_t lo, hi, at = r * d->w + q - d->pw;

            columns_of(d, q, &lo, &hi);
            if (d->sw == 1)
                max_tap(lo, hi, 1, at, x, y, mask);
            else if (d->sw == 2)
                max_tap(lo, hi, 2, at, x, y, mask);
            else
                max_tap(lo, hi, (int)d->sw, at, x, y, mask);
        }
    }
}

CT_SIMD_CLONES static void max_plane(const ct_pool_desc *d, const float *x, float *y, int32_t *mask)
{
    for (int64_t i = 0; i < d->oh; i++) max_row(d, i, x, y + i * d->ow, mask + i * d->ow);
}

static inline void add_tap(int64_t lo, int64_t hi, int64_t stride, const float *x, float *y)
{
#pragma omp simd
    for (int64_t j = lo; j < hi; j++) y[j] += x[j * stride];
}

static inline void ave_row(const ct_pool_desc *d, int64_t i, const float *x, float *y)
{
    int64_t top, bottom, rows;

    ct_pool_window(i, d->kh, d->sh, d->ph, d->h, &top, &bottom, &rows);
    for (int64_t j = 0; j < d->ow; j++) y[j] = 0.0f;
    for (int64_t r = top; r < bottom; r++) {
        for (int64_t q = 0; q < d->kw; q++) {
            const float *from = x + r * d->w + q - d->pw;
            int64_t lo, hi;

            columns_of(d, q, &lo, &hi);
            if (d->sw == 1)
                add_tap(lo, hi, 1, from, y);
            else if (d->sw == 2)
                add_tap(lo, hi, 2, from, y);
            else
                add_tap(lo, hi, d->sw, from, y);
        }
    }
    for (int64_t j = 0; j < d->ow; j++) {
        int64_t left, right, columns;

        ct_pool_window(j, d->kw, d->sw, d->pw, d->w, &left, &right, &columns);
        y[j] /= (float)(rows * columns);
    }
}

/* Sixteen sums side by side, in a fixed order. */
static inline float plane_sum(int64_t n, const float *x)
{
    float lane[16] = { 0.0f }, sum = 0.0f;
    int64_t i = 0;

    for (; i + 16 <= n; i += 16) {
#pragma omp simd
        for (int j = 0; j < 16; j++) lane[j] += x[i + j];
    }
    for (int j = 0; j < 16; j++) sum += lane[j];
    for (; i < n; i++) sum += x[i];
    return sum;
}

static inline bool is_global(const ct_pool_desc *d)
{
    return (d->oh == 1) && (d->ow == 1) && (d->kh == d->h) && (d->kw == d->w) && (d->ph == 0) &&
           (d->pw == 0);
}

CT_SIMD_CLONES static void ave_plane(const ct_pool_desc *d, const float *x, float *y)
{
    if (is_global(d)) {
        y[0] = plane_sum(d->h * d->w, x) / (float)(d->h * d->w);
        return;
    }
    for (int64_t i = 0; i < d->oh; i++) ave_row(d, i, x, y + i * d->ow);
}

static ct_status simd_forward(const ct_pool_desc *d, ct_exec *ex, const ct_pool_args *a)
{
    int64_t out = d->oh * d->ow;

    (void)ex;
#pragma omp parallel for num_threads(d->n_thread) schedule(static)
    for (int64_t p = 0; p < d->planes; p++) {
        const float *x = a->x + p * d->h * d->w;
        float *y = a->y + p * out;

        if (d->method == CT_POOL_AVE) {
            ave_plane(d, x, y);
            continue;
        }
        max_plane(d, x, y, a->mask + p * out);
        if (a->mask_top == NULL) continue;
        for (int64_t o = 0; o < out; o++) a->mask_top[p * out + o] = (float)a->mask[p * out + o];
    }
    return CT_OK;
}

static inline void scatter_tap(int64_t lo, int64_t hi, int64_t stride, const float *g, float *dx)
{
    /* within one tap no two outputs touch the same input */
#pragma omp simd
    for (int64_t j = lo; j < hi; j++) dx[j * stride] += g[j];
}

enum { ROW_MAX = 1024 }; /* outputs of a row scaled at a time */

static inline void ave_back_row(const ct_pool_desc *d, int64_t i, int64_t from, int64_t to,
                                const float *dy, float *dx)
{
    float g[ROW_MAX];
    int64_t top, bottom, rows;

    ct_pool_window(i, d->kh, d->sh, d->ph, d->h, &top, &bottom, &rows);
    for (int64_t j = from; j < to; j++) {
        int64_t left, right, columns;

        ct_pool_window(j, d->kw, d->sw, d->pw, d->w, &left, &right, &columns);
        g[j - from] = dy[j] / (float)(rows * columns);
    }
    for (int64_t r = top; r < bottom; r++) {
        for (int64_t q = 0; q < d->kw; q++) {
            float *dst = dx + r * d->w + q - d->pw + from * d->sw;
            int64_t lo, hi;

            columns_of(d, q, &lo, &hi);
            lo = ((lo > from) ? lo : from) - from;
            hi = ((hi < to) ? hi : to) - from;
            if (d->sw == 1)
                scatter_tap(lo, hi, 1, g, dst);
            else
                scatter_tap(lo, hi, d->sw, g, dst);
        }
    }
}

CT_SIMD_CLONES static void ave_back_plane(const ct_pool_desc *d, const float *dy, float *dx)
{
    if (is_global(d)) {
        float g = dy[0] / (float)(d->h * d->w);

        for (int64_t i = 0; i < d->h * d->w; i++) dx[i] = g;
        return;
    }
    for (int64_t i = 0; i < d->h * d->w; i++) dx[i] = 0.0f;
    for (int64_t i = 0; i < d->oh; i++) {
        for (int64_t from = 0; from < d->ow; from += ROW_MAX)
            ave_back_row(d, i, from, (d->ow - from < ROW_MAX) ? d->ow : from + ROW_MAX,
                         dy + i * d->ow, dx);
    }
}

static ct_status simd_backward(const ct_pool_desc *d, ct_exec *ex, const ct_pool_args *a)
{
    int64_t out = d->oh * d->ow, in = d->h * d->w;

    (void)ex;
#pragma omp parallel for num_threads(d->n_thread) schedule(static)
    for (int64_t p = 0; p < d->planes; p++) {
        float *dx = a->dx + p * in;
        const float *dy = a->dy + p * out;

        if (d->method == CT_POOL_AVE) {
            ave_back_plane(d, dy, dx);
            continue;
        }
        memset(dx, 0, (size_t)in * sizeof(float));
        for (int64_t o = 0; o < out; o++) dx[a->mask[p * out + o]] += dy[o];
    }
    return CT_OK;
}

/* places in a plane are 32-bit */
static bool simd_supports(const ct_pool_desc *d)
{
    return ct_pool_on_cpu(d) && (d->h * d->w <= INT32_MAX);
}

const ct_pool_impl ct_pool_simd_forward = { .name = "simd",
                                            .supports = simd_supports,
                                            .run = simd_forward };
const ct_pool_impl ct_pool_simd_backward = { .name = "simd",
                                             .supports = simd_supports,
                                             .run = simd_backward };
