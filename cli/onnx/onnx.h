/** @file onnx.h  A net and its weights as an ONNX file (opset 13), and an ONNX file as a net.
 *
 * A value of the net may be written again in place; ONNX wants a name for each, so later ones get
 * the name of their layer behind them. An output has its blob's name, and the first value of that
 * blob the other. A number is appended to a name that is taken.
 *
 * A net for training is written as what it computes: SoftmaxWithLoss becomes Softmax, Accuracy
 * nothing, and what only they read (labels, and layers between) is left out.
 *
 * Sizes that follow the batch are left open, where a net with one sample more gives the same file
 * but for these.
 */
#ifndef CT_ONNX_H
#define CT_ONNX_H

#include "framework/snapshot/model.h"

typedef struct ct_onnx ct_onnx;
struct ct_onnx_live; /* onnx_impl.h */

typedef struct ct_onnx_source {
    const ct_net *net;
    const Ct__NetParameter *param; /* what the net was made of */
    const ct_model *model;         /* all of it is in memory   */
    bool fixed_batch; /* the file is for the net's batch; else for any, where that is shown */
    bool beside;      /* large values lie in PATH.data; those of more than 2 GiB always do  */
    bool force;       /* PATH.data is replaced */
} ct_onnx_source;

/** Layers of the net that have weights take them from the model. Says for which batches the file
 * is. CT_ERR_CONFIG for a layer that has no form in ONNX, or where nothing is left of the net.
 *  CT_ERR_SHAPE, CT_ERR_DATA (a layer has no weights in the model), CT_ERR_IO. */
ct_status ct_onnx_write(const ct_onnx_source *s, const char *path);

/* ---- the other way: cli/onnx/read */

typedef struct ct_onnx_target {
    const char *net, *weights; /* files to write: a prototxt, weights of any format; NULL: none */
    const char *sizes; /* NAME:N,NAME:N: of axes of inputs that have names; NULL: none. The first
                        * axis of an input has 1 where nothing is said. */
} ct_onnx_target;

/** The net for use and the weights of an ONNX file of opset 7 to 21, or neither of them.
 *  CT_ERR_CONFIG names the node, or the input, that has no form in layers. CT_ERR_DATA, CT_ERR_IO.
 */
ct_status ct_onnx_convert(const char *path, const ct_onnx_target *to);

/* ---- for layers (onnx_layers.c) */

typedef struct ct_onnx_layer {
    const ct_net *net;
    int index; /* of the layer */
    const ct_layer *layer;
    const ct_instance *in;
    const ct_model *model;
    const struct ct_onnx_live *live;
    bool only_loss; /* the net has at most one SoftmaxWithLoss */
} ct_onnx_layer;

/** Writes the nodes of one layer. */
typedef ct_status (*ct_onnx_fn)(ct_onnx *x, const ct_onnx_layer *l);
/** NULL: the type has no form in ONNX. */
ct_onnx_fn ct_onnx_find(const char *type);

/** Begins a node; inputs and outputs follow, then attributes, then ct_onnx_end(). */
void ct_onnx_begin(ct_onnx *x, const ct_onnx_layer *l, const char *op);
/** The value that bottom i has now. */
void ct_onnx_bottom(ct_onnx *x, const ct_onnx_layer *l, int i);
/** A value by name; "": one that an operator may do without. */
void ct_onnx_input(ct_onnx *x, const char *name);
/** Array i of the layer in the file of weights, which may have it at the first layer that shares
 *  it. NULL: none, or of another shape. */
const ct_model_array *ct_onnx_array(const ct_onnx_layer *l, int i);
/** Array i of the layer as an initializer, and as input; shape NULL: its own. One that several
 *  layers share is written once. */
void ct_onnx_weight(ct_onnx *x, const ct_onnx_layer *l, int i, const ct_shape *shape);
/** Numbers of our own making, copied, as an initializer "LAYER/NAME" and as input. */
void ct_onnx_floats(ct_onnx *x, const ct_onnx_layer *l, const char *name, const ct_shape *shape,
                    const float *v);
/** One number, or a list of whole ones, the same way. */
void ct_onnx_number(ct_onnx *x, const ct_onnx_layer *l, const char *name, float v);
void ct_onnx_list(ct_onnx *x, const ct_onnx_layer *l, const char *name, int n, const int64_t *v);
/** Top i under a new name; NULL part, or a value in between of that name. */
void ct_onnx_top(ct_onnx *x, const ct_onnx_layer *l, int i);
void ct_onnx_part(ct_onnx *x, const ct_onnx_layer *l, const char *part, bool output);
/** As output: the probabilities of a loss. They are its second top, or else an output of the graph
 *  called "prob", with the layer's name before it where the net has several losses. */
void ct_onnx_probabilities(ct_onnx *x, const ct_onnx_layer *l);
/** Top 0 is array 0 of the layer. */
void ct_onnx_constant(ct_onnx *x, const ct_onnx_layer *l);
/** Top 0 is these numbers, copied. */
void ct_onnx_constant_top(ct_onnx *x, const ct_onnx_layer *l, const float *v);
/** Top i is bottom 0 under another name. */
void ct_onnx_alias(ct_onnx *x, const ct_onnx_layer *l, int i);
void ct_onnx_int(ct_onnx *x, const char *name, int64_t v);
void ct_onnx_ints(ct_onnx *x, const char *name, int n, const int64_t *v);
void ct_onnx_float(ct_onnx *x, const char *name, float v);
void ct_onnx_string(ct_onnx *x, const char *name, const char *v);
void ct_onnx_end(ct_onnx *x);

#endif
