/* payload_add.c for a simulation: adding takes its time and no more. */
#include <math.h>

#include "comm/core/sim_codec.h"
#include "comm/sparse/payload.h"

/* Of random selections, counted as pairs. */
ct_status ct_payload_sum_all(const void *const *payload, const size_t *bytes, int n_payload,
                             float *dense, int64_t n, int n_thread, int64_t *filled_p)
{
    double empty = 1, all = 0;

    (void)payload;
    (void)dense;
    for (int p = 0; p < n_payload; ++p) {
        double entries = (double)(bytes[p] - CT_PAYLOAD_HEAD) / 8;

        all += entries;
        empty *= (entries < (double)n) ? 1 - entries / (double)n : 0;
    }
    (void)n_thread;
    ct_sim_codec_stream(8 * (double)n);
    ct_sim_codec_pass(ct_sim_codec().add_s * all);
    if (filled_p != NULL) *filled_p = (int64_t)((1 - empty) * (double)n);
    return CT_OK;
}

ct_status ct_payload_add_all(const void *const *payload, const size_t *bytes, int n_payload,
                             float *dense, int64_t n, int n_thread)
{
    return ct_payload_sum_all(payload, bytes, n_payload, dense, n, n_thread, NULL);
}
