/* Vector operations: an OpenMP loop over blocks, and per operation one block function that the
 * compiler vectorises. Block edges are fixed, so results are the same for any number of threads. */
#include "framework/base/simd.h"
#include "framework/math/math.h"

#include <math.h>
#include <omp.h>

enum {
    BLOCK = 8192,     /* elements: two or three operands fit into a first-level cache's 32 KB x2 */
    TEAM_MIN = 65536, /* below this a team costs more than it brings                            */
    N_PARTIAL = 256   /* sums of parts that a reduction adds up, at most                        */
};

static bool worth_team(int64_t n)
{
    return (n >= TEAM_MIN) && !omp_in_parallel();
}

/** Runs _call for each block [_i, _i + _len) of [0, _n). */
#define FOR_BLOCKS(_n, _i, _len, _call)                                                            \
    do {                                                                                           \
        int64_t n_ = (_n);                                                                         \
        _Pragma("omp parallel for schedule(static) if (worth_team(n_))") for (int64_t _i = 0;      \
                                                                              _i < n_;             \
                                                                              _i += BLOCK)         \
        {                                                                                          \
            int64_t _len = (n_ - _i < BLOCK) ? n_ - _i : BLOCK;                                    \
                                                                                                   \
            _call;                                                                                 \
        }                                                                                          \
    } while (0)

CT_SIMD_CLONES static void set_block(int64_t n, float value, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = value;
}

CT_SIMD_CLONES static void scale_block(int64_t n, float a, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] *= a;
}

CT_SIMD_CLONES static void axpy_block(int64_t n, float a, const float *x, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] += a * x[i];
}

CT_SIMD_CLONES static void axpby_block(int64_t n, float a, const float *x, float b, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = a * x[i] + b * y[i];
}

CT_SIMD_CLONES static void ax_block(int64_t n, float a, const float *x, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = a * x[i];
}

CT_SIMD_CLONES static void mul_block(int64_t n, const float *a, const float *b, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = a[i] * b[i];
}

CT_SIMD_CLONES static void sgd_block(int64_t n, float scale, float rate, float momentum,
                                     float decay_l2, float decay_l1, const float *grad, float *h,
                                     float *w)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float sign = (float)(w[i] > 0.0f) - (float)(w[i] < 0.0f);
        float g = scale * grad[i] + decay_l2 * w[i] + decay_l1 * sign;
        float step = momentum * h[i] + rate * g;

        h[i] = step;
        w[i] -= step;
    }
}

/* Sixteen sums side by side, whatever the vector width, added up in a fixed order. */
CT_SIMD_CLONES static double dot_block(int64_t n, const float *a, const float *b)
{
    double lane[16] = { 0.0 };
    double sum = 0.0;
    int64_t i = 0;

    for (; i + 16 <= n; i += 16) {
#pragma omp simd
        for (int j = 0; j < 16; j++) lane[j] += (double)a[i + j] * (double)b[i + j];
    }
    for (; i < n; i++) lane[i & 15] += (double)a[i] * (double)b[i];
    for (int j = 0; j < 16; j++) sum += lane[j];
    return sum;
}

CT_SIMD_CLONES static double asum_block(int64_t n, const float *x)
{
    double lane[16] = { 0.0 };
    double sum = 0.0;
    int64_t i = 0;

    for (; i + 16 <= n; i += 16) {
#pragma omp simd
        for (int j = 0; j < 16; j++) lane[j] += (double)fabsf(x[i + j]);
    }
    for (; i < n; i++) lane[i & 15] += (double)fabsf(x[i]);
    for (int j = 0; j < 16; j++) sum += lane[j];
    return sum;
}

ct_status ct_cpu_set(ct_stream st, int64_t n, float value, float *y)
{
    (void)st;
    FOR_BLOCKS(n, i, len, set_block(len, value, y + i));
    return CT_OK;
}

ct_status ct_cpu_scale(ct_stream st, int64_t n, float a, float *y)
{
    (void)st;
    FOR_BLOCKS(n, i, len, scale_block(len, a, y + i));
    return CT_OK;
}

ct_status ct_cpu_axpy(ct_stream st, int64_t n, float a, const float *x, float *y)
{
    (void)st;
    FOR_BLOCKS(n, i, len, axpy_block(len, a, x + i, y + i));
    return CT_OK;
}

ct_status ct_cpu_axpby(ct_stream st, int64_t n, float a, const float *x, float b, float *y)
{
    (void)st;
    if (b == 0.0f)
        FOR_BLOCKS(n, i, len, ax_block(len, a, x + i, y + i));
    else
        FOR_BLOCKS(n, i, len, axpby_block(len, a, x + i, b, y + i));
    return CT_OK;
}

ct_status ct_cpu_mul(ct_stream st, int64_t n, const float *a, const float *b, float *y)
{
    (void)st;
    FOR_BLOCKS(n, i, len, mul_block(len, a + i, b + i, y + i));
    return CT_OK;
}

ct_status ct_cpu_sgd(ct_stream st, int64_t n, float scale, float rate, float momentum,
                     float decay_l2, float decay_l1, const float *grad, float *h, float *w)
{
    (void)st;
    FOR_BLOCKS(n, i, len,
               sgd_block(len, scale, rate, momentum, decay_l2, decay_l1, grad + i, h + i, w + i));
    return CT_OK;
}

/* b == NULL: of |a|. By at most so many threads, which changes no bit. */
static double reduce(int64_t n, const float *a, const float *b, int team)
{
    double partial[N_PARTIAL];
    double sum = 0.0;
    int64_t len = (n + N_PARTIAL - 1) / N_PARTIAL, n_partial;

    if (len < BLOCK) len = BLOCK;
    n_partial = (n + len - 1) / len;
#pragma omp parallel for schedule(static)                                                          \
    num_threads(team) if ((team > 1) && worth_team(n_partial * len))
    for (int64_t p = 0; p < n_partial; p++) {
        int64_t from = p * len;
        int64_t here = (n - from < len) ? n - from : len;

        partial[p] = (b != NULL) ? dot_block(here, a + from, b + from) : asum_block(here, a + from);
    }
    for (int64_t p = 0; p < n_partial; p++) sum += partial[p];
    return sum;
}

ct_status ct_cpu_dot(ct_stream st, int64_t n, const float *a, const float *b, double *out)
{
    (void)st;
    *out = reduce(n, a, b, omp_get_max_threads());
    return CT_OK;
}

double ct_sumsq_by(int64_t n, const float *x, int n_thread)
{
    return reduce(n, x, x, n_thread);
}

ct_status ct_cpu_sumsq(ct_stream st, int64_t n, const float *x, double *out)
{
    (void)st;
    *out = ct_sumsq_by(n, x, omp_get_max_threads());
    return CT_OK;
}

ct_status ct_cpu_asum(ct_stream st, int64_t n, const float *x, double *out)
{
    (void)st;
    *out = reduce(n, x, NULL, omp_get_max_threads());
    return CT_OK;
}
