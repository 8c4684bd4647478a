/* The kinds of device there are, and which were built in. */
#include "framework/tensor/device.h"

#include <string.h>

static ct_status cpu_open(int local_rank, const ct_device **dev_p)
{
    (void)local_rank;
    *dev_p = ct_device_cpu();
    return CT_OK;
}

static const struct {
    const char *mode;
    ct_status (*open)(int local_rank, const ct_device **dev_p); /* NULL: not built in */
    const char *how;                                            /* to have it built  */
} device_table[] = {
    { "cpu", cpu_open, "" },
#ifdef CT_HAVE_CUDA
    { "cuda", ct_device_cuda_open, "" },
#else
    { "cuda", NULL, "build with make CUDA=1" },
#endif
};

ct_status ct_device_open(const char *mode, int local_rank, const ct_device **dev_p)
{
    for (size_t i = 0; i < sizeof(device_table) / sizeof(device_table[0]); i++) {
        if (strcmp(device_table[i].mode, mode) != 0) continue;
        if (device_table[i].open == NULL)
            return CT_FAIL(CT_ERR_CONFIG, "this cortado was built without device \"%s\": %s", mode,
                           device_table[i].how);
        return device_table[i].open(local_rank, dev_p);
    }
    return CT_FAIL(CT_ERR_CONFIG, "unknown device \"%s\"; there are cpu and cuda", mode);
}
