/** @file prior_box.h  The boxes of PriorBox, for every device; private to layers/. */
#ifndef CT_PRIOR_BOX_H
#define CT_PRIOR_BOX_H

#include "framework/base/hd.h"
#include "framework/net/layer.h"

enum { CT_PRIOR_MAX_RATIO = 64 };

typedef struct ct_prior_state {
    float ratio[CT_PRIOR_MAX_RATIO]; /* the first is 1 */
    int n_ratio;
    int64_t n_prior; /* a cell */
    float variance[4];
    float *side;  /* width and height in pixels of each of a cell's boxes */
    float *there; /* the same on the layer's device                       */
} ct_prior_state;

/** Image and steps in pixels, width first; cells are `width` to a row. */
typedef struct ct_prior_frame {
    float image[2], step[2], offset;
    int64_t width;
    bool clip;
} ct_prior_frame;

ct_prior_frame ct_prior_frame_of(const ct_layer *l, const ct_instance *in);

/** Number i of a cell's box of these sides: x0, y0, x1, y1 in parts of the image. */
static inline CT_HD float ct_prior_number(const ct_prior_frame *f, int64_t cell, const float *side,
                                          int i)
{
    int axis = i % 2;
    float at = (float)((axis == 0) ? cell % f->width : cell / f->width);
    float centre = (at + f->offset) * f->step[axis], half = side[axis] / 2.0f;
    float y = ((i < 2) ? centre - half : centre + half) / f->image[axis];

    if (!f->clip) return y;
    return (y < 0.0f) ? 0.0f : (y > 1.0f) ? 1.0f : y;
}

#endif
