/* Which normalisations there are; order is the choice of "auto". */
#include "layers/engine/lrn/lrn_private.h"

const ct_lrn_impl *const ct_lrn_forward_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_lrn_cuda_forward,
#endif
#ifdef CT_HAVE_CUDNN
    &ct_lrn_cudnn_forward, /* by name or plan */
#endif
    &ct_lrn_simd_forward,  &ct_lrn_blocked_forward, &ct_lrn_ref_forward, NULL,
};
const ct_lrn_impl *const ct_lrn_backward_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_lrn_cuda_backward,
#endif
#ifdef CT_HAVE_CUDNN
    &ct_lrn_cudnn_backward, /* by name or plan */
#endif
    &ct_lrn_simd_backward,  &ct_lrn_blocked_backward, &ct_lrn_ref_backward, NULL,
};
