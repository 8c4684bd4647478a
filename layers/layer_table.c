/* The layer types there are, in alphabetical order. */
#include "layers/layer_types.h"

#include <stddef.h>

/* one a line, so that additions do not move the others */
/* clang-format off */
const ct_layer_ops *const ct_layer_table[] = {
    &ct_layer_accuracy,
    &ct_layer_argmax,
    &ct_layer_batch_norm,
    &ct_layer_bias,
    &ct_layer_concat,
    &ct_layer_convolution,
    &ct_layer_crop,
    &ct_layer_data,
    &ct_layer_dropout,
    &ct_layer_dummy_data,
    &ct_layer_eltwise,
    &ct_layer_embed,
    &ct_layer_euclidean_loss,
    &ct_layer_flatten,
    &ct_layer_hdf5_data,
    &ct_layer_image_data,
    &ct_layer_inner_product,
    &ct_layer_input,
    &ct_layer_lrn,
    &ct_layer_lstm,
    &ct_layer_permute,
    &ct_layer_pooling,
    &ct_layer_reduction,
    &ct_layer_relu,
    &ct_layer_reorder,
    &ct_layer_reshape,
    &ct_layer_rnn,
    &ct_layer_scale,
    &ct_layer_shuffle_channel,
    &ct_layer_sigmoid,
    &ct_layer_silence,
    &ct_layer_slice,
    &ct_layer_softmax,
    &ct_layer_softmax_loss,
    &ct_layer_split,
    &ct_layer_tanh,
    &ct_layer_text_data,
    &ct_layer_tile,
    NULL,
};
/* clang-format on */
