/* Pooling of planes in plain order by vectors, forward. */
#include "layers/engine/pool/pool_cpu.h"

#include <math.h>
#include <stdbool.h>

#include "framework/base/memory.h"

/* ---- Maxima of windows two columns apart in planes in plain order: a vector of outputs takes the
 * columns of its windows straight from the rows, the even and the odd ones of two vectors at a
 * time.
 */

/* Numbers that are asked for ahead of those that are read. */
enum { AHEAD = 2048 };

typedef uint8_t lane_bytes __attribute__((vector_size(CT_POOL_LANES), aligned(1), may_alias));

/* Every other number of two vectors. */
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define ODD  1, 3, 5, 7, 9, 11, 13, 15

/* Outputs [first, end) have their whole window in the plane. */
static inline int64_t first_whole(const ct_pool_desc *d)
{
    return (d->pw + 1) / 2;
}
static inline int64_t end_whole(const ct_pool_desc *d)
{
    int64_t end = (d->w + d->pw - d->kw) / 2 + 1;

    return (end < d->ow) ? end : d->ow;
}

bool ct_pool_is_step2(const ct_pool_desc *d)
{
    return (d->sw == 2) && ((d->kw == 2) || (d->kw == 3)) && (d->w >= d->kw) &&
           (end_whole(d) - first_whole(d) >= CT_POOL_LANES) && (ct_pool_mask_bytes(d) == 1);
}

/* The largest so far of some windows, and their places. */
typedef struct found {
    ct_pool_vec best;
    ct_pool_num at;
} found;

CT_SIMD_PART void take(found *f, const ct_pool_vec *v_p, int place, const bool nan)
{
    ct_pool_vec v = *v_p;
    ct_pool_num more = v > f->best, here = (ct_pool_num){ 0 } + place;

    if (nan) more |= (v != v);
    f->best = (ct_pool_vec)((more & (ct_pool_num)v) | (~more & (ct_pool_num)f->best));
    f->at = (more & here) | (~more & f->at);
}

/* Outputs j to j + CT_POOL_LANES of a row; x: the first of its windows' n rows. */
CT_SIMD_PART void max_some(const ct_pool_desc *d, const int kw, const bool nan, int64_t n,
                           const float *x, int64_t j, float *y, uint8_t *mask)
{
    found f = { (ct_pool_vec){ 0 } - INFINITY, { 0 } };
    int pitch = (int)ct_pool_pitch(d);

    for (int64_t r = 0; r < n; r++) {
        const float *row = x + r * d->w + 2 * j - d->pw;
        ct_pool_vec low = *(const ct_pool_vec *)row;
        ct_pool_vec high = *(const ct_pool_vec *)(row + CT_POOL_LANES);
        ct_pool_vec first = CT_POOL_MIXED(low, high, EVEN);
        ct_pool_vec second = CT_POOL_MIXED(low, high, ODD);

        take(&f, &first, (int)r * pitch, nan);
        take(&f, &second, (int)r * pitch + 1, nan);
        if (kw == 3) {
            ct_pool_vec third;

            low = *(const ct_pool_vec *)(row + 1);
            high = *(const ct_pool_vec *)(row + CT_POOL_LANES + 1);
            third = CT_POOL_MIXED(low, high, ODD);
            take(&f, &third, (int)r * pitch + 2, nan);
        }
    }
    if (d->relu) {
        f.at |= ~(ct_pool_num)(f.best > 0.0f);
        f.best = (ct_pool_vec)(~(ct_pool_num)(f.best < 0.0f) & (ct_pool_num)f.best);
    }
    *(ct_pool_vec *)(y + j) = f.best;
    if (mask != NULL) *(lane_bytes *)(mask + j) = __builtin_convertvector(f.at, lane_bytes);
}

/* Output j, whose window the plane's edge may cut. */
static void max_one(const ct_pool_desc *d, int64_t n, const float *x, int64_t j, float *y,
                    uint8_t *mask)
{
    int64_t left, right, columns;
    float best = -INFINITY;
    int at = 0;

    ct_pool_window(j, d->kw, 2, d->pw, d->w, &left, &right, &columns);
    for (int64_t r = 0; r < n; r++) {
        for (int64_t c = left; c < right; c++) {
            float v = x[r * d->w + c];
            bool more = (v > best) | (v != v); /* no branches: nothing tells which way they go */

            best = more ? v : best;
            at = more ? (int)(r * ct_pool_pitch(d) + c - left) : at;
        }
    }
    if (d->relu && !(best > 0.0f)) at = CT_POOL_BYTE_NONE;
    if (d->relu && (best < 0.0f)) best = 0.0f;
    y[j] = best;
    if (mask != NULL) mask[j] = (uint8_t)at;
}

