/** @file pool_step1.h  Windows of 3 x 3 and step 1; private to pool/.
 *
 * Rows are flat arrays in which neighbours stand `step` numbers apart: those of a block, or 1 in
 * plain order. What three neighbours in a row have in common (their largest, their sum) serves the
 * three rows of outputs above, at and below it, so a place costs four comparisons or additions
 * where window by window there are eight. Places in windows are bytes from the start: comparisons
 * of 64 bytes then choose among four vectors of numbers.
 */
#ifndef CT_ENGINE_POOL_STEP1_H
#define CT_ENGINE_POOL_STEP1_H

#include "layers/engine/pool/pool_private.h"

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
 *  rows of outputs above, at and below, from number -step to n + step; places as if no window were
 *  cut at the edges. */
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

#endif
