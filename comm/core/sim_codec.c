#include "comm/core/sim_codec.h"

#include <simgrid/actor.h>
#include <simgrid/host.h>

void ct_sim_codec_set(ct_codec_speed *speed)
{
    sg_host_set_data(sg_host_self(), speed);
}

ct_codec_speed ct_sim_codec(void)
{
    const ct_codec_speed *speed = sg_host_get_data(sg_host_self());

    return (speed != NULL) ? *speed : (ct_codec_speed){ .memory = 0 };
}

void ct_sim_codec_pass(double seconds)
{
    if (seconds > 0) sg_actor_sleep_for(seconds);
}

void ct_sim_codec_stream(double bytes)
{
    double memory = ct_sim_codec().memory;

    if (memory > 0) ct_sim_codec_pass(bytes / memory);
}
