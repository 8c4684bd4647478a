/* Pooling of channels in blocks: a place of a block is one vector, so that windows are loops over
 * vectors whatever their size, stride and padding. Backward gathers: each place of the bottom is
 * written once, the sum of what the windows over it have for it, in their order. */
#include "framework/base/memory.h"
#include "framework/base/simd.h"
#include "layers/engine/pool/pool_private.h"

/* Places [from, to) of an axis, and how many of the whole window count for AVE. */
typedef struct span {
    int32_t from, to, size;
} span;

/* Of each axis: the insides of the outputs' windows; the outputs whose windows hold a place. */
typedef struct axes {
    span *row, *column;           /* oh, ow */
    span *over_row, *over_column; /* h, w   */
} axes;

static bool supports(const ct_pool_desc *d)
{
    return ct_pool_on_cpu(d) && ((d->block == 8) || (d->block == 16)) &&
           (d->h * d->w <= INT32_MAX) &&
           ((d->method == CT_POOL_AVE) || (ct_pool_mask_bytes(d) == 1));
}

/* Rows of outputs whose windows may share a row of the plane. */
static int64_t rows_over(const ct_pool_desc *d)
{
    int64_t rows = (d->kh + d->sh - 1) / d->sh;

    return (rows < d->oh) ? rows : d->oh;
}

static size_t span_bytes(const ct_pool_desc *d)
{
    return (size_t)(d->oh + d->ow + d->h + d->w) * sizeof(span);
}

/* A thread's room: rows of outputs. */
static size_t room_bytes(const ct_pool_desc *d)
{
    return ct_align_up((size_t)(rows_over(d) * d->ow * d->block) * sizeof(float));
}

static size_t workspace(const ct_pool_desc *d)
{
    return ct_align_up(span_bytes(d)) + (size_t)d->n_thread * room_bytes(d);
}

static void find_spans(int64_t out, int64_t kernel, int64_t stride, int64_t pad, int64_t in,
                       span *window, span *over)
{
    for (int64_t k = 0; k < in; k++) over[k] = (span){ INT32_MAX, 0, 0 };
    for (int64_t o = 0; o < out; o++) {
        int64_t from, to, size;

        ct_pool_window(o, kernel, stride, pad, in, &from, &to, &size);
        window[o] = (span){ (int32_t)from, (int32_t)to, (int32_t)size };
        for (int64_t k = from; k < to; k++) {
            if (over[k].to == 0) over[k].from = (int32_t)o;
            over[k].to = (int32_t)o + 1;
        }
    }
}

static axes make_axes(const ct_pool_desc *d, void *work)
{
    axes a = { .row = work };

    a.column = a.row + d->oh;
    a.over_row = a.column + d->ow;
    a.over_column = a.over_row + d->h;
    find_spans(d->oh, d->kh, d->sh, d->ph, d->h, a.row, a.over_row);
    find_spans(d->ow, d->kw, d->sw, d->pw, d->w, a.column, a.over_column);
    return a;
}

/* Masks are bytes in memory, and in a thread's room as wide as what they tell. */
CT_SIMD_PART void narrow(int64_t n, const int32_t *from, uint8_t *to)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = (uint8_t)from[i];
}

CT_SIMD_PART void widen(int64_t n, const uint8_t *from, int32_t *to)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = from[i];
}

enum { INFINITE = 0x7f800000 }; /* as bits: what is above, without its sign, is a NaN */

/* Kernels of a block, in vectors of _b. A NaN counts as larger than any number: a diverged net must
 * show. The compiler chokes on two comparisons of floats in one mask, so it is looked for apart.
 * max_window: rows x columns of a window that begins at x. */
