/** @file accuracy.h  What Accuracy reads from its parameters and shapes, for every device; private
 * to layers/. */
#ifndef CT_ACCURACY_H
#define CT_ACCURACY_H

#include "layers/layer_util.h"

typedef struct ct_accuracy_state {
    int64_t top_k;
    bool has_ignore;
    int32_t ignore;
} ct_accuracy_state;

typedef struct ct_accuracy_plan {
    ct_view view; /* classes in the middle */
} ct_accuracy_plan;

#endif
