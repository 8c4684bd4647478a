/** @file infogain.h  What InfogainLoss keeps of its prototxt, for every device; private to layers/.
 */
#ifndef CT_INFOGAIN_H
#define CT_INFOGAIN_H

#include "layers/types/loss_util.h"

typedef struct ct_infogain_state {
    ct_loss_rule rule; /* first: losses on a softmax read it */
    float *matrix;     /* of the file; NULL: the third bottom's, or nothing is read */
    float *there;      /* the same on the layer's device                            */
    int64_t count;
} ct_infogain_state;

#endif
