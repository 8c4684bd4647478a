/* cuBLAS's products as loops: added up in double, operands rounded where the call says so. */
#include <cublas_v2.h>

#include <algorithm>
#include <vector>

#include "framework/base/bf16.h"
#include "framework/base/f16.h"

static cublasMath_t math_mode;
static cudaStream_t stream;
static bool has_work;

cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
    static char one;

    *handle = (cublasHandle_t)&one;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t mode)
{
    math_mode = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t st)
{
    stream = st;
    has_work = false;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t, void *work, size_t bytes)
{
    if ((uintptr_t)work % 256 != 0) return CUBLAS_STATUS_INVALID_VALUE;
    has_work = (work != nullptr) && (bytes > 0);
    return CUBLAS_STATUS_SUCCESS;
}

/* 10 bits behind the point, to the nearest. */
static float tf32(float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof(bits));
    bits = (bits + 0xfffu + ((bits >> 13) & 1u)) & ~0x1fffu;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

static double number(const void *x, cudaDataType_t type, bool tf32_mode, int64_t i)
{
    float v;

    if (type == CUDA_R_16BF) return (double)ct_bf16_to_f32(((const uint16_t *)x)[i]);
    if (type == CUDA_R_16F) return (double)ct_f16_to_f32(((const uint16_t *)x)[i]);
    v = ((const float *)x)[i];
    return (double)(tf32_mode ? tf32(v) : v);
}

/* C, read and written in its own type: rounded once. */
struct result {
    void *c;
    cudaDataType_t type;
    int64_t ld;

    double at(int64_t i) const
    {
        return number(c, type, false, i);
    }
    void put(int64_t i, float v) const
    {
        if (type == CUDA_R_32F)
            ((float *)c)[i] = v;
        else
            ((uint16_t *)c)[i] = (type == CUDA_R_16BF) ? ct_bf16_from_f32(v) : ct_f16_from_f32(v);
    }
};

/* op(A) m x k in column major. */
struct matrix {
    const void *x;
    cudaDataType_t type;
    cublasOperation_t turned;
    int64_t ld;
    bool tf32 = (math_mode == CUBLAS_TF32_TENSOR_OP_MATH);

    double at(int64_t row, int64_t column) const
    {
        return number(x, type, tf32,
                      (turned == CUBLAS_OP_N) ? row + column * ld : column + row * ld);
    }
    bool fits(int64_t rows, int64_t columns) const
    {
        return (ld >= 1) && (ld >= ((turned == CUBLAS_OP_N) ? rows : columns));
    }
};

/* Element by element in the order of k, whole columns at a time: what is added to what does not
 * hang on m and n. */
static void multiply(int64_t m, int64_t n, int64_t k, float alpha, const matrix &a, const matrix &b,
                     float beta, const result &c)
{
    std::vector<double> columns((size_t)(m * k)), sum((size_t)m);

    ct_emulated_open();
    for (int64_t p = 0; p < k; p++) {
        for (int64_t i = 0; i < m; i++) columns[(size_t)(p * m + i)] = a.at(i, p);
    }
    for (int64_t j = 0; j < n; j++) {
        std::fill(sum.begin(), sum.end(), 0.0);
        for (int64_t p = 0; p < k; p++) {
            const double *column = &columns[(size_t)(p * m)];
            double factor = b.at(p, j);

            for (int64_t i = 0; i < m; i++) sum[(size_t)i] += column[i] * factor;
        }
        for (int64_t i = 0; i < m; i++) {
            double before = (beta != 0.0f) ? (double)beta * c.at(i + j * c.ld) : 0.0;

            c.put(i + j * c.ld, (float)((double)alpha * sum[(size_t)i] + before));
        }
    }
    ct_emulated_close();
}

static cublasStatus_t product(int64_t m, int64_t n, int64_t k, float alpha, const matrix &a,
                              const matrix &b, float beta, const result &c)
{
    if ((m < 0) || (n < 0) || (k < 0) || !a.fits(m, k) || !b.fits(k, n) || (c.ld < m) || (c.ld < 1))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!has_work) return CUBLAS_STATUS_NOT_SUPPORTED;
    ct_emulated_give(stream, [=]() { multiply(m, n, k, alpha, a, b, beta, c); });
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSgemm_64(cublasHandle_t, cublasOperation_t ta, cublasOperation_t tb, int64_t m,
                              int64_t n, int64_t k, const float *alpha, const float *a, int64_t lda,
                              const float *b, int64_t ldb, const float *beta, float *c, int64_t ldc)
{
    return product(m, n, k, *alpha, { a, CUDA_R_32F, ta, lda }, { b, CUDA_R_32F, tb, ldb }, *beta,
                   { c, CUDA_R_32F, ldc });
}

cublasStatus_t cublasSgemmStridedBatched_64(cublasHandle_t h, cublasOperation_t ta,
                                            cublasOperation_t tb, int64_t m, int64_t n, int64_t k,
                                            const float *alpha, const float *a, int64_t lda,
                                            long long a_step, const float *b, int64_t ldb,
                                            long long b_step, const float *beta, float *c,
                                            int64_t ldc, long long c_step, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        cublasStatus_t st = cublasSgemm_64(h, ta, tb, m, n, k, alpha, a + i * a_step, lda,
                                           b + i * b_step, ldb, beta, c + i * c_step, ldc);

        if (st != CUBLAS_STATUS_SUCCESS) return st;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmStridedBatchedEx_64(
    cublasHandle_t, cublasOperation_t ta, cublasOperation_t tb, int64_t m, int64_t n, int64_t k,
    const void *alpha, const void *a, cudaDataType_t a_type, int64_t lda, long long a_step,
    const void *b, cudaDataType_t b_type, int64_t ldb, long long b_step, const void *beta, void *c,
    cudaDataType_t c_type, int64_t ldc, long long c_step, int64_t count,
    cublasComputeType_t compute, cublasGemmAlgo_t)
{
    if ((a_type != b_type) || ((a_type != CUDA_R_16BF) && (a_type != CUDA_R_16F)) ||
        ((c_type != CUDA_R_32F) && (c_type != a_type)) || (compute != CUBLAS_COMPUTE_32F))
        return CUBLAS_STATUS_INVALID_VALUE;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = i * c_step * (int64_t)((c_type == CUDA_R_32F) ? sizeof(float) : 2);
        cublasStatus_t st = product(m, n, k, *(const float *)alpha,
                                    { (const uint16_t *)a + i * a_step, a_type, ta, lda },
                                    { (const uint16_t *)b + i * b_step, b_type, tb, ldb },
                                    *(const float *)beta, { (char *)c + at, c_type, ldc });

        if (st != CUBLAS_STATUS_SUCCESS) return st;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSgemv_64(cublasHandle_t h, cublasOperation_t ta, int64_t m, int64_t n,
                              const float *alpha, const float *a, int64_t lda, const float *x,
                              int64_t step_x, const float *beta, float *y, int64_t step_y)
{
    bool turned = (ta == CUBLAS_OP_T);

    if ((step_x != 1) || (step_y != 1)) return CUBLAS_STATUS_INVALID_VALUE;
    return cublasSgemm_64(h, ta, CUBLAS_OP_N, turned ? n : m, 1, turned ? m : n, alpha, a, lda, x,
                          turned ? m : n, beta, y, turned ? n : m);
}
