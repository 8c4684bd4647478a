#include "framework/tools/onnx.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "framework/snapshot/disk_file.h"
#include "framework/snapshot/proto_wire.h"
#include "framework/snapshot/set_files.h"

enum {
    IR_VERSION = 7,
    OPSET = 13,
    FLOAT = 1,
    ATTRIBUTE_FLOAT = 1,
    ATTRIBUTE_INT = 2,
    ATTRIBUTE_INTS = 7
};

typedef struct initializer {
    ct_text head; /* TensorProto up to raw_data */
    const float *data;
    float *owned;
    int64_t bytes;
} initializer;

typedef struct value { /* what a blob of the net is called now */
    const char *blob;
    char *name; /* owned */
    bool read;
} value;

struct ct_onnx {
    ct_text nodes, node, attributes, values;
    initializer *init;
    int n_init;
    value *value;
    int n_value;
    bool failed; /* no memory */
};

/* ---- the wire, into a text */

static void add_number(ct_text *t, uint64_t v)
{
    char byte[10];
    size_t n = 0;

    for (; v >= 0x80; v >>= 7) byte[n++] = (char)(v | 0x80);
    byte[n++] = (char)v;
    ct_text_add_bytes(t, byte, n);
}

static void add_int(ct_text *t, unsigned field, int64_t v)
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

static void add_text(ct_text *t, unsigned field, const char *text)
{
    add_bytes(t, field, text, strlen(text));
}

/* The message is used up. */
static void add_message(ct_text *t, unsigned field, ct_text *message)
{
    add_bytes(t, field, message->text, message->length);
    t->failed = t->failed || message->failed;
    ct_text_destroy(message);
}

/* ---- nodes: NodeProto { input 1 output 2 name 3 op_type 4 attribute 5 } */

void ct_onnx_begin(ct_onnx *x, const ct_onnx_layer *l, const char *op)
{
    add_text(&x->node, 3, l->layer->name);
    add_text(&x->node, 4, op);
}

void ct_onnx_end(ct_onnx *x)
{
    ct_text_add_bytes(&x->node, (x->attributes.text != NULL) ? x->attributes.text : "",
                      x->attributes.length);
    x->failed = x->failed || x->attributes.failed;
    ct_text_destroy(&x->attributes);
    add_message(&x->nodes, 1, &x->node);
}

void ct_onnx_input(ct_onnx *x, const char *name)
{
    add_text(&x->node, 1, name);
}

static value *find_value(ct_onnx *x, const char *blob)
{
    for (int i = x->n_value - 1; i >= 0; i--) {
        if (strcmp(x->value[i].blob, blob) == 0) return &x->value[i];
    }
    return NULL;
}

/* blob is now called name, which is taken over. */
static void set_value(ct_onnx *x, const char *blob, char *name)
{
    value *grown = realloc(x->value, (size_t)(x->n_value + 1) * sizeof(*grown));

    if (grown != NULL) x->value = grown;
    if ((grown == NULL) || (name == NULL)) {
        free(name);
        x->failed = true;
        return;
    }
    x->value[x->n_value++] = (value){ .blob = blob, .name = name };
}

static const char *bottom_name(const ct_onnx_layer *l, int i)
{
    return l->layer->param->bottom[i];
}

void ct_onnx_bottom(ct_onnx *x, const ct_onnx_layer *l, int i)
{
    value *v = find_value(x, bottom_name(l, i));

    if (v != NULL) v->read = true;
    ct_onnx_input(x, (v != NULL) ? v->name : bottom_name(l, i));
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
    char *name = (find_value(x, blob) == NULL) ? strdup(blob) : joined(blob, l->layer->name);

    if (name != NULL) add_text(&x->node, 2, name);
    set_value(x, blob, name);
}

void ct_onnx_part(ct_onnx *x, const ct_onnx_layer *l, const char *part, bool output)
{
    char *name = joined(l->layer->name, part);

    if (name == NULL)
        x->failed = true;
    else
        add_text(&x->node, output ? 2 : 1, name);
    free(name);
}

void ct_onnx_alias(ct_onnx *x, const ct_onnx_layer *l, int i)
{
    value *v = find_value(x, bottom_name(l, 0));

    if (strcmp(bottom_name(l, 0), l->layer->param->top[i]) == 0) return;
    if (v != NULL) v->read = true; /* whether it is an output, the new name says */
    set_value(x, l->layer->param->top[i], strdup((v != NULL) ? v->name : bottom_name(l, 0)));
}

/* AttributeProto { name 1 f 2 i 3 ints 8 type 20 } */
static void add_attribute(ct_onnx *x, ct_text *a, int type)
{
    add_int(a, 20, type);
    add_message(&x->attributes, 5, a);
}

