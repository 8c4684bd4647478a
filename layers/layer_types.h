/** @file layer_types.h  One line a layer type; private to layers/. */
#ifndef CT_LAYER_TYPES_H
#define CT_LAYER_TYPES_H

#include "framework/net/layer.h"

extern const ct_layer_ops ct_layer_abs_val;
extern const ct_layer_ops ct_layer_accuracy;
extern const ct_layer_ops ct_layer_argmax;
extern const ct_layer_ops ct_layer_axpy;
extern const ct_layer_ops ct_layer_batch_norm;
extern const ct_layer_ops ct_layer_batch_reindex;
extern const ct_layer_ops ct_layer_bias;
extern const ct_layer_ops ct_layer_bn;
extern const ct_layer_ops ct_layer_bnll;
extern const ct_layer_ops ct_layer_center_loss;
extern const ct_layer_ops ct_layer_clip;
extern const ct_layer_ops ct_layer_concat;
extern const ct_layer_ops ct_layer_contrastive_loss;
extern const ct_layer_ops ct_layer_convolution;
extern const ct_layer_ops ct_layer_crop;
extern const ct_layer_ops ct_layer_data;
extern const ct_layer_ops ct_layer_deconvolution;
extern const ct_layer_ops ct_layer_depthwise_convolution;
extern const ct_layer_ops ct_layer_detection_output;
extern const ct_layer_ops ct_layer_dropout;
extern const ct_layer_ops ct_layer_dummy_data;
extern const ct_layer_ops ct_layer_eltwise;
extern const ct_layer_ops ct_layer_elu;
extern const ct_layer_ops ct_layer_embed;
extern const ct_layer_ops ct_layer_euclidean_loss;
extern const ct_layer_ops ct_layer_exp;
extern const ct_layer_ops ct_layer_flatten;
extern const ct_layer_ops ct_layer_focal_loss;
extern const ct_layer_ops ct_layer_gelu;
extern const ct_layer_ops ct_layer_hdf5_data;
extern const ct_layer_ops ct_layer_hdf5_output;
extern const ct_layer_ops ct_layer_hinge_loss;
extern const ct_layer_ops ct_layer_im2col;
extern const ct_layer_ops ct_layer_image_data;
extern const ct_layer_ops ct_layer_infogain_loss;
extern const ct_layer_ops ct_layer_inner_product;
extern const ct_layer_ops ct_layer_input;
extern const ct_layer_ops ct_layer_interp;
extern const ct_layer_ops ct_layer_layer_norm;
extern const ct_layer_ops ct_layer_log;
extern const ct_layer_ops ct_layer_lrn;
extern const ct_layer_ops ct_layer_lstm;
extern const ct_layer_ops ct_layer_lstm_unit;
extern const ct_layer_ops ct_layer_memory_data;
extern const ct_layer_ops ct_layer_mish;
extern const ct_layer_ops ct_layer_multibox_loss;
extern const ct_layer_ops ct_layer_multinomial_loss;
extern const ct_layer_ops ct_layer_mvn;
extern const ct_layer_ops ct_layer_normalize;
extern const ct_layer_ops ct_layer_parameter;
extern const ct_layer_ops ct_layer_permute;
extern const ct_layer_ops ct_layer_pooling;
extern const ct_layer_ops ct_layer_power;
extern const ct_layer_ops ct_layer_prelu;
extern const ct_layer_ops ct_layer_prior_box;
extern const ct_layer_ops ct_layer_psroi_pooling;
extern const ct_layer_ops ct_layer_reduction;
extern const ct_layer_ops ct_layer_relu;
extern const ct_layer_ops ct_layer_relu6;
extern const ct_layer_ops ct_layer_reorder;
extern const ct_layer_ops ct_layer_reshape;
extern const ct_layer_ops ct_layer_rnn;
extern const ct_layer_ops ct_layer_roi_pooling;
extern const ct_layer_ops ct_layer_scale;
extern const ct_layer_ops ct_layer_shuffle_channel;
extern const ct_layer_ops ct_layer_sigmoid;
extern const ct_layer_ops ct_layer_sigmoid_loss;
extern const ct_layer_ops ct_layer_silence;
extern const ct_layer_ops ct_layer_slice;
extern const ct_layer_ops ct_layer_smooth_l1_loss;
extern const ct_layer_ops ct_layer_softmax;
extern const ct_layer_ops ct_layer_softmax_loss;
extern const ct_layer_ops ct_layer_split;
extern const ct_layer_ops ct_layer_spp;
extern const ct_layer_ops ct_layer_swish;
extern const ct_layer_ops ct_layer_tanh;
extern const ct_layer_ops ct_layer_text_data;
extern const ct_layer_ops ct_layer_threshold;
extern const ct_layer_ops ct_layer_tile;
extern const ct_layer_ops ct_layer_upsample;

#endif
