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

/* Buffers of the second top, in double: they are summed over the ranks; and on devices what all
 * classes have of both. */
enum { CT_ACCURACY_RIGHT_OF, CT_ACCURACY_SAMPLES_OF, CT_ACCURACY_SUMS };

typedef struct ct_accuracy_plan {
    ct_view view; /* classes in the middle */
} ct_accuracy_plan;

#endif
