/* Softmax over threads. A thread takes one outer row and up to TILE positions of it, whose maxima
 * and sums fit into the first cache; with one position a row (classification) the classes lie
 * side by side, with many (segmentation) the positions do. What passes the caches by is written
 * while the next tile's exponentials are taken, so that memory is busy beside the arithmetic. */
#include "layers/engine/softmax/softmax.h"

#include <float.h>
#include <math.h>

#include "framework/base/simd.h"
#include "framework/base/stream.h"
#include "framework/math/sigmoid.h"

enum { TILE = 64, PARALLEL_MIN = 4096, LANES = 16 };
enum { KEPT = 128 }; /* classes, at most, whose exponentials of a tile a thread keeps */
/* The same of a row: 256 KB on its stack, which a second-level cache holds beside the row. */
enum { ROW_KEPT = 1 << 16, PIECE = 1024 };

#define LINES __attribute__((aligned(64))) /* no vector in two lines of the cache */

/* The positions [from, from + n) of outer row o. */
typedef struct tile {
    int64_t offset; /* of class 0's first position */
    int64_t label;  /* of the first position's label */
    int n;
} tile;

static bool supports(const ct_softmax_desc *d)
{
    return d->device == CT_DEVICE_CPU;
}

static int64_t n_tile(const ct_softmax_desc *d)
{
    return d->outer * ((d->inner + TILE - 1) / TILE);
}

static bool worth_threads(const ct_softmax_desc *d)
{
    return d->outer * d->classes * d->inner >= PARALLEL_MIN;
}

static tile make_tile(const ct_softmax_desc *d, int64_t k)
{
    int64_t per_row = (d->inner + TILE - 1) / TILE, o = k / per_row, from = k % per_row * TILE;
    int64_t left = d->inner - from;

    return (tile){ o * d->classes * d->inner + from, o * d->inner + from,
                   (int)((left < TILE) ? left : TILE) };
}

/* e^x of x that is not above 0; exactly 0 far below, so that scores of -infinity leave nothing. */
static inline float exp_below(float x)
{
    float k, rest = ct_exp_reduce(x, &k), power = (rest + 1.0f) * ct_power_of_two(k);

    return (x < -87.336544f) ? 0.0f : power;
}

/* In LANES sums, whatever the width of the processor's vectors. next: fetched meanwhile; or NULL.
 */
CT_SIMD_PART float exp_row(int64_t n, const float *x, float largest, float *y, const float *next)
{
    float part[LANES] = { 0 }, sum = 0;
    int64_t whole = n / LANES * LANES;

    for (int64_t c = 0; c < whole; c += LANES) {
        if (next != NULL) __builtin_prefetch(next + c, 0, 2);
#pragma omp simd
        for (int i = 0; i < LANES; i++) {
            float e = exp_below(x[c + i] - largest);

            y[c + i] = e;
            part[i] += e;
        }
    }
    for (int i = 0; i < LANES; i++) sum += part[i];
    for (int64_t c = whole; c < n; c++) {
        y[c] = exp_below(x[c] - largest);
        sum += y[c];
    }
    return sum;
}

CT_SIMD_PART float largest_in(int64_t n, const float *x)
{
    float largest = -INFINITY;

#pragma omp simd reduction(max : largest)
    for (int64_t c = 0; c < n; c++) largest = (x[c] > largest) ? x[c] : largest;
    return largest;
}

CT_SIMD_CLONES static void forward_row(int64_t n, const float *x, float *y)
{
    float inv = 1.0f / exp_row(n, x, largest_in(n, x), y, NULL);

#pragma omp simd
    for (int64_t c = 0; c < n; c++) y[c] *= inv;
}

/* The exponentials of a row, in the cache, and the inverse of their sum. The row that comes next is
 * fetched meanwhile, so that memory is busy beside the arithmetic. */
CT_SIMD_CLONES static float keep_row(int64_t n, const float *x, const float *next, float *e)
{
    return 1.0f / exp_row(n, x, largest_in(n, x), e, next);
}

CT_SIMD_CLONES static void scale_row(int64_t n, float factor, const float *p, float *dx)
{
#pragma omp simd
    for (int64_t c = 0; c < n; c++) dx[c] = factor * p[c];
}

/* The exponentials of a row of which others have classes, too. */
CT_SIMD_CLONES static void part_row(int64_t n, const float *x, float *y, float *largest_p,
                                    float *sum_p)
{
    float largest = largest_in(n, x);

    *sum_p = exp_row(n, x, (largest == -INFINITY) ? 0.0f : largest, y, NULL);
    *largest_p = largest;
}

