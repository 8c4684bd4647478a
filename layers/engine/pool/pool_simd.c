/* Forward pooling of planes in plain order. Each row of the plane is pooled along the columns once:
 * of every output's window the part in this row. Outputs then take as many of these rows as their
 * windows are high, so a window costs kh + kw steps. Both are loops over vectors. Planes are dealt
 * out to the threads.
 *
 * Of equal elements the first in row-major order wins: along a row the first, and of the rows too.
 * A NaN counts as larger than any number and than a NaN before it, since a diverged net must show:
 * rows that hold one are noticed, and go by comparisons that see it. */
#include "framework/base/memory.h"
#include "layers/engine/pool/pool_simd.h"
#include "layers/engine/pool/pool_step1.h"

#include <math.h>

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

CT_SIMD_PART void max_rows(const ct_pool_desc *d, const scratch *s, const bool nan, int64_t top,
                           int64_t bottom)
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

        to[j] = (float)((top + s->mask[j] / pitch) * d->w + left + s->mask[j] % pitch);
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
            max_rows(d, s, true, top, bottom);
        else
            max_rows(d, s, false, top, bottom);
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
