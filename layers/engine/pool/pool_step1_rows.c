/* Windows of 3 x 3 and step 1 over whole planes: some rows as one flat array, and over blocks of
 * channels. */
#include <math.h>

#include "framework/base/memory.h"
#include "framework/base/stream.h"
#include "layers/engine/pool/pool_cpu.h"
#include "framework/base/bf16.h"

/* ---- Windows of 3 x 3 and step 1, padded by 1, over planes in plain order, or small ones of
 * blocks: some rows at a time as one flat array. What that makes of neighbours in two rows is put
 * right for the first and the last column. */

enum {
    CHUNK = 2048,
    GUARD = 16
}; /* numbers of rows taken at once; numbers around a thread's rows */

/* A thread's, each of the rows at once and one before and behind them. */
typedef struct flat_room {
    float *rows; /* MAX forward: scanned; AVE: sums of columns; MAX backward: gradients */
    float *made; /* AVE: what is written                                                */
    uint8_t *at; /* MAX: places                                                         */
} flat_room;

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

static flat_room flat_make_room(const ct_pool_desc *d, void *at)
{
    int64_t n = room_numbers(d);
    float *first = at;
    uint8_t *bytes = (uint8_t *)(first + 2 * n);

    return (flat_room){ first + GUARD, first + n + GUARD, bytes + GUARD };
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

static void scan_rows(const ct_pool_desc *d, const flat_room *r, const float *x, bool nan,
                      int64_t i, int64_t from, int64_t to)
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

static void flat_max_plane(const ct_pool_desc *d, const flat_room *r, const float *x,
                           ct_pool_sink y, uint8_t *mask)
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

/* ---- AVE, forward and backward (pool_step1.c) */

static void flat_mean_plane(const ct_pool_desc *d, const flat_room *r, const float *x,
                            ct_pool_sink y)
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
static void take_rows(const ct_pool_desc *d, const flat_room *r, const uint8_t *mask, int64_t i,
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

static const float *flat_take_gradients(const ct_pool_desc *d, const flat_room *r, const float *dy,
                                        int64_t i, int64_t end)
{
    int64_t w = row_of(d), from = (i > 0) ? i - 1 : 0, to = (end < d->h) ? end + 1 : d->h;

    if ((i > 1) && (end + 1 < d->h)) return dy + from * w; /* with what stands around them */
    memset(r->rows - GUARD, 0, (size_t)((end - i + 2) * w + 2 * GUARD) * sizeof(float));
    memcpy(r->rows + (from - i + 1) * w, dy + from * w, (size_t)((to - from) * w) * sizeof(float));
    return r->rows;
}

static void flat_back_plane(const ct_pool_desc *d, const flat_room *r, const float *dy,
                            const uint8_t *mask, ct_pool_sink dx)
{
    int64_t w = row_of(d), step = rows_at_once(d), end;

    for (int64_t i = 0; i < d->h; i = end) {
        const float *g[CT_POOL_STEP1];
        const uint8_t *at[CT_POOL_STEP1];
        ct_pool_soon soon;

        end = (i + step < d->h) ? i + step : d->h;
        soon = half_chunk(d, dy, end + 1, 0), soon.n *= 2;
        take_rows(d, r, mask, i, end);
        g[0] = flat_take_gradients(d, r, dy, i, end);
        for (int e = 0; e < CT_POOL_STEP1; e++) g[e] = g[0] + e * w, at[e] = r->at + e * w;
        ct_pool_step1_gather((end - i) * w, step_of(d), g, at,
                             (ct_pool_sink){ dx.at + i * w, false, dx.stream }, soon);
    }
}

void ct_pool_step1_flat(const ct_pool_desc *d, bool stream, void *work, const float *x, float *y,
                        uint8_t *mask, const float *dy, float *dx)
{
    flat_room r = flat_make_room(d, work);
    bool back = (dx != NULL);
    ct_pool_sink to = { back ? dx : y, false, stream };

    if (d->method == CT_POOL_AVE)
        flat_mean_plane(d, &r, back ? dy : x, to);
    else if (!back)
        flat_max_plane(d, &r, x, to, mask);
    else
        flat_back_plane(d, &r, dy, mask, to);
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

/* ---- Windows of 3 x 3 and step 1 over planes of blocks, row by row. */

enum { ROWS = CT_POOL_STEP1 };

/* A thread's. Before and behind a row stands a block that belongs to no place. */
typedef struct blocked_room {
    float *ring[ROWS]; /* MAX forward: scanned rows; else rows as f32 */
    float *row;        /* AVE: sums of columns; a row that was bf16   */
    uint8_t *at[ROWS]; /* MAX: places, scanned or taken               */
    bool nan[ROWS];    /* MAX forward: in a row of the plane          */
} blocked_room;

static int64_t row_numbers(const ct_pool_desc *d)
{
    int64_t longest = (d->w > d->ow) ? d->w : d->ow;

    return (int64_t)ct_align_up((size_t)((longest + 2) * d->block));
}

size_t ct_pool_step1_blocked_bytes(const ct_pool_desc *d)
{
    return (size_t)row_numbers(d) * ((ROWS + 1) * sizeof(float) + ROWS);
}

static blocked_room blocked_make_room(const ct_pool_desc *d, void *at)
{
    int64_t n = row_numbers(d), b = d->block;
    float *first = (float *)at + b;
    uint8_t *bytes = (uint8_t *)((float *)at + (ROWS + 1) * n) + b;
    blocked_room r = { .row = first + ROWS * n };

    for (int k = 0; k < ROWS; k++) r.ring[k] = first + k * n, r.at[k] = bytes + k * n;
    return r;
}

/* Part 0 or 1 of 2 of a row that begins at x. */
static ct_pool_soon half_row(const ct_pool_desc *d, const float *x, int part)
{
    int64_t n = d->w * d->block / (d->bf16 ? 4 : 2);

    return (ct_pool_soon){ x + part * n, n };
}

static void fetch_bytes(const uint8_t *at, int64_t n)
{
    for (int64_t i = 0; i < n; i += 64) __builtin_prefetch(at + i, 0, 2);
}

/* Row i of the outputs. */
static ct_pool_sink row_sink(const ct_pool_desc *d, bool stream, float *to, int64_t i)
{
    return (ct_pool_sink){ ct_num_to(to, d->bf16, i * d->ow * d->block), d->bf16, stream };
}

/* ---- MAX forward */

/* Row k of the plane, as f32; soon: what is read behind it. */
static void scan(const ct_pool_desc *d, const float *from, ct_pool_soon soon, bool nan,
                 blocked_room *r, int64_t k)
{
    int64_t b = d->block, last = d->w - ROWS + d->pw;
    float *best = r->ring[k % ROWS];
    uint8_t *at = r->at[k % ROWS];

    for (int64_t j = 0; j < d->ow; j++) {
        int64_t left, right, padded;

        if (j == d->pw) { /* the windows that are whole */
            ct_pool_step1_scan((d->w - ROWS + 1) * b, b, nan, from + b, best + j * b, at + j * b,
                               soon);
            j = last;
            continue;
        }
        ct_pool_window(j, d->kw, 1, d->pw, d->w, &left, &right, &padded);
        ct_pool_step1_scan_edge(b, b, (int)(right - left), nan, from + left * b, best + j * b,
                                at + j * b);
    }
}

/* NaNs are rare: rows are scanned as if there were none, and anew where there is one. */
static void scan_row(const ct_pool_desc *d, const float *x, blocked_room *r, int64_t k)
{
    int64_t n = d->w * d->block;
    const float *stored = ct_num_at(x, d->bf16, k * n);
    const float *from = ct_num_read(stored, d->bf16, n, r->row);
    bool *nan = &r->nan[k % ROWS];

    scan(d, from, half_row(d, ct_num_at(stored, d->bf16, n), 0), false, r, k);
    *nan = ct_pool_step1_nan(n, from);
    if (*nan) scan(d, from, (ct_pool_soon){ from, 0 }, true, r, k);
}

static void blocked_max_plane(const ct_pool_desc *d, bool stream, blocked_room *r, const float *x,
                              float *y, uint8_t *mask)
{
    int64_t row = d->w * d->block, out = d->ow * d->block, next = 0;

    for (int64_t i = 0; i < d->oh; i++) {
        const float *best[ROWS] = { NULL };
        const uint8_t *at[ROWS] = { NULL };
        int64_t top, bottom, padded;
        bool nan = false;

        ct_pool_window(i, d->kh, 1, d->ph, d->h, &top, &bottom, &padded);
        for (; next < bottom; next++) scan_row(d, x, r, next);
        for (int64_t k = top; k < bottom; k++) {
            best[k - top] = r->ring[k % ROWS], at[k - top] = r->at[k % ROWS];
            nan = nan || r->nan[k % ROWS];
        }
        ct_pool_step1_join(out, (int)(bottom - top), d->relu, nan, best, at,
                           row_sink(d, stream, y, i), (mask != NULL) ? mask + i * out : NULL,
                           half_row(d, ct_num_at(x, d->bf16, bottom * row), 1));
    }
}

/* ---- AVE: with as many outputs as places backward is forward, each output's gradient being shared
 * out among the places over which it is the mean */

static void blocked_mean_plane(const ct_pool_desc *d, bool stream, blocked_room *r, const float *x,
                               float *y)
{
    int64_t b = d->block, n = d->w * b, next = 0;

    for (int64_t c = 0; c < b; c++) r->row[c - b] = r->row[n + c] = 0.0f;
    for (int64_t i = 0; i < d->h; i++) {
        int64_t top = (i > 0) ? i - 1 : 0, bottom = (i + 2 < d->h) ? i + 2 : d->h;
        const float *soon = ct_num_at(x, d->bf16, bottom * n), *rows[ROWS];
        ct_pool_sink to = row_sink(d, stream, y, i);

        for (; d->bf16 && (next < bottom); next++)
            ct_bf16_widen(n, ct_num_at(x, true, next * n), r->ring[next % ROWS]);
        for (int64_t k = top; k < bottom; k++)
            rows[k - top] = d->bf16 ? r->ring[k % ROWS] : x + k * n;
        ct_pool_step1_add(n, (int)(bottom - top), rows, r->row, half_row(d, soon, 0));
        ct_pool_step1_mean(n, b, r->row, to, half_row(d, soon, 1));
    }
}

/* ---- MAX backward */

/* Row k of the outputs' places, counted as if no window were cut; rows that there are not have
 * none. */
static void take_places(const ct_pool_desc *d, const uint8_t *mask, const blocked_room *r,
                        int64_t k)
{
    int64_t b = d->block, n = d->w * b;
    uint8_t *at = r->at[(k + ROWS) % ROWS];

    memset(at - b, CT_POOL_BYTE_NONE, (size_t)(n + 2 * b));
    if ((k < 0) || (k >= d->h)) return;
    memcpy(at, mask + k * n, (size_t)n);
    fetch_bytes(mask + (k + 1) * n, n);
    for (int64_t i = 0; i < b; i++) at[i] += (at[i] != CT_POOL_BYTE_NONE) ? 1 : 0;
    for (int64_t i = 0; (k == 0) && (i < n); i++)
        at[i] += (at[i] != CT_POOL_BYTE_NONE) ? CT_POOL_STEP1 : 0;
}

/* Row k of the outputs' gradients, to be read from a block before it to a block behind it. */
static const float *blocked_take_gradients(const ct_pool_desc *d, const float *dy,
                                           const blocked_room *r, int64_t k)
{
    int64_t b = d->block, n = d->w * b;
    float *to = r->ring[(k + ROWS) % ROWS];

    if ((k > 0) && (k < d->h - 1) && !d->bf16) return dy + k * n;
    if ((k < 0) || (k >= d->h)) return memset(to, 0, (size_t)n * sizeof(float));
    if (d->bf16)
        ct_bf16_widen(n, ct_num_at(dy, true, k * n), to);
    else
        memcpy(to, dy + k * n, (size_t)n * sizeof(float));
    return to;
}

static void blocked_back_plane(const ct_pool_desc *d, bool stream, blocked_room *r, const float *dy,
                               const uint8_t *mask, float *dx)
{
    int64_t b = d->block, n = d->w * b;
    const float *g[ROWS];

    for (int k = 0; k < ROWS; k++) /* read, and not used */
        for (int64_t i = 0; i < b; i++) r->ring[k][i - b] = r->ring[k][n + i] = 0.0f;
    take_places(d, mask, r, -1), take_places(d, mask, r, 0);
    g[1] = blocked_take_gradients(d, dy, r, -1), g[2] = blocked_take_gradients(d, dy, r, 0);
    for (int64_t k = 0; k < d->h; k++) {
        const uint8_t *at[ROWS];
        ct_pool_sink to = row_sink(d, stream, dx, k);
        ct_pool_soon soon = half_row(d, ct_num_at(dy, d->bf16, (k + 2) * n), 0);

        take_places(d, mask, r, k + 1);
        g[0] = g[1], g[1] = g[2], g[2] = blocked_take_gradients(d, dy, r, k + 1);
        for (int e = 0; e < ROWS; e++) at[e] = r->at[(k + e + ROWS - 1) % ROWS];
        soon.n *= 2;
        ct_pool_step1_gather(n, b, g, at, to, soon);
    }
}

void ct_pool_step1_blocked(const ct_pool_desc *d, bool stream, void *work, const float *x, float *y,
                           uint8_t *mask, const float *dy, float *dx)
{
    blocked_room r = blocked_make_room(d, work);

    if (d->method == CT_POOL_AVE)
        blocked_mean_plane(d, stream, &r, (dx != NULL) ? dy : x, (dx != NULL) ? dx : y);
    else if (dx == NULL)
        blocked_max_plane(d, stream, &r, x, y, mask);
    else
        blocked_back_plane(d, stream, &r, dy, mask, dx);
}
