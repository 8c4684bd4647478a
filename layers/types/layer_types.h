/** @file layer_types.h  The layer types there are, but those of one function, which
 *  layers/engine/neuron/neuron_math.h lists; private to layers/. */
#ifndef CT_TYPES_LAYER_TYPES_H
#define CT_TYPES_LAYER_TYPES_H

#include "framework/net/layer.h"

/** X(name) of each ct_layer_<name>. One a line, so that additions do not move the others. */
/* clang-format off */
#define CT_LAYER_TYPES(X) \
    X(accuracy) \
    X(annotated_data) \
    X(argmax) \
    X(attention) \
    X(axpy) \
    X(batch_norm) \
    X(batch_reindex) \
    X(bias) \
    X(bn) \
    X(cast) \
    X(center_loss) \
    X(concat) \
    X(contrastive_loss) \
    X(convolution) \
    X(copy_to_parts) \
    X(crop) \
    X(data) \
    X(deconvolution) \
    X(depthwise_convolution) \
    X(detection_evaluate) \
    X(detection_output) \
    X(dropout) \
    X(dummy_data) \
    X(eltwise) \
    X(embed) \
    X(euclidean_loss) \
    X(filter) \
    X(flatten) \
    X(focal_loss) \
    X(gather) \
    X(hdf5_data) \
    X(hdf5_output) \
    X(hinge_loss) \
    X(im2col) \
    X(image_data) \
    X(infogain_loss) \
    X(inner_product) \
    X(input) \
    X(interp) \
    X(layer_norm) \
    X(l1_loss) \
    X(lrn) \
    X(lstm) \
    X(lstm_unit) \
    X(matmul) \
    X(memory_data) \
    X(multibox_loss) \
    X(multinomial_loss) \
    X(mvn) \
    X(normalize) \
    X(parameter) \
    X(permute) \
    X(pooling) \
    X(position) \
    X(prelu) \
    X(prior_box) \
    X(psroi_pooling) \
    X(receive) \
    X(reduce_scatter) \
    X(python) \
    X(reduction) \
    X(relu) \
    X(reorder) \
    X(reshape) \
    X(rms_norm) \
    X(rnn) \
    X(roi_pooling) \
    X(scale) \
    X(scatter_to_parts) \
    X(send) \
    X(shuffle_channel) \
    X(sigmoid_loss) \
    X(silence) \
    X(slice) \
    X(smooth_l1_loss) \
    X(softmax) \
    X(softmax_loss) \
    X(split) \
    X(spp) \
    X(sum_parts) \
    X(swiglu) \
    X(sync_bn) \
    X(text_data) \
    X(tile) \
    X(to_blocks) \
    X(token_data) \
    X(upsample) \
    X(window_data)
/* clang-format on */

#define CT_LAYER_EXTERN(_name, ...) extern const ct_layer_ops ct_layer_##_name;
CT_LAYER_TYPES(CT_LAYER_EXTERN)

#endif
