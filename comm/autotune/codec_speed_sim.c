/* codec_speed.c for a simulation: the machine's figures, or estimates from them, are all there is.
 */
#include "comm/autotune/codec_speed.h"

ct_status ct_codec_speed_measure(ct_comm *c, ct_codec_speed *out)
{
    *out = ct_machine_codec_speed(&c->topo->machine);
    return CT_OK;
}

ct_status ct_codec_speed_find(ct_comm *c)
{
    (void)c;
    return CT_OK;
}

/* The model is the network. */

ct_status ct_codec_calibrate(ct_comm *c, const char *allreduce, int64_t n,
                             ct_codec_calibration *out)
{
    (void)c;
    (void)allreduce;
    (void)n;
    *out = (ct_codec_calibration){ .sum_factor = 1, .wire_factor = 1 };
    return CT_OK;
}