/* Up to the next piece whose end is that of a line of memory. */
static int64_t piece_at(int64_t n, int64_t c, const float *to)
{
    int64_t len = PIECE - (int64_t)((uintptr_t)(to + c) / sizeof(float) % LANES);

    return (len < n - c) ? len : n - c;
}

/* forward_row(), with the same bits, of a y that passes the caches by: it is read and written
 * once. next: the row that comes next, or NULL. */
static void stream_row(int64_t n, const float *x, const float *next, float *y)
{
    float e[ROW_KEPT] LINES, out[PIECE] LINES, inv = keep_row(n, x, next, e);

    for (int64_t c = 0, len; c < n; c += len) {
        len = piece_at(n, c, y);
        scale_row(len, inv, e + c, out);
        ct_stream_copy(len, out, y + c);
    }
}

/* One class of a tile: its exponentials, added to the sums. */
CT_SIMD_PART
void exp_column(int n, const float *from, const float *largest, float *to, float *sum)
{
#pragma omp simd
    for (int i = 0; i < n; i++) {
        float e = exp_below(from[i] - largest[i]);

        to[i] = e;
        sum[i] += e;
    }
}

/* A row of the tile after the next: rows are short and far apart, so that the processor does not
 * see them coming. */
CT_SIMD_PART void fetch_row(const float *row)
{
    for (int i = 2 * TILE; i < 3 * TILE; i += LANES) __builtin_prefetch(row + i, 0, 2);
}

CT_SIMD_PART void largest_of(const ct_softmax_desc *d, tile t, const float *x, float *largest)
{
    for (int i = 0; i < t.n; i++) largest[i] = -INFINITY;
    for (int64_t c = 0; c < d->classes; c++) {
        const float *row = x + t.offset + c * d->inner;

        for (int i = 0; i < t.n; i++) largest[i] = (row[i] > largest[i]) ? row[i] : largest[i];
    }
}

CT_SIMD_CLONES static void forward_tile(const ct_softmax_desc *d, tile t, const float *x, float *y)
{
    float largest[TILE], sum[TILE];

    largest_of(d, t, x, largest);
    for (int i = 0; i < t.n; i++) sum[i] = 0;
    for (int64_t c = 0; c < d->classes; c++) {
        int64_t at = t.offset + c * d->inner;

        fetch_row(x + at);
        exp_column(t.n, x + at, largest, y + at, sum);
    }
    for (int i = 0; i < t.n; i++) sum[i] = 1.0f / sum[i];
    for (int64_t c = 0; c < d->classes; c++) {
        float *to = y + t.offset + c * d->inner;

        for (int i = 0; i < t.n; i++) to[i] *= sum[i];
    }
}

CT_SIMD_CLONES static void part_tile(const ct_softmax_desc *d, tile t, const float *x, float *y,
                                     float *largest, float *sum)
{
    float from[TILE];

    largest_of(d, t, x, largest);
    for (int i = 0; i < t.n; i++) {
        from[i] = (largest[i] == -INFINITY) ? 0.0f : largest[i];
        sum[i] = 0;
    }
    for (int64_t c = 0; c < d->classes; c++) {
        int64_t at = t.offset + c * d->inner;

        exp_column(t.n, x + at, from, y + at, sum);
    }
}

/* A tile of exponentials that is not yet written. */
typedef struct made {
    float *to; /* class 0's first position; NULL: there is none */
    int n;
    float inv[TILE] LINES; /* 1 / sum */
    float e[KEPT * TILE];
} made;

CT_SIMD_PART void put_row(const ct_softmax_desc *d, const made *m, int64_t c)
{
    float out[TILE];

    for (int i = 0; i < m->n; i++) out[i] = m->e[c * TILE + i] * m->inv[i];
    ct_stream_copy(m->n, out, m->to + c * d->inner);
}

/* The same as forward_tile(), into `next`; meanwhile `last` is written past the caches. */
CT_SIMD_CLONES static void stream_tile(const ct_softmax_desc *d, tile t, const float *x, float *y,
                                       const made *last, made *next)
{
    float largest[TILE], sum[TILE];

    largest_of(d, t, x, largest);
    for (int i = 0; i < t.n; i++) sum[i] = 0;
    for (int64_t c = 0; c < d->classes; c++) {
        const float *row = x + t.offset + c * d->inner;

        fetch_row(row);
        exp_column(t.n, row, largest, next->e + c * TILE, sum);
        if (last->to != NULL) put_row(d, last, c);
    }
    for (int i = 0; i < t.n; i++) next->inv[i] = 1.0f / sum[i];
    next->to = y + t.offset;
    next->n = t.n;
}