/* A row of outputs; the last vector may begin among those of the one before. */
CT_SIMD_PART void max_row(const ct_pool_desc *d, const int kw, const bool nan, int64_t n,
                          const float *x, float *y, uint8_t *mask)
{
    int64_t first = first_whole(d), end = end_whole(d), j = first;

    for (int64_t k = 0; k < first; k++) max_one(d, n, x, k, y, mask);
    for (; j + CT_POOL_LANES <= end; j += CT_POOL_LANES) max_some(d, kw, nan, n, x, j, y, mask);
    if (j < end) max_some(d, kw, nan, n, x, end - CT_POOL_LANES, y, mask);
    for (int64_t k = end; k < d->ow; k++) max_one(d, n, x, k, y, mask);
}

CT_SIMD_PART void step2_max_rows(const ct_pool_desc *d, const int kw, const float *x, float *y,
                                 uint8_t *mask)
{
    int64_t next = 0, nan = -1; /* the next row to look at; the last one that holds a NaN */

    for (int64_t i = 0; i < d->oh; i++, y += d->ow, mask += (mask != NULL) ? d->ow : 0) {
        int64_t top, bottom, rows;

        ct_pool_window(i, d->kh, d->sh, d->ph, d->h, &top, &bottom, &rows);
        for (next = (next > top) ? next : top; next < bottom; next++) {
            const float *row = x + next * d->w;

            for (int64_t k = 0; k < d->w; k += 16) __builtin_prefetch(row + AHEAD + k, 0, 2);
            if (ct_pool_holds_nan(d->w, row)) nan = next;
        }
        if (nan >= top)
            max_row(d, kw, true, bottom - top, x + top * d->w, y, mask);
        else if (bottom - top == 2)
            max_row(d, kw, false, 2, x + top * d->w, y, mask);
        else if (bottom - top == 3)
            max_row(d, kw, false, 3, x + top * d->w, y, mask);
        else
            max_row(d, kw, false, bottom - top, x + top * d->w, y, mask);
    }
}

CT_SIMD_CLONES void ct_pool_step2_max(const ct_pool_desc *d, const float *x, float *y,
                                      uint8_t *mask)
{
    if (d->kw == 3)
        step2_max_rows(d, 3, x, y, mask);
    else
        step2_max_rows(d, 2, x, y, mask);
}

/* ---- Forward pooling of planes in plain order. Each row of the plane is pooled along the columns
 * once: of every output's window the part in this row. Outputs then take as many of these rows as
 * their windows are high, so a window costs kh + kw steps. Both are loops over vectors. Planes are
 * dealt out to the threads.
 *
 * Of equal elements the first in row-major order wins: along a row the first, and of the rows too.
 * A NaN counts as larger than any number and than a NaN before it, since a diverged net must show:
 * rows that hold one are noticed, and go by comparisons that see it. */

/* A worker's. */
typedef struct scratch {
    float *line;     /* a row with its padding, which never wins and adds nothing        */
    float *sorted;   /* its columns by their remainder by the stride                     */
    float *value;    /* ring of pooled rows                                              */
    int32_t *column; /* MAX: columns of their windows where those values stand           */
    bool *has_nan;   /* MAX: of the ring's rows                                          */
    float *best;     /* a row of outputs                                                 */
    int32_t *mask;   /* MAX: its places                                                  */
    float *columns;  /* AVE: columns of its windows, with the padding                    */
    int32_t *shift;  /* MAX: columns of its windows that lie left of the plane           */
} scratch;

static inline int64_t out_lanes(const ct_pool_desc *d)
{
    return ct_pool_lanes(d->ow);
}

/* Columns of one remainder by the stride: what whole vectors of outputs read. */
static inline int64_t sorted_floats(const ct_pool_desc *d)
{
    return ct_pool_lanes(out_lanes(d) + d->kw / d->sw + 1);
}

