/* payload_add.c for a simulation: adding takes its time and no more. */
#include <math.h>

#include "comm/core/coding_sim.h"
#include "comm/sparse/payload.h"

/* Of random selections, counted as pairs. */
ct_status ct_wire_sum_all(const void *const *payload, const size_t *bytes, int n_payload,
                          float *dense, int64_t n, int n_thread, int64_t *filled_p)
{
    double empty = 1, all = 0;

    (void)payload;
    (void)dense;
    for (int p = 0; p < n_payload; ++p) {
        double entries = (double)(bytes[p] - CT_WIRE_HEAD) / 8;

        all += entries;
        empty *= (entries < (double)n) ? 1 - entries / (double)n : 0;
    }
    (void)n_thread;
    ct_coding_sim_stream(8 * (double)n);
    ct_coding_sim_pass(ct_coding_sim().add_s * all);
    if (filled_p != NULL) *filled_p = (int64_t)((1 - empty) * (double)n);
    return CT_OK;
}

ct_status ct_wire_add_all(const void *const *payload, const size_t *bytes, int n_payload,
                          float *dense, int64_t n, int n_thread)
{
    return ct_wire_sum_all(payload, bytes, n_payload, dense, n, n_thread, NULL);
}
