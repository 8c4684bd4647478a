/* sign.c for a simulation: payloads have their size and no content; what is done to them takes its
 * time. */
#include "comm/core/sim_codec.h"
#include "comm/codec/sign.h"

ct_status ct_sign_encode(const ct_sign_cut *c, const ct_momentum_correction *a, int skip,
                         void *payload)
{
    (void)skip;
    (void)payload;
    ct_momentum_correction_run(a);
    ct_sim_codec_pass(ct_sim_codec().sign_s * (double)c->n);
    return CT_OK;
}

ct_status ct_sign_take(float *v, int64_t n, int n_thread, void *payload)
{
    (void)v;
    (void)payload;
    (void)n_thread;
    ct_sim_codec_pass(ct_sim_codec().sign_s * (double)n);
    return CT_OK;
}

ct_status ct_sign_add(const void *payload, size_t bytes, float *v, int64_t n, int n_thread)
{
    (void)payload;
    (void)bytes;
    (void)v;
    (void)n_thread;
    ct_sim_codec_pass(ct_sim_codec().unsign_s * (double)n);
    return CT_OK;
}

ct_status ct_sign_sum(const void *const *payload, const size_t *bytes, int n_payload, float *v,
                      int64_t n, int n_thread)
{
    (void)payload;
    (void)bytes;
    (void)v;
    (void)n_thread;
    ct_sim_codec_pass(ct_sim_codec().unsign_s * (double)n * (n_payload + 1));
    return CT_OK;
}
