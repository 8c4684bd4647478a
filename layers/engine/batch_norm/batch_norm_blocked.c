/* Batch normalisation of channels in blocks: a block's channels stand side by side, so that sums
 * and maps run along the memory whatever the size of the image. Statistics take one pass, with
 * E x^2 - (E x)^2 in double: the squares of floats are exact there. */
#include "layers/engine/batch_norm/batch_norm_blocked.h"

#include <string.h>

#include "framework/base/bf16.h"
#include "framework/base/simd.h"
#include "framework/base/task_loop.h"
#include "layers/layer_util.h"

static bool supports(const ct_batch_norm_desc *d)
{
    return (d->device == CT_DEVICE_CPU) && (d->block > 0) && (d->block <= CT_BLOCK_MAX);
}

/* ---- statistics */

typedef struct square_ctx {
    const float *x;
    bool bf16;
} square_ctx;

static void add_squares(const void *ctx, int64_t k, int64_t at, int64_t inner, int block,
                        double *first, double *second)
{
    const square_ctx *q = ctx;

    (void)k;
    ct_batch_norm_square(inner, block, q->bf16, ct_num_at(q->x, q->bf16, at), first, second);
}

static void statistics(const ct_batch_norm_desc *d, int64_t from, int64_t to, const float *x,
                       float *mean, float *var)
{
    ct_blocked v = norm_view(d);
    double m = (double)(d->n * d->spatial);
    double sum[CT_BLOCKED_GROUP * CT_BLOCK_MAX], square[CT_BLOCKED_GROUP * CT_BLOCK_MAX];
    int64_t last = norm_blocks(d, to);

    for (int64_t k = from / d->block; k < last; k += CT_BLOCKED_GROUP) {
        ct_blocked_sums(&v, k, norm_group_end(k, last), add_squares, &(square_ctx){ x, d->bf16 },
                        sum, square);
        for (int64_t c = k * d->block; (c < norm_group_end(k, last) * d->block) && (c < to); c++) {
            double e = sum[c - k * d->block] / m;
            double variance = square[c - k * d->block] / m - e * e;

            mean[c] = (float)e;
            /* a NaN stays one */
            var[c] = (variance < 0) ? 0.0f : (float)variance;
        }
    }
}

/* ---- forward */

CT_SIMD_PART void map_rows(int64_t rows, int block, bool bf16, const norm_factors *f, bool affine,
                           bool relu, const float *x, const float *add, float *y)
{
    for (int64_t r = 0; r < rows; r++) {
#pragma omp simd
        for (int i = 0; i < block; i++) {
            int64_t at = r * block + i;
            float z = (ct_num_get(x, bf16, at) - f->mean[i]) * f->inv_std[i];

            if (affine) z = z * f->scale[i] + f->bias[i];
            if (add != NULL) z += ct_num_get(add, bf16, at);
            if (relu) z = (z < 0.0f) ? 0.0f : z;
            ct_num_put(y, bf16, at, z);
        }
    }
}

/* Each case for itself, so that the loop has none. */
CT_SIMD_PART void map_cases(int64_t rows, int block, bool bf16, const norm_factors *f,
                            const ct_batch_norm_map *m, const float *x, const float *add, float *y)
{
    bool affine = (m->scale != NULL) || (m->bias != NULL);

    if (!affine && !m->relu && (add == NULL))
        map_rows(rows, block, bf16, f, false, false, x, NULL, y);
    else if (!m->relu && (add == NULL))
        map_rows(rows, block, bf16, f, true, false, x, NULL, y);
    else if (add == NULL)
        map_rows(rows, block, bf16, f, affine, true, x, NULL, y);
    else
        map_rows(rows, block, bf16, f, affine, m->relu, x, add, y);
}

/* A plane from `at` on, some rows at a time. */
CT_SIMD_PART void map_pieces(const ct_blocked *v, int64_t at, int block, bool bf16,
                             const norm_factors *f, const ct_batch_norm_map *m)
{
    for (int64_t r = 0; r < v->inner; r += NORM_ROWS, at += NORM_ROWS * block) {
        int64_t rows = (v->inner - r < NORM_ROWS) ? v->inner - r : NORM_ROWS;
        int64_t soon = norm_soon(v, at, r);

        norm_fetch(m->x, bf16, soon, rows * block);
        norm_fetch(m->add, bf16, soon, rows * block);
        if (m->y != m->x) norm_fetch(m->y, bf16, soon, rows * block);
        map_cases(rows, block, bf16, f, m, ct_num_at(m->x, bf16, at), ct_num_at(m->add, bf16, at),
                  ct_num_to(m->y, bf16, at));
    }
}

