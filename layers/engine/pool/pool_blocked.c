/* Pooling of channels in blocks: what is done by whom, then one plane forward and backward. */
#include "layers/engine/pool/pool_cpu.h"

#include "framework/base/bf16.h"
#include "framework/base/simd.h"
#include "framework/base/stream.h"

static bool supports(const ct_pool_desc *d)
{
    return ct_pool_on_cpu(d) && ct_pool_is_plain(d) && ((d->block == 8) || (d->block == 16)) &&
           (d->h * d->w <= INT32_MAX) &&
           ((d->method == CT_POOL_AVE) || (ct_pool_mask_bytes(d) == 1));
}

static size_t span_bytes(const ct_pool_desc *d)
{
    return (size_t)(d->oh + d->ow + d->h + d->w) * sizeof(ct_pool_span);
}

static size_t row_bytes(const ct_pool_desc *d)
{
    int64_t longest = (d->w > d->ow) ? d->w : d->ow;

    return ct_align_up((size_t)(longest * d->block) * sizeof(float));
}

static size_t room_bytes(const ct_pool_desc *d)
{
    size_t bytes = (d->bf16 ? 2 : 1) * ct_pool_outputs_bytes(d) + row_bytes(d);
    size_t other = ct_pool_is_step1(d) ? ct_pool_step1_blocked_bytes(d) : 0;

    if (ct_pool_step1_is_small(d)) return ct_align_up(ct_pool_step1_flat_bytes(d));
    return (bytes > other) ? bytes : other;
}

static size_t workspace(const ct_pool_desc *d)
{
    return ct_align_up(span_bytes(d)) + (size_t)d->n_thread * room_bytes(d);
}

static void find_spans(int64_t out, int64_t kernel, int64_t stride, int64_t pad, int64_t in,
                       ct_pool_span *window, ct_pool_span *over)
{
    for (int64_t k = 0; k < in; k++) over[k] = (ct_pool_span){ INT32_MAX, 0, 0 };
    for (int64_t o = 0; o < out; o++) {
        int64_t from, to, size;

        ct_pool_window(o, kernel, stride, pad, in, &from, &to, &size);
        window[o] = (ct_pool_span){ (int32_t)from, (int32_t)to, (int32_t)size };
        for (int64_t k = from; k < to; k++) {
            if (over[k].to == 0) over[k].from = (int32_t)o;
            over[k].to = (int32_t)o + 1;
        }
    }
}

static ct_pool_axes make_axes(const ct_pool_desc *d, void *work)
{
    ct_pool_axes a = { .row = work, .in_one = (ct_simd_block() == 16) };

    a.column = a.row + d->oh;
    a.over_row = a.column + d->ow;
    a.over_column = a.over_row + d->h;
    find_spans(d->oh, d->kh, d->sh, d->ph, d->h, a.row, a.over_row);
    find_spans(d->ow, d->kw, d->sw, d->pw, d->w, a.column, a.over_column);
    return a;
}

/* Whether what is written passes the caches by. */
static bool streams(const ct_pool_desc *d, const ct_pool_args *a)
{
    bool back = (a->dx != NULL);
    int64_t plane = back ? d->h * d->w : d->oh * d->ow;

    return !d->bf16 &&
           ct_stream_pays(back ? a->dx : a->y, (size_t)(d->planes * plane) * sizeof(float));
}

