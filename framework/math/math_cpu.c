/* Matrix products through CBLAS. BLAS has 32-bit sizes, so larger ones are cut into blocks. */
#include "framework/math/math.h"
#include "framework/math/update.h"

#include <cblas.h>
#include <limits.h>

static const int64_t BLAS_LIMIT = (int64_t)1 << 30;

static int64_t smaller(int64_t a, int64_t b)
{
    return (a < b) ? a : b;
}

static void scale_rows(int64_t m, int64_t n, float beta, float *c, int64_t ldc)
{
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++)
            c[i * ldc + j] = (beta == 0.0f) ? 0.0f : beta * c[i * ldc + j];
    }
}

ct_status ct_cpu_gemm(int64_t limit, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                      float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                      float beta, float *c, int64_t ldc)
{
    if ((m == 0) || (n == 0)) return CT_OK;
    if ((k == 0) || (alpha == 0.0f)) {
        scale_rows(m, n, beta, c, ldc);
        return CT_OK;
    }
    if ((lda > INT_MAX) || (ldb > INT_MAX) || (ldc > INT_MAX))
        return ct_math_ref.gemm(NULL, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c,
                                ldc);
    for (int64_t i = 0; i < m; i += limit) {
        for (int64_t j = 0; j < n; j += limit) {
            for (int64_t p = 0; p < k; p += limit) {
                cblas_sgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans,
                            trans_b ? CblasTrans : CblasNoTrans, (int)smaller(limit, m - i),
                            (int)smaller(limit, n - j), (int)smaller(limit, k - p), alpha,
                            a + (trans_a ? p * lda + i : i * lda + p), (int)lda,
                            b + (trans_b ? j * ldb + p : p * ldb + j), (int)ldb,
                            (p == 0) ? beta : 1.0f, c + i * ldc + j, (int)ldc);
            }
        }
    }
    return CT_OK;
}

ct_status ct_cpu_gemv(int64_t limit, bool trans_a, int64_t m, int64_t n, float alpha,
                      const float *a, int64_t lda, const float *x, float beta, float *y)
{
    int64_t n_out = trans_a ? n : m;

    if ((m == 0) || (n == 0) || (alpha == 0.0f) || (beta == 0.0f)) {
        /* an explicit zero, since not every BLAS treats beta == 0 so where y holds NaN */
        scale_rows(1, n_out, beta, y, n_out);
        beta = 1.0f;
    }
    if ((m == 0) || (n == 0) || (alpha == 0.0f)) return CT_OK;
    if (lda > INT_MAX) return ct_math_ref.gemv(NULL, trans_a, m, n, alpha, a, lda, x, beta, y);
    for (int64_t i = 0; i < m; i += limit) {
        for (int64_t j = 0; j < n; j += limit) {
            bool first = trans_a ? (i == 0) : (j == 0);

            cblas_sgemv(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans,
                        (int)smaller(limit, m - i), (int)smaller(limit, n - j), alpha,
                        a + i * lda + j, (int)lda, x + (trans_a ? i : j), 1, first ? beta : 1.0f,
                        y + (trans_a ? j : i), 1);
        }
    }
    return CT_OK;
}

static ct_status cpu_gemm(ct_stream st, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                          float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                          float beta, float *c, int64_t ldc)
{
    (void)st;
    return ct_cpu_gemm(BLAS_LIMIT, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

static ct_status cpu_gemv(ct_stream st, bool trans_a, int64_t m, int64_t n, float alpha,
                          const float *a, int64_t lda, const float *x, float beta, float *y)
{
    (void)st;
    return ct_cpu_gemv(BLAS_LIMIT, trans_a, m, n, alpha, a, lda, x, beta, y);
}

const ct_math_ops ct_math_cpu = {
    .name = "openblas",
    .gemm = cpu_gemm,
    .gemv = cpu_gemv,
    .set = ct_cpu_set,
    .scale = ct_cpu_scale,
    .axpy = ct_cpu_axpy,
    .axpby = ct_cpu_axpby,
    .mul = ct_cpu_mul,
    .dot = ct_cpu_dot,
    .sumsq = ct_cpu_sumsq,
    .asum = ct_cpu_asum,
    .sgd = ct_cpu_sgd,
    .update = ct_update_cpu,
};
