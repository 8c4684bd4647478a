#include "comm/collective/sum_shared.h"

#include <omp.h>
#include <string.h>

#include "framework/base/simd.h"

enum {
    BLOCK = 1024,    /* elements: 4 KB of sums stay in the first cache                */
    LINE = 16,       /* elements of a cache line                                      */
    TEAM_MIN = 65536 /* of every buffer: below, waiting for a team can cost more than
                      * it saves                                                             */
};

CT_SIMD_CLONES static void sum_2(float *restrict a, float *restrict b, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) {
        float sum = a[i] + b[i];

        a[i] = sum;
        b[i] = sum;
    }
}

CT_SIMD_CLONES static void sum_3(float *restrict a, float *restrict b, float *restrict c, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) {
        float sum = a[i] + b[i] + c[i];

        a[i] = sum;
        b[i] = sum;
        c[i] = sum;
    }
}

CT_SIMD_CLONES static void sum_4(float *restrict a, float *restrict b, float *restrict c,
                                 float *restrict d, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) {
        float sum = a[i] + b[i] + c[i] + d[i];

        a[i] = sum;
        b[i] = sum;
        c[i] = sum;
        d[i] = sum;
    }
}

/* sum[i] += a[i] + … + d[i], one after the other */
CT_SIMD_CLONES static void add_4(const float *a, const float *b, const float *c, const float *d,
                                 float *restrict sum, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) sum[i] = sum[i] + a[i] + b[i] + c[i] + d[i];
}

CT_SIMD_CLONES static void add_1(const float *a, float *restrict sum, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) sum[i] += a[i];
}

static void sum_many(float *const *x, int n_x, int64_t first, int64_t n)
{
    float sum[BLOCK];
    int k = 1;

    memcpy(sum, x[0] + first, sizeof(*sum) * (size_t)n);
    for (; k + 4 <= n_x; k += 4)
        add_4(x[k] + first, x[k + 1] + first, x[k + 2] + first, x[k + 3] + first, sum, n);
    for (; k < n_x; ++k) add_1(x[k] + first, sum, n);
    for (int j = 0; j < n_x; ++j) memcpy(x[j] + first, sum, sizeof(*sum) * (size_t)n);
}

static void sum_range(float *const *x, int n_x, int64_t i, int64_t n)
{
    switch (n_x) {
    case 1:
        return;
    case 2:
        sum_2(x[0] + i, x[1] + i, n);
        return;
    case 3:
        sum_3(x[0] + i, x[1] + i, x[2] + i, n);
        return;
    case 4:
        sum_4(x[0] + i, x[1] + i, x[2] + i, x[3] + i, n);
        return;
    default:
        for (int64_t end = i + n; i < end; i += BLOCK)
            sum_many(x, n_x, i, (end - i < BLOCK) ? end - i : BLOCK);
    }
}

void ct_sum_shared(float *const *x, int n_x, int64_t n, int n_thread)
{
    if ((n < TEAM_MIN) || (n_thread <= 1) || omp_in_parallel()) {
        sum_range(x, n_x, 0, n);
        return;
    }
#pragma omp parallel num_threads(n_thread)
    {
        int64_t t = omp_get_thread_num(), nt = omp_get_num_threads();
        int64_t first = n * t / nt / LINE * LINE;
        int64_t last = (t + 1 == nt) ? n : n * (t + 1) / nt / LINE * LINE;

        sum_range(x, n_x, first, last - first);
    }
}
