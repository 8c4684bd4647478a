/* cuBLAS is column major: C = A B in row major is C' = B' A' there, so operands change places. */
#include "framework/math/cuda/math_cuda.h"

#include <cublas_v2.h>

#include "framework/math/cuda/fused_cuda.h"
#include "framework/math/update.h"
#include "framework/tensor/cuda/launch.cuh"

/* One process drives one device from its main thread, so the handle belongs to the device, like the
 * context that CUDA itself keeps. */
static struct {
    cublasHandle_t handle;
    void *work;
} blas;

/* As much as cuBLAS would take on Hopper. Its own memory it allocates anew in each stream that is
 * recorded, as nodes of the graph; ours is there before. Streams that compute are ordered among
 * themselves, so one is enough. */
static const size_t WORK = (size_t)32 << 20;

static ct_status blas_check(cublasStatus_t st, const char *what)
{
    if (st == CUBLAS_STATUS_SUCCESS) return CT_OK;
    return CT_FAIL(CT_ERR_DEVICE, "%s: cuBLAS status %d", what, (int)st);
}

extern "C" ct_status ct_math_cuda_open(void)
{
    CT_TRY(ct_fused_cuda_open());
    if (blas.work == NULL)
        CT_TRY(ct_cuda_check(cudaMalloc(&blas.work, WORK), "cuBLAS's workspace"));
    if (blas.handle != NULL) return CT_OK;
    return blas_check(cublasCreate(&blas.handle), "cublasCreate");
}

/* f32 means f32: TF32 only for those who ask. Sums are f32 whatever is multiplied. The default is
 * f32 or better, as fused_cuda.cu's; what cuBLAS calls pedantic gains nothing and may be slower. */
static ct_status prepare(ct_stream st, ct_operand operand)
{
    cublasMath_t mode =
        (operand == CT_OPERAND_TF32) ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH;

    CT_TRY(blas_check(cublasSetStream(blas.handle, (cudaStream_t)st), "cublasSetStream"));
    /* forgotten with each stream that is set */
    CT_TRY(blas_check(cublasSetWorkspace(blas.handle, blas.work, WORK), "cublasSetWorkspace"));
    return blas_check(cublasSetMathMode(blas.handle, mode), "cublasSetMathMode");
}

static ct_status launched(const char *what)
{
    return ct_cuda_check(cudaGetLastError(), what);
}

static cudaDataType_t type_of(ct_operand operand)
{
    return (operand == CT_OPERAND_F16) ? CUDA_R_16F : CUDA_R_16BF;
}

