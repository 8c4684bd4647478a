#include "cli/onnx/onnx_forms.h"

#include <stdio.h>
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

/* A step with numbers, which are initialisers with names of their own. */
static void by_numbers(ct_onnx *x, const ct_onnx_layer *l, const ct_formula_step *s,
                       const char *input, int at)
{
    char first[32], second[32];

    snprintf(first, sizeof(first), "number%d", at);
    if (s->with == CT_WITH_NUMBER) {
        ct_onnx_by_number(x, l, s->op, input, first, s->a, s->name);
        return;
    }
    snprintf(second, sizeof(second), "most%d", at);
    ct_onnx_from(x, l, s->op, input);
    ct_onnx_number(x, l, first, s->a);
    ct_onnx_number(x, l, second, s->b);
    ct_onnx_to(x, l, s->name);
    ct_onnx_end(x);
}

/* What the layer's own table says, operator by operator. */
static ct_status by_formula(ct_onnx *x, const ct_onnx_layer *l)
{
    const ct_formula_step *s = l->layer->ops->formula;
    const char *input = NULL;

    for (int k = 0; s[k].op != NULL; k++) {
        if ((s[k].with == CT_WITH_NUMBER) || (s[k].with == CT_WITH_RANGE))
            by_numbers(x, l, &s[k], input, k);
        else if (s[k].with == CT_WITH_BOTTOM)
            ct_onnx_by_part(x, l, s[k].op, NULL, input, s[k].name);
        else
            ct_onnx_unary(x, l, s[k].op, input, s[k].name);
        input = s[k].name;
    }
    return CT_OK;
}

ct_onnx_fn ct_onnx_find(const char *type)
{
    const ct_layer_ops *ops;
    const ct_onnx_form *const table[] = { ct_onnx_layers, ct_onnx_functions, ct_onnx_moves };

    for (size_t k = 0; k < sizeof(table) / sizeof(table[0]); k++) {
        for (const ct_onnx_form *f = table[k]; f->type != NULL; f++) {
            if (strcmp(f->type, type) == 0) return f->write;
        }
    }
    ops = ct_layer_find(type);
    return ((ops != NULL) && (ops->formula != NULL) && (ops->formula->op != NULL)) ? by_formula
                                                                                   : NULL;
}
