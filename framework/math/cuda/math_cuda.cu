/* cuBLAS is column major: C = A B in row major is C' = B' A' there, so operands change places. */
#include "framework/math/cuda/math_cuda.h"

#include <cublas_v2.h>

#include "framework/base/memory.h"
#include "framework/math/cuda/narrow.cuh"
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
    ct_update_cuda_all,
    ct_math_cuda_narrow_room,
    ct_math_cuda_gemm_narrow,
    &ct_fused_cuda,
};

/* ---- operands of products rounded to 16 bits: dense copies in a room of the layer's */

struct alignas(16) four_floats {
    float v[4];
};
struct alignas(8) four_halves {
    uint16_t v[4];
};

ct_status ct_cuda_narrow(ct_stream st, ct_operand operand, int64_t n, const float *x, void *to)
{
    uint16_t *y = (uint16_t *)to;
    bool aligned = ((uintptr_t)x % 16 == 0) && ((uintptr_t)to % 8 == 0);
    int64_t fours = aligned ? n / 4 : 0;

    CT_TRY(ct_cuda_map(st, "rounding", fours, [=] __device__(int64_t i) {
        four_floats in = ((const four_floats *)x)[i];
        four_halves out;

        for (int k = 0; k < 4; k++) out.v[k] = ct_narrow_bits(operand, in.v[k]);
        ((four_halves *)y)[i] = out;
    }));
    return ct_cuda_map(st, "rounding", n - 4 * fours, [=] __device__(int64_t i) {
        y[4 * fours + i] = ct_narrow_bits(operand, x[4 * fours + i]);
    });
}

ct_status ct_cuda_narrow_rows(ct_stream st, ct_operand operand, int64_t rows, int64_t columns,
                              const float *x, int64_t ld, uint16_t *y)
{
    int64_t to = ct_narrow_row(columns);

    if ((ld == columns) && (to == columns))
        return ct_cuda_narrow(st, operand, rows * columns, x, y);
    return ct_cuda_map(st, "rounding", rows * columns, [=] __device__(int64_t i) {
        y[i / columns * to + i % columns] =
            ct_narrow_bits(operand, x[i / columns * ld + i % columns]);
    });
}

size_t ct_narrow_bytes(int64_t rows, int64_t columns)
{
    return ct_align_up((size_t)(rows * ct_narrow_row(columns)) * sizeof(uint16_t));
}

/* Either way round: which of its sides are rows is the call's. */
size_t ct_math_cuda_narrow_room(ct_operand operand, int64_t m, int64_t n, int64_t k,
                                unsigned narrow)
{
    size_t a = ct_narrow_bytes(m, k), at = ct_narrow_bytes(k, m);
    size_t b = ct_narrow_bytes(k, n), bt = ct_narrow_bytes(n, k);

    if (ct_operand_size(operand) != sizeof(uint16_t)) return 0;
    if ((narrow & CT_NARROW_A) != 0) a = at = 0;
    if ((narrow & CT_NARROW_B) != 0) b = bt = 0;
    return ((a > at) ? a : at) + ((b > bt) ? b : bt);
}

/* An operand as products read it. */
typedef struct lying {
    const void *at;
    int64_t ld;
} lying;

/* x as it is, or rounded into *room_p, which goes on behind it. */
static ct_status lay(ct_stream st, ct_operand operand, bool is_narrow, int64_t rows,
                     int64_t columns, const float *x, int64_t ld, char **room_p, lying *l)
{
    *l = { x, ld };
    if (is_narrow) return CT_OK;
    *l = { *room_p, ct_narrow_row(columns) };
    CT_TRY(ct_cuda_narrow_rows(st, operand, rows, columns, x, ld, (uint16_t *)*room_p));
    *room_p += ct_narrow_bytes(rows, columns);
    return CT_OK;
}

ct_status ct_math_cuda_gemm_narrow(ct_stream st, ct_operand operand, bool trans_a, bool trans_b,
                                   int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                                   int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                                   int64_t ldc, void *room, unsigned narrow)
{
    char *next = (char *)room;
    lying la, lb;

    if (ct_operand_size(operand) != sizeof(uint16_t))
        return ct_math_cuda_gemm_batch(st, operand, trans_a, trans_b, m, n, k, alpha, a, lda, 0, b,
                                       ldb, 0, beta, c, ldc, 0, 1);
    CT_TRY(lay(st, operand, (narrow & CT_NARROW_A) != 0, trans_a ? k : m, trans_a ? m : k, a, lda,
               &next, &la));
    CT_TRY(lay(st, operand, (narrow & CT_NARROW_B) != 0, trans_b ? n : k, trans_b ? k : n, b, ldb,
               &next, &lb));
    if ((narrow & CT_NARROW_C) != 0)
        return ct_math_cuda_gemm_16(st, operand, trans_a, trans_b, m, n, k, alpha, la.at, la.ld,
                                    lb.at, lb.ld, c, ldc);
    return ct_math_cuda_gemm_batch(st, operand, trans_a, trans_b, m, n, k, alpha, la.at, la.ld, 0,
                                   lb.at, lb.ld, 0, beta, c, ldc, 0, 1);
}