static ct_status run(const ct_pool_desc *d, ct_exec *ex, const ct_pool_args *a)
{
    int64_t in = d->h * d->w * d->block, out = d->oh * d->ow * d->block;
    bool max = (d->method == CT_POOL_MAX) && (a->mask != NULL);
    bool forward = (a->dx == NULL) && (d->method == CT_POOL_MAX);
    bool step1 = forward ? ct_pool_is_step1(d) : ct_pool_is_step1_same(d);
    bool stream = streams(d, a);
    ct_pool_axes s = make_axes(d, a->work);
    ct_status polled = CT_OK;

#pragma omp parallel for num_threads(d->n_thread) schedule(static)
    for (int64_t p = 0; p < d->planes / d->block; p++) {
        char *room = (char *)a->work + ct_align_up(span_bytes(d)) +
                     (size_t)omp_get_thread_num() * room_bytes(d);
        const float *x = ct_num_at(a->x, d->bf16, p * in), *dy = ct_num_at(a->dy, d->bf16, p * out);
        float *y = ct_num_to(a->y, d->bf16, p * out), *dx = ct_num_to(a->dx, d->bf16, p * in);
        uint8_t *mask = max ? (uint8_t *)a->mask + p * out : NULL;

        if (ct_pool_step1_is_small(d))
            ct_pool_step1_flat(d, stream, room, x, y, mask, dy, dx);
        else if (step1)
            ct_pool_step1_blocked(d, stream, room, x, y, mask, dy, dx);
        else if (dx == NULL)
            ct_pool_blocked_plane(d, &s, stream, room, x, y, mask);
        else
            ct_pool_blocked_plane_back(d, &s, stream, room, mask, dy, dx);
        if (stream) ct_stream_end();
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

/* ---- Pooling of a plane of blocks, forward: a place of a block is one vector, so that windows are
 * loops over vectors whatever their size, stride and padding. */

/* Masks are bytes in memory, and in a thread's room as wide as what they tell. */
CT_SIMD_PART void narrow(int64_t n, const int32_t *from, uint8_t *to)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = (uint8_t)from[i];
}

CT_SIMD_PART void put_marks(bool stream, int64_t n, const int32_t *from, uint8_t *to)
{
    uint8_t marks[CT_POOL_PIECE * 16] __attribute__((aligned(64)));

    narrow(n, from, stream ? marks : to);
    if (stream) ct_stream_bytes(n, marks, to);
}

enum { INFINITE = 0x7f800000 }; /* as bits: what is above, without its sign, is a NaN */

/* Kernels of a block, in vectors of _b. A NaN counts as larger than any number: a diverged net must
 * show. The compiler chokes on two comparisons of floats in one mask, so it is looked for apart.
 * max_window: rows x columns of a window that begins at x, whose numbers are bf16 or not. */
#define LOAD(_b, _x, _bf16, _i)                                                                    \
    ((_bf16) ? (vec##_b)(__builtin_convertvector(                                                  \
                             *(const half##_b *)(const void *)ct_num_at(_x, true, _i), num##_b)    \
                         << 16)                                                                    \
             : *(const vec##_b *)((_x) + (_i)))
#define PLANE_KERNELS(_b)                                                                          \
    typedef float vec##_b __attribute__((vector_size(4 * (_b)), aligned(4), may_alias));           \
    typedef int32_t num##_b __attribute__((vector_size(4 * (_b)), aligned(4), may_alias));         \
    typedef uint16_t half##_b __attribute__((vector_size(2 * (_b)), aligned(2), may_alias));       \
                                                                                                   \
    CT_SIMD_PART void max_window##_b(const ct_pool_desc *d, int rows, int columns, bool bf16,      \
                                     const float *x, float *y, int32_t *place)                     \
    {                                                                                              \
        int pitch = (int)ct_pool_pitch(d);                                                         \
        vec##_b best = LOAD(_b, x, bf16, 0);                                                       \
        num##_b at = { 0 }, most = { 0 };                                                          \
                                                                                                   \
        _Pragma("GCC unroll 4") for (int r = 0; r < rows; r++)                                     \
        {                                                                                          \
            _Pragma("GCC unroll 4") for (int c = 0; c < columns; c++)                              \
            {                                                                                      \
                vec##_b v = LOAD(_b, x, bf16, (r * d->w + c) * (_b));                              \
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
    CT_SIMD_PART void max_row##_b(const ct_pool_desc *d, const ct_pool_axes *s, int rows,          \
                                  const bool usual, bool bf16, ct_pool_piece q, const float *x,    \
                                  float *y, int32_t *room)                                         \
    {                                                                                              \
        for (int64_t j = q.from; j < q.to; j++, y += (_b), room += (_b)) {                         \
            int columns = s->column[j].to - s->column[j].from;                                     \
            const float *from = ct_num_at(x, bf16, (int64_t)s->column[j].from * (_b));             \
                                                                                                   \
            if (!usual)                                                                            \
                max_window##_b(d, rows, columns, bf16, from, y, room);                             \
            else if ((rows == 3) && (columns == 3))                                                \
                max_window##_b(d, 3, 3, bf16, from, y, room);                                      \
            else if ((rows == 2) && (columns == 3))                                                \
                max_window##_b(d, 2, 3, bf16, from, y, room);                                      \
            else if ((rows == 3) && (columns == 2))                                                \
                max_window##_b(d, 3, 2, bf16, from, y, room);                                      \
            else if ((rows == 2) && (columns == 2))                                                \
                max_window##_b(d, 2, 2, bf16, from, y, room);                                      \
            else                                                                                   \
                max_window##_b(d, rows, columns, bf16, from, y, room);                             \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    CT_SIMD_PART void ave_window##_b(const ct_pool_desc *d, int rows, int columns, bool bf16,      \
                                     const float *x, float count, float *y)                        \
    {                                                                                              \
        vec##_b sum = { 0 };                                                                       \
                                                                                                   \
        _Pragma("GCC unroll 4") for (int r = 0; r < rows; r++)                                     \
        {                                                                                          \
            _Pragma("GCC unroll 4") for (int c = 0; c < columns; c++) sum +=                       \
                LOAD(_b, x, bf16, (r * d->w + c) * (_b));                                          \
        }                                                                                          \
        *(vec##_b *)y = sum / count;                                                               \
    }                                                                                              \
                                                                                                   \
    CT_SIMD_PART void ave_row##_b(const ct_pool_desc *d, const ct_pool_axes *s, ct_pool_span r,    \
                                  const bool usual, bool bf16, ct_pool_piece q, const float *x,    \
                                  float *y)                                                        \
    {                                                                                              \
        int rows = r.to - r.from;                                                                  \
                                                                                                   \
        for (int64_t j = q.from; j < q.to; j++, y += (_b)) {                                       \
            ct_pool_span c = s->column[j];                                                         \
            const float *from = ct_num_at(x, bf16, (int64_t)c.from * (_b));                        \
            float count = (float)((int64_t)r.size * c.size);                                       \
                                                                                                   \
            if (!usual)                                                                            \
                ave_window##_b(d, rows, c.to - c.from, bf16, from, count, y);                      \
            else if ((rows == 3) && (c.to - c.from == 3))                                          \
                ave_window##_b(d, 3, 3, bf16, from, count, y);                                     \
            else if ((rows == 2) && (c.to - c.from == 2))                                          \
                ave_window##_b(d, 2, 2, bf16, from, count, y);                                     \
            else                                                                                   \
                ave_window##_b(d, rows, c.to - c.from, bf16, from, count, y);                      \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    CT_SIMD_PART void forward_plane##_b(const ct_pool_desc *d, const ct_pool_axes *s,              \
                                        const bool usual, bool max, bool bf16, bool stream,        \
                                        const float *x, float *y, uint8_t *mask, void *room)       \
    {                                                                                              \
        int64_t row = d->ow * (_b), line = d->w * (_b);                                            \
        float *own = ct_pool_row_room(d, room);                                                    \
                                                                                                   \
        for (int64_t i = 0; i < d->oh; i++) {                                                      \
            const float *from = ct_num_at(x, bf16, s->row[i].from * line);                         \
            const float *soon = ct_num_at(x, bf16, s->row[i].to * line);                           \
                                                                                                   \
            for (ct_pool_piece q = ct_pool_first(d->ow); q.from < d->ow;                           \
                 q = ct_pool_next(q, d->ow)) {                                                     \
                int64_t n = (q.to - q.from) * (_b), at = i * row + q.from * (_b);                  \
                float *to = (bf16 || stream) ? own : y + at;                                       \
                                                                                                   \
                ct_pool_fetch(soon, q, d->ow, (bf16 ? 2 : 4) * d->sh * line);                      \
                if (max)                                                                           \
                    max_row##_b(d, s, s->row[i].to - s->row[i].from, usual, bf16, q, from, to,     \
                                room);                                                             \
                else                                                                               \
                    ave_row##_b(d, s, s->row[i], usual, bf16, q, from, to);                        \
                if (mask != NULL) put_marks(stream, n, room, mask + at);                           \
                if (bf16)                                                                          \
                    ct_bf16_narrow(n, own, ct_num_to(y, true, at));                                \
                else if (stream)                                                                   \
                    ct_stream_copy(n, own, y + at);                                                \
            }                                                                                      \
        }                                                                                          \
    }

#define FORWARD(_name, _target, _b)                                                                \
    _target static void _name(const ct_pool_desc *d, const ct_pool_axes *s, bool stream,           \
                              void *room, const float *x, float *y, uint8_t *mask)                 \
    {                                                                                              \
        if (d->bf16)                                                                               \
            forward_plane##_b(d, s, true, d->method == CT_POOL_MAX, true, false, x, y, mask,       \
                              room);                                                               \
        else if (d->method == CT_POOL_MAX)                                                         \
            forward_plane##_b(d, s, true, true, false, stream, x, y, mask, room);                  \
        else                                                                                       \
            forward_plane##_b(d, s, true, false, false, stream, x, y, mask, room);                 \
    }

PLANE_KERNELS(8)
PLANE_KERNELS(16)

FORWARD(forward8, CT_SIMD_CLONES, 8)

/* Nets have blocks of 16 where registers hold them (ct_simd_block()): for others there are no loops
 * of their own for what is usual, since these kernels in shorter vectors take the compiler long. */
static void forward16_any(const ct_pool_desc *d, const ct_pool_axes *s, bool stream, void *room,
                          const float *x, float *y, uint8_t *mask)
{
    forward_plane16(d, s, false, d->method == CT_POOL_MAX, d->bf16, stream, x, y, mask, room);
}
#ifdef CT_SIMD_BLOCK_16
FORWARD(forward16, CT_SIMD_BLOCK_16, 16)
#else
#define forward16 forward16_any
#endif

void ct_pool_blocked_plane(const ct_pool_desc *d, const ct_pool_axes *s, bool stream, void *room,
                           const float *x, float *y, uint8_t *mask)
{
    if (d->block == 8)
        forward8(d, s, stream, room, x, y, mask);
    else if (s->in_one)
        forward16(d, s, stream, room, x, y, mask);
    else
        forward16_any(d, s, stream, room, x, y, mask);
}

/* ---- Pooling of a plane of blocks, backward. It gathers: each place of the bottom is written
 * once, the sum of what the windows over it have for it, in their order. */

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
#define BACK_KERNELS(_b)                                                                           \
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

BACK_KERNELS(8)
BACK_KERNELS(16)

BACK(back8, CT_SIMD_CLONES, 8)

/* As forward16_any(). */
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
