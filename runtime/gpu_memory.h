/** @file gpu_memory.h  Whether a rank's nets fit into the memory of its GPU, and what lies in host
 *  memory where they do not: memory { state weights gpu_limit_mb } of a net that a device computes.
 */
#ifndef CT_GPU_MEMORY_H
#define CT_GPU_MEMORY_H

#include "comm/core/comm.h"
#include "framework/net/net.h"
#include "framework/proto/cortado.pb-c.h"

typedef struct ct_gpu_memory_ask {
    Ct__SolverParameter *param;
    const ct_device *dev;
    ct_comm *comm;   /* the replicas, which decide alike */
    double capacity; /* bytes of the GPU */
    /** What nets take of it, by their plans: blobs, weights and gradients. window: NULL, or that of
     *  the train net. *learned_p: elements that learn. */
    ct_status (*planned)(void *ctx, const ct_net_window *window, double *bytes_p,
                         int64_t *learned_p);
    void *ctx;
} ct_gpu_memory_ask;

/** AUTO of param's memory becomes what the plan says: DEVICE, or HOST for the states, then for the
 *  weights, which a line of the log tells. Nothing where there is no `memory`, or on the CPU. Gives
 *  the device no memory. Collective. CT_ERR_CONFIG where the least is more than there is. */
ct_status ct_gpu_memory_choose(const ct_gpu_memory_ask *ask);

#endif
