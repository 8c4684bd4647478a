/* The loops of LayerNorm and RMSNorm on the CPU.
 *
 * A row stays in the caches while its sums are taken and its results are made, so memory is read
 * and written once. A sum waits for each of its additions, so those of several rows are taken at
 * once. Sums are f32 in lanes over pieces of a row, and double over the pieces: an
 * element passes at most PIECE / LANES roundings of f32. Their order follows from the shape alone.
 * A mean is kept in two floats, so that a row whose mean is far larger than its deviation loses
 * nothing. Numbers in bf16 are widened in registers: the sums are those of the same row in f32. */
#include <math.h>
#include <string.h>

#include "framework/base/bf16.h"
#include "framework/base/stream.h"
#include "layers/layer_util.h"
#include "layers/types/norm.h"

enum {
    LANES = 16,
    PIECE = 512,  /* elements of a row that are added up in f32                          */
    GROUP = 4,    /* rows whose sums, and shares of the weights' gradients, go at once   */
    PAIR = 2,     /* of them, where each has two sums: as many as have registers         */
    SHORT = 1024, /* elements of a row, at most, of which a first-level cache holds four */
    COLUMNS = 256 /* of a group, that are made before they are written past the caches   */
};

/* A block of rows has partial sums of its own: at least so many elements, so that those stay few,
 * and at most so many blocks and rows. */
enum { BLOCK_ELEMENTS = 24576, BLOCKS = 128, BLOCK_ROWS = 1024 };

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef double wide __attribute__((vector_size(8 * LANES), aligned(8), may_alias));
typedef double half __attribute__((vector_size(4 * LANES), aligned(8), may_alias));
typedef double quarter __attribute__((vector_size(2 * LANES), aligned(8), may_alias));
typedef uint16_t bits16 __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
typedef uint32_t bits32 __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* Numbers [i, i + LANES) of x. */
#define TAKE(_x, _bf16, _i)                                                                        \
    ((_bf16) ? (vec)(__builtin_convertvector(*(const bits16 *)ct_num_at((_x), true, (_i)), bits32) \
                     << 16)                                                                        \
             : *(const vec *)((_x) + (_i)))

/* Halves onto each other. */
CT_SIMD_PART double total(const wide *lanes, float rest)
{
    half h = ((const half *)lanes)[0] + ((const half *)lanes)[1];
    quarter q = ((const quarter *)&h)[0] + ((const quarter *)&h)[1];

    return ((q[0] + q[2]) + (q[1] + q[3])) + (double)rest;
}

static inline int64_t smaller(int64_t a, int64_t b)
{
    return (a < b) ? a : b;
}

/* ---- forward */

/* Of `rows` rows, a constant. */
CT_SIMD_PART void sum_rows(int64_t n, bool bf16, int rows, const float *x, double *sum_p)
{
    int64_t whole = n / LANES * LANES;
    wide sum[GROUP] = { { 0 } };

    for (int64_t at = 0; at < whole; at += PIECE) {
        int64_t to = smaller(at + PIECE, whole);
        vec part[GROUP] = { { 0 } };

        for (int64_t i = at; i < to; i += LANES) {
            for (int j = 0; j < rows; j++) part[j] += TAKE(x, bf16, j * n + i);
        }
        for (int j = 0; j < rows; j++) sum[j] += __builtin_convertvector(part[j], wide);
    }
    for (int j = 0; j < rows; j++) {
        float rest = 0;

        for (int64_t i = whole; i < n; i++) rest += ct_num_get(x, bf16, j * n + i);
        sum_p[j] = total(&sum[j], rest);
    }
}

/* Sums of d = x - less, and of d^2, of `rows` rows, a constant of at most PAIR. */
CT_SIMD_PART void sum_squares(int64_t n, bool bf16, int rows, const float *x, const float *less,
                              double *first_p, double *second_p)
{
    int64_t whole = n / LANES * LANES;
    wide first[PAIR] = { { 0 } }, second[PAIR] = { { 0 } };

    for (int64_t at = 0; at < whole; at += PIECE) {
        int64_t to = smaller(at + PIECE, whole);
        vec part[PAIR] = { { 0 } }, part2[PAIR] = { { 0 } };

        for (int64_t i = at; i < to; i += LANES) {
            for (int j = 0; j < rows; j++) {
                vec d = TAKE(x, bf16, j * n + i) - less[j];

                part[j] += d;
                part2[j] += d * d;
            }
        }
        for (int j = 0; j < rows; j++) {
            first[j] += __builtin_convertvector(part[j], wide);
            second[j] += __builtin_convertvector(part2[j], wide);
        }
    }
    for (int j = 0; j < rows; j++) {
        float rest = 0, rest2 = 0;

        for (int64_t i = whole; i < n; i++) {
            float d = ct_num_get(x, bf16, j * n + i) - less[j];

            rest += d;
            rest2 += d * d;
        }
        first_p[j] = total(&first[j], rest);
        second_p[j] = total(&second[j], rest2);
    }
}

