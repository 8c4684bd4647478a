/* What layers do on which device: kernels that many share, and forms of types that have one of
 * their own. */
#include "layers/cuda/overrides.h"
#include "layers/types/device_kernels.h"

#include <stddef.h>

const ct_device_kernels *ct_kernels(const ct_exec *ex)
{
#ifdef CT_HAVE_CUDA
    if (ex->dev->kind == CT_DEVICE_CUDA) return &ct_kernels_cuda;
#endif
    (void)ex;
    return &ct_kernels_cpu;
}

#define OVERRIDE(_name, ...) &ct_cuda_##_name,
/* clang-format off */
const ct_device_override *const ct_device_override_table[] = {
#ifdef CT_HAVE_CUDA
    CT_CUDA_OVERRIDES(OVERRIDE)
    CT_NEURON_LAYERS(OVERRIDE)
#endif
    NULL,
};
/* clang-format on */