static inline int64_t line_floats(const ct_pool_desc *d)
{
    int64_t read = sorted_floats(d) * d->sw, plane = ct_pool_lanes(d->pw + d->w);

    return (read > plane) ? read : plane;
}

static inline int64_t ring_rows(const ct_pool_desc *d)
{
    return (d->kh < d->h) ? d->kh : d->h;
}

static int64_t scratch_floats(const ct_pool_desc *d)
{
    int64_t n = 2 * line_floats(d) + ring_rows(d) * (2 * out_lanes(d) + 1) + 4 * out_lanes(d);

    return (int64_t)ct_align_up((size_t)n * sizeof(float)) / (int64_t)sizeof(float);
}

static size_t workspace(const ct_pool_desc *d)
{
    size_t bytes = (size_t)scratch_floats(d) * sizeof(float);

    if (ct_pool_is_step1_same(d) && (ct_pool_step1_flat_bytes(d) > bytes))
        bytes = ct_pool_step1_flat_bytes(d);
    return (size_t)d->n_thread * bytes;
}

static scratch scratch_of(const ct_pool_desc *d, const ct_pool_args *a, int64_t v)
{
    int64_t line = line_floats(d), out = out_lanes(d), ring = ring_rows(d) * out;
    scratch s = { .line = (float *)a->work + v * scratch_floats(d) };

    s.sorted = s.line + line;
    s.value = s.sorted + line;
    s.column = (int32_t *)(s.value + ring);
    s.best = s.value + 2 * ring;
    s.mask = (int32_t *)(s.best + out);
    s.columns = s.best + 2 * out;
    s.shift = (int32_t *)(s.best + 3 * out);
    s.has_nan = (bool *)(s.best + 4 * out);
    for (int64_t j = 0; j < line; j++) s.line[j] = (d->method == CT_POOL_MAX) ? -INFINITY : 0.0f;
    for (int64_t j = 0; j < out; j++) {
        int64_t left, right, n;

        ct_pool_window((j < d->ow) ? j : 0, d->kw, d->sw, d->pw, d->w, &left, &right, &n);
        s.columns[j] = (float)n;
        s.shift[j] = (j < d->ow) ? (int32_t)(left - (j * d->sw - d->pw)) : 0;
    }
    return s;
}

/* to[r][j] = line[j sw + r]: after it every tap reads consecutive values. */
CT_SIMD_PART void sort_columns(int64_t length, int64_t sw, const float *line, float *to)
{
    float *odd = to + length;

    if (sw == 2) {
#pragma omp simd
        for (int64_t j = 0; j < length; j++) {
            to[j] = line[2 * j];
            odd[j] = line[2 * j + 1];
        }
        return;
    }
    for (int64_t r = 0; r < sw; r++) {
        for (int64_t j = 0; j < length; j++) to[r * length + j] = line[j * sw + r];
    }
}

/* Where column q of all windows begins: line, or its sorted columns. */
CT_SIMD_PART const float *tap(const float *from, int64_t length, int64_t sw, int64_t q)
{
    return (sw == 1) ? from + q : from + q % sw * length + q / sw;
}

CT_SIMD_PART void max_taps(int64_t out, int64_t length, int kw, int sw, const bool nan,
                           const float *from, const int32_t *shift, float *value, int32_t *column)
{
    for (int64_t j = 0; j < out; j += CT_POOL_LANES) {
        ct_pool_vec best = (ct_pool_vec){ 0 } - INFINITY;
        ct_pool_num at = *(const ct_pool_num *)(shift + j);

        _Pragma("GCC unroll 3") for (int q = 0; q < kw; q++)
        {
            ct_pool_vec v = *(const ct_pool_vec *)(tap(from, length, sw, q) + j);
            ct_pool_num more = v > best, here = (ct_pool_num){ 0 } + q;

            if (nan) more |= (v != v);
            best = (ct_pool_vec)((more & (ct_pool_num)v) | (~more & (ct_pool_num)best));
            at = (more & here) | (~more & at);
        }
        *(ct_pool_vec *)(value + j) = best;
        *(ct_pool_num *)(column + j) = at;
    }
}

CT_SIMD_PART void sum_taps(int64_t out, int64_t length, int kw, int sw, const float *from,
                           float *value)
{
    for (int64_t j = 0; j < out; j += CT_POOL_LANES) {
        ct_pool_vec sum = *(const ct_pool_vec *)(from + j);

        _Pragma("GCC unroll 3") for (int q = 1; q < kw; q++) sum +=
            *(const ct_pool_vec *)(tap(from, length, sw, q) + j);
        *(ct_pool_vec *)(value + j) = sum;
    }
}

