/** @file emulated_cudnn.cuh  Arrays as cuDNN describes them. Included by emulated_cudnn*.cu. */
#ifndef CT_EMULATED_CUDNN_CUH
#define CT_EMULATED_CUDNN_CUH

#include <cudnn.h>

#include "framework/base/bf16.h"
#include "framework/base/f16.h"

extern cudaStream_t ct_emulated_cudnn_stream; /* what is called next goes there */

struct ct_emulated_array {
    cudnnTensorFormat_t format;
    cudnnDataType_t type;
    int64_t n, c, h, w;

    int64_t at(int64_t i, int64_t k, int64_t y, int64_t x) const
    {
        return (format == CUDNN_TENSOR_NHWC) ? ((i * h + y) * w + x) * c + k
                                             : ((i * c + k) * h + y) * w + x;
    }
    int64_t count() const
    {
        return n * c * h * w;
    }
    double get(const void *from, int64_t i) const
    {
        if (type == CUDNN_DATA_FLOAT) return (double)((const float *)from)[i];
        return (double)((type == CUDNN_DATA_HALF) ? ct_f16_to_f32(((const uint16_t *)from)[i])
                                                  : ct_bf16_to_f32(((const uint16_t *)from)[i]));
    }
    void put(void *to, int64_t i, double v) const
    {
        if (type == CUDNN_DATA_FLOAT)
            ((float *)to)[i] = (float)v;
        else
            ((uint16_t *)to)[i] = (type == CUDNN_DATA_HALF) ? ct_f16_from_f32((float)v)
                                                            : ct_bf16_from_f32((float)v);
    }
};

static inline bool ct_emulated_is_same(const ct_emulated_array &a, const ct_emulated_array &b)
{
    return (a.format == b.format) && (a.type == b.type) && (a.n == b.n) && (a.c == b.c) &&
           (a.h == b.h) && (a.w == b.w);
}

/* What a result is multiplied with, and what is added to it: 1, and nothing. */
static inline bool ct_emulated_overwrites(const void *alpha, const void *beta)
{
    return (*(const float *)alpha == 1.0f) && (*(const float *)beta == 0.0f);
}

#endif
