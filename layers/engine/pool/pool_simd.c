/* Pooling in two steps for each row of outputs: first along the columns of the window, for every
 * column of the plane, then along its rows. Both are loops that the compiler vectorises, and a
 * window costs kh + kw steps. Planes are dealt out to the threads.
 *
 * Of equal elements the one with the smaller place wins, so the order of the steps does not show.
 */
#include "framework/base/memory.h"
#include "framework/base/simd.h"
#include "layers/engine/pool/pool_private.h"

#include <math.h>

enum { CHUNK = 16 }; /* columns at a time: whole vectors, whatever their width */

/* A worker's scratch. A row of columns has the padding around it, so that every tap has all
 * outputs; a row of outputs is as long as whole chunks. */
typedef struct scratch {
    float *value;   /* of each column; what stands beside the plane never wins and adds nothing */
    int32_t *place; /* MAX: of that value, as masks have it, less what its column adds           */
    float *phase;   /* the row of columns sorted by remainder by the stride                      */
    int32_t *phase_place;
    float *best;    /* of each output; AVE backward: its gradient                                */
    int32_t *mask;  /* MAX: its place                                                            */
    float *columns; /* AVE: columns of its window, with the padding                              */
    int32_t *shift; /* MAX: columns of its window that lie left of the plane                     */
} scratch;

enum { FAR = 1 << 30 }; /* the place of what stands beside the plane */

static inline int64_t out_chunks(const ct_pool_desc *d)
{
    return (d->ow + CHUNK - 1) / CHUNK * CHUNK;
}

/* Columns of one remainder by the stride: what the outputs of whole chunks read. */
static inline int64_t phase_floats(const ct_pool_desc *d)
{
    return out_chunks(d) + (d->kw / d->sw / CHUNK + 1) * CHUNK;
}

static inline int64_t row_floats(const ct_pool_desc *d)
{
    int64_t read = phase_floats(d) * d->sw, plane = d->pw + d->w;

    return (read > plane) ? read : plane;
}

static int64_t scratch_floats(const ct_pool_desc *d)
{
    int64_t n = 4 * row_floats(d) + 4 * out_chunks(d);

    return (int64_t)ct_align_up((size_t)n * sizeof(float)) / (int64_t)sizeof(float);
}

static size_t workspace(const ct_pool_desc *d)
{
    return (size_t)(d->n_thread * scratch_floats(d)) * sizeof(float);
}

static scratch scratch_of(const ct_pool_desc *d, const ct_pool_args *a, int64_t v)
{
    float *at = (float *)a->work + v * scratch_floats(d);
    int64_t row = row_floats(d), out = out_chunks(d);
    scratch s = { .value = at + d->pw,
                  .place = (int32_t *)(at + row) + d->pw,
                  .phase = at + 2 * row,
                  .phase_place = (int32_t *)(at + 3 * row),
                  .best = at + 4 * row,
                  .mask = (int32_t *)(at + 4 * row + out),
                  .columns = at + 4 * row + 2 * out,
                  .shift = (int32_t *)(at + 4 * row + 3 * out) };

    for (int64_t j = -d->pw; j < row - d->pw; j++) {
        s.value[j] = (d->method == CT_POOL_MAX) ? -INFINITY : 0.0f;
        s.place[j] = FAR;
    }
    for (int64_t j = 0; j < d->ow; j++) {
        int64_t left, right, n;

        ct_pool_window(j, d->kw, d->sw, d->pw, d->w, &left, &right, &n);
        s.columns[j] = (float)n;
        s.shift[j] = (int32_t)(left - (j * d->sw - d->pw));
    }
    for (int64_t j = d->ow; j < out; j++) s.columns[j] = 1.0f;
    return s;
}

typedef uint32_t word __attribute__((may_alias)); /* a value or a place, which are only moved */

/* to[r][j] = from[j sw + r]: after it every tap reads consecutive values. */
static inline void sort_columns(const ct_pool_desc *d, const void *row, void *sorted)
{
    const word *from = row;
    word *to = sorted;
    int64_t length = phase_floats(d);
    word *odd = to + length;

    if (d->sw == 2) {
#pragma omp simd
        for (int64_t j = 0; j < length; j++) {
            to[j] = from[2 * j];
            odd[j] = from[2 * j + 1];
        }
        return;
    }
    for (int64_t r = 0; r < d->sw; r++) {
        for (int64_t j = 0; j < length; j++) to[r * length + j] = from[j * d->sw + r];
    }
}

