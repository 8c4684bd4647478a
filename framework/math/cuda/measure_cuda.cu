/* What the device that this process has open really does. */
#include "framework/math/cuda/math_cuda.h"
#include "framework/tensor/cuda/device_cuda.h"

#ifdef CT_CUDA_EMULATED
enum { TURNS = 2, SIDE = 64 };
static const size_t BYTES = (size_t)1 << 20;
#else
enum { TURNS = 10, SIDE = 4096 };
static const size_t BYTES = (size_t)512 << 20;
#endif

/* Seconds of one of TURNS calls of run, after one that is not counted. */
template <class F> static ct_status time_of(F run, double *seconds_p)
{
    cudaEvent_t from, to;
    float ms = 0.0f;

    CT_TRY(ct_cuda_check(cudaEventCreate(&from), "cudaEventCreate"));
    CT_TRY(ct_cuda_check(cudaEventCreate(&to), "cudaEventCreate"));
    CT_TRY(run());
    CT_TRY(ct_cuda_check(cudaEventRecord(from, 0), "cudaEventRecord"));
    for (int i = 0; i < TURNS; i++) CT_TRY(run());
    CT_TRY(ct_cuda_check(cudaEventRecord(to, 0), "cudaEventRecord"));
    CT_TRY(ct_cuda_check(cudaEventSynchronize(to), "cudaEventSynchronize"));
    CT_TRY(ct_cuda_check(cudaEventElapsedTime(&ms, from, to), "cudaEventElapsedTime"));
    (void)cudaEventDestroy(from);
    (void)cudaEventDestroy(to);
    *seconds_p = 1e-3 * (double)ms / TURNS;
    return CT_OK;
}

static ct_status measure(char *block, double *copy_p, double *product_p, double *narrow_p)
{
    const int64_t n = SIDE;
    float *a = (float *)block, *b = a + n * n, *c = b + n * n;
    double copy, product, narrow, flop = 2.0 * (double)n * (double)n * (double)n;

    CT_TRY(time_of(
        [=]() {
            return ct_cuda_check(
                cudaMemcpyAsync(block + BYTES, block, BYTES, cudaMemcpyDeviceToDevice, 0), "copy");
        },
        &copy));
    CT_TRY(time_of(
        [=]() {
            return ct_math_cuda.gemm(NULL, false, false, n, n, n, 1.0f, a, n, b, n, 0.0f, c, n);
        },
        &product));
    CT_TRY(time_of(
        [=]() {
            return ct_math_cuda_gemm_batch(NULL, CT_OPERAND_BF16, false, false, n, n, n, 1.0f, a, n,
                                           0, b, n, 0, 0.0f, c, n, 0, 1);
        },
        &narrow));
    *copy_p = 2.0 * (double)BYTES / copy;
    *product_p = flop / product;
    *narrow_p = flop / narrow;
    return CT_OK;
}

extern "C" ct_status ct_device_cuda_measure(double *copy_p, double *product_p, double *narrow_p)
{
    void *block = NULL;
    ct_status status;

    CT_TRY(ct_cuda_check(cudaMalloc(&block, 2 * BYTES), "cudaMalloc"));
    status = ct_cuda_check(cudaMemset(block, 0, 2 * BYTES), "cudaMemset");
    if (status == CT_OK) status = measure((char *)block, copy_p, product_p, narrow_p);
    (void)cudaFree(block);
    return status;
}
