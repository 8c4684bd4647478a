/** @file cublas_v2.h  The products that the sources here call, as plain loops on the host: column
 * major, as cuBLAS has it. */
#ifndef CT_EMULATED_CUBLAS_H
#define CT_EMULATED_CUBLAS_H

#include <cuda_runtime.h>

typedef enum {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_ARCH_MISMATCH = 8,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_INTERNAL_ERROR = 14,
    CUBLAS_STATUS_NOT_SUPPORTED = 15
} cublasStatus_t;
typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 } cublasOperation_t;
typedef enum { CUBLAS_DEFAULT_MATH = 0, CUBLAS_TF32_TENSOR_OP_MATH = 3 } cublasMath_t;
typedef enum { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 } cudaDataType_t;
typedef enum { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_FAST_TF32 = 77 } cublasComputeType_t;
typedef enum { CUBLAS_GEMM_DEFAULT = -1 } cublasGemmAlgo_t;
typedef struct ct_emulated_cublas *cublasHandle_t;

cublasStatus_t cublasCreate(cublasHandle_t *handle);
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode);
/** The workspace is the library's own again. */
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t st);
/** At 256 bytes. Products want one: with its own the library would allocate what recorded ones
 * need. */
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *work, size_t bytes);
cublasStatus_t cublasSgemm_64(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb,
                              int64_t m, int64_t n, int64_t k, const float *alpha, const float *a,
                              int64_t lda, const float *b, int64_t ldb, const float *beta, float *c,
                              int64_t ldc);
cublasStatus_t cublasSgemmStridedBatched_64(cublasHandle_t handle, cublasOperation_t ta,
                                            cublasOperation_t tb, int64_t m, int64_t n, int64_t k,
                                            const float *alpha, const float *a, int64_t lda,
                                            long long a_step, const float *b, int64_t ldb,
                                            long long b_step, const float *beta, float *c,
                                            int64_t ldc, long long c_step, int64_t count);
/** a and b of 16 bits, c and sums f32: nothing else. */
cublasStatus_t cublasGemmStridedBatchedEx_64(
    cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int64_t m, int64_t n,
    int64_t k, const void *alpha, const void *a, cudaDataType_t a_type, int64_t lda,
    long long a_step, const void *b, cudaDataType_t b_type, int64_t ldb, long long b_step,
    const void *beta, void *c, cudaDataType_t c_type, int64_t ldc, long long c_step, int64_t count,
    cublasComputeType_t compute, cublasGemmAlgo_t algorithm);
cublasStatus_t cublasSgemv_64(cublasHandle_t handle, cublasOperation_t ta, int64_t m, int64_t n,
                              const float *alpha, const float *a, int64_t lda, const float *x,
                              int64_t step_x, const float *beta, float *y, int64_t step_y);

#endif
