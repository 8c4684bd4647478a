#include "framework/math/math.h"
#include "framework/math/update.h"

#include <math.h>

/* Sums run in double, so that the oracle's own rounding is below what the tests allow. */
static ct_status ref_gemm(ct_stream st, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                          float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                          float beta, float *c, int64_t ldc)
{
    (void)st;
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = 0.0;

            for (int64_t p = 0; p < k; p++) {
                double x = trans_a ? a[p * lda + i] : a[i * lda + p];
                double y = trans_b ? b[j * ldb + p] : b[p * ldb + j];

                sum += x * y;
            }
            sum *= alpha;
            if (beta != 0.0f) sum += (double)beta * c[i * ldc + j];
            c[i * ldc + j] = (float)sum;
        }
    }
    return CT_OK;
}

static ct_status ref_gemv(ct_stream st, bool trans_a, int64_t m, int64_t n, float alpha,
                          const float *a, int64_t lda, const float *x, float beta, float *y)
{
    if (trans_a) return ref_gemm(st, true, false, n, 1, m, alpha, a, lda, x, 1, beta, y, 1);
    return ref_gemm(st, false, false, m, 1, n, alpha, a, lda, x, 1, beta, y, 1);
}

static ct_status ref_set(ct_stream st, int64_t n, float value, float *y)
{
    (void)st;
    for (int64_t i = 0; i < n; i++) y[i] = value;
    return CT_OK;
}

static ct_status ref_scale(ct_stream st, int64_t n, float a, float *y)
{
    (void)st;
    for (int64_t i = 0; i < n; i++) y[i] *= a;
    return CT_OK;
}

static ct_status ref_axpy(ct_stream st, int64_t n, float a, const float *x, float *y)
{
    (void)st;
    for (int64_t i = 0; i < n; i++) y[i] += a * x[i];
    return CT_OK;
}

static ct_status ref_axpby(ct_stream st, int64_t n, float a, const float *x, float b, float *y)
{
    (void)st;
    for (int64_t i = 0; i < n; i++) y[i] = a * x[i] + ((b != 0.0f) ? b * y[i] : 0.0f);
    return CT_OK;
}

static ct_status ref_mul(ct_stream st, int64_t n, const float *a, const float *b, float *y)
{
    (void)st;
    for (int64_t i = 0; i < n; i++) y[i] = a[i] * b[i];
    return CT_OK;
}

static ct_status ref_dot(ct_stream st, int64_t n, const float *a, const float *b, double *out)
{
    double sum = 0.0;

    (void)st;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * b[i];
    *out = sum;
    return CT_OK;
}

static ct_status ref_sumsq(ct_stream st, int64_t n, const float *x, double *out)
{
    return ref_dot(st, n, x, x, out);
}

static ct_status ref_asum(ct_stream st, int64_t n, const float *x, double *out)
{
    double sum = 0.0;

    (void)st;
    for (int64_t i = 0; i < n; i++) sum += fabs((double)x[i]);
    *out = sum;
    return CT_OK;
}

static ct_status ref_sgd(ct_stream st, int64_t n, float scale, float rate, float momentum,
                         float decay_l2, float decay_l1, const float *grad, float *h, float *w)
{
    (void)st;
    for (int64_t i = 0; i < n; i++) {
        float sign = (float)(w[i] > 0.0f) - (float)(w[i] < 0.0f);
        float g = scale * grad[i] + decay_l2 * w[i] + decay_l1 * sign;

        h[i] = momentum * h[i] + rate * g;
        w[i] -= h[i];
    }
    return CT_OK;
}

const ct_math_ops ct_math_ref = {
    .name = "ref",
    .gemm = ref_gemm,
    .gemv = ref_gemv,
    .set = ref_set,
    .scale = ref_scale,
    .axpy = ref_axpy,
    .axpby = ref_axpby,
    .mul = ref_mul,
    .dot = ref_dot,
    .sumsq = ref_sumsq,
    .asum = ref_asum,
    .sgd = ref_sgd,
    .update = ct_update_cpu,
};
