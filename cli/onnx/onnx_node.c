/* Nodes, attributes and initializers of an ONNX file. */
#include <stdlib.h>
#include <string.h>

#include "cli/onnx/onnx_impl.h"

enum { ATTRIBUTE_FLOAT = 1, ATTRIBUTE_INT = 2, ATTRIBUTE_STRING = 3, ATTRIBUTE_INTS = 7 };

/* ---- the wire, into a text */

static void add_number(ct_text *t, uint64_t v)
{
    char byte[10];
    size_t n = 0;

    for (; v >= 0x80; v >>= 7) byte[n++] = (char)(v | 0x80);
    byte[n++] = (char)v;
    ct_text_add_bytes(t, byte, n);
}

void ct_onnx_put_int(ct_text *t, unsigned field, int64_t v)
{
    add_number(t, (uint64_t)field << 3);
    add_number(t, (uint64_t)v);
}

static void add_bytes(ct_text *t, unsigned field, const char *bytes, size_t n)
{
    add_number(t, (uint64_t)field << 3 | 2);
    add_number(t, n);
    ct_text_add_bytes(t, (bytes != NULL) ? bytes : "", n);
}

void ct_onnx_put_text(ct_text *t, unsigned field, const char *text)
{
    add_bytes(t, field, text, strlen(text));
}

/* The message is used up. */
void ct_onnx_put_message(ct_text *t, unsigned field, ct_text *message)
{
    add_bytes(t, field, message->text, message->length);
    t->failed = t->failed || message->failed;
    ct_text_destroy(message);
}

/* ---- nodes: NodeProto { input 1 output 2 name 3 op_type 4 attribute 5 } */

void ct_onnx_begin(ct_onnx *x, const ct_onnx_layer *l, const char *op)
{
    ct_onnx_put_text(&x->node, 3, l->layer->name);
    ct_onnx_put_text(&x->node, 4, op);
}

void ct_onnx_end(ct_onnx *x)
{
    ct_text_add_bytes(&x->node, (x->attributes.text != NULL) ? x->attributes.text : "",
                      x->attributes.length);
    x->failed = x->failed || x->attributes.failed;
    ct_text_destroy(&x->attributes);
    ct_onnx_put_message(&x->nodes, 1, &x->node);
}

void ct_onnx_input(ct_onnx *x, const char *name)
{
    ct_onnx_put_text(&x->node, 1, name);
}

ct_onnx_value *ct_onnx_find_value(ct_onnx *x, const char *blob)
{
    for (int i = x->n_value - 1; i >= 0; i--) {
        if (strcmp(x->value[i].blob, blob) == 0) return &x->value[i];
    }
    return NULL;
}

/* blob is now called name, which is taken over. */
void ct_onnx_set_value(ct_onnx *x, const char *blob, char *name)
{
    ct_onnx_value *grown = realloc(x->value, (size_t)(x->n_value + 1) * sizeof(*grown));

    if (grown != NULL) x->value = grown;
    if ((grown == NULL) || (name == NULL)) {
        free(name);
        x->failed = true;
        return;
    }
    x->value[x->n_value++] = (ct_onnx_value){ .blob = blob, .name = name };
}

static const char *bottom_name(const ct_onnx_layer *l, int i)
{
    return l->layer->param->bottom[i];
}

void ct_onnx_bottom(ct_onnx *x, const ct_onnx_layer *l, int i)
{
    ct_onnx_value *v = ct_onnx_find_value(x, bottom_name(l, i));

    if (v != NULL) v->read = true;
    ct_onnx_input(x, (v != NULL) ? v->name : bottom_name(l, i));
}

void ct_onnx_leave(ct_onnx *x, const ct_onnx_layer *l, int i)
{
    ct_onnx_value *v = ct_onnx_find_value(x, bottom_name(l, i));

    if (v != NULL) v->read = true;
}

static char *joined(const char *a, const char *b)
{
    ct_text t = { 0 };

    ct_text_add(&t, "%s/%s", a, b);
    if (t.failed) ct_text_destroy(&t);
    return t.text;
}

void ct_onnx_top(ct_onnx *x, const ct_onnx_layer *l, int i)
{
    const char *blob = l->layer->param->top[i];
    char *name =
        (ct_onnx_find_value(x, blob) == NULL) ? strdup(blob) : joined(blob, l->layer->name);

    if (name != NULL) ct_onnx_put_text(&x->node, 2, name);
    ct_onnx_set_value(x, blob, name);
}

void ct_onnx_part(ct_onnx *x, const ct_onnx_layer *l, const char *part, bool output)
{
    char *name = joined(l->layer->name, part);

    if (name == NULL)
        x->failed = true;
    else
        ct_onnx_put_text(&x->node, output ? 2 : 1, name);
    free(name);
}

