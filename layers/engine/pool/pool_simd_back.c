/* Backward pooling of planes in plain order. Each row of the plane gathers from the rows of outputs
 * whose windows meet it: column c = l + pw of the padded plane is column o + t sw of the windows of
 * outputs u - t, where c = u sw + o. So for each remainder o there is a row of sums over
 * consecutive outputs, and the rows of all remainders are woven into one. A place is written once.
 */
#include "framework/base/memory.h"
#include "framework/base/stream.h"
#include "layers/engine/pool/pool_cpu.h"

enum { MOST_WINDOWS = 16 }; /* over one place: with more, what each window took is added to it */

/* A worker's. Rows of outputs have `left` zeros, which no mask points to, before and after them. */
typedef struct scratch {
    float *g;       /* ring of gradients; AVE: over the number of places */
    int32_t *at;    /* MAX: ring of the places taken, columns counted from the window's own left */
    float *sum;     /* AVE: the sum of the rows that meet */
    float *woven;   /* [remainder][u], then the padded row */
    float *columns; /* AVE: columns of its windows, with the padding   */
    int32_t *shift; /* MAX: columns of its windows that lie left of the plane */
} scratch;

/* The last tap t of remainder o; -1: no window has such a column. */
CT_SIMD_PART int last_tap(int kw, int sw, int o)
{
    return (o < kw) ? (kw - 1 - o) / sw : -1;
}

/* Outputs before u that reach it. */
static inline int64_t left_of(const ct_pool_desc *d)
{
    return (d->kw - 1) / d->sw;
}

static inline int64_t u_lanes(const ct_pool_desc *d)
{
    int64_t u = (d->w + d->pw - 1) / d->sw + 1;

    return ct_pool_lanes((u > d->ow) ? u : d->ow);
}

static inline int64_t row_floats(const ct_pool_desc *d)
{
    return ct_pool_lanes(left_of(d) + u_lanes(d));
}

static inline int64_t ring_rows(const ct_pool_desc *d)
{
    int64_t rows = (d->kh + d->sh - 1) / d->sh;

    return (rows < d->oh) ? rows : d->oh;
}

static bool gathers(const ct_pool_desc *d)
{
    int64_t windows = ((d->kh + d->sh - 1) / d->sh) * ((d->kw + d->sw - 1) / d->sw);

    return (d->method == CT_POOL_AVE) || ((windows <= MOST_WINDOWS) && (d->kw <= d->w));
}

static int64_t scratch_floats(const ct_pool_desc *d)
{
    int64_t row = row_floats(d);
    int64_t n = (2 * ring_rows(d) + 3) * row + 2 * d->sw * u_lanes(d);

    return (int64_t)ct_align_up((size_t)n * sizeof(float)) / (int64_t)sizeof(float);
}

static size_t workspace(const ct_pool_desc *d)
{
    if (ct_pool_is_step1_same(d)) return (size_t)d->n_thread * ct_pool_step1_flat_bytes(d);
    return gathers(d) ? (size_t)(d->n_thread * scratch_floats(d)) * sizeof(float) : 0;
}

static scratch scratch_of(const ct_pool_desc *d, const ct_pool_args *a, int64_t v)
{
    int64_t row = row_floats(d), ring = ring_rows(d) * row;
    scratch s = { .g = (float *)a->work + v * scratch_floats(d) };

    s.at = (int32_t *)(s.g + ring);
    s.sum = s.g + 2 * ring;
    s.columns = s.sum + row;
    s.shift = (int32_t *)(s.columns + row);
    s.woven = s.columns + 2 * row;
    memset(s.g, 0, (size_t)(s.woven - s.g) * sizeof(float));
    for (int64_t j = 0; j < d->ow; j++) {
        int64_t left, right, n;

        ct_pool_window(j, d->kw, d->sw, d->pw, d->w, &left, &right, &n);
        s.columns[j] = (float)n;
        s.shift[j] = (int32_t)(left - (j * d->sw - d->pw));
    }
    return s;
}

/* ---- rows of outputs, into the ring */

