/** @file overrides.h  What layer types do on CUDA devices; private to layers/. */
#ifndef CT_CUDA_OVERRIDES_H
#define CT_CUDA_OVERRIDES_H

#include "layers/engine/neuron/neuron_math.h"

/** X(name) of each ct_cuda_<name>, but those of one function: CT_NEURON_LAYERS. One a line, so that
 *  additions do not move the others. */
/* clang-format off */
#define CT_CUDA_OVERRIDES(X) \
    X(accuracy) \
    X(argmax) \
    X(attention) \
    X(axpy) \
    X(batch_reindex) \
    X(bn) \
    X(center_loss) \
    X(concat) \
    X(contrastive_loss) \
    X(dropout) \
    X(eltwise) \
    X(embed) \
    X(euclidean_loss) \
    X(filter) \
    X(focal_loss) \
    X(hinge_loss) \
    X(im2col_layer) \
    X(infogain_loss) \
    X(interp) \
    X(layer_norm) \
    X(lstm_unit) \
    X(multinomial_loss) \
    X(mvn) \
    X(normalize) \
    X(pooling) \
    X(prelu) \
    X(prior_box) \
    X(psroi_pooling) \
    X(reduction) \
    X(roi_pooling) \
    X(sigmoid_loss) \
    X(smooth_l1_loss) \
    X(softmax_loss) \
    X(sync_bn) \
    X(tile) \
    X(upsample)
/* clang-format on */

#ifdef __cplusplus
extern "C" {
#endif
#define CT_CUDA_EXTERN(_name, ...) extern const ct_device_override ct_cuda_##_name;
CT_CUDA_OVERRIDES(CT_CUDA_EXTERN)
CT_NEURON_LAYERS(CT_CUDA_EXTERN)
#ifdef __cplusplus
}
#endif

#endif
