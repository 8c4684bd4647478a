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

ct_status ct_device_copy(ct_exec *ex, int64_t n, const float *from, float *to)
{
    if (ex->dev->kind == CT_DEVICE_CPU) {
        ct_copy_f32(n, from, to);
        return CT_OK;
    }
    return ((from == to) || (n == 0))
               ? CT_OK
               : ex->dev->copy(ex->stream, to, from, (size_t)n * sizeof(*to));
}

ct_status ct_device_zero(ct_exec *ex, int64_t n, float *to)
{
    return ex->dev->zero(ex->stream, to, (size_t)n * sizeof(*to));
}

/* clang-format off */
const ct_device_override *const ct_device_override_table[] = {
#ifdef CT_HAVE_CUDA
    CT_CUDA_FORMS
#endif
    NULL,
};
/* clang-format on */
