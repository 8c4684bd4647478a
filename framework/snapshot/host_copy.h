/** @file host_copy.h  Arrays of a net as host memory, whatever device they live on; private to
 *  framework/snapshot.
 */
#ifndef CT_SNAPSHOT_HOST_COPY_H
#define CT_SNAPSHOT_HOST_COPY_H

#include "framework/net/net.h"

static inline const ct_device *ct_net_device(const ct_net *net)
{
    return (net->options.dev != NULL) ? net->options.dev : ct_device_cpu();
}

/** Floats of a device as host memory: themselves on the CPU, else a copy. */
typedef struct ct_host_copy {
    const float *data;
    void *owned; /* released by ct_host_copy_release() */
} ct_host_copy;

ct_status ct_host_copy_take(const ct_device *dev, const float *data, int64_t count,
                            ct_host_copy *copy_p);
void ct_host_copy_release(ct_host_copy *copy); /* zeroed ones allowed */

/** The arena of weights or state of a parameter in the gradient arena's order: true for those that
 *  have optimiser state. */
static inline bool ct_param_has_history(const ct_net *net, const ct_param *p)
{
    return p->offset + p->count <= net->grad_count;
}

#endif
