/** @file absent_shapes.h  What samples look like whose source is not there: as somebody says, as
 * the layer says, or as the rest of the net needs it.
 *
 * A shape goes where the prototxt could have said it itself, synthetic_shape, and is of one sample
 * before it is cropped.
 */
#ifndef CT_ABSENT_SHAPES_H
#define CT_ABSENT_SHAPES_H

#include "framework/net/net.h"

/** A shape that somebody gives. */
typedef struct ct_given_shape {
    const char *name; /* of a top, or of a layer, which means its first top; NULL: of first tops of
                       * which nothing else says what they have. Not terminated: … */
    size_t n_name;    /* … so many characters */
    ct_shape shape;   /* of one sample */
    bool met;         /* some data layer has that name */
} ct_given_shape;

/** Height and width that samples come out with, if the transform sets them; else unchanged. */
void ct_transform_made_size(const Ct__TransformationParameter *t, int64_t *height_p,
                            int64_t *width_p);

/** Marks those whose name a layer without bottoms has, of any phase. */
void ct_absent_shapes_meet(ct_given_shape *given, int n_given, const Ct__NetParameter *net);

/** Fills in the shapes of Data, AnnotatedData, ImageData and HDF5Data layers of the phase of `o`
 *  whose source is not there and that have no synthetic_shape. In this order: what `given` names;
 *  what losses and their like ask for, seen on a net of the layers whose bottoms are known; the
 *  given shape without a name; the size of a layer of another phase with a top of that name. Other
 *  tops of HDF5Data have one number a sample then. One line of the log says what was guessed. A
 *  first top of which nothing is known stays open: the layer's setup tells.
 *
 *  CT_ERR_CONFIG, logged: a shape does not fit the label of a layer. Errors of the net itself. */
ct_status ct_absent_shapes_fill(const ct_net_options *o, const ct_given_shape *given, int n_given,
                                Ct__NetParameter *net);

#endif
