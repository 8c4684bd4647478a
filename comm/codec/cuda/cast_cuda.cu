/* Casts on a device: one pass each, by fours. */
#include "comm/codec/cuda/coder_cuda.cuh"

extern "C" {
#include "framework/base/f16.h"
}

namespace
{
struct alignas(8) four_halves {
    uint16_t x[FOUR];
};

__global__ void exponent_kernel(const float *v, int64_t n, unsigned *out)
{
    unsigned most = 0;

    CT_CUDA_LOOP(q, (n + FOUR - 1) / FOUR)
    {
        four_floats x = load_four(v, q * FOUR, n);

        for (int c = 0; c < FOUR; c++) {
            unsigned e = ((unsigned)ct_select_bits(x.x[c]) & 0x7fffffffu) >> 23;

            most = (e > most) ? e : most;
        }
    }
    most = ct_warp_most(most);
    if (ct_lane() == 0) atomicMax(out, most);
}

template <bool FP16>
__global__ void encode_kernel(const float *v, int64_t n, float scale, uint16_t *out)
{
    CT_CUDA_LOOP(q, (n + FOUR - 1) / FOUR)
    {
        four_floats x = load_four(v, q * FOUR, n);
        four_halves h;

        for (int c = 0; c < FOUR; c++)
            h.x[c] = FP16 ? ct_f16_from_f32(ct_momentum_correction_mul(scale, x.x[c])) : ct_bf16_from_f32(x.x[c]);
        *(four_halves *)(void *)(out + q * FOUR) = h;
    }
}

template <bool FP16>
__global__ void decode_kernel(const uint16_t *in, int64_t n, float scale, float *v)
{
    CT_CUDA_LOOP(q, (n + FOUR - 1) / FOUR)
    {
        four_halves h = *(const four_halves *)(const void *)(in + q * FOUR);
        four_floats x;

        for (int c = 0; c < FOUR; c++)
            x.x[c] = FP16 ? ct_momentum_correction_mul(scale, ct_f16_to_f32(h.x[c])) : ct_bf16_to_f32(h.x[c]);
        store_four(v, q * FOUR, n, x);
    }
}
} // namespace

ct_status ct_cast_exponent_cuda(ct_stream st, const float *v, int64_t n, uint32_t *out)
{
    CT_TRY(
        ct_cuda_check(cudaMemsetAsync(out, 0, sizeof(*out), (cudaStream_t)st), "cudaMemsetAsync"));
    CT_CUDA_RUN_BLOCKS(exponent_kernel, pass_blocks(n), st, v, n, out);
    return ct_cuda_launched("exponent of a gradient");
}

ct_status ct_cast_encode_cuda(ct_stream st, bool fp16, const float *v, int64_t n, float scale,
                              uint16_t *out)
{
    if (fp16)
        CT_CUDA_RUN(encode_kernel<true>, pass_blocks(n), st, v, n, scale, out);
    else
        CT_CUDA_RUN(encode_kernel<false>, pass_blocks(n), st, v, n, scale, out);
    return ct_cuda_launched("gradient to 16 bits");
}

ct_status ct_cast_decode_cuda(ct_stream st, bool fp16, const uint16_t *in, int64_t n, float scale,
                              float *v)
{
    if (fp16)
        CT_CUDA_RUN(decode_kernel<true>, pass_blocks(n), st, in, n, scale, v);
    else
        CT_CUDA_RUN(decode_kernel<false>, pass_blocks(n), st, in, n, scale, v);
    return ct_cuda_launched("gradient from 16 bits");
}
