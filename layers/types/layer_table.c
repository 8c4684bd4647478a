/* The table by which nets find layer types: of the two lists. */
#include <stddef.h>

#include "layers/engine/neuron/neuron_math.h"
#include "layers/types/layer_types.h"

CT_NEURON_LAYERS(CT_LAYER_EXTERN)

#define ROW(_name, ...) &ct_layer_##_name,
const ct_layer_ops *const ct_layer_table[] = { CT_LAYER_TYPES(ROW) CT_NEURON_LAYERS(ROW) NULL };