CT_SIMD_CLONES static void put_tile(const ct_softmax_desc *d, const made *m)
{
    for (int64_t c = 0; (m->to != NULL) && (c < d->classes); c++) put_row(d, m, c);
}

/* Whether an array of that size, in tiles or in rows of classes, passes the caches by. */
static bool streams(const ct_softmax_desc *d, const float *y)
{
    return ((d->inner % LANES == 0) || (d->inner == 1)) &&
           ct_stream_pays(y, (size_t)(d->outer * d->classes * d->inner) * sizeof(float));
}

static ct_status forward(const ct_softmax_desc *d, ct_exec *ex, const float *x, float *y)
{
    bool keep = (x != y) && streams(d, y);

    keep = keep && (d->classes <= ((d->inner == 1) ? ROW_KEPT : KEPT));
    (void)ex;
#pragma omp parallel if (worth_threads(d))
    {
        made two[2], *last = &two[0], *next = &two[1], *swap;

        last->to = NULL;
#pragma omp for schedule(static) nowait
        for (int64_t k = 0; k < n_tile(d); k++) {
            tile t = make_tile(d, k);

            if ((d->inner == 1) && keep) {
                const float *row = x + t.offset;

                stream_row(d->classes, row, (k + 1 < d->outer) ? row + d->classes : NULL,
                           y + t.offset);
            } else if (d->inner == 1) {
                forward_row(d->classes, x + t.offset, y + t.offset);
            } else if (keep) {
                stream_tile(d, t, x, y, last, next);
                swap = last, last = next, next = swap;
            } else {
                forward_tile(d, t, x, y);
            }
        }
        put_tile(d, last);
        ct_stream_end();
    }
    return CT_OK;
}

static ct_status forward_part(const ct_softmax_desc *d, ct_exec *ex, const float *x, float *y,
                              float *largest, float *sum)
{
    (void)ex;
#pragma omp parallel for schedule(static) if (worth_threads(d))
    for (int64_t k = 0; k < n_tile(d); k++) {
        tile t = make_tile(d, k);

        if (d->inner == 1)
            part_row(d->classes, x + t.offset, y + t.offset, largest + t.label, sum + t.label);
        else
            part_tile(d, t, x, y, largest + t.label, sum + t.label);
    }
    return CT_OK;
}

/* Classes side by side: in LANES sums, whatever the width of the processor's vectors. */
CT_SIMD_CLONES static void backward_row(int64_t n, const float *y, const float *dy, float *dx)
{
    double part[LANES] = { 0 }, dot = 0;
    int64_t whole = n / LANES * LANES;
    float less;

    for (int64_t c = 0; c < whole; c += LANES) {
        for (int i = 0; i < LANES; i++) part[i] += (double)y[c + i] * (double)dy[c + i];
    }
    for (int i = 0; i < LANES; i++) dot += part[i];
    for (int64_t c = whole; c < n; c++) dot += (double)y[c] * (double)dy[c];
    less = (float)dot;
#pragma omp simd
    for (int64_t c = 0; c < n; c++) dx[c] = y[c] * (dy[c] - less);
}

CT_SIMD_CLONES static void backward_tile(const ct_softmax_desc *d, tile t, const float *y,
                                         const float *dy, float *dx, bool stream)
{
    double dot[TILE] = { 0 };
    float less[TILE], out[TILE];

    for (int64_t c = 0; c < d->classes; c++) {
        int64_t k = t.offset + c * d->inner;

        for (int i = 0; i < t.n; i++) dot[i] += (double)y[k + i] * (double)dy[k + i];
    }
    for (int i = 0; i < t.n; i++) less[i] = (float)dot[i];
    for (int64_t c = 0; c < d->classes; c++) {
        int64_t k = t.offset + c * d->inner;
        float *to = stream ? out : dx + k;

        fetch_row(y + k);
        fetch_row(dy + k);
        for (int i = 0; i < t.n; i++) to[i] = y[k + i] * (dy[k + i] - less[i]);
        if (stream) ct_stream_copy(t.n, out, dx + k);
    }
}

