/* Which poolings there are; order is the choice of "auto". */
#include "layers/engine/pool/pool_private.h"

const ct_pool_impl *const ct_pool_forward_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_pool_cuda_forward,
#endif
#ifdef CT_HAVE_CUDNN
    &ct_pool_cudnn_forward, /* by name or plan */
#endif
    &ct_pool_simd_forward,  &ct_pool_blocked_forward, &ct_pool_ref_forward, NULL
};
const ct_pool_impl *const ct_pool_backward_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_pool_cuda_backward,
#endif
#ifdef CT_HAVE_CUDNN
    &ct_pool_cudnn_backward, /* by name or plan */
#endif
    &ct_pool_simd_backward,  &ct_pool_blocked_backward, &ct_pool_ref_backward, NULL
};