extern "C" ct_status ct_math_cuda_gemm_batch(ct_stream st, ct_operand operand, bool trans_a,
                                             bool trans_b, int64_t m, int64_t n, int64_t k,
                                             float alpha, const void *a, int64_t lda,
                                             int64_t a_step, const void *b, int64_t ldb,
                                             int64_t b_step, float beta, float *c, int64_t ldc,
                                             int64_t c_step, int64_t n_batch)
{
    cublasOperation_t op_a = trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t op_b = trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cudaDataType_t type = type_of(operand);

    if ((m < 1) || (n < 1)) return CT_OK;
    CT_TRY(prepare(st, operand));
    if (ct_operand_size(operand) == sizeof(uint16_t))
        return blas_check(cublasGemmStridedBatchedEx_64(blas.handle, op_b, op_a, n, m, k, &alpha, b,
                                                        type, ldb, b_step, a, type, lda, a_step,
                                                        &beta, c, CUDA_R_32F, ldc, c_step, n_batch,
                                                        CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                          "cublasGemmStridedBatchedEx");
    return blas_check(cublasSgemmStridedBatched_64(blas.handle, op_b, op_a, n, m, k, &alpha,
                                                   (const float *)b, ldb, b_step, (const float *)a,
                                                   lda, a_step, &beta, c, ldc, c_step, n_batch),
                      "cublasSgemmStridedBatched");
}

extern "C" ct_status ct_math_cuda_gemm_16(ct_stream st, ct_operand operand, bool trans_a,
                                          bool trans_b, int64_t m, int64_t n, int64_t k,
                                          float alpha, const void *a, int64_t lda, const void *b,
                                          int64_t ldb, void *c, int64_t ldc)
{
    cudaDataType_t type = type_of(operand);
    const float beta = 0.0f;

    if ((m < 1) || (n < 1)) return CT_OK;
    CT_TRY(prepare(st, operand));
    return blas_check(
        cublasGemmStridedBatchedEx_64(blas.handle, trans_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                                      trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, n, m, k, &alpha, b, type,
                                      ldb, 0, a, type, lda, 0, &beta, c, type, ldc, 0, 1,
                                      CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
        "cublasGemmStridedBatchedEx");
}

static ct_status cuda_gemm(ct_stream st, bool trans_a, bool trans_b, int64_t m, int64_t n,
                           int64_t k, float alpha, const float *a, int64_t lda, const float *b,
                           int64_t ldb, float beta, float *c, int64_t ldc)
{
    CT_TRY(prepare(st, CT_OPERAND_F32));
    return blas_check(cublasSgemm_64(blas.handle, trans_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                                     trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, n, m, k, &alpha, b, ldb,
                                     a, lda, &beta, c, ldc),
                      "cublasSgemm");
}

static ct_status cuda_gemv(ct_stream st, bool trans_a, int64_t m, int64_t n, float alpha,
                           const float *a, int64_t lda, const float *x, float beta, float *y)
{
    CT_TRY(prepare(st, CT_OPERAND_F32));
    return blas_check(cublasSgemv_64(blas.handle, trans_a ? CUBLAS_OP_N : CUBLAS_OP_T, n, m, &alpha,
                                     a, lda, x, 1, &beta, y, 1),
                      "cublasSgemv");
}

static __global__ void set_kernel(int64_t n, float value, float *y)
{
    CT_CUDA_LOOP(i, n) y[i] = value;
}

static ct_status cuda_set(ct_stream st, int64_t n, float value, float *y)
{
    CT_CUDA_RUN(set_kernel, ct_cuda_grid(n), st, n, value, y);
    return launched("set");
}

static __global__ void scale_kernel(int64_t n, float a, float *y)
{
    CT_CUDA_LOOP(i, n) y[i] *= a;
}

static ct_status cuda_scale(ct_stream st, int64_t n, float a, float *y)
{
    CT_CUDA_RUN(scale_kernel, ct_cuda_grid(n), st, n, a, y);
    return launched("scale");
}

static __global__ void axpby_kernel(int64_t n, float a, const float *x, float b, float *y)
{
    CT_CUDA_LOOP(i, n) y[i] = a * x[i] + ((b == 0.0f) ? 0.0f : b * y[i]);
}

static ct_status cuda_axpby(ct_stream st, int64_t n, float a, const float *x, float b, float *y)
{
    CT_CUDA_RUN(axpby_kernel, ct_cuda_grid(n), st, n, a, x, b, y);
    return launched("axpby");
}

static ct_status cuda_axpy(ct_stream st, int64_t n, float a, const float *x, float *y)
{
    return cuda_axpby(st, n, a, x, 1.0f, y);
}

static __global__ void mul_kernel(int64_t n, const float *a, const float *b, float *y)
{
    CT_CUDA_LOOP(i, n) y[i] = a[i] * b[i];
}

static ct_status cuda_mul(ct_stream st, int64_t n, const float *a, const float *b, float *y)
{
    CT_CUDA_RUN(mul_kernel, ct_cuda_grid(n), st, n, a, b, y);
    return launched("mul");
}

static ct_status cuda_dot(ct_stream st, int64_t n, const float *a, const float *b, double *out)
{
    return ct_cuda_sum_host(
        st, "dot", n, [=] __device__(int64_t i, double *sum) { *sum += (double)a[i] * b[i]; }, out);
}

static ct_status cuda_sumsq(ct_stream st, int64_t n, const float *x, double *out)
{
    return cuda_dot(st, n, x, x, out);
}

static ct_status cuda_asum(ct_stream st, int64_t n, const float *x, double *out)
{
    return ct_cuda_sum_host(
        st, "asum", n, [=] __device__(int64_t i, double *sum) { *sum += fabs((double)x[i]); }, out);
}

static __global__ void sgd_kernel(int64_t n, float scale, float rate, float momentum,
                                  float decay_l2, float decay_l1, const float *grad, float *h,
                                  float *w)
{
    CT_CUDA_LOOP(i, n)
    {
        float sign = (w[i] > 0.0f) ? 1.0f : (w[i] < 0.0f) ? -1.0f : 0.0f;
        float g = scale * grad[i] + decay_l2 * w[i] + decay_l1 * sign;

        h[i] = momentum * h[i] + rate * g;
        w[i] -= h[i];
    }
}

static ct_status cuda_sgd(ct_stream st, int64_t n, float scale, float rate, float momentum,
                          float decay_l2, float decay_l1, const float *grad, float *h, float *w)
{
    CT_CUDA_RUN(sgd_kernel, ct_cuda_grid(n), st, n, scale, rate, momentum, decay_l2, decay_l1, grad,
                h, w);
    return launched("sgd");
}

extern "C" const ct_math_ops ct_math_cuda = {
    "cublas",
    cuda_gemm,
    cuda_gemv,
    cuda_set,
    cuda_scale,
    cuda_axpy,
    cuda_axpby,
    cuda_mul,
    cuda_dot,
    cuda_sumsq,
    cuda_asum,
    cuda_sgd,
    ct_update_cuda,
    NULL, /* norms stay on the device: step_there.h */
    ct_update_cuda_all,
    ct_math_cuda_narrow_room,
    ct_math_cuda_gemm_narrow,
    &ct_fused_cuda,
};
