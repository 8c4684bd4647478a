/** @file overrides.h  What layer types do on CUDA devices; private to layers/. */
#ifndef CT_CUDA_OVERRIDES_H
#define CT_CUDA_OVERRIDES_H

#include "framework/net/layer.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const ct_device_override ct_cuda_abs_val;
extern const ct_device_override ct_cuda_accuracy;
extern const ct_device_override ct_cuda_argmax;
extern const ct_device_override ct_cuda_axpy;
extern const ct_device_override ct_cuda_batch_reindex;
extern const ct_device_override ct_cuda_bn;
extern const ct_device_override ct_cuda_bnll;
extern const ct_device_override ct_cuda_center_loss;
extern const ct_device_override ct_cuda_clip;
extern const ct_device_override ct_cuda_concat;
extern const ct_device_override ct_cuda_contrastive_loss;
extern const ct_device_override ct_cuda_dropout;
extern const ct_device_override ct_cuda_eltwise;
extern const ct_device_override ct_cuda_elu;
extern const ct_device_override ct_cuda_embed;
extern const ct_device_override ct_cuda_euclidean_loss;
extern const ct_device_override ct_cuda_exp;
extern const ct_device_override ct_cuda_filter;
extern const ct_device_override ct_cuda_focal_loss;
extern const ct_device_override ct_cuda_gelu;
extern const ct_device_override ct_cuda_hinge_loss;
extern const ct_device_override ct_cuda_im2col_layer;
extern const ct_device_override ct_cuda_infogain_loss;
extern const ct_device_override ct_cuda_interp;
extern const ct_device_override ct_cuda_layer_norm;
extern const ct_device_override ct_cuda_log;
extern const ct_device_override ct_cuda_lstm_unit;
extern const ct_device_override ct_cuda_mish;
extern const ct_device_override ct_cuda_multinomial_loss;
extern const ct_device_override ct_cuda_mvn;
extern const ct_device_override ct_cuda_normalize;
extern const ct_device_override ct_cuda_pooling;
extern const ct_device_override ct_cuda_power;
extern const ct_device_override ct_cuda_prelu;
extern const ct_device_override ct_cuda_prior_box;
extern const ct_device_override ct_cuda_psroi_pooling;
extern const ct_device_override ct_cuda_reduction;
extern const ct_device_override ct_cuda_relu6;
extern const ct_device_override ct_cuda_roi_pooling;
extern const ct_device_override ct_cuda_sigmoid;
extern const ct_device_override ct_cuda_sigmoid_loss;
extern const ct_device_override ct_cuda_smooth_l1_loss;
extern const ct_device_override ct_cuda_softmax_loss;
extern const ct_device_override ct_cuda_swish;
extern const ct_device_override ct_cuda_sync_bn;
extern const ct_device_override ct_cuda_tanh;
extern const ct_device_override ct_cuda_threshold;
extern const ct_device_override ct_cuda_tile;
extern const ct_device_override ct_cuda_upsample;

/* clang-format off */
#define CT_CUDA_FORMS \
    &ct_cuda_abs_val, \
    &ct_cuda_accuracy, \
    &ct_cuda_argmax, \
    &ct_cuda_axpy, \
    &ct_cuda_batch_reindex, \
    &ct_cuda_bn, \
    &ct_cuda_bnll, \
    &ct_cuda_center_loss, \
    &ct_cuda_clip, \
    &ct_cuda_concat, \
    &ct_cuda_contrastive_loss, \
    &ct_cuda_dropout, \
    &ct_cuda_eltwise, \
    &ct_cuda_elu, \
    &ct_cuda_embed, \
    &ct_cuda_euclidean_loss, \
    &ct_cuda_exp, \
    &ct_cuda_filter, \
    &ct_cuda_focal_loss, \
    &ct_cuda_gelu, \
    &ct_cuda_hinge_loss, \
    &ct_cuda_im2col_layer, \
    &ct_cuda_infogain_loss, \
    &ct_cuda_interp, \
    &ct_cuda_layer_norm, \
    &ct_cuda_log, \
    &ct_cuda_lstm_unit, \
    &ct_cuda_mish, \
    &ct_cuda_multinomial_loss, \
    &ct_cuda_mvn, \
    &ct_cuda_normalize, \
    &ct_cuda_pooling, \
    &ct_cuda_power, \
    &ct_cuda_prelu, \
    &ct_cuda_prior_box, \
    &ct_cuda_psroi_pooling, \
    &ct_cuda_reduction, \
    &ct_cuda_relu6, \
    &ct_cuda_roi_pooling, \
    &ct_cuda_sigmoid, \
    &ct_cuda_sigmoid_loss, \
    &ct_cuda_smooth_l1_loss, \
    &ct_cuda_softmax_loss, \
    &ct_cuda_swish, \
    &ct_cuda_sync_bn, \
    &ct_cuda_tanh, \
    &ct_cuda_threshold, \
    &ct_cuda_tile, \
    &ct_cuda_upsample,
/* clang-format on */

#ifdef __cplusplus
}
#endif

#endif
