/* Which convolutions there are; order is the choice of "auto". */
#include "layers/engine/conv/conv_private.h"

const ct_conv_impl *const ct_conv_forward_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_conv_cuda_depth_forward,
#ifdef CT_HAVE_CUDNN
    &ct_conv_cudnn_forward,
#endif
    &ct_conv_cuda_forward,       &ct_conv_cuda_last_forward,
#endif
    &ct_conv_direct_forward,     &ct_conv_gemm_forward,
    &ct_conv_winograd_forward,   &ct_conv_blocked_forward,
    &ct_conv_nd_forward,
#ifdef CT_HAVE_ONEDNN
    &ct_conv_onednn_forward,
#endif
    &ct_conv_ref_forward,        NULL
};
const ct_conv_impl *const ct_conv_backward_data_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_conv_cuda_depth_backward_data,
#ifdef CT_HAVE_CUDNN
    &ct_conv_cudnn_backward_data,
#endif
    &ct_conv_cuda_backward_data,       &ct_conv_cuda_last_backward_data,
#endif
    &ct_conv_direct_backward_data,     &ct_conv_gemm_backward_data,
    &ct_conv_winograd_backward_data,   &ct_conv_fold_backward_data,
    &ct_conv_blocked_backward_data,    &ct_conv_nd_backward_data,
#ifdef CT_HAVE_ONEDNN
    &ct_conv_onednn_backward_data,
#endif
    &ct_conv_ref_backward_data,        NULL
};
const ct_conv_impl *const ct_conv_backward_weight_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_conv_cuda_depth_backward_weight,
#ifdef CT_HAVE_CUDNN
    &ct_conv_cudnn_backward_weight,
#endif
    &ct_conv_cuda_backward_weight,       &ct_conv_cuda_last_backward_weight,
#endif
    &ct_conv_direct_backward_weight,     &ct_conv_gemm_backward_weight,
    &ct_conv_winograd_backward_weight,   &ct_conv_blocked_backward_weight,
    &ct_conv_nd_backward_weight,
#ifdef CT_HAVE_ONEDNN
    &ct_conv_onednn_backward_weight,
#endif
    &ct_conv_ref_backward_weight,        NULL
};