/* ---- MAX. A NaN counts as larger than any number: a diverged net must show. */

static inline void start_columns(int n, const float *x, float *value, int32_t *at)
{
#pragma omp simd
    for (int j = 0; j < n; j++) {
        value[j] = x[j];
        at[j] = 0;
    }
}

static inline void raise_columns(int n, int place, const float *x, float *value, int32_t *at)
{
#pragma omp simd
    for (int j = 0; j < n; j++) {
        float v = x[j];
        int more = (v > value[j]) | (v != v);

        value[j] = more ? v : value[j];
        at[j] = more ? place : at[j];
    }
}

/* The last chunk overlaps the one before it where the row is not whole chunks: doing a column
 * twice changes nothing. */
static inline void column_maxima(const ct_pool_desc *d, int64_t top, int64_t bottom, const float *x,
                                 const scratch *s)
{
    int w = (int)d->w;

    for (int64_t r = top; r < bottom; r++) {
        const float *row = x + r * d->w;
        int place = (int)((r - top) * ct_pool_pitch(d));

        if (r == top) {
            start_columns(w, row, s->value, s->place);
        } else if (w < CHUNK) {
            raise_columns(w, place, row, s->value, s->place);
        } else {
            for (int j = 0; j < w; j += CHUNK) {
                int at = (j + CHUNK <= w) ? j : w - CHUNK;

                raise_columns(CHUNK, place, row + at, s->value + at, s->place + at);
            }
        }
    }
}

/* q: the column in the window */
static inline void raise_outputs(int q, const float *value, const int32_t *at, float *y,
                                 int32_t *mask)
{
#pragma omp simd
    for (int j = 0; j < CHUNK; j++) {
        int32_t place = at[j] + q;
        int more =
            (value[j] > y[j]) | (value[j] != value[j]) | ((value[j] == y[j]) & (place < mask[j]));

        y[j] = more ? value[j] : y[j];
        mask[j] = more ? place : mask[j];
    }
}

static inline void row_maxima(const ct_pool_desc *d, const float *value, const int32_t *place,
                              const scratch *s)
{
    int64_t length = phase_floats(d);

    for (int64_t j = 0; j < d->ow; j += CHUNK) {
        float *y = s->best + j;
        int32_t *mask = s->mask + j;

        for (int i = 0; i < CHUNK; i++) {
            y[i] = -INFINITY;
            mask[i] = INT32_MAX;
        }
        for (int64_t q = 0; q < d->kw; q++) {
            int64_t at = q % d->sw * length + q / d->sw + j;

            raise_outputs((int)q, value + at, place + at, y, mask);
        }
    }
}

/* A row's outputs: values, masks from their first number on, places. */
static inline void put_row(const ct_pool_desc *d, int64_t i, const scratch *s,
                           const ct_pool_args *a, int64_t o)
{
    int64_t pitch = ct_pool_pitch(d), top, bottom, padded;
    float *y = a->y + o;

    for (int64_t j = 0; j < d->ow; j++) s->mask[j] -= s->shift[j];
    ct_pool_window(i, d->kh, d->sh, d->ph, d->h, &top, &bottom, &padded);
    for (int64_t j = 0; (a->mask_top != NULL) && (j < d->ow); j++) {
        int64_t left = j * d->sw - d->pw + s->shift[j];

        a->mask_top[o + j] = (float)((top + s->mask[j] / pitch) * d->w + left + s->mask[j] % pitch);
    }
    if (d->relu) {
#pragma omp simd
        for (int64_t j = 0; j < d->ow; j++) {
            s->mask[j] = (s->best[j] > 0.0f) ? s->mask[j] : CT_POOL_NONE;
            s->best[j] = (s->best[j] < 0.0f) ? 0.0f : s->best[j];
        }
    }
    memcpy(y, s->best, (size_t)d->ow * sizeof(float));
    if (a->mask == NULL) return;
    if (ct_pool_mask_bytes(d) == 4) {
        memcpy((int32_t *)a->mask + o, s->mask, (size_t)d->ow * sizeof(int32_t));
    } else {
        uint8_t *to = (uint8_t *)a->mask + o;

        for (int64_t j = 0; j < d->ow; j++) to[j] = (uint8_t)s->mask[j];
    }
}

