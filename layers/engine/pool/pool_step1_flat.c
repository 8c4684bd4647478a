/* Windows of 3 x 3 and step 1, padded by 1, over planes in plain order, or small ones of blocks:
 * some rows at a time as one flat array. What that makes of neighbours in two rows is put right for
 * the first and the last column. */
#include "framework/base/memory.h"
#include "framework/base/stream.h"
#include "layers/engine/pool/pool_step1.h"

#include <math.h>

enum {
    CHUNK = 2048,
    GUARD = 16
}; /* numbers of rows taken at once; numbers around a thread's rows */

/* A thread's, each of the rows at once and one before and behind them. */
typedef struct room {
    float *rows; /* MAX forward: scanned; AVE: sums of columns; MAX backward: gradients */
    float *made; /* AVE: what is written                                                */
    uint8_t *at; /* MAX: places                                                         */
} room;

/* Numbers of a place, and of a row. */
static inline int64_t step_of(const ct_pool_desc *d)
{
    return (d->block > 0) ? d->block : 1;
}
static inline int64_t row_of(const ct_pool_desc *d)
{
    return d->w * step_of(d);
}

static int64_t rows_at_once(const ct_pool_desc *d)
{
    int64_t rows = (row_of(d) < CHUNK) ? CHUNK / row_of(d) : 1;

    return ((rows < d->h) && (d->block == 0)) ? rows : d->h;
}

static int64_t room_numbers(const ct_pool_desc *d)
{
    return (int64_t)ct_align_up((size_t)((rows_at_once(d) + 2) * row_of(d) + 2 * GUARD));
}

size_t ct_pool_step1_flat_bytes(const ct_pool_desc *d)
{
    return (size_t)room_numbers(d) * (2 * sizeof(float) + 1);
}

static room make_room(const ct_pool_desc *d, void *at)
{
    int64_t n = room_numbers(d);
    float *first = at;
    uint8_t *bytes = (uint8_t *)(first + 2 * n);

    return (room){ first + GUARD, first + n + GUARD, bytes + GUARD };
}

/* Part 0 or 1 of 2 of the rows that come after row k. */
static ct_pool_soon half_chunk(const ct_pool_desc *d, const float *x, int64_t k, int part)
{
    int64_t n = rows_at_once(d) * row_of(d) / 2;

    return (ct_pool_soon){ x + k * row_of(d) + part * n, n };
}

/* Of outputs [*from_p, end) those that read equally many rows, which begin at row *top_p. */
static int64_t alike(const ct_pool_desc *d, int64_t from, int64_t end, int64_t *top_p, int *count_p)
{
    *top_p = (from > 0) ? from - 1 : 0;
    *count_p = ((from == 0) || (from == d->h - 1)) ? 2 : 3;
    if (*count_p == 2) return from + 1;
    return (end < d->h) ? end : d->h - 1;
}

/* ---- MAX forward: row k of the plane is row k - i + 1 of the room, outputs beginning with row i
 */

static bool is_more(float v, float most)
{
    return (v > most) || isnan(v);
}

static void scan_rows(const ct_pool_desc *d, const room *r, const float *x, bool nan, int64_t i,
                      int64_t from, int64_t to)
{
    int64_t w = row_of(d), b = step_of(d), last = w - b, n = (to - from) * w;
    float *best = r->rows + (from - i + 1) * w;
    uint8_t *at = r->at + (from - i + 1) * w;

    if (n == 0) return;
    ct_pool_step1_scan(n - 2 * b, b, nan, x + from * w + b, best + b, at + b,
                       half_chunk(d, x, to, 0));
    for (int64_t k = 0; k < to - from; k++, best += w, at += w) {
        const float *row = x + (from + k) * w;

        for (int64_t c = 0; c < b; c++) {
            bool left = is_more(row[c + b], row[c]);
            bool right = is_more(row[last + c], row[last - b + c]);

            best[c] = left ? row[c + b] : row[c];
            at[c] = left ? 1 : 0;
            best[last + c] = right ? row[last + c] : row[last - b + c];
            at[last + c] = right ? 1 : 0;
        }
    }
}

