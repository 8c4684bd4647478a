/* codec_calibrate.c for a simulation: the model is the network. */
#include "comm/autotune/codec_speed.h"

ct_status ct_codec_calibrate(ct_comm *c, const char *allreduce, int64_t n,
                             ct_codec_calibration *out)
{
    (void)c;
    (void)allreduce;
    (void)n;
    *out = (ct_codec_calibration){ .sum_factor = 1, .wire_factor = 1 };
    return CT_OK;
}
