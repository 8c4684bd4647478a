#include "comm/core/coding_sim.h"

#include <simgrid/actor.h>
#include <simgrid/host.h>

void ct_coding_sim_set(ct_coding_speed *speed)
{
    sg_host_set_data(sg_host_self(), speed);
}

ct_coding_speed ct_coding_sim(void)
{
    const ct_coding_speed *speed = sg_host_get_data(sg_host_self());

    return (speed != NULL) ? *speed : (ct_coding_speed){ .memory = 0 };
}

void ct_coding_sim_pass(double seconds)
{
    if (seconds > 0) sg_actor_sleep_for(seconds);
}

void ct_coding_sim_stream(double bytes)
{
    double memory = ct_coding_sim().memory;

    if (memory > 0) ct_coding_sim_pass(bytes / memory);
}
