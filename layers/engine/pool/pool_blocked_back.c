/* Pooling of a plane of blocks, backward. It gathers: each place of the bottom is written once, the
 * sum of what the windows over it have for it, in their order. */
#include "framework/base/bf16.h"
#include "framework/base/simd.h"
#include "framework/base/stream.h"
#include "layers/engine/pool/pool_blocked.h"

/* Masks are bytes in memory, and in a thread's room as wide as what they tell. */
CT_SIMD_PART void widen(int64_t n, const uint8_t *from, int32_t *to)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = from[i];
}

/* Rows of outputs from which a row of the plane gathers. */
enum { MOST_ROWS = 4 };
typedef struct source {
    int rows;
    const float *g[MOST_ROWS];    /* gradients, AVE: over the number of places               */
    const int32_t *at[MOST_ROWS]; /* MAX: places taken; NULL: all                            */
    int64_t place[MOST_ROWS];     /* in the windows, of this row of the plane, left column 0 */
} source;

/* Row k of the plane, outputs from row i on. Filled and read by its members: a copy of the whole
 * would wait for the stores of the parts. */
CT_SIMD_PART void find_source(const ct_pool_desc *d, const ct_pool_axes *s, int64_t k, int64_t i,
                              bool max, const float *dy, const void *room, source *q)
{
    const float *wide = (const float *)((const char *)room + ct_pool_outputs_bytes(d));
    int64_t n_row = ct_pool_rows_over(d), row = d->ow * d->block, left = s->over_row[k].to - i;

    q->rows = (int)((left < MOST_ROWS) ? left : MOST_ROWS);
    if (left < 0) q->rows = 0;
    for (int e = 0; e < q->rows; e++) {
        int64_t at = (i + e) % n_row * row;

        q->g[e] = !max ? (const float *)room + at : d->bf16 ? wide + at : dy + (i + e) * row;
        q->at[e] = max ? (const int32_t *)room + at : NULL;
        q->place[e] = (k - s->row[i + e].from) * ct_pool_pitch(d);
    }
}

/* Outputs [*first_p, *end_p): from the first places of their windows on, a stride wide, all outputs
 * over them have windows that begin inside of the plane. */
CT_SIMD_PART void usual_columns(const ct_pool_desc *d, int64_t *first_p, int64_t *end_p)
{
    int64_t first = (d->pw + d->sw - 1) / d->sw + (d->kw - 1) / d->sw, end = (d->w + d->pw) / d->sw;

    if (end > d->ow) end = d->ow;
    *first_p = first;
    *end_p = (end > first) ? end : first;
}

/* Windows and rows of outputs for which there is a loop of its own; step 1 is another file's. */
CT_SIMD_PART bool has_usual(const ct_pool_desc *d, int rows)
{
    return (d->sw == 2) &&
           (((d->kw == 3) && ((rows == 1) || (rows == 2))) || ((d->kw == 2) && (rows == 1)));
}

