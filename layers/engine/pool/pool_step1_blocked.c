/* Windows of 3 x 3 and step 1 over planes of blocks, row by row. */
#include "framework/base/bf16.h"
#include "framework/base/memory.h"
#include "framework/base/stream.h"
#include "layers/engine/pool/pool_step1.h"

enum { ROWS = CT_POOL_STEP1 };

/* A thread's. Before and behind a row stands a block that belongs to no place. */
typedef struct room {
    float *ring[ROWS]; /* MAX forward: scanned rows; else rows as f32 */
    float *row;        /* AVE: sums of columns; a row that was bf16   */
    uint8_t *at[ROWS]; /* MAX: places, scanned or taken               */
    bool nan[ROWS];    /* MAX forward: in a row of the plane          */
} room;

static int64_t row_numbers(const ct_pool_desc *d)
{
    int64_t longest = (d->w > d->ow) ? d->w : d->ow;

    return (int64_t)ct_align_up((size_t)((longest + 2) * d->block));
}

size_t ct_pool_step1_blocked_bytes(const ct_pool_desc *d)
{
    return (size_t)row_numbers(d) * ((ROWS + 1) * sizeof(float) + ROWS);
}

static room make_room(const ct_pool_desc *d, void *at)
{
    int64_t n = row_numbers(d), b = d->block;
    float *first = (float *)at + b;
    uint8_t *bytes = (uint8_t *)((float *)at + (ROWS + 1) * n) + b;
    room r = { .row = first + ROWS * n };

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
static void scan(const ct_pool_desc *d, const float *from, ct_pool_soon soon, bool nan, room *r,
                 int64_t k)
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
static void scan_row(const ct_pool_desc *d, const float *x, room *r, int64_t k)
{
    int64_t n = d->w * d->block;
    const float *stored = ct_num_at(x, d->bf16, k * n);
    const float *from = ct_num_read(stored, d->bf16, n, r->row);
    bool *nan = &r->nan[k % ROWS];

    scan(d, from, half_row(d, ct_num_at(stored, d->bf16, n), 0), false, r, k);
    *nan = ct_pool_step1_nan(n, from);
    if (*nan) scan(d, from, (ct_pool_soon){ from, 0 }, true, r, k);
}

static void max_plane(const ct_pool_desc *d, bool stream, room *r, const float *x, float *y,
                      uint8_t *mask)
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

static void mean_plane(const ct_pool_desc *d, bool stream, room *r, const float *x, float *y)
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
static void take_places(const ct_pool_desc *d, const uint8_t *mask, const room *r, int64_t k)
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
static const float *take_gradients(const ct_pool_desc *d, const float *dy, const room *r, int64_t k)
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

static void back_plane(const ct_pool_desc *d, bool stream, room *r, const float *dy,
                       const uint8_t *mask, float *dx)
{
    int64_t b = d->block, n = d->w * b;
    const float *g[ROWS];

    for (int k = 0; k < ROWS; k++) /* read, and not used */
        for (int64_t i = 0; i < b; i++) r->ring[k][i - b] = r->ring[k][n + i] = 0.0f;
    take_places(d, mask, r, -1), take_places(d, mask, r, 0);
    g[1] = take_gradients(d, dy, r, -1), g[2] = take_gradients(d, dy, r, 0);
    for (int64_t k = 0; k < d->h; k++) {
        const uint8_t *at[ROWS];
        ct_pool_sink to = row_sink(d, stream, dx, k);
        ct_pool_soon soon = half_row(d, ct_num_at(dy, d->bf16, (k + 2) * n), 0);

        take_places(d, mask, r, k + 1);
        g[0] = g[1], g[1] = g[2], g[2] = take_gradients(d, dy, r, k + 1);
        for (int e = 0; e < ROWS; e++) at[e] = r->at[(k + e + ROWS - 1) % ROWS];
        soon.n *= 2;
        ct_pool_step1_gather(n, b, g, at, to, soon);
    }
}

void ct_pool_step1_blocked(const ct_pool_desc *d, bool stream, void *work, const float *x, float *y,
                           uint8_t *mask, const float *dy, float *dx)
{
    room r = make_room(d, work);

    if (d->method == CT_POOL_AVE)
        mean_plane(d, stream, &r, (dx != NULL) ? dy : x, (dx != NULL) ? dx : y);
    else if (dx == NULL)
        max_plane(d, stream, &r, x, y, mask);
    else
        back_plane(d, stream, &r, dy, mask, dx);
}
