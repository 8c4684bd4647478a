#include "cli/onnx/onnx_forms.h"

#include <string.h>

ct_status ct_onnx_no_form(const ct_onnx_layer *l, const char *why)
{
    return CT_FAIL(CT_ERR_CONFIG, "%s%slayer \"%s\" (%s): %s has no form in ONNX here",
                   l->layer->where, (l->layer->where[0] != '\0') ? ": " : "", l->layer->name,
                   l->layer->ops->type, why);
}

ct_shape ct_onnx_spread(const ct_onnx_layer *l, const ct_shape *small, int axis)
{
    ct_shape s = { .ndim = l->in->bottom[0]->data.shape.ndim - axis };

    for (int d = 0; d < s.ndim; d++) s.dim[d] = (d < small->ndim) ? small->dim[d] : 1;
    return s;
}

void ct_onnx_from(ct_onnx *x, const ct_onnx_layer *l, const char *op, const char *input)
{
    ct_onnx_begin(x, l, op);
    if (input != NULL)
        ct_onnx_part(x, l, input, false);
    else
        ct_onnx_bottom(x, l, 0);
}

void ct_onnx_to(ct_onnx *x, const ct_onnx_layer *l, const char *output)
{
    if (output != NULL)
        ct_onnx_part(x, l, output, true);
    else
        ct_onnx_top(x, l, 0);
}

void ct_onnx_unary(ct_onnx *x, const ct_onnx_layer *l, const char *op, const char *input,
                   const char *output)
{
    ct_onnx_from(x, l, op, input);
    ct_onnx_to(x, l, output);
    ct_onnx_end(x);
}

void ct_onnx_by_number(ct_onnx *x, const ct_onnx_layer *l, const char *op, const char *input,
                       const char *name, float v, const char *output)
{
    ct_onnx_from(x, l, op, input);
    ct_onnx_number(x, l, name, v);
    ct_onnx_to(x, l, output);
    ct_onnx_end(x);
}

void ct_onnx_by_part(ct_onnx *x, const ct_onnx_layer *l, const char *op, const char *input,
                     const char *part, const char *output)
{
    ct_onnx_from(x, l, op, input);
    ct_onnx_part(x, l, part, false);
    ct_onnx_to(x, l, output);
    ct_onnx_end(x);
}

void ct_onnx_reshape(ct_onnx *x, const ct_onnx_layer *l, int bottom, const char *input,
                     const char *name, const ct_shape *shape, const char *output)
{
    ct_onnx_begin(x, l, "Reshape");
    if (bottom >= 0)
        ct_onnx_bottom(x, l, bottom);
    else
        ct_onnx_part(x, l, input, false);
    ct_onnx_list(x, l, name, shape->ndim, shape->dim);
    ct_onnx_to(x, l, output);
    ct_onnx_end(x);
}

ct_onnx_fn ct_onnx_find(const char *type)
{
    const ct_onnx_form *const table[] = { ct_onnx_layers, ct_onnx_functions, ct_onnx_moves };

    for (size_t k = 0; k < sizeof(table) / sizeof(table[0]); k++) {
        for (const ct_onnx_form *f = table[k]; f->type != NULL; f++) {
            if (strcmp(f->type, type) == 0) return f->write;
        }
    }
    return NULL;
}