void ct_onnx_int(ct_onnx *x, const char *name, int64_t v)
{
    ct_text a = { 0 };

    add_text(&a, 1, name);
    add_int(&a, 3, v);
    add_attribute(x, &a, ATTRIBUTE_INT);
}

void ct_onnx_ints(ct_onnx *x, const char *name, int n, const int64_t *v)
{
    ct_text a = { 0 };

    add_text(&a, 1, name);
    for (int i = 0; i < n; i++) add_int(&a, 8, v[i]);
    add_attribute(x, &a, ATTRIBUTE_INTS);
}

void ct_onnx_float(ct_onnx *x, const char *name, float v)
{
    ct_text a = { 0 };
    char bytes[sizeof(v)];

    memcpy(bytes, &v, sizeof(v));
    add_text(&a, 1, name);
    add_number(&a, 2 << 3 | 5);
    ct_text_add_bytes(&a, bytes, sizeof(bytes));
    add_attribute(x, &a, ATTRIBUTE_FLOAT);
}

/* ---- initializers: TensorProto { dims 1 data_type 2 name 8 raw_data 9 } */

static void add_initializer(ct_onnx *x, const char *name, const ct_shape *shape, const float *data,
                            float *owned)
{
    initializer *grown = realloc(x->init, (size_t)(x->n_init + 1) * sizeof(*grown)), *i;

    if (grown == NULL) {
        free(owned);
        x->failed = true;
        return;
    }
    x->init = grown;
    i = &x->init[x->n_init++];
    *i = (initializer){ .data = data, .owned = owned };
    i->bytes = ct_shape_count(shape, 0, -1) * (int64_t)sizeof(float);
    for (int d = 0; d < shape->ndim; d++) add_int(&i->head, 1, shape->dim[d]);
    add_int(&i->head, 2, FLOAT);
    add_text(&i->head, 8, name);
    ct_onnx_input(x, name);
}

void ct_onnx_weight(ct_onnx *x, const ct_onnx_layer *l, int i, const ct_shape *shape)
{
    char *name = ct_model_path("", l->layer->name, i, "");

    if (name == NULL)
        x->failed = true;
    else
        add_initializer(x, name, (shape != NULL) ? shape : &l->layer->weight[i].shape,
                        l->weights->array[i].data, NULL);
    free(name);
}

void ct_onnx_floats(ct_onnx *x, const ct_onnx_layer *l, const char *name, const ct_shape *shape,
                    const float *v)
{
    size_t bytes = (size_t)ct_shape_count(shape, 0, -1) * sizeof(float);
    char *full = joined(l->layer->name, name);
    float *copy = malloc(bytes + 1);

    if ((full == NULL) || (copy == NULL)) {
        x->failed = true;
        free(copy);
    } else {
        memcpy(copy, v, bytes);
        add_initializer(x, full, shape, copy, copy);
    }
    free(full);
}

/* ---- the graph */

/* ValueInfoProto { name 1 type 2 { tensor_type 1 { elem_type 1 shape 2 { dim 1 { dim_value 1 } } }
 * } } */
static void add_value(ct_text *t, unsigned field, const char *name, const ct_shape *shape)
{
    ct_text dims = { 0 }, tensor = { 0 }, type = { 0 }, info = { 0 };

    for (int i = 0; i < shape->ndim; i++) {
        ct_text dim = { 0 };

        add_int(&dim, 1, shape->dim[i]);
        add_message(&dims, 1, &dim);
    }
    add_int(&tensor, 1, FLOAT);
    add_message(&tensor, 2, &dims);
    add_message(&type, 1, &tensor);
    add_text(&info, 1, name);
    add_message(&info, 2, &type);
    add_message(t, field, &info);
}

enum { GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };

/* A layer without bottoms is where values come from. */
static void add_inputs(ct_onnx *x, const ct_onnx_layer *l)
{
    for (int i = 0; i < l->layer->n_top; i++) {
        const char *blob = l->layer->param->top[i];

        set_value(x, blob, strdup(blob));
        add_value(&x->values, GRAPH_INPUT, blob, &l->in->top[i]->data.shape);
    }
}

