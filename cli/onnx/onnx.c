#include "cli/onnx/onnx.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "framework/snapshot/disk_file.h"
#include "framework/snapshot/proto_wire.h"
#include "framework/snapshot/set_files.h"
#include "cli/onnx/onnx_impl.h"

enum { IR_VERSION = 7, OPSET = 13 };

/* ---- the graph */

/* ValueInfoProto { name 1 type 2 { tensor_type 1 { elem_type 1 shape 2 { dim 1 { dim_value 1 } } }
 * } } */
static void add_value(ct_text *t, unsigned field, const char *name, const ct_shape *shape)
{
    ct_text dims = { 0 }, tensor = { 0 }, type = { 0 }, info = { 0 };

    for (int i = 0; i < shape->ndim; i++) {
        ct_text dim = { 0 };

        ct_onnx_put_int(&dim, 1, shape->dim[i]);
        ct_onnx_put_message(&dims, 1, &dim);
    }
    ct_onnx_put_int(&tensor, 1, CT_ONNX_FLOAT);
    ct_onnx_put_message(&tensor, 2, &dims);
    ct_onnx_put_message(&type, 1, &tensor);
    ct_onnx_put_text(&info, 1, name);
    ct_onnx_put_message(&info, 2, &type);
    ct_onnx_put_message(t, field, &info);
}

enum { GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };

/* A layer without bottoms is where values come from. */
static void add_inputs(ct_onnx *x, const ct_onnx_layer *l)
{
    for (int i = 0; i < l->layer->n_top; i++) {
        const char *blob = l->layer->param->top[i];

        ct_onnx_set_value(x, blob, strdup(blob));
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

        if (x->value[i].read || (ct_onnx_find_value(x, x->value[i].blob) != &x->value[i]) ||
            (b < 0))
            continue;
        add_value(&x->values, GRAPH_OUTPUT, x->value[i].name, &net->blob[b]->data.shape);
    }
}

static int64_t init_size(const ct_onnx_init *i)
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

    ct_onnx_put_text(&name, 2, net_name);
    ct_onnx_put_int(&head, 1, IR_VERSION);
    ct_onnx_put_text(&head, 2, "cortado");
    ct_onnx_put_int(&opset, 2, OPSET);
    ct_onnx_put_message(&head, 8, &opset);
    graph = (int64_t)(x->nodes.length + x->values.length + name.length);
    for (int i = 0; i < x->n_init; i++) graph += ct_proto_field_size(5, init_size(&x->init[i]));
    ct_disk_open(&d, path, 0);
    ct_disk_add(&d, head.text, (int64_t)head.length);
    ct_proto_field(&d, 7, (uint64_t)graph);
    ct_disk_add(&d, x->nodes.text, (int64_t)x->nodes.length);
    ct_disk_add(&d, name.text, (int64_t)name.length);
    for (int i = 0; i < x->n_init; i++) {
        const ct_onnx_init *in = &x->init[i];

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
