/* The layer types there are, in alphabetical order. */
#include "layers/layer_types.h"

#include <stddef.h>

const ct_layer_ops *const ct_layer_table[] = {
    &ct_layer_data,
    &ct_layer_dummy_data,
    &ct_layer_hdf5_data,
    &ct_layer_image_data,
    &ct_layer_input,
    NULL,
};
