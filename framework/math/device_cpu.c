#include "framework/base/memory.h"
#include "framework/math/math.h"

#include <string.h>

static ct_status cpu_mem_acquire(size_t bytes, void **data_p)
{
    void *data = ct_mem_acquire(bytes);

    if (data == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu bytes", bytes);
    *data_p = data;
    return CT_OK;
}

static ct_status cpu_copy(ct_stream st, void *to, const void *from, size_t bytes)
{
    (void)st;
    if (bytes > 0) memcpy(to, from, bytes);
    return CT_OK;
}

static ct_status cpu_zero(ct_stream st, void *data, size_t bytes)
{
    (void)st;
    if (bytes > 0) memset(data, 0, bytes);
    return CT_OK;
}

static ct_status cpu_sync(ct_stream st)
{
    (void)st;
    return CT_OK;
}

static const ct_device device_cpu = {
    .name = "cpu",
    .kind = CT_DEVICE_CPU,
    .mem_acquire = cpu_mem_acquire,
    .mem_release = ct_mem_release,
    .to_host = cpu_copy,
    .from_host = cpu_copy,
    .copy = cpu_copy,
    .zero = cpu_zero,
    .sync = cpu_sync,
    .math = &ct_math_cpu,
};

const ct_device *ct_device_cpu(void)
{
    return &device_cpu;
}