void ct_onnx_alias(ct_onnx *x, const ct_onnx_layer *l, int i)
{
    ct_onnx_value *v = ct_onnx_find_value(x, bottom_name(l, 0));

    if (strcmp(bottom_name(l, 0), l->layer->param->top[i]) == 0) return;
    if (v != NULL) v->read = true; /* whether it is an output, the new name says */
    ct_onnx_set_value(x, l->layer->param->top[i],
                      strdup((v != NULL) ? v->name : bottom_name(l, 0)));
}

/* AttributeProto { name 1 f 2 i 3 s 4 ints 8 type 20 } */
static void add_attribute(ct_onnx *x, ct_text *a, int type)
{
    ct_onnx_put_int(a, 20, type);
    ct_onnx_put_message(&x->attributes, 5, a);
}

void ct_onnx_int(ct_onnx *x, const char *name, int64_t v)
{
    ct_text a = { 0 };

    ct_onnx_put_text(&a, 1, name);
    ct_onnx_put_int(&a, 3, v);
    add_attribute(x, &a, ATTRIBUTE_INT);
}

void ct_onnx_ints(ct_onnx *x, const char *name, int n, const int64_t *v)
{
    ct_text a = { 0 };

    ct_onnx_put_text(&a, 1, name);
    for (int i = 0; i < n; i++) ct_onnx_put_int(&a, 8, v[i]);
    add_attribute(x, &a, ATTRIBUTE_INTS);
}

void ct_onnx_string(ct_onnx *x, const char *name, const char *v)
{
    ct_text a = { 0 };

    ct_onnx_put_text(&a, 1, name);
    ct_onnx_put_text(&a, 4, v);
    add_attribute(x, &a, ATTRIBUTE_STRING);
}

void ct_onnx_float(ct_onnx *x, const char *name, float v)
{
    ct_text a = { 0 };
    char bytes[sizeof(v)];

    memcpy(bytes, &v, sizeof(v));
    ct_onnx_put_text(&a, 1, name);
    add_number(&a, 2 << 3 | 5);
    ct_text_add_bytes(&a, bytes, sizeof(bytes));
    add_attribute(x, &a, ATTRIBUTE_FLOAT);
}

/* ---- initializers: TensorProto { dims 1 data_type 2 name 8 raw_data 9 } */

/* type: CT_ONNX_FLOAT or CT_ONNX_INT64 */
static void add_initializer(ct_onnx *x, const char *name, int type, const ct_shape *shape,
                            const void *data, void *owned)
{
    ct_onnx_init *grown = realloc(x->init, (size_t)(x->n_init + 1) * sizeof(*grown)), *i;

    if (grown == NULL) {
        free(owned);
        x->failed = true;
        return;
    }
    x->init = grown;
    i = &x->init[x->n_init++];
    *i = (ct_onnx_init){ .data = data, .owned = owned };
    i->bytes = ct_shape_count(shape, 0, -1) * ((type == CT_ONNX_FLOAT) ? 4 : 8);
    for (int d = 0; d < shape->ndim; d++) ct_onnx_put_int(&i->head, 1, shape->dim[d]);
    ct_onnx_put_int(&i->head, 2, type);
    ct_onnx_put_text(&i->head, 8, name);
    ct_onnx_input(x, name);
}

void ct_onnx_weight(ct_onnx *x, const ct_onnx_layer *l, int i, const ct_shape *shape)
{
    char *name = ct_model_path("", l->layer->name, i, "");

    if (name == NULL)
        x->failed = true;
    else
        add_initializer(x, name, CT_ONNX_FLOAT,
                        (shape != NULL) ? shape : &l->layer->weight[i].shape,
                        l->weights->array[i].data, NULL);
    free(name);
}

/* A copy of the numbers, under the layer's name. */
static void add_numbers(ct_onnx *x, const ct_onnx_layer *l, const char *name, int type,
                        const ct_shape *shape, const void *v, size_t bytes)
{
    char *full = joined(l->layer->name, name);
    void *copy = malloc(bytes + 1);

    if ((full == NULL) || (copy == NULL)) {
        x->failed = true;
        free(copy);
    } else {
        memcpy(copy, v, bytes);
        add_initializer(x, full, type, shape, copy, copy);
    }
    free(full);
}

void ct_onnx_floats(ct_onnx *x, const ct_onnx_layer *l, const char *name, const ct_shape *shape,
                    const float *v)
{
    add_numbers(x, l, name, CT_ONNX_FLOAT, shape, v,
                (size_t)ct_shape_count(shape, 0, -1) * sizeof(*v));
}

void ct_onnx_number(ct_onnx *x, const ct_onnx_layer *l, const char *name, float v)
{
    ct_onnx_floats(x, l, name, &(ct_shape){ 0 }, &v);
}

void ct_onnx_list(ct_onnx *x, const ct_onnx_layer *l, const char *name, int n, const int64_t *v)
{
    add_numbers(x, l, name, CT_ONNX_INT64, &(ct_shape){ 1, { n } }, v, (size_t)n * sizeof(*v));
}
