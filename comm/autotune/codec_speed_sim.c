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
