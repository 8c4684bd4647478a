/** @file box_example.h  A picture of a sample with boxes: the true ones on the left, on the right
 *  those that the net finds.
 */
#ifndef CT_BOX_EXAMPLE_H
#define CT_BOX_EXAMPLE_H

#include "cli/report/examples.h"
#include "framework/data/augment/boxes.h"
#include "framework/tensor/tensor.h"

/** Boxes of less probability, or score, are not shown. */
#define CT_BOX_SHOWN 0.5f

/** All borrowed. */
typedef struct ct_box_example {
    const ct_shape *shape; /* of the sample as the net gets it: channels x height x width */
    const float *value;
    ct_boxes truth;
    const float *found; /* rows of CT_FOUND_ROW */
    int64_t n_found;
    const Ct__NetParameter *net; /* has the class_name */
} ct_box_example;

/** Fills x->picture, n_true and n_found. Samples of neither 1 nor 3 channels get no picture.
 *  CT_ERR_NOMEM, logged. */
ct_status ct_box_example_draw(const ct_box_example *b, ct_example *x);

#endif