CT_SIMD_PART void take_max_row(const ct_pool_desc *d, const scratch *s, const ct_pool_args *a,
                               int64_t o, int64_t slot)
{
    int64_t left = left_of(d), at = slot * row_floats(d) + left;

    memcpy(s->g + at, a->dy + o, (size_t)d->ow * sizeof(float));
    if (ct_pool_mask_bytes(d) == 1) { /* none is beyond all places, with any shift */
        const uint8_t *mask = (const uint8_t *)a->mask + o;

#pragma omp simd
        for (int64_t j = 0; j < d->ow; j++) s->at[at + j] = mask[j] + s->shift[j];
    } else {
        const int32_t *mask = (const int32_t *)a->mask + o;

#pragma omp simd
        for (int64_t j = 0; j < d->ow; j++)
            s->at[at + j] = (mask[j] < 0) ? mask[j] : mask[j] + s->shift[j];
    }
}

CT_SIMD_PART void take_ave_row(const ct_pool_desc *d, const scratch *s, const float *dy,
                               int64_t rows, int64_t slot)
{
    float *to = s->g + slot * row_floats(d) + left_of(d);

#pragma omp simd
    for (int64_t j = 0; j < d->ow; j++) to[j] = dy[j] / ((float)rows * s->columns[j]);
}

/* Numbers _i and on of two vectors in turns. */
#define WOVEN(_i)                                                                                  \
    (_i), (_i) + CT_POOL_LANES, (_i) + 1, (_i) + CT_POOL_LANES + 1, (_i) + 2,                      \
        (_i) + CT_POOL_LANES + 2, (_i) + 3, (_i) + CT_POOL_LANES + 3

/* ---- rows of the plane: outputs [from, to) meet row k */

CT_SIMD_PART void gather_max(const ct_pool_desc *d, const scratch *s, int64_t k, int64_t from,
                             int64_t to, int kw, int sw, float *sums)
{
    int64_t row = row_floats(d), n_ring = ring_rows(d), lanes = u_lanes(d);
    int64_t left = left_of(d), pitch = ct_pool_pitch(d);

    for (int o = 0; o < sw; o++, sums += lanes) {
        for (int64_t u = 0; u < lanes; u += CT_POOL_LANES) {
            ct_pool_vec sum = { 0 };
            int64_t slot = from % n_ring;

            for (int64_t i = from; i < to; i++) {
                int64_t top = (i * d->sh > d->ph) ? i * d->sh - d->ph : 0;
                int64_t at = slot * row + left + u;
                int place = (int)((k - top) * pitch);

                _Pragma("GCC unroll 3") for (int t = last_tap(kw, sw, o); t >= 0; t--)
                {
                    ct_pool_num hit = *(const ct_pool_num *)(s->at + at - t) == place + o + t * sw;

                    sum += (ct_pool_vec)(hit & *(const ct_pool_num *)(s->g + at - t));
                }
                slot = (slot + 1 < n_ring) ? slot + 1 : 0;
            }
            *(ct_pool_vec *)(sums + u) = sum;
        }
    }
}

CT_SIMD_PART void gather_ave(const ct_pool_desc *d, const scratch *s, int64_t from, int64_t to,
                             int kw, int sw, float *sums)
{
    int64_t row = row_floats(d), n_ring = ring_rows(d), lanes = u_lanes(d), left = left_of(d);

    for (int64_t j = 0; j < row; j += CT_POOL_LANES) {
        int64_t slot = from % n_ring;
        ct_pool_vec sum = { 0 };

        for (int64_t i = from; i < to; i++) {
            sum += *(const ct_pool_vec *)(s->g + slot * row + j);
            slot = (slot + 1 < n_ring) ? slot + 1 : 0;
        }
        *(ct_pool_vec *)(s->sum + j) = sum;
    }
    for (int o = 0; o < sw; o++, sums += lanes) {
        for (int64_t u = 0; u < lanes; u += CT_POOL_LANES) {
            ct_pool_vec sum = { 0 };

            _Pragma("GCC unroll 3") for (int t = last_tap(kw, sw, o); t >= 0; t--) sum +=
                *(const ct_pool_vec *)(s->sum + left + u - t);
            *(ct_pool_vec *)(sums + u) = sum;
        }
    }
}

