/* Nodes, attributes and initializers of an ONNX file, and what layers are put together from. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/onnx/onnx_impl.h"

/* ---- names: no two nodes have the same, and no two values */

bool ct_onnx_name_taken(const ct_onnx_names *names, const char *name)
{
    for (int i = 0; i < names->n; i++) {
        if (strcmp(names->entry[i].name, name) == 0) return true;
    }
    return false;
}

const char *ct_onnx_take_name(ct_onnx *x, ct_onnx_names *names, const char *wanted, bool part)
{
    ct_onnx_name *grown = realloc(names->entry, (size_t)(names->n + 1) * sizeof(*grown));
    ct_text t = { 0 };
    char *copy = strdup(wanted);

    if (grown != NULL) names->entry = grown;
    ct_text_add(&t, "%s", wanted);
    for (int k = 2; !t.failed && ct_onnx_name_taken(names, t.text); k++) {
        ct_text_destroy(&t);
        ct_text_add(&t, "%s_%d", wanted, k);
    }
    if ((grown == NULL) || (copy == NULL) || t.failed) {
        free(copy);
        ct_text_destroy(&t);
        x->failed = true;
        return NULL;
    }
    names->entry[names->n++] = (ct_onnx_name){ .wanted = copy, .name = t.text, .part = part };
    return t.text;
}

void ct_onnx_names_destroy(ct_onnx_names *names)
{
    for (int i = 0; i < names->n; i++) {
        free(names->entry[i].wanted);
        free(names->entry[i].name);
    }
    free(names->entry);
}

static char *joined(const char *a, const char *b)
{
    ct_text t = { 0 };

    ct_text_add(&t, "%s/%s", a, b);
    if (t.failed) ct_text_destroy(&t);
    return t.text;
}

/* "a/b", or something like it that is free. */
static const char *take_joined(ct_onnx *x, const char *a, const char *b, bool part)
{
    char *wanted = joined(a, b);
    const char *name = NULL;

    if (wanted != NULL)
        name = ct_onnx_take_name(x, &x->value_names, wanted, part);
    else
        x->failed = true;
    free(wanted);
    return name;
}

/* ---- nodes */

void ct_onnx_begin(ct_onnx *x, const ct_onnx_layer *l, const char *op)
{
    ct_text_destroy(&x->node_name);
    ct_text_add(&x->node_name, "%s", l->layer->name);
    x->node = ct_onnx_add(x, x->graph, "node");
    ct_onnx_put_text(x, x->node, "op_type", op);
}

void ct_onnx_end(ct_onnx *x)
{
    const char *name = NULL;

    if (!x->node_name.failed) name = ct_onnx_take_name(x, &x->node_names, x->node_name.text, false);
    if (name != NULL) ct_onnx_put_text(x, x->node, "name", name);
    x->failed = x->failed || x->node_name.failed;
}

void ct_onnx_input(ct_onnx *x, const char *name)
{
    ct_onnx_put_text(x, x->node, "input", name);
}

ct_onnx_value *ct_onnx_find_value(ct_onnx *x, const char *blob)
{
    for (int i = x->n_value - 1; i >= 0; i--) {
        if (strcmp(x->value[i].blob, blob) == 0) return &x->value[i];
    }
    return NULL;
}

static void set_value(ct_onnx *x, const char *blob, const char *name, const ct_shape *shape)
{
    ct_onnx_value *grown = realloc(x->value, (size_t)(x->n_value + 1) * sizeof(*grown));

    if (grown != NULL) x->value = grown;
    if ((grown == NULL) || (name == NULL)) {
        x->failed = true;
        return;
    }
    x->value[x->n_value++] = (ct_onnx_value){ .blob = blob, .name = name, .shape = *shape };
}

void ct_onnx_set_value(ct_onnx *x, const ct_onnx_layer *l, int i, const char *name)
{
    set_value(x, l->layer->param->top[i], name, &l->in->top[i]->data.shape);
}

static const char *value_name(ct_onnx *x, const char *blob)
{
    const ct_onnx_value *v = ct_onnx_find_value(x, blob);

    return (v != NULL) ? v->name : blob;
}