static void max_plane(const ct_pool_desc *d, const room *r, const float *x, ct_pool_sink y,
                      uint8_t *mask)
{
    int64_t w = row_of(d), step = rows_at_once(d), end;
    bool nan_before = false;

    for (int64_t i = 0; i < d->h; i = end) {
        int64_t from = (i > 0) ? i + 1 : 0, to;
        bool nan, any;

        end = (i + step < d->h) ? i + step : d->h;
        to = (end < d->h) ? end + 1 : d->h;
        if (from > to) from = to;
        if (i > 0) { /* rows i - 1 and i */
            memmove(r->rows, r->rows + step * w, (size_t)(2 * w) * sizeof(float));
            memmove(r->at, r->at + step * w, (size_t)(2 * w));
        }
        /* NaNs are rare: rows are scanned as if there were none, and anew where there is one */
        scan_rows(d, r, x, false, i, from, to);
        nan = ct_pool_step1_nan((to - from) * w, x + from * w);
        if (nan) scan_rows(d, r, x, true, i, from, to);
        any = nan || nan_before;
        for (int64_t k = i, last, top; k < end; k = last) {
            const float *best[CT_POOL_STEP1];
            const uint8_t *at[CT_POOL_STEP1];
            int count;

            last = alike(d, k, end, &top, &count);
            for (int e = 0; e < count; e++)
                best[e] = r->rows + (top + e - i + 1) * w, at[e] = r->at + (top + e - i + 1) * w;
            ct_pool_step1_join((last - k) * w, count, d->relu, any, best, at,
                               (ct_pool_sink){ y.at + k * w, false, y.stream },
                               (mask != NULL) ? mask + k * w : NULL,
                               (count == 3) ? half_chunk(d, x, to, 1) : (ct_pool_soon){ x, 0 });
        }
        nan_before = nan;
    }
}

/* ---- AVE, forward and backward (pool_step1_blocked.c) */

static void mean_plane(const ct_pool_desc *d, const room *r, const float *x, ct_pool_sink y)
{
    const float ninth = CT_POOL_STEP1 * CT_POOL_STEP1;
    int64_t w = row_of(d), b = step_of(d), step = rows_at_once(d), end;

    for (int64_t i = 0; i < d->h; i = end) {
        end = (i + step < d->h) ? i + step : d->h;
        for (int64_t k = i, last, top; k < end; k = last) {
            const float *rows[CT_POOL_STEP1];
            int count;

            last = alike(d, k, end, &top, &count);
            for (int e = 0; e < count; e++) rows[e] = x + (top + e) * w;
            ct_pool_step1_add((last - k) * w, count, rows, r->rows + (k - i) * w,
                              (count == 3) ? half_chunk(d, x, end + 1, 0) : (ct_pool_soon){ x, 0 });
        }
        ct_pool_step1_mean((end - i) * w, b, r->rows, (ct_pool_sink){ r->made, false, false },
                           half_chunk(d, x, end + 1, 1));
        for (int64_t k = 0; k < end - i; k++) {
            const float *sum = r->rows + k * w, *last = sum + w - b;
            float *made = r->made + k * w;

            for (int64_t c = 0; c < b; c++) {
                made[c] = (sum[c] + sum[c + b]) / ninth;
                made[w - b + c] = (last[c - b] + last[c]) / ninth;
            }
        }
        ct_pool_sink_put((ct_pool_sink){ y.at + i * w, false, y.stream }, (end - i) * w, r->made);
    }
}

/* ---- MAX backward: counted as if no window were cut, no place of the last column lies right of
 * it, and none of the first one left of it, so that a neighbour in another row is never taken */

