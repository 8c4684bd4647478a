/** @file onnx.h  A net and its weights as an ONNX file (opset 13): what `convert model` writes.
 *
 * The messages of onnx.proto are written by field number, those few that are needed. A value of the
 * net may be written again in place; ONNX wants a name for each, so later ones get the name of
 * their layer behind them.
 */
#ifndef CT_ONNX_H
#define CT_ONNX_H

#include "framework/snapshot/model.h"

typedef struct ct_onnx ct_onnx;

/** Layers of the net that have weights take them from m, all of which is in memory. CT_ERR_CONFIG
 *  for a layer that has no form in ONNX, CT_ERR_SHAPE, CT_ERR_DATA (a layer has no weights in m),
 *  CT_ERR_IO. */
ct_status ct_onnx_write(const ct_net *net, const ct_model *m, const char *path);

/* ---- for layers (onnx_layers.c) */

typedef struct ct_onnx_layer {
    const ct_net *net;
    int index; /* of the layer */
    const ct_layer *layer;
    const ct_instance *in;
    const ct_model_layer *weights; /* NULL: none */
} ct_onnx_layer;

/** Writes the nodes of one layer. */
typedef ct_status (*ct_onnx_fn)(ct_onnx *x, const ct_onnx_layer *l);
/** NULL: the type has no form in ONNX. */
ct_onnx_fn ct_onnx_find(const char *type);

/** Begins a node; inputs and outputs follow, then attributes, then ct_onnx_end(). */
void ct_onnx_begin(ct_onnx *x, const ct_onnx_layer *l, const char *op);
/** The value that bottom i has now. */
void ct_onnx_bottom(ct_onnx *x, const ct_onnx_layer *l, int i);
/** Bottom i serves for its shape, or for nothing: no output of the graph for that. */
void ct_onnx_leave(ct_onnx *x, const ct_onnx_layer *l, int i);
/** A value by name; "": one that an operator may do without. */
void ct_onnx_input(ct_onnx *x, const char *name);
/** Array i of the layer as an initializer, and as input; shape NULL: its own. */
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
/** Top i is bottom 0 under another name. */
void ct_onnx_alias(ct_onnx *x, const ct_onnx_layer *l, int i);
void ct_onnx_int(ct_onnx *x, const char *name, int64_t v);
void ct_onnx_ints(ct_onnx *x, const char *name, int n, const int64_t *v);
void ct_onnx_float(ct_onnx *x, const char *name, float v);
void ct_onnx_string(ct_onnx *x, const char *name, const char *v);
void ct_onnx_end(ct_onnx *x);

#endif
