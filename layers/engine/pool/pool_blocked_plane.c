/* Pooling of a plane of blocks, forward: a place of a block is one vector, so that windows are
 * loops over vectors whatever their size, stride and padding. */
#include "framework/base/bf16.h"
#include "framework/base/simd.h"
#include "framework/base/stream.h"
#include "layers/engine/pool/pool_blocked.h"

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
#define KERNELS(_b)                                                                                \
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

KERNELS(8)
KERNELS(16)

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