/* In double: of rows whose squares, or sums, leave the range of floats. */
static void exact_stat(const ct_norm_rows *r, const float *x, ct_row_stat *s)
{
    double sum = 0, square = 0;

    for (int64_t i = 0; r->centred && (i < r->n); i++) sum += (double)ct_num_get(x, r->bf16, i);
    s->mean = sum / (double)r->n;
    for (int64_t i = 0; i < r->n; i++) {
        double d = (double)ct_num_get(x, r->bf16, i) - s->mean;

        square += d * d;
    }
    s->variance = square / (double)r->n;
}

/* What a row's elements go through, in floats. */
typedef struct rule {
    float high, low; /* their sum is the mean */
    float factor;
} rule;

CT_SIMD_PART rule rule_of(const ct_row_stat *s)
{
    float high = (float)s->mean;

    return (rule){ high, (float)(s->mean - (double)high), (float)s->factor };
}

CT_SIMD_PART float normal(rule k, float x)
{
    return (x - k.high - k.low) * k.factor;
}

CT_SIMD_PART void put_row(int64_t n, bool bf16, rule k, const float *x, const float *scale,
                          const float *shift, float *y)
{
    if (scale == NULL) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) ct_num_put(y, bf16, i, normal(k, ct_num_get(x, bf16, i)));
    } else if (shift == NULL) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            ct_num_put(y, bf16, i, normal(k, ct_num_get(x, bf16, i)) * scale[i]);
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            ct_num_put(y, bf16, i, normal(k, ct_num_get(x, bf16, i)) * scale[i] + shift[i]);
    }
}

/* Pieces of a row whose results are written past the caches; for one that is not, the whole row. */
CT_SIMD_PART void put_pieces(const ct_norm_rows *r, bool bf16, rule k, const float *x, bool stream,
                             float *y)
{
    int64_t step = stream ? PIECE : r->n;
    float out[PIECE] __attribute__((aligned(64)));

    for (int64_t at = 0; at < r->n; at += step) {
        int64_t len = smaller(step, r->n - at);

        put_row(len, bf16, k, ct_num_at(x, bf16, at), (r->scale != NULL) ? r->scale + at : NULL,
                (r->shift != NULL) ? r->shift + at : NULL, stream ? out : ct_num_to(y, bf16, at));
        if (stream) ct_stream_copy(len, out, y + at);
    }
}

CT_SIMD_PART void row_stat(const ct_norm_rows *r, const float *x, float about, double first,
                           double second, ct_row_stat *s)
{
    double n = (double)r->n;

    s->mean = r->centred ? (double)about + first / n : 0;
    s->variance = second / n - (r->centred ? first / n * (first / n) : 0);
    if (s->variance < 0) s->variance = 0;
    if (!isfinite(second)) exact_stat(r, x, s);
    s->factor = 1 / sqrt(s->variance + r->eps);
    s->gain = 1;
}

/* `rows`, at once `pair` of them: constants. */
CT_SIMD_PART void forward_as(const ct_norm_rows *r, bool bf16, int64_t from, int rows, int pair,
                             bool stream, float *y)
{
    const float *x = ct_num_at(r->x, bf16, from * r->n);
    double sum[GROUP] = { 0 }, first[GROUP], second[GROUP];
    float about[GROUP] = { 0 };

    if (r->centred) sum_rows(r->n, bf16, rows, x, sum);
    for (int j = 0; j < rows; j++) about[j] = (float)(sum[j] / (double)r->n);
    for (int j = 0; j < rows; j += pair)
        sum_squares(r->n, bf16, pair, ct_num_at(x, bf16, j * r->n), about + j, first + j,
                    second + j);
    for (int j = 0; j < rows; j++)
        row_stat(r, ct_num_at(x, bf16, j * r->n), about[j], first[j], second[j],
                 &r->stat[from + j]);
    for (int j = 0; j < rows; j++)
        put_pieces(r, bf16, rule_of(&r->stat[from + j]), ct_num_at(x, bf16, j * r->n), stream,
                   ct_num_to(y, bf16, (from + j) * r->n));
}

