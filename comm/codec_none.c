/* none: the gradient as it is. */
#include <string.h>

#include "comm/codec_types.h"

static size_t none_bound(const ct_codec_config *c, int64_t n)
{
    (void)c;
    return sizeof(float) * (size_t)n;
}

static ct_status none_encode(const ct_codec_config *c, const float *grad, float *residual,
                             int64_t n, void *payload, size_t *bytes_p)
{
    (void)residual;
    memcpy(payload, grad, none_bound(c, n));
    *bytes_p = none_bound(c, n);
    return CT_OK;
}

static ct_status none_decode(const ct_codec_config *c, const void *payload, size_t bytes,
                             float *sum, int64_t n)
{
    if (bytes != none_bound(c, n))
        return CT_FAIL(CT_ERR_COMM, "a payload of %zu bytes for %lld floats", bytes, (long long)n);
    memcpy(sum, payload, bytes);
    return CT_OK;
}

const ct_codec_ops ct_codec_none = {
    .name = "none",
    .combine = CT_COMBINE_SUM,
    .dtype = CT_F32,
    .payload_bound = none_bound,
    .encode = none_encode,
    .decode = none_decode,
};
