/** @file conv_geometry.h  The windows of convolution_param over any number of axes: what
 * Convolution, Deconvolution and Im2col share. Private to layers/. */
#ifndef CT_TYPES_CONV_GEOMETRY_H
#define CT_TYPES_CONV_GEOMETRY_H

#include "layers/engine/conv/conv.h"

typedef struct ct_conv_geometry {
    int axis, n;         /* of the channels; spatial axes, all those behind it */
    int64_t m, c, group; /* num_output; channels of the bottom                 */
    int64_t kernel[CT_MAX_DIM], stride[CT_MAX_DIM], pad[CT_MAX_DIM], dilation[CT_MAX_DIM];
    bool bias;
} ct_conv_geometry;

/** setup: axis and windows, for a bottom of shape x. CT_ERR_CONFIG, logged. */
ct_status ct_conv_read_windows(const ct_layer *l, const ct_shape *x, ct_conv_geometry *g);
/** setup: the same, num_output, group and bias_term. `group` > 0 stands in for the prototxt's. */
ct_status ct_conv_read_geometry(const ct_layer *l, const ct_shape *x, int64_t group,
                                ct_conv_geometry *g);
/** setup: declares the weights: `first` x `second` x windows, and the bias. g is the whole layer's;
 *  of a part by inputs only the first one keeps the bias. */
ct_status ct_conv_add_weights(ct_layer *l, ct_conv_geometry *g, int64_t first, int64_t second);
/** reshape: whether all bottoms have the shape of the first, which has the axes and channels that
 *  setup saw. CT_ERR_SHAPE, logged. */
ct_status ct_conv_check_bottoms(const ct_layer *l, const ct_instance *in,
                                const ct_conv_geometry *g);
/** Fills what d says of windows and sizes: of inputs `in`, one for each spatial axis, and outputs.
 *  CT_ERR_SHAPE, logged, where a window does not fit. */
ct_status ct_conv_fill_desc(const ct_layer *l, const ct_conv_geometry *g, const int64_t *in,
                            ct_conv_desc *d);
/** The shape of x with `channels` channels and the spatial sizes `out`. */
ct_shape ct_conv_shape(const ct_conv_geometry *g, const ct_shape *x, int64_t channels,
                       const int64_t *out);
/** Outputs along spatial axis i of d. */
int64_t ct_conv_out_of(const ct_conv_geometry *g, const ct_conv_desc *d, int i);
/** The larger of two workspaces. */
static inline size_t ct_conv_larger(size_t a, size_t b)
{
    return (a > b) ? a : b;
}

#endif