/* Rows [i - 1, end + 1) of the outputs' places; those that there are not have none. */
static void take_rows(const ct_pool_desc *d, const room *r, const uint8_t *mask, int64_t i,
                      int64_t end)
{
    int64_t w = row_of(d), from = (i > 0) ? i - 1 : 0, to = (end < d->h) ? end + 1 : d->h;
    uint8_t *at = r->at + (from - i + 1) * w;

    memset(r->at - GUARD, CT_POOL_BYTE_NONE, (size_t)((end - i + 2) * w + 2 * GUARD));
    memcpy(at, mask + from * w, (size_t)((to - from) * w));
    for (int64_t k = 0; k < to - from; k++) {
        for (int64_t j = k * w; j < k * w + step_of(d); j++)
            at[j] += (at[j] != CT_POOL_BYTE_NONE) ? 1 : 0;
    }
    for (int64_t j = 0; (from == 0) && (j < w); j++)
        at[j] += (at[j] != CT_POOL_BYTE_NONE) ? CT_POOL_STEP1 : 0;
}

static const float *take_gradients(const ct_pool_desc *d, const room *r, const float *dy, int64_t i,
                                   int64_t end)
{
    int64_t w = row_of(d), from = (i > 0) ? i - 1 : 0, to = (end < d->h) ? end + 1 : d->h;

    if ((i > 1) && (end + 1 < d->h)) return dy + from * w; /* with what stands around them */
    memset(r->rows - GUARD, 0, (size_t)((end - i + 2) * w + 2 * GUARD) * sizeof(float));
    memcpy(r->rows + (from - i + 1) * w, dy + from * w, (size_t)((to - from) * w) * sizeof(float));
    return r->rows;
}

static void back_plane(const ct_pool_desc *d, const room *r, const float *dy, const uint8_t *mask,
                       ct_pool_sink dx)
{
    int64_t w = row_of(d), step = rows_at_once(d), end;

    for (int64_t i = 0; i < d->h; i = end) {
        const float *g[CT_POOL_STEP1];
        const uint8_t *at[CT_POOL_STEP1];
        ct_pool_soon soon;

        end = (i + step < d->h) ? i + step : d->h;
        soon = half_chunk(d, dy, end + 1, 0), soon.n *= 2;
        take_rows(d, r, mask, i, end);
        g[0] = take_gradients(d, r, dy, i, end);
        for (int e = 0; e < CT_POOL_STEP1; e++) g[e] = g[0] + e * w, at[e] = r->at + e * w;
        ct_pool_step1_gather((end - i) * w, step_of(d), g, at,
                             (ct_pool_sink){ dx.at + i * w, false, dx.stream }, soon);
    }
}

void ct_pool_step1_flat(const ct_pool_desc *d, bool stream, void *work, const float *x, float *y,
                        uint8_t *mask, const float *dy, float *dx)
{
    room r = make_room(d, work);
    bool back = (dx != NULL);
    ct_pool_sink to = { back ? dx : y, false, stream };

    if (d->method == CT_POOL_AVE)
        mean_plane(d, &r, back ? dy : x, to);
    else if (!back)
        max_plane(d, &r, x, to, mask);
    else
        back_plane(d, &r, dy, mask, to);
}

ct_status ct_pool_step1_run(const ct_pool_desc *d, ct_exec *ex, const ct_pool_args *a)
{
    bool back = (a->dx != NULL);
    int64_t area = d->h * d->w, nw = d->n_thread; /* as many outputs */
    bool stream = ct_stream_pays(back ? a->dx : a->y, (size_t)(d->planes * area) * sizeof(float));
    ct_status polled = CT_OK;

#pragma omp parallel for num_threads(d->n_thread) schedule(static, 1)
    for (int64_t v = 0; v < nw; v++) {
        char *own = (char *)a->work + (size_t)v * ct_pool_step1_flat_bytes(d);

        for (int64_t p = d->planes * v / nw; p < d->planes * (v + 1) / nw; p++) {
            int64_t at = p * area;

            ct_pool_step1_flat(d, stream, own, back ? NULL : a->x + at, back ? NULL : a->y + at,
                               (a->mask != NULL) ? (uint8_t *)a->mask + at : NULL,
                               back ? a->dy + at : NULL, back ? a->dx + at : NULL);
            ct_engine_poll(ex, &polled);
        }
        if (stream) ct_stream_end();
    }
    return polled;
}
