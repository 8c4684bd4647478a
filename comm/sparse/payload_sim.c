/* payload.c for a simulation: payloads have their size and no content. */
#include "comm/core/sim_codec.h"
#include "comm/sparse/payload.h"

/* Reading or writing them; rounding goes with it. */
static void charge(int64_t entries)
{
    ct_sim_codec_pass(ct_sim_codec().pack_s * (double)entries);
}

void ct_payload_round(ct_payload_form form, ct_sparse *s, const ct_residual_return *lost)
{
    (void)form;
    (void)s;
    (void)lost;
}

float ct_payload_half(float v)
{
    return v;
}

size_t ct_payload_pack_part(ct_payload_form form, const ct_sparse *s, int64_t first, int64_t last,
                            int64_t start, int64_t n, void *payload)
{
    (void)s;
    (void)start;
    (void)payload;
    charge(last - first);
    return ct_payload_bytes(form, n, last - first);
}

size_t ct_payload_pack(ct_payload_form form, const ct_sparse *s, void *payload)
{
    return ct_payload_pack_part(form, s, 0, s->count, 0, s->n, payload);
}

ct_status ct_payload_pack_vector(const float *v, int64_t n, ct_sparse *scratch, void *payload,
                                 size_t *bytes_p)
{
    (void)v;
    scratch->n = n;
    if (scratch->count > n) scratch->count = n;
    ct_sim_codec_stream(4 * (double)n);
    *bytes_p = ct_payload_pack(CT_PAYLOAD_PAIRS, scratch, payload);
    return CT_OK;
}

ct_status ct_payload_check(const void *payload, size_t bytes, int64_t n)
{
    (void)payload;
    (void)bytes;
    (void)n;
    return CT_OK;
}

ct_status ct_payload_unpack(const void *payload, size_t bytes, int64_t n, ct_sparse *out)
{
    (void)payload;
    (void)bytes;
    out->n = n;
    if (out->count > n) out->count = n;
    charge(out->count);
    return CT_OK;
}
