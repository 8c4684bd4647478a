#include "framework/snapshot/host_copy.h"

#include <inttypes.h>

ct_status ct_host_copy_take(const ct_device *dev, const float *data, int64_t count,
                            ct_host_copy *copy_p)
{
    size_t bytes = (size_t)count * sizeof(float);
    void *block;

    *copy_p = (ct_host_copy){ .data = data };
    if (dev->kind == CT_DEVICE_CPU) return CT_OK;
    block = ct_mem_acquire(bytes);
    if (block == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %" PRId64 " weights on the host", count);
    *copy_p = (ct_host_copy){ .data = block, .owned = block };
    return dev->to_host(NULL, block, data, bytes);
}

void ct_host_copy_release(ct_host_copy *copy)
{
    ct_mem_release(copy->owned);
    *copy = (ct_host_copy){ 0 };
}