/* The plane's outputs begin at o. */
CT_SIMD_CLONES static void max_plane(const ct_pool_desc *d, const float *x, const scratch *s,
                                     const ct_pool_args *a, int64_t o)
{
    for (int64_t i = 0; i < d->oh; i++) {
        int64_t top, bottom, padded;

        ct_pool_window(i, d->kh, d->sh, d->ph, d->h, &top, &bottom, &padded);
        column_maxima(d, top, bottom, x, s);
        if (d->sw == 1) {
            row_maxima(d, s->value - d->pw, s->place - d->pw, s);
        } else {
            sort_columns(d, s->value - d->pw, s->phase);
            sort_columns(d, s->place - d->pw, s->phase_place);
            row_maxima(d, s->phase, s->phase_place, s);
        }
        put_row(d, i, s, a, o + i * d->ow);
    }
}

/* 2 x 2 windows side by side that fill the plane: no two meet. */
static inline bool is_halving(const ct_pool_desc *d)
{
    return (d->kh == 2) && (d->kw == 2) && (d->sh == 2) && (d->sw == 2) && (d->ph == 0) &&
           (d->pw == 0) && (2 * d->oh == d->h) && (2 * d->ow == d->w);
}

CT_SIMD_CLONES static void double_plane(const ct_pool_desc *d, const float *dy, const uint8_t *mask,
                                        float *dx)
{
    for (int64_t k = 0; k < 2 * d->oh; k++) {
        const float *g = dy + k / 2 * d->ow;
        const uint8_t *m = mask + k / 2 * d->ow;
        int first = (int)(k % 2) * 2;
        float *to = dx + k * d->w;

#pragma omp simd
        for (int64_t j = 0; j < d->ow; j++) {
            to[2 * j] = (m[j] == first) ? g[j] : 0.0f;
            to[2 * j + 1] = (m[j] == first + 1) ? g[j] : 0.0f;
        }
    }
}

/* The plane's outputs begin at o. */
static void max_back_plane(const ct_pool_desc *d, const ct_pool_args *a, int64_t o, float *dx)
{
    int64_t pitch = ct_pool_pitch(d);

    if (is_halving(d)) {
        double_plane(d, a->dy + o, (const uint8_t *)a->mask + o, dx);
        return;
    }
    memset(dx, 0, (size_t)(d->h * d->w) * sizeof(float));
    for (int64_t i = 0; i < d->oh; i++) {
        int64_t top = (i * d->sh > d->ph) ? i * d->sh - d->ph : 0;

        for (int64_t j = 0; j < d->ow; j++, o++) {
            int64_t left = (j * d->sw > d->pw) ? j * d->sw - d->pw : 0;
            int64_t place = ct_pool_marked(d, a->mask, o);

            if (place != CT_POOL_NONE)
                dx[(top + place / pitch) * d->w + left + place % pitch] += a->dy[o];
        }
    }
}

/* ---- AVE */

static inline void add_row(int64_t n, const float *x, float *sum)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++) sum[j] += x[j];
}

/* Within one tap no two outputs touch the same column. */
static inline void add_outputs(int stride, const float *y, float *value)
{
#pragma omp simd
    for (int j = 0; j < CHUNK; j++) value[j * stride] += y[j];
}

/* best = the sums over the windows of value (whole chunks) */
static inline void window_sums(const ct_pool_desc *d, const float *value, const scratch *s)
{
    int64_t length = phase_floats(d);

    for (int64_t j = 0; j < d->ow; j += CHUNK) {
        memset(s->best + j, 0, CHUNK * sizeof(float));
        for (int64_t q = 0; q < d->kw; q++)
            add_row(CHUNK, value + q % d->sw * length + q / d->sw + j, s->best + j);
    }
}

/* The adjoint: value, with its padding, is overwritten. */
static inline void spread_outputs(const ct_pool_desc *d, int stride, const scratch *s)
{
    memset(s->value - d->pw, 0, (size_t)row_floats(d) * sizeof(float));
    for (int64_t j = 0; j < d->ow; j += CHUNK) {
        for (int64_t q = 0; q < d->kw; q++)
            add_outputs(stride, s->best + j, s->value + j * stride - d->pw + q);
    }
}