CT_SIMD_CLONES static void map_block(const ct_blocked *v, int64_t at, const norm_factors *f,
                                     const ct_batch_norm_map *m)
{
    if ((v->block == 16) && v->bf16)
        map_pieces(v, at, 16, true, f, m);
    else if (v->block == 16)
        map_pieces(v, at, 16, false, f, m);
    else if ((v->block == 8) && !v->bf16)
        map_pieces(v, at, 8, false, f, m);
    else
        map_pieces(v, at, v->block, v->bf16, f, m);
}

/* Rows of `row` floats that make a task worth the taking. */
static int64_t task_rows(int64_t row)
{
    enum { TASK_FLOATS = 4096 };

    return 1 + TASK_FLOATS / (row + 1);
}

/* Block k of an image, which begins at `at`. */
static void apply_block(const ct_blocked *v, int64_t k, int64_t at, const ct_batch_norm_map *m)
{
    norm_factors f;

    norm_pick(v, k, m, &f);
    map_block(v, at, &f, m);
    if (m->normal != NULL)
        memcpy(ct_num_to(m->normal, v->bf16, at), ct_num_at(m->y, v->bf16, at),
               (size_t)(v->inner * v->block) * ct_num_size(v->bf16));
}

static void apply(const ct_batch_norm_desc *d, int64_t from, int64_t to, const ct_batch_norm_map *m)
{
    ct_blocked v = norm_view(d);
    int64_t n = ct_blocked_n(&v), row = d->spatial * d->block;
    int64_t first = from / d->block, some = norm_blocks(d, to) - first;
    int64_t n_row = d->n * some, rows = task_rows(row), n_task = (n_row + rows - 1) / rows;
    ct_task_team team;

    ct_task_team_init(&team, omp_get_max_threads());
#pragma omp parallel if (n_row * row >= CT_PARALLEL_MIN)
    {
        ct_task_loop loop = ct_task_loop_of(&team);

        for (int64_t t = ct_task_first(&loop, n_task); t >= 0; t = ct_task_next(&loop)) {
            for (int64_t r = t * rows; (r < (t + 1) * rows) && (r < n_row); r++)
                apply_block(&v, first + r % some, (r / some * n + first + r % some) * row, m);
        }
    }
}

const ct_batch_norm_engine ct_batch_norm_blocked = { "blocked", supports, statistics, apply,
                                                     ct_batch_norm_blocked_backward };

/* ---- Batch normalisation of channels in blocks, backward: rows go through a first-level cache a
 * few at a time, a step of the map each. */

typedef struct gradient {
    const ct_blocked *v;
    const ct_batch_norm_back *b;
    int n_dy; /* the dy that count: once g is there, it is the only one */
    const float *const *dy;
    bool masked;             /* they are g already          */
    const float *less, *dot; /* channels: E dn, E(dn normal), of blocks from `first` on */
    int64_t first;
} gradient;

/* to, f32, is a + b; b, of the layer's dtype, NULL: 0 */
CT_SIMD_PART void add_rows(int64_t n, bool bf16, const float *a, bool a_bf16, const float *b,
                           float *to)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        to[i] = ct_num_get(a, a_bf16, i) + ((b != NULL) ? ct_num_get(b, bf16, i) : 0.0f);
}

CT_SIMD_PART void mask_rows(int64_t n, bool bf16, const float *y, const float *a, float *to)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = (ct_num_get(y, bf16, i) > 0.0f) ? a[i] : 0.0f;
}

CT_SIMD_PART void mask_again(int64_t rows, int block, bool bf16, const norm_factors *f,
                             const float *x, const float *a, float *to)
{
    for (int64_t r = 0; r < rows; r++, a += block, to += block) {
#pragma omp simd
        for (int i = 0; i < block; i++) {
            float z =
                (ct_num_get(x, bf16, r * block + i) - f->mean[i]) * f->inv_std[i] * f->scale[i] +
                f->bias[i];

            to[i] = (z > 0.0f) ? a[i] : 0.0f;
        }
    }
}

/* g of `rows` rows at `at`, f32: in room, or where it stands already. */
CT_SIMD_PART const float *make_rows(const gradient *q, int64_t at, int64_t rows, int block,
                                    bool bf16, const norm_factors *f, float *room)
{
    const ct_batch_norm_map *m = &q->b->map;
    const float *g = ct_num_at(q->dy[0], bf16, at);
    int k = 1;

    if (bf16 && (q->n_dy == 1)) {
        add_rows(rows * block, true, g, true, NULL, room);
        g = room;
    } else if (bf16) {
        add_rows(rows * block, true, g, true, ct_num_at(q->dy[k++], true, at), room);
        g = room;
    }
    for (; k < q->n_dy; k++, g = room)
        add_rows(rows * block, bf16, g, false, ct_num_at(q->dy[k], bf16, at), room);
    if (q->masked || !m->relu) return g;
    if (m->add != NULL)
        mask_rows(rows * block, bf16, ct_num_at(m->y, bf16, at), g, room);
    else
        mask_again(rows, block, bf16, f, ct_num_at(m->x, bf16, at), g, room);
    return room;
}

