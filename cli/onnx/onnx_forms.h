/** @file onnx_forms.h  What forms of layers share; private to framework/tools/onnx_*.c. */
#ifndef CT_ONNX_FORMS_H
#define CT_ONNX_FORMS_H

#include "cli/onnx/onnx.h"

/** CT_ERR_CONFIG: this use of the layer cannot be said in ONNX, or is not here. */
ct_status ct_onnx_no_form(const ct_onnx_layer *l, const char *why);
static inline const ct_shape *ct_onnx_top_shape(const ct_onnx_layer *l)
{
    return &l->in->top[0]->data.shape;
}

static inline const ct_shape *ct_onnx_bottom_shape(const ct_onnx_layer *l, int i)
{
    return &l->in->bottom[i]->data.shape;
}

/** A shape that lies on bottom 0's axes from `axis` on, as one that broadcasts so: ones behind. */
ct_shape ct_onnx_spread(const ct_onnx_layer *l, const ct_shape *small, int axis);

/* A node's start and end: input NULL is bottom 0, else a part; output NULL is top 0, else a part.
 */
void ct_onnx_from(ct_onnx *x, const ct_onnx_layer *l, const char *op, const char *input);
void ct_onnx_to(ct_onnx *x, const ct_onnx_layer *l, const char *output);
/** One input, one output, nothing else. */
void ct_onnx_unary(ct_onnx *x, const ct_onnx_layer *l, const char *op, const char *input,
                   const char *output);
/** input OP v. */
void ct_onnx_by_number(ct_onnx *x, const ct_onnx_layer *l, const char *op, const char *input,
                       const char *name, float v, const char *output);
/** input OP part; of bottom 0 where input is NULL. */
void ct_onnx_by_part(ct_onnx *x, const ct_onnx_layer *l, const char *op, const char *input,
                     const char *part, const char *output);
/** Bottom i, or a part, in another shape; bottom < 0: the part `input`. */
void ct_onnx_reshape(ct_onnx *x, const ct_onnx_layer *l, int bottom, const char *input,
                     const char *name, const ct_shape *shape, const char *output);

typedef struct ct_onnx_form {
    const char *type;
    ct_onnx_fn write;
} ct_onnx_form;

/** End with a type of NULL: layers that compute, functions of elements, layers that move and
 *  reduce. */
extern const ct_onnx_form ct_onnx_layers[], ct_onnx_functions[], ct_onnx_moves[];

#endif
