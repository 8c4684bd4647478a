/* reduce.c for a simulation: large buffers hold nothing (memory_sim.c), so additions cost their
 * time and no more. A host's speed is the bytes of f32 that it adds in a second: sim_setup.h. */
#include "comm/core/reduce.h"

#include <simgrid/actor.h>
#include <simgrid/host.h>

static const double free_speed = 1e15; /* the speed of hosts that add for nothing: sim_setup.c */

bool ct_reduce_supports(ct_dtype dtype)
{
    return (dtype == CT_F32) || (dtype == CT_BF16) || (dtype == CT_F16) || (dtype == CT_I64) ||
           (dtype == CT_U8);
}

/* Sleeping, which is what computing is where nobody else computes, and costs the simulator less. */
static void charge(double bytes)
{
    double speed = sg_host_get_speed(sg_host_self());

    if (speed < free_speed) sg_actor_sleep_for(bytes / speed);
}

void ct_reduce_add(ct_dtype dtype, int64_t n, const void *x, void *y, int n_thread)
{
    (void)x;
    (void)y;
    (void)n_thread;
    charge((double)n * (double)ct_dtype_size(dtype));
}

void ct_reduce_many(ct_dtype dtype, int64_t n, const void *const *src, int n_src, void *const *dst,
                    int n_dst, int n_thread)
{
    (void)src;
    (void)dst;
    (void)n_dst;
    (void)n_thread;
    charge((double)(n_src - 1) * (double)n * (double)ct_dtype_size(dtype));
}

size_t ct_reduce_stated_size(const void *message, size_t expected)
{
    (void)message;
    return expected;
}