/* One row of the plane, pooled along its columns, into its place in the ring. */
CT_SIMD_PART void pool_row(const ct_pool_desc *d, const scratch *s, bool max, const float *x,
                           int64_t row)
{
    int64_t out = out_lanes(d), length = sorted_floats(d), slot = row % ring_rows(d);
    const float *from = s->line;
    float *value = s->value + slot * out;
    int32_t *column = s->column + slot * out;
    int kw = (int)d->kw, sw = (int)d->sw;

    memcpy(s->line + d->pw, x + row * d->w, (size_t)d->w * sizeof(float));
    if (sw > 1) {
        sort_columns(length, sw, s->line, s->sorted);
        from = s->sorted;
    }
    if (max) s->has_nan[slot] = ct_pool_holds_nan(d->w, x + row * d->w);
    if (max && s->has_nan[slot])
        max_taps(out, length, kw, sw, true, from, s->shift, value, column);
    else if (max && (kw == 3) && (sw == 1))
        max_taps(out, length, 3, 1, false, from, s->shift, value, column);
    else if (max && (kw == 3) && (sw == 2))
        max_taps(out, length, 3, 2, false, from, s->shift, value, column);
    else if (max && (kw == 2) && (sw == 2))
        max_taps(out, length, 2, 2, false, from, s->shift, value, column);
    else if (max)
        max_taps(out, length, kw, sw, false, from, s->shift, value, column);
    else if ((kw == 3) && (sw == 1))
        sum_taps(out, length, 3, 1, from, value);
    else if ((kw == 3) && (sw == 2))
        sum_taps(out, length, 3, 2, from, value);
    else
        sum_taps(out, length, kw, sw, from, value);
}

/* ---- rows of outputs: of rows [top, bottom) of the ring */

CT_SIMD_PART void simd_max_rows(const ct_pool_desc *d, const scratch *s, const bool nan,
                                int64_t top, int64_t bottom)
{
    int64_t out = out_lanes(d), n_ring = ring_rows(d);
    int pitch = (int)ct_pool_pitch(d);

    for (int64_t j = 0; j < out; j += CT_POOL_LANES) {
        int64_t slot = top % n_ring;
        ct_pool_vec best = *(const ct_pool_vec *)(s->value + slot * out + j);
        ct_pool_num at = *(const ct_pool_num *)(s->column + slot * out + j);
        int place = 0;

        for (int64_t r = top + 1; r < bottom; r++) {
            slot = (slot + 1 < n_ring) ? slot + 1 : 0;
            ct_pool_vec v = *(const ct_pool_vec *)(s->value + slot * out + j);
            ct_pool_num more = v > best;
            ct_pool_num here =
                *(const ct_pool_num *)(s->column + slot * out + j) + (place += pitch);

            if (nan) more |= (v != v);
            best = (ct_pool_vec)((more & (ct_pool_num)v) | (~more & (ct_pool_num)best));
            at = (more & here) | (~more & at);
        }
        at -= *(const ct_pool_num *)(s->shift + j);
        if (d->relu) {
            at |= ~(ct_pool_num)(best > 0.0f);
            best = (ct_pool_vec)(~(ct_pool_num)(best < 0.0f) & (ct_pool_num)best);
        }
        *(ct_pool_vec *)(s->best + j) = best;
        *(ct_pool_num *)(s->mask + j) = at;
    }
}

CT_SIMD_PART void sum_rows(const ct_pool_desc *d, const scratch *s, int64_t top, int64_t bottom,
                           int64_t rows)
{
    int64_t out = out_lanes(d), n_ring = ring_rows(d);

    for (int64_t j = 0; j < out; j += CT_POOL_LANES) {
        int64_t slot = top % n_ring;
        ct_pool_vec sum = *(const ct_pool_vec *)(s->value + slot * out + j);

        for (int64_t r = top + 1; r < bottom; r++) {
            slot = (slot + 1 < n_ring) ? slot + 1 : 0;
            sum += *(const ct_pool_vec *)(s->value + slot * out + j);
        }
        *(ct_pool_vec *)(s->best + j) =
            sum / ((float)rows * *(const ct_pool_vec *)(s->columns + j));
    }
}