#define KERNELS(_b)                                                                                \
    typedef float vec##_b __attribute__((vector_size(4 * (_b)), aligned(4), may_alias));           \
    typedef int32_t num##_b __attribute__((vector_size(4 * (_b)), aligned(4), may_alias));         \
                                                                                                   \
    CT_SIMD_PART void max_window##_b(const ct_pool_desc *d, int rows, int columns, const float *x, \
                                     float *y, int32_t *place)                                     \
    {                                                                                              \
        int pitch = (int)ct_pool_pitch(d);                                                         \
        vec##_b best = *(const vec##_b *)x;                                                        \
        num##_b at = { 0 }, most = { 0 };                                                          \
                                                                                                   \
        _Pragma("GCC unroll 4") for (int r = 0; r < rows; r++)                                     \
        {                                                                                          \
            const float *from = x + r * d->w * (_b);                                               \
                                                                                                   \
            _Pragma("GCC unroll 4") for (int c = 0; c < columns; c++)                              \
            {                                                                                      \
                vec##_b v = *(const vec##_b *)(from + c * (_b));                                   \
                num##_b more = (num##_b)(v > best), here = (num##_b){ 0 } + (r * pitch + c);       \
                num##_b bits = (num##_b)v & INT32_MAX, high = bits > most;                         \
                                                                                                   \
                best = (vec##_b)((more & (num##_b)v) | (~more & (num##_b)best));                   \
                at = (more & here) | (~more & at);                                                 \
                most = (high & bits) | (~high & most);                                             \
            }                                                                                      \
        }                                                                                          \
        best = (vec##_b)((num##_b)best | (most > INFINITE));                                       \
        if (d->relu) {                                                                             \
            at |= ~(num##_b)(best > 0.0f);                                                         \
            best = (vec##_b)(~(num##_b)(best < 0.0f) & (num##_b)best);                             \
        }                                                                                          \
        *(vec##_b *)y = best;                                                                      \
        *(num##_b *)place = at;                                                                    \
    }                                                                                              \
                                                                                                   \
    CT_SIMD_PART void max_plane##_b(const ct_pool_desc *d, const axes *s, const float *x,          \
                                    float *y, uint8_t *mask, int32_t *room)                        \
    {                                                                                              \
        for (int64_t i = 0; i < d->oh; i++, y += d->ow * (_b)) {                                   \
            const float *row = x + s->row[i].from * d->w * (_b);                                   \
            int rows = s->row[i].to - s->row[i].from;                                              \
                                                                                                   \
            for (int64_t j = 0; j < d->ow; j++) {                                                  \
                int columns = s->column[j].to - s->column[j].from;                                 \
                const float *from = row + (int64_t)s->column[j].from * (_b);                       \
                                                                                                   \
                if ((rows == 3) && (columns == 3))                                                 \
                    max_window##_b(d, 3, 3, from, y + j * (_b), room + j * (_b));                  \
                else if ((rows == 2) && (columns == 3))                                            \
                    max_window##_b(d, 2, 3, from, y + j * (_b), room + j * (_b));                  \
                else if ((rows == 3) && (columns == 2))                                            \
                    max_window##_b(d, 3, 2, from, y + j * (_b), room + j * (_b));                  \
                else if ((rows == 2) && (columns == 2))                                            \
                    max_window##_b(d, 2, 2, from, y + j * (_b), room + j * (_b));                  \
                else                                                                               \
                    max_window##_b(d, rows, columns, from, y + j * (_b), room + j * (_b));         \
            }                                                                                      \
            if (mask != NULL) narrow(d->ow *(_b), room, mask + i * d->ow * (_b));                  \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    CT_SIMD_PART void ave_plane##_b(const ct_pool_desc *d, const axes *s, const float *x,          \
                                    float *y)                                                      \
    {                                                                                              \
        for (int64_t i = 0; i < d->oh; i++) {                                                      \
            span r = s->row[i];                                                                    \
                                                                                                   \
            for (int64_t j = 0; j < d->ow; j++, y += (_b)) {                                       \
                span c = s->column[j];                                                             \
                vec##_b sum = { 0 };                                                               \
                                                                                                   \
                for (int64_t k = r.from; k < r.to; k++) {                                          \
                    for (int64_t l = c.from; l < c.to; l++)                                        \
                        sum += *(const vec##_b *)(x + (k * d->w + l) * (_b));                      \
                }                                                                                  \
                *(vec##_b *)y = sum / (float)((int64_t)r.size * c.size);                           \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    CT_SIMD_PART void max_back_plane##_b(const ct_pool_desc *d, const axes *s, const float *dy,    \
                                         const uint8_t *mask, int32_t *room, float *dx)            \
    {                                                                                              \
        int64_t pitch = ct_pool_pitch(d), n_row = rows_over(d), row = d->ow * (_b), next = 0;      \
        int64_t first;                                                                             \
                                                                                                   \
        for (int64_t k = 0; k < d->h; k++) {                                                       \
            span r = s->over_row[k];                                                               \
                                                                                                   \
            for (; next < r.to; next++) widen(row, mask + next * row, room + next % n_row * row);  \
            first = r.from % n_row; /* once a row: a division costs more than a vector */          \
            for (int64_t l = 0; l < d->w; l++, dx += (_b)) {                                       \
                span c = s->over_column[l];                                                        \
                vec##_b sum = { 0 };                                                               \
                                                                                                   \
                for (int64_t i = r.from, at_row = first; i < r.to; i++) {                          \
                    int64_t place = (k - s->row[i].from) * pitch + l;                              \
                    const int32_t *at = room + at_row * row;                                       \
                    const float *g = dy + i * row;                                                 \
                                                                                                   \
                    for (int64_t j = c.from; j < c.to; j++) {                                      \
                        num##_b mine = *(const num##_b *)(at + j * (_b)) ==                        \
                                       (int32_t)(place - s->column[j].from);                       \
                                                                                                   \
                        sum += (vec##_b)(mine & *(const num##_b *)(g + j * (_b)));                 \
                    }                                                                              \
                    at_row = (at_row + 1 == n_row) ? 0 : at_row + 1;                               \
                }                                                                                  \
                *(vec##_b *)dx = sum;                                                              \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    CT_SIMD_PART void ave_back_plane##_b(const ct_pool_desc *d, const axes *s, const float *dy,    \
                                         float *room, float *dx)                                   \
    {                                                                                              \
        int64_t n_row = rows_over(d), row = d->ow * (_b), next = 0, first;                         \
                                                                                                   \
        for (int64_t k = 0; k < d->h; k++) {                                                       \
            span r = s->over_row[k];                                                               \
                                                                                                   \
            for (; next < r.to; next++) {                                                          \
                for (int64_t j = 0; j < d->ow; j++)                                                \
                    *(vec##_b *)(room + next % n_row * row + j * (_b)) =                           \
                        *(const vec##_b *)(dy + next * row + j * (_b)) /                           \
                        (float)((int64_t)s->row[next].size * s->column[j].size);                   \
            }                                                                                      \
            first = r.from % n_row;                                                                \
            for (int64_t l = 0; l < d->w; l++, dx += (_b)) {                                       \
                span c = s->over_column[l];                                                        \
                vec##_b sum = { 0 };                                                               \
                                                                                                   \
                for (int64_t i = r.from, at_row = first; i < r.to; i++) {                          \
                    const float *g = room + at_row * row;                                          \
                                                                                                   \
                    for (int64_t j = c.from; j < c.to; j++)                                        \
                        sum += *(const vec##_b *)(g + j * (_b));                                   \
                    at_row = (at_row + 1 == n_row) ? 0 : at_row + 1;                               \
                }                                                                                  \
                *(vec##_b *)dx = sum;                                                              \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    CT_SIMD_CLONES static void run_plane##_b(const ct_pool_desc *d, const axes *s, void *room,     \
                                             const float *x, float *y, uint8_t *mask,              \
                                             const float *dy, float *dx)                           \
    {                                                                                              \
        if ((dx == NULL) && (d->method == CT_POOL_MAX))                                            \
            max_plane##_b(d, s, x, y, mask, room);                                                 \
        else if (dx == NULL)                                                                       \
            ave_plane##_b(d, s, x, y);                                                             \
        else if (d->method == CT_POOL_MAX)                                                         \
            max_back_plane##_b(d, s, dy, mask, room, dx);                                          \
        else                                                                                       \
            ave_back_plane##_b(d, s, dy, room, dx);                                                \
    }

KERNELS(8)
KERNELS(16)

static ct_status run(const ct_pool_desc *d, ct_exec *ex, const ct_pool_args *a)
{
    int64_t in = d->h * d->w * d->block, out = d->oh * d->ow * d->block;
    bool max = (d->method == CT_POOL_MAX) && (a->mask != NULL), back = (a->dx != NULL);
    axes s = make_axes(d, a->work);
    ct_status polled = CT_OK;

#pragma omp parallel for num_threads(d->n_thread) schedule(static)
    for (int64_t p = 0; p < d->planes / d->block; p++) {
        char *room = (char *)a->work + ct_align_up(span_bytes(d)) +
                     (size_t)omp_get_thread_num() * room_bytes(d);
        const float *x = back ? NULL : a->x + p * in, *dy = back ? a->dy + p * out : NULL;
        float *y = back ? NULL : a->y + p * out, *dx = back ? a->dx + p * in : NULL;
        uint8_t *mask = max ? (uint8_t *)a->mask + p * out : NULL;

        if (d->block == 16)
            run_plane16(d, &s, room, x, y, mask, dy, dx);
        else
            run_plane8(d, &s, room, x, y, mask, dy, dx);
        ct_engine_poll(ex, &polled);
    }
    return polled;
}

const ct_pool_impl ct_pool_blocked_forward = {
    .name = "blocked", .supports = supports, .workspace = workspace, .run = run
};
const ct_pool_impl ct_pool_blocked_backward = {
    .name = "blocked", .supports = supports, .workspace = workspace, .run = run
};
