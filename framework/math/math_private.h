/** @file math_private.h  Parts of the CPU's mathematics; private to framework/math and its tests.
 */
#ifndef CT_MATH_PRIVATE_H
#define CT_MATH_PRIVATE_H

#include "framework/math/math.h"

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
