/* bf16: half the bytes. Gradients are rounded to the nearest bfloat16, partial sums again at each
 * hop; additions are in f32. No residual: what rounding drops (2^-8 relative at most) is lost,
 * evenly in both directions. */
#include "comm/bf16.h"
#include "comm/codec_types.h"

static size_t bf16_bound(const ct_codec_config *c, int64_t n)
{
    (void)c;
    return sizeof(uint16_t) * (size_t)n;
}

static ct_status bf16_encode(const ct_codec_config *c, const float *grad, float *residual,
                             int64_t n, void *payload, size_t *bytes_p)
{
    uint16_t *out = payload;

    (void)residual;
#pragma omp parallel for simd schedule(static) if (n > 65536)
    for (int64_t i = 0; i < n; ++i) out[i] = ct_bf16_from_f32(grad[i]);
    *bytes_p = bf16_bound(c, n);
    return CT_OK;
}

static ct_status bf16_decode(const ct_codec_config *c, const void *payload, size_t bytes,
                             float *sum, int64_t n)
{
    const uint16_t *in = payload;

    if (bytes != bf16_bound(c, n))
        return CT_FAIL(CT_ERR_COMM, "a payload of %zu bytes for %lld bf16 numbers", bytes,
                       (long long)n);
#pragma omp parallel for simd schedule(static) if (n > 65536)
    for (int64_t i = 0; i < n; ++i) sum[i] = ct_bf16_to_f32(in[i]);
    return CT_OK;
}

const ct_codec_ops ct_codec_bf16 = {
    .name = "bf16",
    .combine = CT_COMBINE_SUM,
    .dtype = CT_BF16,
    .payload_bound = bf16_bound,
    .encode = bf16_encode,
    .decode = bf16_decode,
};