CT_SIMD_PART void sum_rows(int64_t rows, int block, bool bf16, const norm_factors *f,
                           const float *x, const float *g, double *sum, double *dot)
{
    double s[CT_BLOCK_MAX], t[CT_BLOCK_MAX];

    for (int i = 0; i < block; i++) {
        s[i] = sum[i];
        t[i] = dot[i];
    }
    for (int64_t r = 0; r < rows; r++) {
#pragma omp simd
        for (int i = 0; i < block; i++) {
            float y = (ct_num_get(x, bf16, r * block + i) - f->mean[i]) * f->inv_std[i];

            s[i] += (double)g[r * block + i];
            t[i] += (double)g[r * block + i] * (double)y;
        }
    }
    for (int i = 0; i < block; i++) {
        sum[i] = s[i];
        dot[i] = t[i];
    }
}

/* What is kept of g is what counts: in bf16 its roundings are in the sums. */
CT_SIMD_PART void keep_rows(int64_t n, bool bf16, float *room, const float *g, float *to)
{
    if (bf16) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            uint16_t h = ct_bf16_from_f32(g[i]);

            ((ct_bf16 *)(void *)to)[i] = h;
            room[i] = ct_bf16_to_f32(h);
        }
    } else if (to != g) {
        for (int64_t i = 0; i < n; i++) to[i] = g[i];
    }
}

/* Fetches what make_rows() and the others will read, and where `to` will be written. */
CT_SIMD_PART void fetch_rows(const gradient *q, int64_t at, int64_t n, bool bf16, const float *to)
{
    const ct_batch_norm_map *m = &q->b->map;

    for (int k = 0; k < q->n_dy; k++) norm_fetch(q->dy[k], bf16, at, n);
    norm_fetch(m->x, bf16, at, n);
    if (!q->masked && m->relu && (m->add != NULL)) norm_fetch(m->y, bf16, at, n);
    if (to != q->dy[0]) norm_fetch(to, bf16, at, n);
}

CT_SIMD_PART void sum_cases(const gradient *q, int64_t at, int64_t inner, int block, bool bf16,
                            const norm_factors *f, double *sum, double *dot)
{
    float room[NORM_ROWS * CT_BLOCK_MAX];

    for (int64_t r = 0; r < inner; r += NORM_ROWS, at += NORM_ROWS * block) {
        int64_t rows = (inner - r < NORM_ROWS) ? inner - r : NORM_ROWS;
        const float *g;

        fetch_rows(q, norm_soon(q->v, at, r), rows * block, bf16, q->b->g);
        g = make_rows(q, at, rows, block, bf16, f, room);
        if (q->b->g != NULL) keep_rows(rows * block, bf16, room, g, ct_num_to(q->b->g, bf16, at));
        sum_rows(rows, block, bf16, f, ct_num_at(q->b->map.x, bf16, at), g, sum, dot);
    }
}

CT_SIMD_CLONES static void sum_block(const gradient *q, int64_t at, int64_t inner, int block,
                                     const norm_factors *f, double *sum, double *dot)
{
    bool bf16 = q->v->bf16;

    if ((block == 16) && bf16)
        sum_cases(q, at, inner, 16, true, f, sum, dot);
    else if (block == 16)
        sum_cases(q, at, inner, 16, false, f, sum, dot);
    else if ((block == 8) && !bf16)
        sum_cases(q, at, inner, 8, false, f, sum, dot);
    else
        sum_cases(q, at, inner, block, bf16, f, sum, dot);
}

static void add_gradient(const void *ctx, int64_t k, int64_t at, int64_t inner, int block,
                         double *first, double *second)
{
    const gradient *q = ctx;
    norm_factors f;

    norm_pick(q->v, k, &q->b->map, &f);
    sum_block(q, at, inner, block, &f, first, second);
}

CT_SIMD_PART void put_rows(int64_t rows, int block, bool bf16, const norm_factors *f,
                           const float *inv_std, const float *less, const float *dot,
                           const float *x, const float *g, float *dx)
{
    for (int64_t r = 0; r < rows; r++) {
#pragma omp simd
        for (int i = 0; i < block; i++) {
            int64_t at = r * block + i;
            float normal = (ct_num_get(x, bf16, at) - f->mean[i]) * f->inv_std[i];

            ct_num_put(dx, bf16, at,
                       (g[at] * f->scale[i] - less[i] - normal * dot[i]) * inv_std[i]);
        }
    }
}

