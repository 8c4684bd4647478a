/* Which rectifiers there are; order is the choice of "auto". */
#include "layers/engine/relu/relu_private.h"

const ct_relu_impl *const ct_relu_forward_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_relu_cuda_forward,
#endif
    &ct_relu_simd_forward, &ct_relu_ref_forward, NULL
};
const ct_relu_impl *const ct_relu_backward_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_relu_cuda_backward,
#endif
    &ct_relu_simd_backward, &ct_relu_ref_backward, NULL
};