void ct_onnx_bottom(ct_onnx *x, const ct_onnx_layer *l, int i)
{
    ct_onnx_input(x, value_name(x, l->layer->param->bottom[i]));
}

/* The first value of a blob has the blob's name, which is kept free for it. */
void ct_onnx_top(ct_onnx *x, const ct_onnx_layer *l, int i)
{
    const char *blob = l->layer->param->top[i], *name = blob;

    if (ct_onnx_find_value(x, blob) != NULL) name = take_joined(x, blob, l->layer->name, false);
    if (name != NULL) ct_onnx_put_text(x, x->node, "output", name);
    ct_onnx_set_value(x, l, i, name);
}

void ct_onnx_probabilities(ct_onnx *x, const ct_onnx_layer *l)
{
    const char *name;

    if (l->layer->param->n_top > 1) {
        ct_onnx_top(x, l, 1);
    } else {
        name = l->only_loss ? ct_onnx_take_name(x, &x->value_names, "prob", false)
                            : take_joined(x, l->layer->name, "prob", false);
        if (name != NULL) ct_onnx_put_text(x, x->node, "output", name);
        /* a blob of no net, so no reader asks for it */
        set_value(x, "", name, &l->in->bottom[0]->data.shape);
    }
    if (!x->failed && ((l->layer->param->n_top < 2) || (l->live->top[1] != CT_ONNX_NEEDED)))
        x->value[x->n_value - 1].output = true;
}

static const char *find_part(const ct_onnx *x, const char *wanted)
{
    for (int i = x->value_names.n - 1; i >= 0; i--) {
        const ct_onnx_name *n = &x->value_names.entry[i];

        if (n->part && (strcmp(n->wanted, wanted) == 0)) return n->name;
    }
    return NULL;
}

void ct_onnx_part(ct_onnx *x, const ct_onnx_layer *l, const char *part, bool output)
{
    char *wanted = joined(l->layer->name, part);
    const char *name = NULL;

    if (output) {
        name = take_joined(x, l->layer->name, part, true);
        ct_text_add(&x->node_name, "/%s", part);
    } else if (wanted != NULL) {
        name = find_part(x, wanted);
    }
    if (name == NULL)
        x->failed = true;
    else
        ct_onnx_put_text(x, x->node, output ? "output" : "input", name);
    free(wanted);
}

void ct_onnx_graph_input(ct_onnx *x, const ct_onnx_layer *l, const char *part,
                         const ct_shape *shape)
{
    const char *name = take_joined(x, l->layer->name, part, true);

    if (name != NULL) ct_onnx_add_value(x, "input", name, shape);
}

void ct_onnx_graph_output(ct_onnx *x, const ct_onnx_layer *l, const char *part,
                          const ct_shape *shape)
{
    char *wanted = joined(l->layer->name, part);

    set_value(x, "", (wanted != NULL) ? find_part(x, wanted) : NULL, shape);
    if (!x->failed) x->value[x->n_value - 1].output = true;
    free(wanted);
}

void ct_onnx_alias(ct_onnx *x, const ct_onnx_layer *l, int i)
{
    const char *bottom = l->layer->param->bottom[0], *top = l->layer->param->top[i];

    if (strcmp(bottom, top) == 0) return;
    if (l->live->top[i] != CT_ONNX_UNREAD) {
        ct_onnx_set_value(x, l, i, value_name(x, bottom));
        return;
    }
    ct_onnx_begin(x, l, "Identity"); /* outputs of a graph have names of their own */
    ct_onnx_bottom(x, l, 0);
    ct_onnx_top(x, l, i);
    ct_onnx_end(x);
}

static Onnx__AttributeProto *add_attribute(ct_onnx *x, const char *name, int type)
{
    Onnx__AttributeProto *a = ct_onnx_add(x, x->node, "attribute");

    ct_onnx_put_text(x, a, "name", name);
    ct_onnx_put_int(x, a, "type", type);
    return a;
}

void ct_onnx_int(ct_onnx *x, const char *name, int64_t v)
{
    ct_onnx_put_int(x, add_attribute(x, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT), "i", v);
}

void ct_onnx_ints(ct_onnx *x, const char *name, int n, const int64_t *v)
{
    Onnx__AttributeProto *a = add_attribute(x, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);

    for (int i = 0; i < n; i++) ct_onnx_put_int(x, a, "ints", v[i]);
}