/* Rows of x, in the caches then. */
CT_SIMD_PART void add_rows(const ct_norm_rows *r, int64_t from, int rows)
{
    int64_t at = from * r->n, n = rows * r->n;
    const float *a = ct_num_at(r->a, r->bf16, at), *b = ct_num_at(r->b, r->bf16, at);
    float *x = ct_num_to((float *)r->x, r->bf16, at);

    if (r->bf16) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            ct_num_put(x, true, i, ct_num_get(a, true, i) + ct_num_get(b, true, i));
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) x[i] = a[i] + b[i];
}

CT_SIMD_CLONES static void forward_rows(const ct_norm_rows *r, int64_t from, int rows, bool stream,
                                        float *y)
{
    if (r->a != NULL) add_rows(r, from, rows);
    if (r->bf16 && (rows == GROUP))
        forward_as(r, true, from, GROUP, PAIR, false, y);
    else if (rows == GROUP)
        forward_as(r, false, from, GROUP, PAIR, stream, y);
    else if (r->bf16)
        for (int j = 0; j < rows; j++) forward_as(r, true, from + j, 1, 1, false, y);
    else
        for (int j = 0; j < rows; j++) forward_as(r, false, from + j, 1, 1, stream, y);
}

/* Whole lines of the rows of a large array pass the caches by. */
static bool streams(const ct_norm_rows *r, const float *from, const float *to)
{
    return (from != to) && !r->bf16 && (r->n % LANES == 0) &&
           ct_stream_pays(to, (size_t)(r->rows * r->n) * sizeof(*to));
}

void ct_norm_rows_forward(const ct_norm_rows *r, float *y)
{
    int64_t step = (r->n <= SHORT) ? GROUP : 1;
    bool stream = streams(r, r->x, y);

#pragma omp parallel if (r->rows * r->n >= CT_PARALLEL_MIN)
    {
#pragma omp for schedule(static) nowait
        for (int64_t i = 0; i < r->rows; i += step)
            forward_rows(r, i, (int)smaller(step, r->rows - i), stream, y);
        if (stream) ct_stream_end();
    }
}

/* ---- backward: with v what is normal and g = dy scale, dx = factor (g - mean g - v mean(g v));
 * the gradients of scale and shift are the sums of dy v and of dy down the columns. */

/* What a row's gradient takes besides. */
typedef struct gradient {
    const float *x, *dy;
    float *dx;
    rule k;
    float mean, dot; /* of g, of g v */
} gradient;

/* The sums of g, and of g v, of one row, whose whole vectors' are first and second. */
CT_SIMD_PART void end_sums(const ct_norm_rows *r, bool bf16, bool scaled, const wide *first,
                           const wide *second, gradient *g)
{
    int64_t n = r->n;
    float rest = 0, rest2 = 0;

    for (int64_t i = n / LANES * LANES; i < n; i++) {
        float d = ct_num_get(g->dy, bf16, i);

        if (scaled) d *= r->scale[i];
        rest += d;
        rest2 += d * normal(g->k, ct_num_get(g->x, bf16, i));
    }
    g->mean = r->centred ? (float)(total(first, rest) / (double)n) : 0.0f;
    g->dot = (float)(total(second, rest2) / (double)n);
}

/* Sums of g, and of g v, of `rows` rows, a constant of at most PAIR. */
CT_SIMD_PART void sum_gradient(const ct_norm_rows *r, bool bf16, int rows, bool scaled, gradient *g)
{
    int64_t whole = r->n / LANES * LANES;
    wide first[PAIR] = { { 0 } }, second[PAIR] = { { 0 } };

    for (int64_t at = 0; at < whole; at += PIECE) {
        int64_t to = smaller(at + PIECE, whole);
        vec part[PAIR] = { { 0 } }, part2[PAIR] = { { 0 } };

        for (int64_t i = at; i < to; i += LANES) {
            for (int j = 0; j < rows; j++) {
                vec v = (TAKE(g[j].x, bf16, i) - g[j].k.high - g[j].k.low) * g[j].k.factor;
                vec d = TAKE(g[j].dy, bf16, i);

                if (scaled) d *= *(const vec *)(r->scale + i);
                part[j] += d;
                part2[j] += d * v;
            }
        }
        for (int j = 0; j < rows; j++) {
            first[j] += __builtin_convertvector(part[j], wide);
            second[j] += __builtin_convertvector(part2[j], wide);
        }
    }
    for (int j = 0; j < rows; j++) end_sums(r, bf16, scaled, &first[j], &second[j], &g[j]);
}