/* Kernels of a block, in vectors of _b. */
#define KERNELS(_b)                                                                                \
    typedef float vec##_b __attribute__((vector_size(4 * (_b)), aligned(4), may_alias));           \
    typedef int32_t num##_b __attribute__((vector_size(4 * (_b)), aligned(4), may_alias));         \
                                                                                                   \
    CT_SIMD_PART void gather##_b(const source *q, bool max, int i, int64_t j, int64_t place,       \
                                 vec##_b *sum)                                                     \
    {                                                                                              \
        num##_b g = *(const num##_b *)(q->g[i] + j * (_b));                                        \
                                                                                                   \
        if (max) g &= *(const num##_b *)(q->at[i] + j * (_b)) == (int32_t)(q->place[i] + place);   \
        *sum += (vec##_b)g;                                                                        \
    }                                                                                              \
    CT_SIMD_PART void usual_row##_b(const source *whole, int64_t pad, int64_t first, int64_t end,  \
                                    const int kernel, const int stride, const int rows, bool max,  \
                                    float *dx)                                                     \
    {                                                                                              \
        source q;                                                                                  \
                                                                                                   \
        _Pragma("GCC unroll 4") for (int i = 0; i < rows; i++)                                     \
        {                                                                                          \
            q.g[i] = whole->g[i];                                                                  \
            q.at[i] = whole->at[i];                                                                \
            q.place[i] = whole->place[i];                                                          \
        }                                                                                          \
        for (int64_t j = first; j < end; j++) {                                                    \
            float *to = dx + (j * stride - pad) * (_b);                                            \
                                                                                                   \
            _Pragma("GCC unroll 4") for (int o = 0; o < stride; o++)                               \
            {                                                                                      \
                vec##_b sum = { 0 };                                                               \
                                                                                                   \
                _Pragma("GCC unroll 4") for (int i = 0; i < rows; i++)                             \
                {                                                                                  \
                    _Pragma("GCC unroll 4") for (int t = (kernel - 1 - o) / stride; t >= 0; t--)   \
                        gather##_b(&q, max, i, j - t, o + t * stride, &sum);                       \
                }                                                                                  \
                *(vec##_b *)(to + o * (_b)) = sum;                                                 \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    CT_SIMD_PART void usual_rows##_b(const ct_pool_desc *d, const source *q, int64_t first,        \
                                     int64_t end, bool max, float *dx)                             \
    {                                                                                              \
        if ((d->kw == 3) && (d->sw == 2) && (q->rows == 1))                                        \
            usual_row##_b(q, d->pw, first, end, 3, 2, 1, max, dx);                                 \
        else if ((d->kw == 3) && (d->sw == 2))                                                     \
            usual_row##_b(q, d->pw, first, end, 3, 2, 2, max, dx);                                 \
        else                                                                                       \
            usual_row##_b(q, d->pw, first, end, 2, 2, 1, max, dx);                                 \
    }                                                                                              \
                                                                                                   \
    CT_SIMD_PART void gather_row##_b(const ct_pool_span *over, const ct_pool_span *column,         \
                                     const source *q, int64_t l, int64_t end, bool max, float *dx) \
    {                                                                                              \
        for (; l < end; l++) {                                                                     \
            vec##_b sum = { 0 };                                                                   \
                                                                                                   \
            for (int i = 0; i < q->rows; i++) {                                                    \
                for (int64_t j = over[l].from; j < over[l].to; j++)                                \
                    gather##_b(q, max, i, j, l - column[j].from, &sum);                            \
            }                                                                                      \
            *(vec##_b *)(dx + l * (_b)) = sum;                                                     \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    CT_SIMD_PART void add_rows##_b(const ct_pool_span *over, const ct_pool_span *column,           \
                                   const source *q, int64_t end, bool max, float *dx)              \
    {                                                                                              \
        for (int64_t l = 0; l < end; l++) {                                                        \
            vec##_b sum = *(const vec##_b *)(dx + l * (_b));                                       \
                                                                                                   \
            for (int i = 0; i < q->rows; i++) {                                                    \
                for (int64_t j = over[l].from; j < over[l].to; j++)                                \
                    gather##_b(q, max, i, j, l - column[j].from, &sum);                            \
            }                                                                                      \
            *(vec##_b *)(dx + l * (_b)) = sum;                                                     \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    CT_SIMD_PART void scale_row##_b(const ct_pool_desc *d, const ct_pool_axes *s, int64_t i,       \
                                    const float *dy, float *to)                                    \
    {                                                                                              \
        for (int64_t j = 0; j < d->ow; j++)                                                        \
            *(vec##_b *)(to + j * (_b)) = *(const vec##_b *)(dy + j * (_b)) /                      \
                                          (float)((int64_t)s->row[i].size * s->column[j].size);    \
    }                                                                                              \
                                                                                                   \
    /* writes places [*done_p, end) of a row: whole lines, but for the last */                     \
    CT_SIMD_PART void put_places##_b(const ct_pool_desc *d, bool bf16, bool stream, int64_t end,   \
                                     const float *own, float *dx, int64_t *done_p)                 \
    {                                                                                              \
        int64_t from = *done_p * (_b), n;                                                          \
                                                                                                   \
        if (!bf16 && !stream) return;                                                              \
        if (end < d->w) end -= end % (16 / (_b));                                                  \
        n = end * (_b)-from;                                                                       \
        if (n <= 0) return;                                                                        \
        if (bf16)                                                                                  \
            ct_bf16_narrow(n, own + from, ct_num_to(dx, true, from));                              \
        else                                                                                       \
            ct_stream_copy(n, own + from, dx + from);                                              \
        *done_p = end;                                                                             \
    }                                                                                              \
                                                                                                   \
    /* a row of the plane from at most MOST_ROWS rows of outputs; soon: see back_plane */          \
    CT_SIMD_PART void back_row##_b(const ct_pool_desc *d, const ct_pool_axes *s, const source *q,  \
                                   bool max, bool bf16, bool stream, const float *dy,              \
                                   const uint8_t *mask, int64_t soon, float *own, float *dx)       \
    {                                                                                              \
        int64_t first, end, done = 0, share = d->ow * (_b) / d->sh;                                \
                                                                                                   \
        usual_columns(d, &first, &end);                                                            \
        if (!has_usual(d, q->rows)) first = end = 0;                                               \
        gather_row##_b(s->over_column, s->column, q, 0, first * d->sw - (end ? d->pw : 0), max,    \
                       own);                                                                       \
        for (ct_pool_piece p = ct_pool_next((ct_pool_piece){ first, first }, end); p.from < end;   \
             p = ct_pool_next(p, end)) {                                                           \
            ct_pool_fetch(ct_num_at(dy, bf16, soon), p, end, share *(bf16 ? 2 : 4));               \
            if (max) ct_pool_fetch(mask + soon, p, end, share);                                    \
            usual_rows##_b(d, q, p.from, p.to, max, own);                                          \
            put_places##_b(d, bf16, stream, p.to * d->sw - d->pw, own, dx, &done);                 \
        }                                                                                          \
        gather_row##_b(s->over_column, s->column, q, end ? end * d->sw - d->pw : 0, d->w, max,     \
                       own);                                                                       \
        put_places##_b(d, bf16, stream, d->w, own, dx, &done);                                     \
    }                                                                                              \
                                                                                                   \
    CT_SIMD_PART void back_plane##_b(const ct_pool_desc *d, const ct_pool_axes *s, bool max,       \
                                     bool bf16, bool stream, const float *dy, const uint8_t *mask, \
                                     void *room, float *dxs)                                       \
    {                                                                                              \
        int64_t n_row = ct_pool_rows_over(d), row = d->ow * (_b), next = 0;                        \
        float *wide = (float *)((char *)room + ct_pool_outputs_bytes(d));                          \
                                                                                                   \
        for (int64_t k = 0; k < d->h; k++) {                                                       \
            ct_pool_span r = s->over_row[k];                                                       \
            float *dx = ct_num_to(dxs, bf16, k * d->w * (_b));                                     \
            float *own = (bf16 || stream) ? ct_pool_row_room(d, room) : dx;                        \
            source q;                                                                              \
                                                                                                   \
            for (; next < r.to; next++) {                                                          \
                if (max) widen(row, mask + next * row, (int32_t *)room + next % n_row * row);      \
                if (bf16)                                                                          \
                    ct_bf16_widen(row, ct_num_at(dy, true, next *row), wide + next % n_row * row); \
                if (!max)                                                                          \
                    scale_row##_b(d, s, next, bf16 ? wide + next % n_row *row : dy + next * row,   \
                                  (float *)room + next % n_row * row);                             \
            }                                                                                      \
            find_source(d, s, k, r.from, max, dy, room, &q);                                       \
            if (r.to - r.from <= MOST_ROWS) { /* with the share of the next row of outputs */      \
                back_row##_b(d, s, &q, max, bf16, stream, dy, mask,                                \
                             next *row + k % d->sh * (row / d->sh), own, dx);                      \
                continue;                                                                          \
            }                                                                                      \
            gather_row##_b(s->over_column, s->column, &q, 0, d->w, max, own);                      \
            for (int64_t i = r.from + MOST_ROWS; i < r.to; i += MOST_ROWS) {                       \
                find_source(d, s, k, i, max, dy, room, &q);                                        \
                add_rows##_b(s->over_column, s->column, &q, d->w, max, own);                       \
            }                                                                                      \
            put_places##_b(d, bf16, stream, d->w, own, dx, &(int64_t){ 0 });                       \
        }                                                                                          \
    }

#define BACK(_name, _target, _b)                                                                   \
    _target static void _name(const ct_pool_desc *d, const ct_pool_axes *s, bool stream,           \
                              void *room, const uint8_t *mask, const float *dy, float *dx)         \
    {                                                                                              \
        if (d->method == CT_POOL_MAX)                                                              \
            back_plane##_b(d, s, true, d->bf16, stream, dy, mask, room, dx);                       \
        else                                                                                       \
            back_plane##_b(d, s, false, d->bf16, stream, dy, NULL, room, dx);                      \
    }

KERNELS(8)
KERNELS(16)

BACK(back8, CT_SIMD_CLONES, 8)

/* As in pool_blocked_plane.c. */
static void back16_any(const ct_pool_desc *d, const ct_pool_axes *s, bool stream, void *room,
                       const uint8_t *mask, const float *dy, float *dx)
{
    back_plane16(d, s, d->method == CT_POOL_MAX, d->bf16, stream, dy, mask, room, dx);
}
#ifdef CT_SIMD_BLOCK_16
BACK(back16, CT_SIMD_BLOCK_16, 16)
#else
#define back16 back16_any
#endif

void ct_pool_blocked_plane_back(const ct_pool_desc *d, const ct_pool_axes *s, bool stream,
                                void *room, const uint8_t *mask, const float *dy, float *dx)
{
    if (d->block == 8)
        back8(d, s, stream, room, mask, dy, dx);
    else if (s->in_one)
        back16(d, s, stream, room, mask, dy, dx);
    else
        back16_any(d, s, stream, room, mask, dy, dx);
}