static inline bool is_global(const ct_pool_desc *d)
{
    return (d->oh == 1) && (d->ow == 1) && (d->kh == d->h) && (d->kw == d->w) && (d->ph == 0) &&
           (d->pw == 0);
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

CT_SIMD_CLONES static void ave_plane(const ct_pool_desc *d, const float *x, const scratch *s,
                                     float *y)
{
    if (is_global(d)) {
        y[0] = plane_sum(d->h * d->w, x) / (float)(d->h * d->w);
        return;
    }
    for (int64_t i = 0; i < d->oh; i++, y += d->ow) {
        int64_t top, bottom, rows;

        ct_pool_window(i, d->kh, d->sh, d->ph, d->h, &top, &bottom, &rows);
        memcpy(s->value, x + top * d->w, (size_t)d->w * sizeof(float));
        for (int64_t r = top + 1; r < bottom; r++) add_row(d->w, x + r * d->w, s->value);
        if (d->sw > 1) sort_columns(d, s->value - d->pw, s->phase);
        window_sums(d, (d->sw > 1) ? s->phase : s->value - d->pw, s);
#pragma omp simd
        for (int64_t j = 0; j < d->ow; j++) y[j] = s->best[j] / ((float)rows * s->columns[j]);
    }
}

CT_SIMD_CLONES static void ave_back_plane(const ct_pool_desc *d, const float *dy, const scratch *s,
                                          float *dx)
{
    if (is_global(d)) {
        float each = dy[0] / (float)(d->h * d->w);

        for (int64_t i = 0; i < d->h * d->w; i++) dx[i] = each;
        return;
    }
    memset(dx, 0, (size_t)(d->h * d->w) * sizeof(float));
    memset(s->best, 0, (size_t)out_chunks(d) * sizeof(float));
    for (int64_t i = 0; i < d->oh; i++, dy += d->ow) {
        int64_t top, bottom, rows;

        ct_pool_window(i, d->kh, d->sh, d->ph, d->h, &top, &bottom, &rows);
#pragma omp simd
        for (int64_t j = 0; j < d->ow; j++) s->best[j] = dy[j] / ((float)rows * s->columns[j]);
        if (d->sw == 1)
            spread_outputs(d, 1, s);
        else
            spread_outputs(d, (int)d->sw, s);
        for (int64_t r = top; r < bottom; r++) add_row(d->w, s->value, dx + r * d->w);
    }
}

/* ---- planes, by worker */

static void forward_plane(const ct_pool_desc *d, const ct_pool_args *a, int64_t p, const scratch *s)
{
    int64_t out = d->oh * d->ow;
    const float *x = a->x + p * d->h * d->w;

    if (d->method == CT_POOL_AVE) {
        ave_plane(d, x, s, a->y + p * out);
        return;
    }
    max_plane(d, x, s, a, p * out);
}

static void backward_plane(const ct_pool_desc *d, const ct_pool_args *a, int64_t p,
                           const scratch *s)
{
    int64_t out = d->oh * d->ow, in = d->h * d->w;
    const float *dy = a->dy + p * out;
    float *dx = a->dx + p * in;

    if (d->method == CT_POOL_AVE)
        ave_back_plane(d, dy, s, dx);
    else
        max_back_plane(d, a, p * out, dx);
}

static ct_status run(const ct_pool_desc *d, ct_exec *ex, const ct_pool_args *a)
{
    int64_t nw = d->n_thread;
    ct_status polled = CT_OK;

#pragma omp parallel for num_threads(d->n_thread) schedule(static, 1)
    for (int64_t v = 0; v < nw; v++) {
        scratch s = scratch_of(d, a, v);

        for (int64_t p = d->planes * v / nw; p < d->planes * (v + 1) / nw; p++) {
            if (a->dx == NULL)
                forward_plane(d, a, p, &s);
            else
                backward_plane(d, a, p, &s);
            ct_engine_poll(ex, &polled);
        }
    }
    return polled;
}

/* places in a plane are 32-bit */
static bool supports(const ct_pool_desc *d)
{
    return ct_pool_on_cpu(d) && (d->block == 0) && (d->h * d->w < FAR) && (d->kw < FAR);
}

const ct_pool_impl ct_pool_simd_forward = {
    .name = "simd", .supports = supports, .workspace = workspace, .run = run
};
const ct_pool_impl ct_pool_simd_backward = {
    .name = "simd", .supports = supports, .workspace = workspace, .run = run
};