/* Columns [from, from + n) of `rows` rows, a constant: their dx, where that is wanted, to[j] of row
 * j; their shares of the gradients of scale and shift, where those are, into dscale and dshift. */
CT_SIMD_PART void put_group(const ct_norm_rows *r, bool bf16, const gradient *g, int rows,
                            bool scaled, bool wants_dx, bool wants_weights, int64_t from, int64_t n,
                            float *const *to, float *dscale, float *dshift)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float s = scaled ? r->scale[from + i] : 1.0f, share[GROUP] = { 0 }, d[GROUP] = { 0 };

        for (int j = 0; j < rows; j++) {
            float v = normal(g[j].k, ct_num_get(g[j].x, bf16, from + i)), dg;

            d[j] = ct_num_get(g[j].dy, bf16, from + i);
            share[j] = d[j] * v;
            dg = scaled ? d[j] * s : d[j];
            dg = (dg - g[j].mean - v * g[j].dot) * g[j].k.factor;
            if (wants_dx) ct_num_put(to[j], bf16, i, dg);
        }
        if (wants_weights) {
            dscale[from + i] += (share[0] + share[1]) + (share[2] + share[3]);
            dshift[from + i] += (d[0] + d[1]) + (d[2] + d[3]);
        }
    }
}

CT_SIMD_PART void group_as(const ct_norm_rows *r, bool bf16, gradient *g, int rows, bool scaled,
                           bool wants_dx, bool wants_weights, bool stream, float *part)
{
    float out[GROUP][COLUMNS] __attribute__((aligned(64))), *to[GROUP] = { NULL };
    int64_t step = stream ? COLUMNS : r->n;
    int pair = (rows == GROUP) ? PAIR : 1;

    for (int j = 0; wants_dx && (j < rows); j += pair) sum_gradient(r, bf16, pair, scaled, &g[j]);
    for (int64_t at = 0; at < r->n; at += step) {
        int64_t len = smaller(step, r->n - at);

        for (int j = 0; wants_dx && (j < rows); j++)
            to[j] = stream ? out[j] : ct_num_to(g[j].dx, bf16, at);
        put_group(r, bf16, g, rows, scaled, wants_dx, wants_weights, at, len, to, part,
                  wants_weights ? part + r->n : NULL);
        for (int j = 0; stream && (j < rows); j++) ct_stream_copy(len, out[j], g[j].dx + at);
    }
}

CT_SIMD_PART void rows_as(const ct_norm_rows *r, bool bf16, gradient *g, int rows, bool wants_dx,
                          bool wants_weights, bool stream, float *part)
{
    if (r->scale == NULL)
        group_as(r, bf16, g, rows, false, true, false, stream, part);
    else if (wants_dx && wants_weights)
        group_as(r, bf16, g, rows, true, true, true, stream, part);
    else if (wants_dx)
        group_as(r, bf16, g, rows, true, true, false, stream, part);
    else
        group_as(r, bf16, g, rows, true, false, true, false, part);
}

CT_SIMD_CLONES static void backward_rows(const ct_norm_rows *r, gradient *g, int rows,
                                         bool wants_dx, bool wants_weights, bool stream,
                                         float *part)
{
    if (r->bf16 && (rows == GROUP))
        rows_as(r, true, g, GROUP, wants_dx, wants_weights, false, part);
    else if (r->bf16)
        rows_as(r, true, g, 1, wants_dx, wants_weights, false, part);
    else if (rows == GROUP)
        rows_as(r, false, g, GROUP, wants_dx, wants_weights, stream, part);
    else
        rows_as(r, false, g, 1, wants_dx, wants_weights, stream, part);
}

