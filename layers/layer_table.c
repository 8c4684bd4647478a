/* The layer types there are, in alphabetical order. */
#include "layers/layer_types.h"

#include <stddef.h>

const ct_layer_ops *const ct_layer_table[] = {
    NULL,
};