void ct_onnx_string(ct_onnx *x, const char *name, const char *v)
{
    Onnx__AttributeProto *a = add_attribute(x, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
    ProtobufCBinaryData s = { .len = strlen(v), .data = (uint8_t *)strdup(v) };

    if (s.data == NULL)
        x->failed = true;
    else
        ct_onnx_put(x, a, "s", &s);
}

void ct_onnx_float(ct_onnx *x, const char *name, float v)
{
    ct_onnx_put(x, add_attribute(x, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT), "f", &v);
}

/* ---- initializers */

/* type: FLOAT or INT64 of TensorProto; name NULL: there was no memory for it. The bytes are
 * borrowed, or else become the initializer's. */
static void add_initializer(ct_onnx *x, const char *name, int type, const ct_shape *shape,
                            const void *data, bool borrowed)
{
    size_t n = (x->graph != NULL) ? x->graph->n_initializer : 0;
    bool *grown = realloc(x->borrowed, (n + 1) * sizeof(*grown));
    Onnx__TensorProto *t = NULL;
    ProtobufCBinaryData raw = { .data = (uint8_t *)(uintptr_t)data };

    if (grown != NULL) x->borrowed = grown;
    if ((grown != NULL) && (name != NULL)) t = ct_onnx_add(x, x->graph, "initializer");
    if (t == NULL) {
        if (!borrowed) free(raw.data);
        x->failed = true;
        return;
    }
    x->borrowed[n] = borrowed;
    raw.len = (size_t)ct_shape_count(shape, 0, -1) *
              ((type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT) ? sizeof(float) : sizeof(int64_t));
    for (int d = 0; d < shape->ndim; d++) ct_onnx_put_int(x, t, "dims", shape->dim[d]);
    ct_onnx_put_int(x, t, "data_type", type);
    ct_onnx_put_text(x, t, "name", name);
    ct_onnx_put(x, t, "raw_data", &raw);
}

static const ct_model_array *array_of(const ct_onnx_layer *l, const char *layer, int i)
{
    int k = ct_model_find(l->model, layer);
    const ct_model_array *a;

    if ((k < 0) || (i >= l->model->layer[k].n_array)) return NULL;
    a = &l->model->layer[k].array[i];
    return a->present ? a : NULL;
}

static const ct_param *param_of(const ct_onnx_layer *l, int i)
{
    return &l->net->param[ct_net_param_of(l->net, l->index, i)];
}

const ct_model_array *ct_onnx_array(const ct_onnx_layer *l, int i)
{
    const ct_model_array *a = array_of(l, l->layer->name, i);
    const ct_param *p = param_of(l, i);

    if (a == NULL) a = array_of(l, p->layer, p->index);
    return ((a != NULL) && ct_shapes_fit(&a->shape, &l->layer->weight[i].shape)) ? a : NULL;
}

static bool has_shape(const Onnx__TensorProto *t, const ct_shape *shape)
{
    if (t->n_dims != (size_t)shape->ndim) return false;
    for (int d = 0; d < shape->ndim; d++) {
        if (t->dims[d] != shape->dim[d]) return false;
    }
    return true;
}

/* The name of an initializer of that shape with those numbers, or NULL. */
static const char *find_initializer(const ct_onnx *x, const ct_shape *shape, const float *data)
{
    for (size_t i = 0; (x->graph != NULL) && (i < x->graph->n_initializer); i++) {
        const Onnx__TensorProto *t = x->graph->initializer[i];

        if ((t->raw_data.data == (const uint8_t *)data) && has_shape(t, shape)) return t->name;
    }
    return NULL;
}

void ct_onnx_weight(ct_onnx *x, const ct_onnx_layer *l, int i, const ct_shape *shape)
{
    const float *data = ct_onnx_array(l, i)->data;
    char index[16];
    const char *name;

    if (shape == NULL) shape = &l->layer->weight[i].shape;
    name = find_initializer(x, shape, data);
    if (name == NULL) {
        snprintf(index, sizeof(index), "%d", i);
        name = take_joined(x, l->layer->name, index, false);
        add_initializer(x, name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, shape, data, true);
    }
    if (name != NULL) ct_onnx_input(x, name);
}

void ct_onnx_constant(ct_onnx *x, const ct_onnx_layer *l)
{
    const char *blob = l->layer->param->top[0];

    add_initializer(x, blob, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, &l->layer->weight[0].shape,
                    ct_onnx_array(l, 0)->data, true);
    ct_onnx_set_value(x, l, 0, blob);
}

void ct_onnx_constant_top(ct_onnx *x, const ct_onnx_layer *l, const float *v)
{
    const char *blob = l->layer->param->top[0];
    const ct_shape *shape = &l->in->top[0]->data.shape;
    size_t bytes = (size_t)ct_shape_count(shape, 0, -1) * sizeof(*v);
    float *copy = malloc(bytes + 1);

    if (copy == NULL) {
        x->failed = true;
        return;
    }
    memcpy(copy, v, bytes);
    add_initializer(x, blob, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, shape, copy, false);
    ct_onnx_set_value(x, l, 0, blob);
}

/* A copy of the numbers, under the layer's name. */
static void add_numbers(ct_onnx *x, const ct_onnx_layer *l, const char *name, int type,
                        const ct_shape *shape, const void *v, size_t bytes)
{
    const char *full = take_joined(x, l->layer->name, name, false);
    void *copy = malloc(bytes + 1);

    if (copy == NULL) {
        x->failed = true;
        return;
    }
    memcpy(copy, v, bytes);
    add_initializer(x, full, type, shape, copy, false);
    if (full != NULL) ct_onnx_input(x, full);
}

void ct_onnx_floats(ct_onnx *x, const ct_onnx_layer *l, const char *name, const ct_shape *shape,
                    const float *v)
{
    add_numbers(x, l, name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, shape, v,
                (size_t)ct_shape_count(shape, 0, -1) * sizeof(*v));
}

void ct_onnx_number(ct_onnx *x, const ct_onnx_layer *l, const char *name, float v)
{
    ct_onnx_floats(x, l, name, &(ct_shape){ 0 }, &v);
}

void ct_onnx_list(ct_onnx *x, const ct_onnx_layer *l, const char *name, int n, const int64_t *v)
{
    add_numbers(x, l, name, ONNX__TENSOR_PROTO__DATA_TYPE__INT64, &(ct_shape){ 1, { n } }, v,
                (size_t)n * sizeof(*v));
}

/* ---- what forms of layers share */

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

void ct_onnx_concat(ct_onnx *x, const ct_onnx_layer *l, const char *a, const char *b, int64_t axis,
                    const char *output)
{
    ct_onnx_from(x, l, "Concat", a);
    ct_onnx_part(x, l, b, false);
    ct_onnx_to(x, l, output);
    ct_onnx_int(x, "axis", axis);
    ct_onnx_end(x);
}

/* The size along the batch is what the others leave of the values, whatever the batch is. */
void ct_onnx_reshape(ct_onnx *x, const ct_onnx_layer *l, int bottom, const char *input,
                     const char *name, const ct_shape *shape, const char *output)
{
    ct_shape s = *shape;

    if (s.ndim > 0) s.dim[(x->batch_axis < s.ndim) ? x->batch_axis : s.ndim - 1] = -1;
    ct_onnx_begin(x, l, "Reshape");
    if (bottom >= 0)
        ct_onnx_bottom(x, l, bottom);
    else
        ct_onnx_part(x, l, input, false);
    ct_onnx_list(x, l, name, s.ndim, s.dim);
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
    const ct_onnx_form *const table[] = { ct_onnx_layers,    ct_onnx_functions, ct_onnx_moves,
                                          ct_onnx_attention, ct_onnx_recurrent, ct_onnx_detection };

    for (size_t k = 0; k < sizeof(table) / sizeof(table[0]); k++) {
        for (const ct_onnx_form *f = table[k]; f->type != NULL; f++) {
            if (strcmp(f->type, type) == 0) return f->write;
        }
    }
    ops = ct_layer_find(type);
    return ((ops != NULL) && (ops->formula != NULL) && (ops->formula->op != NULL)) ? by_formula
                                                                                   : NULL;
}
