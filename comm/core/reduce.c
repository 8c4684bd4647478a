#include "comm/core/reduce.h"

#include <omp.h>
#include <string.h>

#include "framework/base/bf16.h"
#include "framework/base/f16.h"

enum {
    BLOCK = 2048,     /* elements summed at a time: 8 KB of f32 stay in the first cache */
    TEAM_MIN = 524288 /* below, waiting for a team can cost more than it saves */
};

static void add_f32(int64_t n, const float *x, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] += x[i];
}

static void add_bf16(int64_t n, const uint16_t *x, uint16_t *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; ++i)
        y[i] = ct_bf16_from_f32(ct_bf16_to_f32(y[i]) + ct_bf16_to_f32(x[i]));
}

static void add_f16(int64_t n, const uint16_t *x, uint16_t *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; ++i)
        y[i] = ct_f16_from_f32(ct_f16_to_f32(y[i]) + ct_f16_to_f32(x[i]));
}

static int threads_for(int64_t n, int n_thread)
{
    if ((n_thread <= 1) || (n < TEAM_MIN) || omp_in_parallel()) return 1;
    return n_thread;
}

static void add_i64(int64_t n, const uint64_t *x, uint64_t *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] += x[i];
}

static void max_u8(int64_t n, const uint8_t *x, uint8_t *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] > y[i]) ? x[i] : y[i];
}

bool ct_reduce_supports(ct_dtype dtype)
{
    return (dtype == CT_F32) || (dtype == CT_BF16) || (dtype == CT_F16) || (dtype == CT_I64) ||
           (dtype == CT_U8);
}

static void add(ct_dtype dtype, int64_t n, const void *x, void *y)
{
    if (dtype == CT_BF16)
        add_bf16(n, x, y);
    else if (dtype == CT_F16)
        add_f16(n, x, y);
    else if (dtype == CT_I64)
        add_i64(n, x, y);
    else if (dtype == CT_U8)
        max_u8(n, x, y);
    else
        add_f32(n, x, y);
}

void ct_reduce_add(ct_dtype dtype, int64_t n, const void *x, void *y, int n_thread)
{
    int64_t size = (int64_t)ct_dtype_size(dtype);
    int team = threads_for(n, n_thread);

    if (team == 1) {
        add(dtype, n, x, y);
        return;
    }
#pragma omp parallel num_threads(team)
    {
        int64_t t = omp_get_thread_num(), nt = omp_get_num_threads();
        int64_t first = n * t / nt, last = n * (t + 1) / nt;

        add(dtype, last - first, (const char *)x + first * size, (char *)y + first * size);
    }
}

static void sum_block_f32(int64_t first, int n, const void *const *src, int n_src, void *const *dst,
                          int n_dst)
{
    float sum[BLOCK];

    memcpy(sum, (const float *)src[0] + first, sizeof(float) * (size_t)n);
    for (int k = 1; k < n_src; ++k) add_f32(n, (const float *)src[k] + first, sum);
    for (int j = 0; j < n_dst; ++j) memcpy((float *)dst[j] + first, sum, sizeof(float) * (size_t)n);
}

static void sum_block_bf16(int64_t first, int n, const void *const *src, int n_src,
                           void *const *dst, int n_dst)
{
    float sum[BLOCK];
    uint16_t out[BLOCK];

    for (int i = 0; i < n; ++i) sum[i] = ct_bf16_to_f32(((const uint16_t *)src[0])[first + i]);
    for (int k = 1; k < n_src; ++k) {
        const uint16_t *x = (const uint16_t *)src[k] + first;

#pragma omp simd
        for (int i = 0; i < n; ++i) sum[i] += ct_bf16_to_f32(x[i]);
    }
    for (int i = 0; i < n; ++i) out[i] = ct_bf16_from_f32(sum[i]);
    for (int j = 0; j < n_dst; ++j)
        memcpy((uint16_t *)dst[j] + first, out, sizeof(uint16_t) * (size_t)n);
}

static void sum_block_f16(int64_t first, int n, const void *const *src, int n_src, void *const *dst,
                          int n_dst)
{
    float sum[BLOCK];
    uint16_t out[BLOCK];

    for (int i = 0; i < n; ++i) sum[i] = ct_f16_to_f32(((const uint16_t *)src[0])[first + i]);
    for (int k = 1; k < n_src; ++k) {
        const uint16_t *x = (const uint16_t *)src[k] + first;

#pragma omp simd
        for (int i = 0; i < n; ++i) sum[i] += ct_f16_to_f32(x[i]);
    }
    for (int i = 0; i < n; ++i) out[i] = ct_f16_from_f32(sum[i]);
    for (int j = 0; j < n_dst; ++j)
        memcpy((uint16_t *)dst[j] + first, out, sizeof(uint16_t) * (size_t)n);
}

/* Two ranks on a node are the common case, and need no block in between. */
static void sum_pair_f32(int64_t first, int64_t n, const void *const *src, void *const *dst)
{
    const float *a = (const float *)src[0] + first, *b = (const float *)src[1] + first;
    float *c = (float *)dst[0] + first, *d = (float *)dst[1] + first;

    /* c and d may be a and b, each element only with itself */
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
        float sum = a[i] + b[i];

        c[i] = sum;
        d[i] = sum;
    }
}

/* i64 and u8: no rounding, so each source is simply added to what is there. */
static void sum_block_exact(ct_dtype dtype, int64_t first, int n, const void *const *src, int n_src,
                            void *const *dst, int n_dst)
{
    uint64_t sum[BLOCK];
    size_t size = ct_dtype_size(dtype), at = (size_t)first * size, bytes = (size_t)n * size;

    memcpy(sum, (const char *)src[0] + at, bytes);
    for (int k = 1; k < n_src; ++k) add(dtype, n, (const char *)src[k] + at, sum);
    for (int j = 0; j < n_dst; ++j) memcpy((char *)dst[j] + at, sum, bytes);
}

static void many(ct_dtype dtype, int64_t first, int64_t last, const void *const *src, int n_src,
                 void *const *dst, int n_dst)
{
    if ((dtype == CT_F32) && (n_src == 2) && (n_dst == 2)) {
        sum_pair_f32(first, last - first, src, dst);
        return;
    }
    for (int64_t i = first; i < last; i += BLOCK) {
        int n = (last - i < BLOCK) ? (int)(last - i) : BLOCK;

        if (dtype == CT_BF16)
            sum_block_bf16(i, n, src, n_src, dst, n_dst);
        else if (dtype == CT_F16)
            sum_block_f16(i, n, src, n_src, dst, n_dst);
        else if (dtype != CT_F32)
            sum_block_exact(dtype, i, n, src, n_src, dst, n_dst);
        else
            sum_block_f32(i, n, src, n_src, dst, n_dst);
    }
}

void ct_reduce_many(ct_dtype dtype, int64_t n, const void *const *src, int n_src, void *const *dst,
                    int n_dst, int n_thread)
{
    int team = threads_for(n * n_src, n_thread);

    if (team == 1) {
        many(dtype, 0, n, src, n_src, dst, n_dst);
        return;
    }
#pragma omp parallel num_threads(team)
    {
        int64_t t = omp_get_thread_num(), nt = omp_get_num_threads();

        many(dtype, n * t / nt, n * (t + 1) / nt, src, n_src, dst, n_dst);
    }
}

size_t ct_reduce_stated_size(const void *message, size_t expected)
{
    uint64_t bytes = 0;

    (void)expected;
    memcpy(&bytes, message, sizeof(bytes));
    return (size_t)bytes;
}