/* Both of windows of `kw`, 2 or 3, columns and step 2, of `n` rows of outputs, 0 to 2: columns
 * of both remainders at once, woven into the padded row. */
CT_SIMD_PART void gather_pairs(const ct_pool_desc *d, const scratch *s, int64_t k, int64_t from,
                               const bool max, const int n, const int kw, float *line)
{
    int64_t lanes = u_lanes(d);
    const float *g[2];
    const int32_t *at[2];
    int place[2];

    for (int i = 0; i < n; i++) {
        int64_t first = (from + i) * d->sh - d->ph;
        int64_t begin = (from + i) % ring_rows(d) * row_floats(d) + left_of(d);

        g[i] = s->g + begin;
        at[i] = s->at + begin;
        place[i] = (int)((k - ((first > 0) ? first : 0)) * ct_pool_pitch(d));
    }
    for (int64_t u = 0; u < lanes; u += CT_POOL_LANES) {
        ct_pool_vec even = { 0 }, odd = { 0 }, before = { 0 };

        _Pragma("GCC unroll 2") for (int i = 0; i < n; i++)
        {
            if (!max) {
                if (kw == 3) before += *(const ct_pool_vec *)(g[i] + u - 1);
                odd += *(const ct_pool_vec *)(g[i] + u);
                continue;
            }
            ct_pool_num here = *(const ct_pool_num *)(at[i] + u);
            ct_pool_num took = *(const ct_pool_num *)(g[i] + u);

            if (kw == 3) {
                ct_pool_num hit = *(const ct_pool_num *)(at[i] + u - 1) == place[i] + 2;

                even += (ct_pool_vec)(hit & *(const ct_pool_num *)(g[i] + u - 1));
            }
            even += (ct_pool_vec)((here == place[i]) & took);
            odd += (ct_pool_vec)((here == place[i] + 1) & took);
        }
        if (!max) even = odd;
        if (!max && (kw == 3)) even += before;
        *(ct_pool_vec *)(line + 2 * u) = CT_POOL_MIXED(even, odd, WOVEN(0));
        *(ct_pool_vec *)(line + 2 * u + CT_POOL_LANES) =
            CT_POOL_MIXED(even, odd, WOVEN(CT_POOL_LANES / 2));
    }
}

CT_SIMD_PART void gather_by_two(const ct_pool_desc *d, const scratch *s, const bool max, int64_t k,
                                int64_t from, int64_t to, float *line)
{
    const bool three = (d->kw == 3);

    if ((to - from == 2) && three)
        gather_pairs(d, s, k, from, max, 2, 3, line);
    else if (to - from == 2)
        gather_pairs(d, s, k, from, max, 2, 2, line);
    else if ((to - from == 1) && three)
        gather_pairs(d, s, k, from, max, 1, 3, line);
    else
        gather_pairs(d, s, k, from, max, (to - from == 1) ? 1 : 0, 2, line);
}

/* A row of the plane from the padded one. */
CT_SIMD_PART void put_line(const ct_pool_desc *d, const float *line, bool stream, float *dx)
{
    if (stream)
        ct_stream_copy(d->w, line + d->pw, dx);
    else
        memcpy(dx, line + d->pw, (size_t)d->w * sizeof(float));
}

/* line[l] = sums[l % sw][l / sw] */
CT_SIMD_PART void weave(const ct_pool_desc *d, const float *sums, float *line)
{
    int64_t lanes = u_lanes(d), sw = d->sw;
    const float *odd = sums + lanes;

    if (sw == 1) return; /* it is the row */
    if (sw == 2) {
#pragma omp simd
        for (int64_t u = 0; u < lanes; u++) {
            line[2 * u] = sums[u];
            line[2 * u + 1] = odd[u];
        }
    } else {
        for (int64_t o = 0; o < sw; o++) {
            for (int64_t u = 0; u < lanes; u++) line[u * sw + o] = sums[o * lanes + u];
        }
    }
}