static ct_status backward(const ct_softmax_desc *d, ct_exec *ex, const float *y, const float *dy,
                          float *dx)
{
    bool stream = (d->inner > 1) && (dx != dy) && (dx != y) && streams(d, dx);

    (void)ex;
#pragma omp parallel if (worth_threads(d))
    {
#pragma omp for schedule(static) nowait
        for (int64_t k = 0; k < n_tile(d); k++) {
            tile t = make_tile(d, k);

            if (d->inner == 1)
                backward_row(d->classes, y + t.offset, dy + t.offset, dx + t.offset);
            else
                backward_tile(d, t, y, dy, dx, stream);
        }
        ct_stream_end();
    }
    return CT_OK;
}

/* Threads take the logarithms, one thread adds: the order of the sum is fixed. */
static ct_status loss(const ct_softmax_desc *d, ct_exec *ex, const float *p, const int32_t *label,
                      float *scratch, double *loss_p)
{
    int64_t n = d->outer * d->inner;
    double sum = 0;

    (void)ex;
#pragma omp parallel for schedule(static) if (n >= PARALLEL_MIN)
    for (int64_t k = 0; k < n; k++) {
        int64_t o = k / d->inner, i = k % d->inner;
        float q = 1.0f; /* ignored: a logarithm of zero */

        if (label[k] != CT_LABEL_IGNORED) q = p[(o * d->classes + label[k]) * d->inner + i];
        scratch[k] = -logf((q < FLT_MIN) ? FLT_MIN : q); /* NaN stays NaN */
    }
    for (int64_t k = 0; k < n; k++) sum += (double)scratch[k];
    *loss_p = sum;
    return CT_OK;
}

/* The gradient of one row of classes, whose probabilities are share times p: factor p, and of the
 * label, if it is here, scale (share p - 1). */
static void loss_backward_row(int64_t n, const float *p, float share, int32_t label, float scale,
                              bool stream, float *dx)
{
    float factor = (label == CT_LABEL_IGNORED) ? 0.0f : scale * share, out[PIECE] LINES;
    float own = (label < 0) ? 0.0f : share * p[label]; /* dx may be p */
    int64_t len = n;

    for (int64_t c = 0; c < n; c += len) {
        float *to = stream ? out : dx + c;

        if (stream) len = piece_at(n, c, dx);
        scale_row(len, factor, p + c, to);
        if ((label >= c) && (label < c + len)) to[label - c] = scale * (own - 1.0f);
        if (stream) ct_stream_copy(len, out, dx + c);
    }
}

/* share: of the tile's positions; NULL: 1. */
static void loss_backward_tile(const ct_softmax_desc *d, tile t, const float *p, const float *share,
                               const int32_t *label, float scale, float *dx)
{
    float factor[TILE];

    for (int i = 0; i < t.n; i++) {
        factor[i] = (label[t.label + i] == CT_LABEL_IGNORED) ? 0.0f : scale;
        if (share != NULL) factor[i] *= share[i];
    }
    for (int64_t c = 0; c < d->classes; c++) {
        int64_t k = t.offset + c * d->inner;

        for (int i = 0; i < t.n; i++) dx[k + i] = factor[i] * p[k + i];
    }
    for (int i = 0; i < t.n; i++) {
        int32_t is = label[t.label + i];
        int64_t k = t.offset + is * d->inner + i;

        if (is >= 0) dx[k] = scale * (((share != NULL) ? share[i] * p[k] : p[k]) - 1.0f);
    }
}

static ct_status loss_backward_part(const ct_softmax_desc *d, ct_exec *ex, const float *p,
                                    const float *share, const int32_t *label, float scale,
                                    float *dx)
{
    bool stream = (d->inner == 1) && (dx != p) && streams(d, dx);

    (void)ex;
#pragma omp parallel if (worth_threads(d))
    {
#pragma omp for schedule(static) nowait
        for (int64_t k = 0; k < n_tile(d); k++) {
            tile t = make_tile(d, k);
            const float *mine = (share != NULL) ? share + t.label : NULL;

            if (d->inner == 1)
                loss_backward_row(d->classes, p + t.offset, (mine != NULL) ? *mine : 1.0f,
                                  label[t.label], scale, stream, dx + t.offset);
            else
                loss_backward_tile(d, t, p, mine, label, scale, dx);
        }
        if (stream) ct_stream_end();
    }
    return CT_OK;
}

static ct_status loss_backward(const ct_softmax_desc *d, ct_exec *ex, const float *p,
                               const int32_t *label, float scale, float *dx)
{
    return loss_backward_part(d, ex, p, NULL, label, scale, dx);
}

const ct_softmax_engine ct_softmax_omp = {
    "omp", supports, forward, backward, loss, loss_backward, forward_part, loss_backward_part,
};
