/** @file math_cuda.h  ct_math_ops on CUDA: cuBLAS for matrices, own kernels for vectors. */
#ifndef CT_MATH_CUDA_H
#define CT_MATH_CUDA_H

#include "framework/math/fused.h"
#include "framework/math/math.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const ct_math_ops ct_math_cuda;
/** Makes the cuBLAS handle of this process's device; called by ct_device_cuda_open(). */
ct_status ct_math_cuda_open(void);
/** n_batch products C_i = alpha op(A_i) op(B_i) + beta C_i, as gemm. The i-th operands lie a_step,
 *  b_step, c_step numbers behind the first ones (0: all products share it). a and b hold numbers of
 *  `operand`: floats, which TF32 rounds as it reads them, or 16 bits each. */
ct_status ct_math_cuda_gemm_batch(ct_stream st, ct_operand operand, bool trans_a, bool trans_b,
                                  int64_t m, int64_t n, int64_t k, float alpha, const void *a,
                                  int64_t lda, int64_t a_step, const void *b, int64_t ldb,
                                  int64_t b_step, float beta, float *c, int64_t ldc, int64_t c_step,
                                  int64_t n_batch);
/** One product whose C has the operands' 16 bits, too; beta 0. */
ct_status ct_math_cuda_gemm_16(ct_stream st, ct_operand operand, bool trans_a, bool trans_b,
                               int64_t m, int64_t n, int64_t k, float alpha, const void *a,
                               int64_t lda, const void *b, int64_t ldb, void *c, int64_t ldc);
size_t ct_math_cuda_narrow_room(ct_operand operand, int64_t m, int64_t n, int64_t k,
                                unsigned narrow);
ct_status ct_math_cuda_gemm_narrow(ct_stream st, ct_operand operand, bool trans_a, bool trans_b,
                                   int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                                   int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                                   int64_t ldc, void *room, unsigned narrow);

/** Bytes of a number of `operand` as products read it. */
static inline size_t ct_operand_size(ct_operand operand)
{
    return ((operand == CT_OPERAND_BF16) || (operand == CT_OPERAND_F16)) ? 2 : 4;
}
/** y[i] = x[i] rounded to operand's 16 bits, BF16 or F16; n of them, no overlap. */
ct_status ct_cuda_narrow(ct_stream st, ct_operand operand, int64_t n, const float *x, void *y);

/* The update rules (update.h): a kernel each, of the lines that the CPU's loops are made of. */
struct ct_update;
struct ct_update_all;
ct_status ct_update_cuda(ct_stream st, int kind, const struct ct_update *u);
ct_status ct_update_cuda_all(ct_stream st, int kind, const struct ct_update *u,
                             const struct ct_update_all *all);

/* ---- ct_fused_ops by cuBLASLt */

extern const ct_fused_ops ct_fused_cuda;
/** Makes cuBLASLt's handle of this process's device; called by ct_math_cuda_open(). */
ct_status ct_fused_cuda_open(void);

#ifdef __cplusplus
}
#endif

#endif
