/** @file gemm.h  Matrix products on the CPU by register tiles on packed panels, beside BLAS.
 *
 * C = alpha op(A) op(B) + beta C as ct_math_ops.gemm has it: row major, f32, op(A) m x k, op(B)
 * k x n, C m x n, no overlap, beta == 0 overwrites C even where it holds NaN. Made for the shapes
 * where BLAS is slow: few rows, few columns, and weights that one packing serves many products.
 * Where A has few rows, B is read once, as it lies, as fast as memory gives it (gemm_tile.c).
 *
 * Nothing allocates: a plan says how much workspace a call needs. An element's sum is in an order
 * that depends on its length and `deep` alone. So results are the same bits for any number of
 * threads. Between vector widths they differ only in how multiply-adds are rounded.
 *
 * With bf16 op(A) and op(B) are rounded to bfloat16 as they are packed (to the nearest, ties to
 * even). Products are exact and added up in f32. Where the processor has an instruction for pairs
 * of them, panels hold pairs, otherwise f32 numbers that were rounded. Beside the error of f32
 * sums, |computed - exact| <= (2 u + u^2) |alpha| sum |a||b|, u = 2^-8, for operands above 2^-126.
 */
#ifndef CT_GEMM_H
#define CT_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ct_gemm_desc {
    bool ta, tb; /* A is stored k x m, B n x k */
    int64_t m, n, k;
    int n_thread; /* at most so many work on it */
    bool bf16;    /* operands rounded            */
    bool deep;    /* sums in longer pieces: the same for a product and for its parts */
} ct_gemm_desc;

typedef struct ct_gemm_set ct_gemm_set;

/** How a product of one shape is computed. Cheap to make; plain data. */
typedef struct ct_gemm_plan {
    ct_gemm_desc d; /* turned: of C^T = op(B)^T op(A)^T */
    bool turned;    /* vectors lie along m instead of n */
    bool few;       /* by gemm_tile.c; nothing below but set then */
    bool streams;   /* all rows at once, of a B that is kept      */
    const ct_gemm_set *set;
    int grid_m, grid_n; /* parts of C                   */
    int n_worker;
    int64_t mc, kc; /* a packed block of A: rows, length of their sums */
} ct_gemm_plan;

/** Operands of one product. a, b: as stored, with their row strides. */
typedef struct ct_gemm_args {
    float alpha, beta;
    const float *a, *b;
    int64_t lda, ldb;
    float *c;
    int64_t ldc;
    void *work;       /* ct_gemm_workspace() bytes, 64-byte aligned, private to the call */
    bool a16, b16;    /* A, B are addresses of bf16 numbers, to which strides refer */
    const void *kept; /* with ct_gemm_plan_kept(): in place of b, as ct_gemm_keep() left it       */
} ct_gemm_args;

ct_gemm_plan ct_gemm_plan_make(const ct_gemm_desc *d);
/** Whether longer pieces of the sums pay: C is large, and each piece reads and writes all of it. To
 *  be asked of a whole product, not of its parts, which then have the same bits. */
bool ct_gemm_goes_deep(const ct_gemm_desc *d);
/** Enough for d and for any part of its rows and columns with the same k. */
size_t ct_gemm_workspace(const ct_gemm_desc *d);
/** Inside a parallel region it runs on the calling thread. */
void ct_gemm_run(const ct_gemm_plan *p, const ct_gemm_args *g);
/** Whether this was faster than BLAS for such shapes where it was measured: a static rule. */
bool ct_gemm_prefers(const ct_gemm_desc *d);

/* ---- many products with one B: weights packed once, for few rows at a time */

/** Floats of op(B) packed, for any number of rows; a multiple of 16. */
int64_t ct_gemm_packed_size(const ct_gemm_desc *d);
void ct_gemm_pack(const ct_gemm_desc *d, const float *b, int64_t ldb, float *packed);
size_t ct_gemm_packed_workspace(const ct_gemm_desc *d);
/** Both, one behind the other. */
size_t ct_gemm_packed_bytes(const ct_gemm_desc *d);
/** Whether packing pays for so many products: a static rule. */
bool ct_gemm_packed_prefers(const ct_gemm_desc *d, int64_t products);
/** ct_gemm_run with packed in place of b and ldb, which are not read. Reads packed once, from its
 *  end if `last_first`: what of it is still in the cache since a product in the other direction is
 *  then found there. d->tb says nothing here. */
void ct_gemm_run_packed(const ct_gemm_desc *d, const ct_gemm_args *g, const float *packed,
                        bool last_first);

/* ---- products with one B that is packed once: weights, whatever the number of rows
 *
 * Panels of floats, or with bf16 of bf16 numbers, 2 bytes each on all processors. Where there is no
 * instruction for pairs these are widened a piece at a time, into a first-level cache. Results are
 * those of ct_gemm_run() without `kept`, bit for bit, but where A has so few rows that B is read as
 * it lies: sums are in the order of many rows here. So with equal `deep` a row of C has the same
 * bits whatever rows stand beside it. */

/** Of op(B) for any number of rows; a multiple of 64. */
size_t ct_gemm_kept_bytes(const ct_gemm_desc *d);
/** By the team; kept: 64-byte aligned. */
void ct_gemm_keep(const ct_gemm_desc *d, const float *b, int64_t ldb, void *kept);
/** Of products with args.kept. */
ct_gemm_plan ct_gemm_plan_kept(const ct_gemm_desc *d);

/* ---- many small products of one shape */

/** count products; operands of the next are step_a, step_b, step_c floats further on. Dealt out
 *  to the threads whole. */
typedef struct ct_gemm_batch {
    int64_t count, step_a, step_b, step_c;
} ct_gemm_batch;

size_t ct_gemm_batch_workspace(const ct_gemm_desc *d, int64_t count);
/** g: of the first product. */
void ct_gemm_run_batch(const ct_gemm_desc *d, const ct_gemm_batch *batch, const ct_gemm_args *g);

#ifdef __cplusplus
}
#endif

#endif