static ct_status add_layer(ct_onnx *x, const ct_net *net, const ct_model *m, int index)
{
    int k = ct_model_find(m, net->layer[index]->name);
    ct_onnx_layer l = { .net = net,
                        .index = index,
                        .layer = net->layer[index],
                        .in = net->instance[index],
                        .weights = (k >= 0) ? &m->layer[k] : NULL };
    ct_onnx_fn write = ct_onnx_find(l.layer->ops->type);

    if (strcmp(l.layer->ops->type, "Split") == 0)
        return CT_OK; /* every value may have many readers */
    if (l.layer->n_bottom == 0) {
        add_inputs(x, &l);
        return CT_OK;
    }
    if (write == NULL)
        return CT_FAIL(
            CT_ERR_CONFIG,
            "%s%slayer \"%s\" (%s) has no form in ONNX here; a deploy net, without losses, "
            "is what to give",
            l.layer->where, (l.layer->where[0] != '\0') ? ": " : "", l.layer->name,
            l.layer->ops->type);
    for (int i = 0; i < l.layer->n_weight; i++) {
        if ((l.weights != NULL) && (i < l.weights->n_array) && l.weights->array[i].present &&
            ct_shapes_fit(&l.weights->array[i].shape, &l.layer->weight[i].shape))
            continue;
        return CT_FAIL(CT_ERR_DATA, "%s: no blob %d of layer \"%s\" of shape %s", m->file, i,
                       l.layer->name, ct_shape_str(&l.layer->weight[i].shape).text);
    }
    return write(x, &l);
}

/* What no node reads is what the graph gives. */
static void add_outputs(ct_onnx *x, const ct_net *net)
{
    for (int i = 0; i < x->n_value; i++) {
        int b = ct_net_find_blob(net, x->value[i].blob);

        if (x->value[i].read || (find_value(x, x->value[i].blob) != &x->value[i]) || (b < 0))
            continue;
        add_value(&x->values, GRAPH_OUTPUT, x->value[i].name, &net->blob[b]->data.shape);
    }
}

static int64_t init_size(const initializer *i)
{
    return (int64_t)i->head.length + ct_proto_field_size(9, i->bytes);
}

/* ModelProto { ir_version 1 producer_name 2 graph 7 { node 1 name 2 initializer 5 … } opset_import
 * 8 { version 2 } } */
static ct_status write_file(const ct_onnx *x, const char *net_name, const char *path)
{
    ct_text head = { 0 }, opset = { 0 }, name = { 0 };
    int64_t graph, size;
    uint64_t hash;
    ct_disk_file d;

    add_text(&name, 2, net_name);
    add_int(&head, 1, IR_VERSION);
    add_text(&head, 2, "cortado");
    add_int(&opset, 2, OPSET);
    add_message(&head, 8, &opset);
    graph = (int64_t)(x->nodes.length + x->values.length + name.length);
    for (int i = 0; i < x->n_init; i++) graph += ct_proto_field_size(5, init_size(&x->init[i]));
    ct_disk_open(&d, path, 0);
    ct_disk_add(&d, head.text, (int64_t)head.length);
    ct_proto_field(&d, 7, (uint64_t)graph);
    ct_disk_add(&d, x->nodes.text, (int64_t)x->nodes.length);
    ct_disk_add(&d, name.text, (int64_t)name.length);
    for (int i = 0; i < x->n_init; i++) {
        const initializer *in = &x->init[i];

        ct_proto_field(&d, 5, (uint64_t)init_size(in));
        ct_disk_add(&d, in->head.text, (int64_t)in->head.length);
        ct_proto_field(&d, 9, (uint64_t)in->bytes);
        ct_disk_add(&d, in->data, in->bytes);
    }
    ct_disk_add(&d, x->values.text, (int64_t)x->values.length);
    ct_text_destroy(&head);
    ct_text_destroy(&name);
    if (d.at <= INT32_MAX) return ct_disk_finish(&d, path, &hash, &size);
    ct_disk_drop(&d, path);
    return CT_FAIL(CT_ERR_DATA, "%s: %" PRId64 " bytes, ONNX files of one part have at most 2 GiB",
                   path, d.at);
}

static void drop(ct_onnx *x)
{
    for (int i = 0; i < x->n_init; i++) {
        ct_text_destroy(&x->init[i].head);
        free(x->init[i].owned);
    }
    for (int i = 0; i < x->n_value; i++) free(x->value[i].name);
    free(x->init);
    free(x->value);
    ct_text_destroy(&x->nodes);
    ct_text_destroy(&x->node);
    ct_text_destroy(&x->attributes);
    ct_text_destroy(&x->values);
}

ct_status ct_onnx_write(const ct_net *net, const ct_model *m, const char *path)
{
    char *temp = ct_path_temp(path);
    ct_onnx x = { .failed = (temp == NULL) };
    ct_status status = CT_OK;

    for (int l = 0; (l < net->n_layer) && (status == CT_OK); l++) status = add_layer(&x, net, m, l);
    if (status == CT_OK) add_outputs(&x, net);
    if ((status == CT_OK) && (x.failed || x.nodes.failed || x.values.failed))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", path);
    if (status == CT_OK) status = write_file(&x, (net->name != NULL) ? net->name : "net", temp);
    if (status == CT_OK) status = ct_file_commit(temp, path);
    drop(&x);
    free(temp);
    return status;
}
