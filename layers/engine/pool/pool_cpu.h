/** @file pool_cpu.h  What the poolings on the CPU share: planes in plain order, windows of step 1,
 * blocks of channels; private to pool/. */
#ifndef CT_ENGINE_POOL_POOL_CPU_H
#define CT_ENGINE_POOL_POOL_CPU_H

#include "framework/base/simd.h"
#include "layers/engine/pool/pool.h"
#include "framework/base/memory.h"

/* ---- Vectors of the engines on planes in plain order. */

enum { CT_POOL_LANES = 8 };
typedef float ct_pool_vec __attribute__((vector_size(4 * CT_POOL_LANES), aligned(4), may_alias));
typedef int32_t ct_pool_num __attribute__((vector_size(4 * CT_POOL_LANES), aligned(4), may_alias));

/** Numbers of two vectors, by their places in both. */
#define CT_POOL_MIXED(_a, _b, ...) CT_SIMD_MIXED(ct_pool_num, _a, _b, __VA_ARGS__)

/** n, rounded up to whole vectors. */
static inline int64_t ct_pool_lanes(int64_t n)
{
    return (n + CT_POOL_LANES - 1) / CT_POOL_LANES * CT_POOL_LANES;
}

/** One window, the plane. */
static inline bool ct_pool_is_global(const ct_pool_desc *d)
{
    return (d->oh == 1) && (d->ow == 1) && (d->kh == d->h) && (d->kw == d->w) && (d->ph == 0) &&
           (d->pw == 0);
}

/* places in windows are 32-bit */
static inline bool ct_pool_simd_supports(const ct_pool_desc *d)
{
    return ct_pool_on_cpu(d) && ct_pool_is_plain(d) && (d->block == 0) && !d->bf16 &&
           (d->h * d->w < 1 << 30) && (d->kw < 1 << 30);
}

/** Windows of 2 or 3 columns, two apart, with places in bytes; more outputs than a vector has. */
bool ct_pool_is_step2(const ct_pool_desc *d);
/** MAX forward of a plane with ct_pool_is_step2(); mask NULL: unwanted. */
void ct_pool_step2_max(const ct_pool_desc *d, const float *x, float *y, uint8_t *mask);

/* ---- Windows of 3 x 3 and step 1.
 *
 * Rows are flat arrays in which neighbours stand `step` numbers apart: those of a block, or 1 in
 * plain order. What three neighbours in a row have in common (their largest, their sum) serves the
 * three rows of outputs above, at and below it. So a place costs four comparisons or additions
 * where window by window there are eight. Places in windows are bytes from the start: comparisons
 * of 64 bytes then choose among four vectors of numbers. */

enum { CT_POOL_STEP1 = 3 }; /* rows and columns of a window */

/** Whether windows are 3 x 3, a step apart, in planes of that size at least. */
static inline bool ct_pool_is_step1(const ct_pool_desc *d)
{
    return (d->kh == CT_POOL_STEP1) && (d->kw == CT_POOL_STEP1) && (d->sh == 1) && (d->sw == 1) &&
           (d->h >= CT_POOL_STEP1) && (d->w >= CT_POOL_STEP1) && (d->ow == d->w + 2 * d->pw - 2) &&
           (d->oh == d->h + 2 * d->ph - 2);
}

/** ... and as many outputs as places, which the kernels but those of MAX forward want. */
static inline bool ct_pool_is_step1_same(const ct_pool_desc *d)
{
    return ct_pool_is_step1(d) && (d->ph == 1) && (d->pw == 1);
}

/** Whether a plane of blocks goes as one flat array: where rows are short, what a row costs beside
 * its places is most. */
static inline bool ct_pool_step1_is_small(const ct_pool_desc *d)
{
    return ct_pool_is_step1_same(d) && !d->bf16 && (d->h * d->w * d->block <= 4096);
}

/** n floats that are read soon: memory is far, and rows are too short for the processor to see
 *  where they go. */
typedef struct ct_pool_soon {
    const float *at;
    int64_t n; /* 0: none */
} ct_pool_soon;

/** Where outputs go: bf16: rounded; stream: past the caches. */
typedef struct ct_pool_sink {
    float *at;
    bool bf16, stream;
} ct_pool_sink;

/* ---- kernels, of n numbers, which ask for what is read soon between them. No arrays overlap but
 * those that are only read. */

/** best[i]: the first largest of x[i - step], x[i], x[i + step], at[i]: which, 0 to 2. nan: there
 *  may be NaNs, of which the last is taken; this takes longer. */
void ct_pool_step1_scan(int64_t n, int64_t step, bool nan, const float *x, float *best, uint8_t *at,
                        ct_pool_soon soon);
/** The same of `count` of them, 1 to 3, from x[i] on. */
void ct_pool_step1_scan_edge(int64_t n, int64_t step, int count, bool nan, const float *x,
                             float *best, uint8_t *at);
bool ct_pool_step1_nan(int64_t n, const float *x);
/** Outputs and their places from `count` scanned rows, 1 to 3; relu: see pool.h; mask NULL:
 * unwanted.
 */
void ct_pool_step1_join(int64_t n, int count, bool relu, bool nan, const float *const *best,
                        const uint8_t *const *at, ct_pool_sink y, uint8_t *mask, ct_pool_soon soon);
/** dx[i]: the sum of those gradients of the nine outputs around it whose place is i. g and at: the
 *  rows of outputs above, at and below, from number -step to n + step. Places are as if no window
 *  were cut at the edges. */
void ct_pool_step1_gather(int64_t n, int64_t step, const float *const *g, const uint8_t *const *at,
                          ct_pool_sink dx, ct_pool_soon soon);
/** sum[i]: of `count` rows, 2 or 3. */
void ct_pool_step1_add(int64_t n, int count, const float *const *x, float *sum, ct_pool_soon soon);
/** y[i]: the mean over a window whose columns add up to sum[i - step], sum[i] and sum[i + step]. */
void ct_pool_step1_mean(int64_t n, int64_t step, const float *sum, ct_pool_sink y,
                        ct_pool_soon soon);
/** n numbers that have been made elsewhere. */
void ct_pool_sink_put(ct_pool_sink y, int64_t n, const float *from);

/* ---- planes */

/** Of a thread's room. */
size_t ct_pool_step1_blocked_bytes(const ct_pool_desc *d);
/** A plane of blocks, forward, or backward where dx is there; mask NULL: unwanted, or AVE. stream:
 *  what is written passes the caches by. AVE and backward want ct_pool_is_step1_same(). */
void ct_pool_step1_blocked(const ct_pool_desc *d, bool stream, void *room, const float *x, float *y,
                           uint8_t *mask, const float *dy, float *dx);
/** A plane with ct_pool_is_step1_same(), of f32, some rows at a time: plain, or of blocks where it
 * is small. Arguments and room as above. */
size_t ct_pool_step1_flat_bytes(const ct_pool_desc *d);
void ct_pool_step1_flat(const ct_pool_desc *d, bool stream, void *room, const float *x, float *y,
                        uint8_t *mask, const float *dy, float *dx);
/** All planes in plain order by d's threads, each with so many bytes of a->work; no places in a
 *  second top. */
ct_status ct_pool_step1_run(const ct_pool_desc *d, ct_exec *ex, const ct_pool_args *a);

/* ---- Pooling of channels in blocks, one plane of blocks. */

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
