/** @file terms.h  What tests of collectives add: numbers whose sums are exact, and what they must
 * be. */
#ifndef CT_TESTS_MPI_TERMS_H
#define CT_TESTS_MPI_TERMS_H

#include <stdlib.h>

#include "framework/base/bf16.h"
#include "framework/base/f16.h"
#include "framework/base/simd.h"
#include "framework/tensor/tensor.h"

static const int64_t WIDE = ((int64_t)1 << 50) + 12345; /* a factor that f32 would round */

/* Small integers: their sums are exact in f32, bf16 and f16, in any order. Mixed by two products,
 * since every rank needs those of all. */
static inline int term(int rank, int64_t i, uint64_t salt)
{
    uint32_t x = (uint32_t)i * 0x9e3779b1u ^ ((uint32_t)rank * 0x85ebca77u + (uint32_t)salt);

    x = (x ^ (x >> 15)) * 0x2c1b3c6du;
    return (int)(((x ^ (x >> 13)) & 0xffffu) * 17 >> 16) - 8;
}

CT_SIMD_CLONES static inline void fill_f32(float *v, int64_t n, int rank, uint64_t salt)
{
    for (int64_t i = 0; i < n; ++i) v[i] = (float)term(rank, i, salt);
}

static inline void fill(void *buf, int64_t n, ct_dtype dtype, int rank, uint64_t salt)
{
    if (dtype == CT_F32) {
        fill_f32(buf, n, rank, salt);
        return;
    }
    for (int64_t i = 0; i < n; ++i) {
        if (dtype == CT_BF16)
            ((uint16_t *)buf)[i] = ct_bf16_from_f32((float)term(rank, i, salt));
        else if (dtype == CT_F16)
            ((uint16_t *)buf)[i] = ct_f16_from_f32((float)term(rank, i, salt));
        else if (dtype == CT_I64)
            ((int64_t *)buf)[i] = term(rank, i, salt) * WIDE;
        else if (dtype == CT_U8)
            ((uint8_t *)buf)[i] = (uint8_t)(8 + term(rank, i, salt));
    }
}

CT_SIMD_CLONES static inline void add_terms(int *sum, int64_t n, int rank, uint64_t salt)
{
    for (int64_t i = 0; i < n; ++i) sum[i] += term(rank, i, salt);
}

CT_SIMD_CLONES static inline void keep_most(int *sum, int64_t n, int rank, uint64_t salt)
{
    for (int64_t i = 0; i < n; ++i) {
        int t = term(rank, i, salt);

        sum[i] = (t > sum[i]) ? t : sum[i];
    }
}

/* The true sums of all ranks' terms; of u8 the greatest. */
static inline int *true_sums(int64_t n, ct_dtype dtype, int size, uint64_t salt)
{
    int *sum = malloc(sizeof(*sum) * (size_t)(n + 1));

    for (int64_t i = 0; i < n; ++i) sum[i] = term(0, i, salt);
    for (int r = 1; r < size; ++r) {
        if (dtype == CT_U8)
            keep_most(sum, n, r, salt);
        else
            add_terms(sum, n, r, salt);
    }
    return sum;
}

CT_SIMD_CLONES static inline int count_wrong_f32(const float *v, int64_t n, const int *sum)
{
    int wrong = 0;

    for (int64_t i = 0; i < n; ++i) wrong += (v[i] != (float)sum[i]);
    return wrong;
}

static inline int count_wrong(const void *buf, int64_t n, ct_dtype dtype, const int *sum)
{
    int wrong = 0;

    if (dtype == CT_F32) return count_wrong_f32(buf, n, sum);
    for (int64_t i = 0; i < n; ++i) {
        if (dtype == CT_BF16)
            wrong += (ct_bf16_to_f32(((const uint16_t *)buf)[i]) != (float)sum[i]);
        else if (dtype == CT_F16)
            wrong += (ct_f16_to_f32(((const uint16_t *)buf)[i]) != (float)sum[i]);
        else if (dtype == CT_I64)
            wrong += (((const int64_t *)buf)[i] != sum[i] * WIDE);
        else if (dtype == CT_U8)
            wrong += (((const uint8_t *)buf)[i] != 8 + sum[i]);
    }
    return wrong;
}

#endif