CT_SIMD_PART void put_cases(const gradient *q, int64_t at, int64_t inner, int block, bool bf16,
                            const norm_factors *f, const float *inv_std, const float *less,
                            const float *dot)
{
    float room[NORM_ROWS * CT_BLOCK_MAX];

    for (int64_t r = 0; r < inner; r += NORM_ROWS, at += NORM_ROWS * block) {
        int64_t rows = (inner - r < NORM_ROWS) ? inner - r : NORM_ROWS;
        const float *g;

        fetch_rows(q, norm_soon(q->v, at, r), rows * block, bf16, q->b->dx);
        g = make_rows(q, at, rows, block, bf16, f, room);
        put_rows(rows, block, bf16, f, inv_std, less, dot, ct_num_at(q->b->map.x, bf16, at), g,
                 ct_num_to(q->b->dx, bf16, at));
    }
}

CT_SIMD_CLONES static void put_block(const gradient *q, int64_t at, int64_t inner, int block,
                                     const norm_factors *f, const float *inv_std, const float *less,
                                     const float *dot)
{
    bool bf16 = q->v->bf16;

    if ((block == 16) && bf16)
        put_cases(q, at, inner, 16, true, f, inv_std, less, dot);
    else if (block == 16)
        put_cases(q, at, inner, 16, false, f, inv_std, less, dot);
    else if ((block == 8) && !bf16)
        put_cases(q, at, inner, 8, false, f, inv_std, less, dot);
    else
        put_cases(q, at, inner, block, bf16, f, inv_std, less, dot);
}

/* Block k of an image, which begins at `at`; c: its first channel's place in less and dot. */
static void put_row(const gradient *q, int64_t k, int64_t at, int64_t c)
{
    float inv_std[CT_BLOCK_MAX];
    norm_factors f;

    norm_pick(q->v, k, &q->b->map, &f);
    ct_blocked_pick(q->v, k, q->b->map.inv_std, 0.0f, inv_std);
    put_block(q, at, q->v->inner, q->v->block, &f, inv_std, q->less + c, q->dot + c);
}

/* dx of blocks [from, to). */
static void put_group(const gradient *q, int64_t from, int64_t to)
{
    const ct_blocked *v = q->v;
    int64_t n = ct_blocked_n(v), row = v->inner * v->block, some = to - from;
    int64_t n_row = v->outer * some, rows = task_rows(row), n_task = (n_row + rows - 1) / rows;
    ct_task_team team;

    ct_task_team_init(&team, omp_get_max_threads());
#pragma omp parallel if (n_row * row >= CT_PARALLEL_MIN)
    {
        ct_task_loop loop = ct_task_loop_of(&team);

        for (int64_t t = ct_task_first(&loop, n_task); t >= 0; t = ct_task_next(&loop)) {
            for (int64_t r = t * rows; (r < (t + 1) * rows) && (r < n_row); r++) {
                int64_t k = from + r % some;

                put_row(q, k, (r / some * n + k) * row, (k - from) * v->block);
            }
        }
    }
}

/* Blocks [from, to), a group. Where several gradients meet, their sum waits in dx. */
static void backward_group(const ct_blocked *v, const ct_batch_norm_back *whole, int64_t from,
                           int64_t to)
{
    enum { MOST = CT_BLOCKED_GROUP * CT_BLOCK_MAX };
    ct_batch_norm_back b = *whole;
    gradient q = { .v = v, .b = &b, .n_dy = b.n_dy, .dy = b.dy };
    double count = (double)(v->outer * v->inner), sum[MOST], dot[MOST];
    float less[MOST] = { 0 }, less_dot[MOST] = { 0 };

    if ((b.g == NULL) && (b.n_dy > 1)) b.g = b.dx;
    ct_blocked_sums(v, from, to, add_gradient, &q, sum, dot);
    for (int64_t c = from * v->block; (c < to * v->block) && (c < v->mid); c++) {
        int64_t i = c - from * v->block;
        double scale = (b.map.scale != NULL) ? (double)b.map.scale[c] : 1;

        b.sum[c] = sum[i];
        b.dot[c] = dot[i];
        if (b.fixed) continue;
        less[i] = (float)(scale * sum[i] / count);
        less_dot[i] = (float)(scale * dot[i] / count);
    }
    if (b.dx == NULL) return;
    if (b.g != NULL) {
        q.dy = (const float *const *)&b.g;
        q.n_dy = 1;
        q.masked = true;
    }
    q.less = less;
    q.dot = less_dot;
    put_group(&q, from, to);
}

void ct_batch_norm_blocked_backward(const ct_batch_norm_desc *d, int64_t from, int64_t to,
                                    const ct_batch_norm_back *b)
{
    ct_blocked v = norm_view(d);
    int64_t last = norm_blocks(d, to);

    for (int64_t k = from / d->block; k < last; k += CT_BLOCKED_GROUP)
        backward_group(&v, b, k, norm_group_end(k, last));
}
