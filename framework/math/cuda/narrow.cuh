/** @file narrow.cuh  Numbers of 16 bits on the device. Included by .cu files. */
#ifndef CT_MATH_NARROW_CUH
#define CT_MATH_NARROW_CUH

#include "framework/base/bf16.h"
#include "framework/base/f16.h"
#include "framework/math/cuda/math_cuda.h"
#include "framework/tensor/cuda/device_cuda.h"
#include "framework/tensor/tensor.h"

static __host__ __device__ inline uint16_t ct_narrow_bits(ct_operand operand, float v)
{
    return (operand == CT_OPERAND_F16) ? ct_f16_from_f32(v) : ct_bf16_from_f32(v);
}

/** Device arrays whose numbers are of a dtype, read and written as floats: f32, bf16 or f16. */
struct ct_numbers {
    void *at; /* NULL: no array */
    ct_dtype type;

    __device__ float operator[](int64_t i) const
    {
        if (type == CT_F32) return ((const float *)at)[i];
        return (type == CT_BF16) ? ct_bf16_to_f32(((const uint16_t *)at)[i])
                                 : ct_f16_to_f32(((const uint16_t *)at)[i]);
    }
    __device__ void put(int64_t i, float v) const
    {
        if (type == CT_F32)
            ((float *)at)[i] = v;
        else
            ((uint16_t *)at)[i] = (type == CT_BF16) ? ct_bf16_from_f32(v) : ct_f16_from_f32(v);
    }
};

static __host__ __device__ inline ct_numbers ct_numbers_at(const float *at, ct_dtype type)
{
    return { (void *)at, type };
}

/** Number i of y, which holds numbers of `operand`. */
static __device__ inline void ct_narrow_put(ct_operand operand, void *y, int64_t i, float v)
{
    if ((operand == CT_OPERAND_BF16) || (operand == CT_OPERAND_F16))
        ((uint16_t *)y)[i] = ct_narrow_bits(operand, v);
    else
        ((float *)y)[i] = v;
}

/** Numbers from one row of rounded operands to the next: rows begin at 16 bytes, which tensor cores
 *  want. */
static inline int64_t ct_narrow_row(int64_t columns)
{
    return (columns + 7) / 8 * 8;
}
/** Bytes of so many such rows, a multiple of 64. */
size_t ct_narrow_bytes(int64_t rows, int64_t columns);
/** y's rows: those of x, ld apart, rounded. */
ct_status ct_cuda_narrow_rows(ct_stream st, ct_operand operand, int64_t rows, int64_t columns,
                              const float *x, int64_t ld, uint16_t *y);

#endif
