/** @file layer_types.h  One line a layer type; private to layers/. */
#ifndef CT_LAYER_TYPES_H
#define CT_LAYER_TYPES_H

#include "framework/net/layer.h"

#endif
