/** @file math.h  Matrix and vector operations on a device's memory.
 *
 * Row major, 64-bit sizes, f32. Each device has one ct_math_ops (dev->math). On the CPU an
 * operation called outside a parallel region uses the OpenMP team. Inside one it runs on the
 * calling thread. So a layer may split a batch over threads and call these per image. Results of
 * vector operations do not depend on the number of threads. dot, sumsq and asum are sums of doubles
 * in an order that the length alone says, with products that are exact. They are of parts of
 * max(8192, ceil(n / 256)) elements, one after the other. Each part is of 16 sums of every 16th
 * element. So all ranks find the same norm of the same gradient, with unlike numbers of threads and
 * vectors, too. Where ranks hold pieces of it: square_tree.h.
 */
#ifndef CT_MATH_H
#define CT_MATH_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/tensor/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ct_update;
struct ct_update_all;
struct ct_fused_ops;

/** What products multiply: f32, or operands rounded to fewer bits; sums are f32 in any case. */
typedef enum { CT_OPERAND_F32, CT_OPERAND_TF32, CT_OPERAND_BF16, CT_OPERAND_F16 } ct_operand;
/** As values in memory. */
static inline ct_dtype ct_dtype_of(ct_operand operand)
{
    return (operand == CT_OPERAND_BF16) ? CT_BF16 : (operand == CT_OPERAND_F16) ? CT_F16 : CT_F32;
}

/** Matrices of a product that are numbers of its operand's 16 bits in memory: dense, in rows of a
 * multiple of 8, so that they begin at 16 bytes. Other A and B are f32 and rounded on the way, and
 * C is f32. Addresses are those of floats all the same. */
enum { CT_NARROW_A = 1, CT_NARROW_B = 2, CT_NARROW_C = 4 };

typedef struct ct_math_ops {
    const char *name; /* "openblas", "ref", "cublas" */
    /** C = alpha op(A) op(B) + beta C; op(A) m x k, op(B) k x n. lda: row stride of A as stored,
     *  and so on. beta == 0 overwrites C even where it holds NaN. No overlap. */
    ct_status (*gemm)(ct_stream st, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                      float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                      float beta, float *c, int64_t ldc);
    /** y = alpha op(A) x + beta y; A m x n as stored, row stride lda. */
    ct_status (*gemv)(ct_stream st, bool trans_a, int64_t m, int64_t n, float alpha, const float *a,
                      int64_t lda, const float *x, float beta, float *y);
    ct_status (*set)(ct_stream st, int64_t n, float value, float *y);
    ct_status (*scale)(ct_stream st, int64_t n, float a, float *y);                /* y *= a      */
    ct_status (*axpy)(ct_stream st, int64_t n, float a, const float *x, float *y); /* y += a x    */
    /** y = a x + b y; b == 0 overwrites y even where it holds NaN. */
    ct_status (*axpby)(ct_stream st, int64_t n, float a, const float *x, float b, float *y);
    ct_status (*mul)(ct_stream st, int64_t n, const float *a, const float *b,
                     float *y); /* y = a b */
    ct_status (*dot)(ct_stream st, int64_t n, const float *a, const float *b, double *out);
    ct_status (*sumsq)(ct_stream st, int64_t n, const float *x, double *out); /* sum of x^2  */
    ct_status (*asum)(ct_stream st, int64_t n, const float *x, double *out);  /* sum of |x|  */
    /** SGD with momentum, Caffe's order: g = scale grad + decay w (L2) or decay sign(w) (L1);
     *  h = momentum h + rate g; w -= h. decay_l1 and decay_l2: at most one non-zero. */
    ct_status (*sgd)(ct_stream st, int64_t n, float scale, float rate, float momentum,
                     float decay_l2, float decay_l1, const float *grad, float *h, float *w);
    /* The other rules: update.h. */
    ct_status (*update)(ct_stream st, int kind, const struct ct_update *u);
    /** Many parameters in one pass; NULL: one after the other is as good. */
    ct_status (*update_all)(ct_stream st, int kind, const struct ct_update *u,
                            const struct ct_update_all *all);
    /** gemm of operands that are rounded (to the nearest, ties to even) on the way, in `room` of
     *  narrow_room() bytes on the device. narrow: of CT_NARROW_…, those that are so already. With C
     *  beta is 0. NULL on the CPU, where gemm.h does that. */
    size_t (*narrow_room)(ct_operand operand, int64_t m, int64_t n, int64_t k, unsigned narrow);
    ct_status (*gemm_narrow)(ct_stream st, ct_operand operand, bool trans_a, bool trans_b,
                             int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                             int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                             int64_t ldc, void *room, unsigned narrow);
    /** Products with what stands behind them in one kernel (fused.h); NULL: none. */
    const struct ct_fused_ops *fused;
} ct_math_ops;

/** Plain loops, written to be read: the oracle of the others. */
extern const ct_math_ops ct_math_ref;
/** OpenBLAS and OpenMP loops. */
extern const ct_math_ops ct_math_cpu;

/* ---- The square of a norm, for who has so many threads to give and no more: one that
 * moves messages beside layers that compute. */

/** The sum of x[n]'s squares by at most n_thread (>= 1) threads: the bits of ct_math_cpu.sumsq
 *  (math.h), whatever their number. On the CPU. */
double ct_sumsq_by(int64_t n, const float *x, int n_thread);

#ifdef __cplusplus
}
#endif

/* ---- Parts of the CPU's mathematics; private to framework/math and its tests */

/** ct_math_cpu.gemm with BLAS calls of at most `limit` along each size: BLAS takes 32-bit sizes.
 *  A row stride that BLAS cannot take is computed by ct_math_ref. */
ct_status ct_cpu_gemm(int64_t limit, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                      float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                      float beta, float *c, int64_t ldc);
ct_status ct_cpu_gemv(int64_t limit, bool trans_a, int64_t m, int64_t n, float alpha,
                      const float *a, int64_t lda, const float *x, float beta, float *y);

/* vector_cpu.c: the vector operations of ct_math_cpu. */
ct_status ct_cpu_set(ct_stream st, int64_t n, float value, float *y);
ct_status ct_cpu_scale(ct_stream st, int64_t n, float a, float *y);
ct_status ct_cpu_axpy(ct_stream st, int64_t n, float a, const float *x, float *y);
ct_status ct_cpu_axpby(ct_stream st, int64_t n, float a, const float *x, float b, float *y);
ct_status ct_cpu_mul(ct_stream st, int64_t n, const float *a, const float *b, float *y);
ct_status ct_cpu_dot(ct_stream st, int64_t n, const float *a, const float *b, double *out);
ct_status ct_cpu_sumsq(ct_stream st, int64_t n, const float *x, double *out);
ct_status ct_cpu_asum(ct_stream st, int64_t n, const float *x, double *out);
ct_status ct_cpu_sgd(ct_stream st, int64_t n, float scale, float rate, float momentum,
                     float decay_l2, float decay_l1, const float *grad, float *h, float *w);

#endif