/* Rows of a block: from the shape alone. */
static int64_t block_rows(int64_t rows, int64_t n)
{
    int64_t few = (rows + BLOCKS - 1) / BLOCKS, small = BLOCK_ELEMENTS / ((n > 0) ? n : 1);
    int64_t most = (few > small) ? few : small;

    return smaller((most > 1) ? most : 1, BLOCK_ROWS);
}

static int64_t n_block(int64_t rows, int64_t n)
{
    int64_t step = block_rows(rows, n);

    return (rows + step - 1) / step;
}

size_t ct_norm_rows_part_bytes(int64_t rows, int64_t n)
{
    return (size_t)(n_block(rows, n) * 2 * n) * sizeof(float);
}

/* What stands beside dx, of elements that have just been written. */
CT_SIMD_CLONES static void finish_rows(const ct_norm_back *b, bool bf16, int64_t from, int64_t n)
{
    const float *more = ct_num_at(b->more, bf16, from);
    float *dx = ct_num_to(b->dx, bf16, from);

    if ((more != NULL) && bf16) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            ct_num_put(dx, true, i, ct_num_get(dx, true, i) + ct_num_get(more, true, i));
    } else if (more != NULL) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) dx[i] += more[i];
    }
    if ((b->too != NULL) && (b->too != b->dx))
        memcpy(ct_num_to(b->too, bf16, from), dx, (size_t)n * ct_num_size(bf16));
}

static void backward_block(const ct_norm_rows *r, const ct_norm_back *b, int64_t block, bool stream)
{
    bool wants_weights = (b->dscale != NULL) || (b->dshift != NULL);
    int64_t step = block_rows(r->rows, r->n), to = smaller((block + 1) * step, r->rows);
    float *part = wants_weights ? b->part + block * 2 * r->n : NULL;

    if (wants_weights) memset(part, 0, (size_t)(2 * r->n) * sizeof(*part));
    for (int64_t i = block * step, rows; i < to; i += rows) {
        gradient g[GROUP];

        rows = (to - i >= GROUP) ? GROUP : 1;
        for (int64_t j = 0; j < rows; j++)
            g[j] = (gradient){ .x = ct_num_at(r->x, r->bf16, (i + j) * r->n),
                               .dy = ct_num_at(b->dy, r->bf16, (i + j) * r->n),
                               .dx = ct_num_to(b->dx, r->bf16, (i + j) * r->n),
                               .k = rule_of(&r->stat[i + j]) };
        backward_rows(r, g, (int)rows, b->dx != NULL, wants_weights, stream, part);
        if (b->dx != NULL) finish_rows(b, r->bf16, i * r->n, rows * r->n);
    }
}

/* out[c] = the sum of the blocks' part[c], of columns [from, to). */
static void add_parts(const ct_norm_rows *r, const float *part, int64_t from, int64_t to, bool add,
                      float *out)
{
    int64_t blocks = n_block(r->rows, r->n);
    double sum[COLUMNS];

    if (out == NULL) return;
    for (int64_t c = from; c < to; c++) sum[c - from] = add ? (double)out[c] : 0.0;
    for (int64_t k = 0; k < blocks; k++) {
        for (int64_t c = from; c < to; c++) sum[c - from] += (double)part[k * 2 * r->n + c];
    }
    for (int64_t c = from; c < to; c++) out[c] = (float)sum[c - from];
}

void ct_norm_rows_backward(const ct_norm_rows *r, const ct_norm_back *b)
{
    bool wants_weights = (b->dscale != NULL) || (b->dshift != NULL);
    bool stream = (b->dx != NULL) && (b->dx != r->x) && (b->more == NULL) && (b->too == NULL) &&
                  streams(r, b->dy, b->dx);

    if ((b->dx == NULL) && !wants_weights) return;
#pragma omp parallel if (r->rows * r->n >= CT_PARALLEL_MIN)
    {
#pragma omp for schedule(static)
        for (int64_t k = 0; k < n_block(r->rows, r->n); k++) backward_block(r, b, k, stream);
        if (stream) ct_stream_end();
        if (wants_weights) {
#pragma omp for schedule(static)
            for (int64_t c = 0; c < r->n; c += COLUMNS) {
                add_parts(r, b->part, c, smaller(c + COLUMNS, r->n), b->add_scale, b->dscale);
                add_parts(r, b->part + r->n, c, smaller(c + COLUMNS, r->n), b->add_shift,
                          b->dshift);
            }
        }
    }
}