/* Places in the plane, from those in the windows. */
static void put_places(const ct_pool_desc *d, const scratch *s, int64_t top, float *to)
{
    int64_t pitch = ct_pool_pitch(d);

    for (int64_t j = 0; j < d->ow; j++) {
        int64_t left = j * d->sw - d->pw + s->shift[j];
        int64_t row = top + s->mask[j] / pitch, column = left + s->mask[j] % pitch;

        to[j] = (float)(row * d->w + column);
    }
}

CT_SIMD_PART void put_row(const ct_pool_desc *d, const scratch *s, const ct_pool_args *a, int64_t o)
{
    memcpy(a->y + o, s->best, (size_t)d->ow * sizeof(float));
    if (a->mask == NULL) return;
    if (ct_pool_mask_bytes(d) == 4) {
        memcpy((int32_t *)a->mask + o, s->mask, (size_t)d->ow * sizeof(int32_t));
    } else {
        uint8_t *to = (uint8_t *)a->mask + o;

#pragma omp simd
        for (int64_t j = 0; j < d->ow; j++) to[j] = (uint8_t)s->mask[j];
    }
}

static bool any_nan(const ct_pool_desc *d, const scratch *s, int64_t top, int64_t bottom)
{
    bool any = false;

    for (int64_t r = top; r < bottom; r++) any = any || s->has_nan[r % ring_rows(d)];
    return any;
}

/* The plane's outputs begin at o. */
CT_SIMD_PART void pool_plane(const ct_pool_desc *d, const float *x, const scratch *s, bool max,
                             const ct_pool_args *a, int64_t o)
{
    int64_t next = 0;

    for (int64_t i = 0; i < d->oh; i++, o += d->ow) {
        int64_t top, bottom, rows;

        ct_pool_window(i, d->kh, d->sh, d->ph, d->h, &top, &bottom, &rows);
        for (next = (next > top) ? next : top; next < bottom; next++) pool_row(d, s, max, x, next);
        if (!max) {
            sum_rows(d, s, top, bottom, rows);
            memcpy(a->y + o, s->best, (size_t)d->ow * sizeof(float));
            continue;
        }
        if (any_nan(d, s, top, bottom))
            simd_max_rows(d, s, true, top, bottom);
        else
            simd_max_rows(d, s, false, top, bottom);
        if (a->mask_top != NULL) put_places(d, s, top, a->mask_top + o);
        put_row(d, s, a, o);
    }
}

/* Sixteen sums side by side, in a fixed order. */
CT_SIMD_PART float plane_sum(int64_t n, const float *x)
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

CT_SIMD_CLONES static void run_plane(const ct_pool_desc *d, const ct_pool_args *a, int64_t p,
                                     const scratch *s)
{
    int64_t in = d->h * d->w, out = d->oh * d->ow;

    if ((d->method == CT_POOL_MAX) && ct_pool_is_step2(d) && (a->mask_top == NULL))
        ct_pool_step2_max(d, a->x + p * in, a->y + p * out,
                          (a->mask != NULL) ? (uint8_t *)a->mask + p * out : NULL);
    else if (d->method == CT_POOL_MAX)
        pool_plane(d, a->x + p * in, s, true, a, p * out);
    else if (ct_pool_is_global(d))
        a->y[p] = plane_sum(in, a->x + p * in) / (float)in;
    else
        pool_plane(d, a->x + p * in, s, false, a, p * out);
}

static ct_status run(const ct_pool_desc *d, ct_exec *ex, const ct_pool_args *a)
{
    int64_t nw = d->n_thread;
    ct_status polled = CT_OK;

    if (ct_pool_is_step1_same(d) && (a->mask_top == NULL)) return ct_pool_step1_run(d, ex, a);

#pragma omp parallel for num_threads(d->n_thread) schedule(static, 1)
    for (int64_t v = 0; v < nw; v++) {
        scratch s = scratch_of(d, a, v);

        for (int64_t p = d->planes * v / nw; p < d->planes * (v + 1) / nw; p++) {
            run_plane(d, a, p, &s);
            ct_engine_poll(ex, &polled);
        }
    }
    return polled;
}

const ct_pool_impl ct_pool_simd_forward = {
    .name = "simd", .supports = ct_pool_simd_supports, .workspace = workspace, .run = run
};
