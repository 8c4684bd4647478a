/** @file layer_types.h  One line a layer type; private to layers/. */
#ifndef CT_LAYER_TYPES_H
#define CT_LAYER_TYPES_H

#include "framework/net/layer.h"

extern const ct_layer_ops ct_layer_data;
extern const ct_layer_ops ct_layer_dummy_data;
extern const ct_layer_ops ct_layer_hdf5_data;
extern const ct_layer_ops ct_layer_image_data;
extern const ct_layer_ops ct_layer_input;

#endif
