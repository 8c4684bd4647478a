/** @file pool_blocked.h  Pooling of channels in blocks, one plane of blocks; private to pool/. */
#ifndef CT_ENGINE_POOL_BLOCKED_H
#define CT_ENGINE_POOL_BLOCKED_H

#include "framework/base/memory.h"
#include "layers/engine/pool/pool_private.h"

/** Places [from, to) of an axis, and how many of the whole window count for AVE. */
typedef struct ct_pool_span {
    int32_t from, to, size;
} ct_pool_span;

/** Of each axis: the insides of the outputs' windows; the outputs whose windows hold a place. */
typedef struct ct_pool_axes {
    ct_pool_span *row, *column;           /* oh, ow */
    ct_pool_span *over_row, *over_column; /* h, w   */
    bool in_one;                          /* registers hold blocks of 16 */
} ct_pool_axes;

/** Rows of outputs whose windows may share a row of the plane. */
static inline int64_t ct_pool_rows_over(const ct_pool_desc *d)
{
    int64_t rows = (d->kh + d->sh - 1) / d->sh;

    return (rows < d->oh) ? rows : d->oh;
}

/** A thread's room: rows of outputs; of bf16, their gradients as f32, too; a row of the plane. */
static inline size_t ct_pool_outputs_bytes(const ct_pool_desc *d)
{
    return ct_align_up((size_t)(ct_pool_rows_over(d) * d->ow * d->block) * sizeof(float));
}
static inline float *ct_pool_row_room(const ct_pool_desc *d, void *room)
{
    return (float *)((char *)room + (d->bf16 ? 2 : 1) * ct_pool_outputs_bytes(d));
}

/** Some places of a row, at once: between pieces what is read soon is asked for, and what was made
 * is written, so that memory is busy while numbers are compared. */
enum { CT_POOL_PIECE = 16 };
typedef struct ct_pool_piece {
    int64_t from, to;
} ct_pool_piece;

static inline ct_pool_piece ct_pool_next(ct_pool_piece q, int64_t end)
{
    return (ct_pool_piece){ q.to, (q.to + CT_POOL_PIECE < end) ? q.to + CT_POOL_PIECE : end };
}

static inline ct_pool_piece ct_pool_first(int64_t end)
{
    return ct_pool_next((ct_pool_piece){ 0, 0 }, end);
}

/** Asks for the share of a piece of n places in `bytes` bytes that are read soon. */
static inline void ct_pool_fetch(const void *soon, ct_pool_piece q, int64_t n, int64_t bytes)
{
    const char *at = soon;

    for (int64_t k = q.from * bytes / n; k < q.to * bytes / n; k += 64)
        __builtin_prefetch(at + k, 0, 2);
}

/** mask NULL: unwanted, or AVE. stream: what is written passes the caches by. */
void ct_pool_blocked_plane(const ct_pool_desc *d, const ct_pool_axes *s, bool stream, void *room,
                           const float *x, float *y, uint8_t *mask);
void ct_pool_blocked_plane_back(const ct_pool_desc *d, const ct_pool_axes *s, bool stream,
                                void *room, const uint8_t *mask, const float *dy, float *dx);

#endif
