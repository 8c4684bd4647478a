/* Which bias operations there are; order is the choice of "auto". */
#include "layers/engine/bias/bias_private.h"

const ct_bias_impl *const ct_bias_fill_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_bias_cuda_fill,
#endif
    &ct_bias_simd_fill, &ct_bias_ref_fill, NULL
};
const ct_bias_impl *const ct_bias_backward_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_bias_cuda_backward,
#endif
    &ct_bias_simd_backward, &ct_bias_blocked_backward, &ct_bias_ref_backward, NULL
};