/* Whether rows of outputs that meet a row of the plane are few enough for gather_by_two(). */
static inline bool by_two(const ct_pool_desc *d)
{
    return (d->sw == 2) && (d->kh <= 2 * d->sh) && ((d->kw == 2) || (d->kw == 3));
}

/* The plane's outputs begin at o. stream: dx passes the caches by. */
CT_SIMD_PART void back_plane(const ct_pool_desc *d, const ct_pool_args *a, int64_t o,
                             const scratch *s, bool max, bool stream, float *dx)
{
    int64_t next = 0, lanes = u_lanes(d), from = 0;
    float *line = (d->sw == 1) ? s->woven : s->woven + d->sw * lanes;

    for (int64_t k = 0; k < d->h; k++, dx += d->w) {
        int64_t to = (k + d->ph) / d->sh + 1;

        if (to > d->oh) to = d->oh;
        while ((from < to) && (from * d->sh - d->ph + d->kh <= k)) from++;
        for (next = (next > from) ? next : from; next < to; next++) {
            int64_t top, bottom, rows;

            ct_pool_window(next, d->kh, d->sh, d->ph, d->h, &top, &bottom, &rows);
            if (max)
                take_max_row(d, s, a, o + next * d->ow, next % ring_rows(d));
            else
                take_ave_row(d, s, a->dy + o + next * d->ow, rows, next % ring_rows(d));
        }
        if (by_two(d)) {
            gather_by_two(d, s, max, k, from, to, line);
            put_line(d, line, stream, dx);
            continue;
        }
        if (!max)
            gather_ave(d, s, from, to, (int)d->kw, (int)d->sw, s->woven);
        else
            gather_max(d, s, k, from, to, (int)d->kw, (int)d->sw, s->woven);
        weave(d, s->woven, line);
        put_line(d, line, stream, dx);
    }
}

/* What each window took, added to its place. */
static void scatter_plane(const ct_pool_desc *d, const ct_pool_args *a, int64_t o, float *dx)
{
    int64_t pitch = ct_pool_pitch(d);

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

CT_SIMD_CLONES static void run_plane(const ct_pool_desc *d, const ct_pool_args *a, int64_t p,
                                     bool stream, const scratch *s)
{
    int64_t in = d->h * d->w, o = p * d->oh * d->ow;
    float *dx = a->dx + p * in;

    if (ct_pool_is_global(d) && (d->method == CT_POOL_AVE)) {
        float each = a->dy[p] / (float)in;

        for (int64_t i = 0; i < in; i++) dx[i] = each;
    } else if (d->method == CT_POOL_MAX) {
        back_plane(d, a, o, s, true, stream, dx);
    } else {
        back_plane(d, a, o, s, false, stream, dx);
    }
}

static ct_status run(const ct_pool_desc *d, ct_exec *ex, const ct_pool_args *a)
{
    int64_t nw = d->n_thread;
    bool gather = gathers(d);
    bool stream = (d->w % 16 == 0) &&
                  ct_stream_pays(a->dx, (size_t)(d->planes * d->h * d->w) * sizeof(float));
    ct_status polled = CT_OK;

    if (ct_pool_is_step1_same(d)) return ct_pool_step1_run(d, ex, a);

#pragma omp parallel for num_threads(d->n_thread) schedule(static, 1)
    for (int64_t v = 0; v < nw; v++) {
        scratch s = { 0 };

        if (gather) s = scratch_of(d, a, v);
        for (int64_t p = d->planes * v / nw; p < d->planes * (v + 1) / nw; p++) {
            if (gather)
                run_plane(d, a, p, stream, &s);
            else
                scatter_plane(d, a, p * d->oh * d->ow, a->dx + p * d->h * d->w);
            ct_engine_poll(ex, &polled);
        }
        ct_stream_end();
    }
    return polled;
}

const ct_pool_impl ct_pool_simd_backward = {
    .name = "simd", .supports = ct_pool_simd_supports, .workspace = workspace, .run = run
};
