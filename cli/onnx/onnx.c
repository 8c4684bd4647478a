#include "cli/onnx/onnx.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/onnx/onnx_impl.h"
#include "framework/snapshot/disk_file.h"
#include "framework/snapshot/set_files.h"

/* One entry a layer of the net. CT_ERR_NOMEM. */
static ct_status onnx_live_create(const ct_net *net, ct_onnx_live **live_p);
/* NULL allowed */
static void onnx_live_destroy(ct_onnx_live *live, int n_layer);
/* What layer l does with its bottom i. */
static ct_onnx_use onnx_bottom_use(const ct_layer *l, int i);

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

/* A layer without bottoms is where values come from; those that nobody needs are no inputs. */
static void add_inputs(ct_onnx *x, const ct_onnx_layer *l)
{
    for (int i = 0; i < (int)l->layer->param->n_top; i++) {
        const char *blob = l->layer->param->top[i];

        if (l->live->top[i] != CT_ONNX_NEEDED) continue;
        ct_onnx_set_value(x, l, i, blob);
        add_value(&x->values, GRAPH_INPUT, blob, &l->in->top[i]->data.shape);
    }
}

static ct_status no_form(const ct_layer *l, const char *why)
{
    return CT_FAIL(CT_ERR_CONFIG, "%s%slayer \"%s\" (%s) %s", l->where,
                   (l->where[0] != '\0') ? ": " : "", l->name, l->ops->type, why);
}

/* What the layer needs of the file of weights, and of the values before it. */
static ct_status check_layer(ct_onnx *x, const ct_onnx_layer *l)
{
    if ((l->layer->n_bottom > 0) && (ct_onnx_find(l->layer->ops->type) == NULL))
        return no_form(l->layer, "has no form in ONNX here; a deploy net, without losses, is what "
                                 "to give");
    for (int i = 0; i < (int)l->layer->param->n_bottom; i++) {
        if ((onnx_bottom_use(l->layer, i) != CT_ONNX_NEEDED) ||
            (ct_onnx_find_value(x, l->layer->param->bottom[i]) != NULL))
            continue;
        return no_form(l->layer, "reads a loss or a measure, which an ONNX file does not hold");
    }
    for (int i = 0; i < l->layer->n_weight; i++) {
        if (ct_onnx_array(l, i) == NULL)
            return CT_FAIL(CT_ERR_DATA, "%s: no blob %d of layer \"%s\" of shape %s",
                           l->model->file, i, l->layer->name,
                           ct_shape_str(&l->layer->weight[i].shape).text);
    }
    return CT_OK;
}

static bool is_loss(const ct_layer *l)
{
    return strcmp(l->ops->type, "SoftmaxWithLoss") == 0;
}

static ct_status add_layer(ct_onnx *x, const ct_net *net, const ct_model *m, int index,
                           const ct_onnx_live *live)
{
    int n_loss = 0;
    ct_onnx_layer l = { .net = net,
                        .index = index,
                        .layer = net->layer[index],
                        .in = net->pass->instance[index],
                        .model = m,
                        .live = &live[index] };

    if (!l.live->written) return CT_OK;
    for (int i = 0; i < net->n_layer; i++) n_loss += is_loss(net->layer[i]);
    l.only_loss = (n_loss <= 1);
    CT_TRY(check_layer(x, &l));
    if (l.layer->n_bottom > 0)
        CT_TRY(ct_onnx_find(l.layer->ops->type)(x, &l));
    else if (l.layer->n_weight > 0)
        ct_onnx_constant(x, &l);
    else
        add_inputs(x, &l);
    for (size_t t = 0; t < l.layer->param->n_top; t++) {
        ct_onnx_value *v = ct_onnx_find_value(x, l.layer->param->top[t]);

        if ((v != NULL) && (l.live->top[t] == CT_ONNX_UNREAD)) v->output = true;
    }
    return CT_OK;
}

/* The first value of each blob has the blob's name. */
static void keep_names(ct_onnx *x, const ct_net *net)
{
    for (int l = 0; l < net->n_layer; l++) {
        const Ct__LayerParameter *p = net->layer[l]->param;

        for (size_t t = 0; t < p->n_top; t++) {
            if (!ct_onnx_name_taken(&x->value_names, p->top[t]))
                ct_onnx_take_name(x, &x->value_names, p->top[t], false);
        }
    }
}

static ct_status add_layers(ct_onnx *x, const ct_net *net, const ct_model *m)
{
    ct_onnx_live *live;
    ct_status status = CT_OK;

    CT_TRY(onnx_live_create(net, &live));
    keep_names(x, net);
    for (int l = 0; (l < net->n_layer) && (status == CT_OK); l++)
        status = add_layer(x, net, m, l, live);
    onnx_live_destroy(live, net->n_layer);
    return status;
}

/* metadata_props 14 { key 1 value 2 }: a JSON array of the names of the classes, 0 first. Of the
 * net's file, else of the weights'. */
static void put_class_names(ct_text *head, const ct_net *net, const ct_model *m)
{
    ct_text names = { 0 }, entry = { 0 };
    char *rest = NULL, *at, *own = NULL;

    for (int64_t i = 0; i < net->n_class_name; i++) {
        ct_text_add(&names, (i > 0) ? "," : "");
        ct_text_add_json(&names, net->class_name[i]);
    }
    if ((net->n_class_name == 0) && (m->class_names != NULL)) own = rest = strdup(m->class_names);
    while ((rest != NULL) && (*rest != '\0') && ((at = strsep(&rest, "\n")) != NULL)) {
        ct_text_add(&names, (names.length > 0) ? "," : "");
        ct_text_add_json(&names, at);
    }
    free(own);
    if (names.length > 0) {
        ct_text value = { 0 };

        ct_text_add(&value, "[%s]", names.text);
        ct_onnx_put_text(&entry, 1, "class_names");
        ct_onnx_put_text(&entry, 2, (value.text != NULL) ? value.text : "");
        ct_onnx_put_message(head, 14, &entry);
        head->failed |= value.failed;
        ct_text_destroy(&value);
    }
    head->failed |= names.failed;
    ct_text_destroy(&names);
}

static int64_t init_size(const ct_onnx_init *i)
{
    return (int64_t)i->head.length + ct_proto_field_size(9, i->bytes);
}

/* ModelProto { ir_version 1 producer_name 2 graph 7 { node 1 name 2 initializer 5 … } opset_import
 * 8 { version 2 } metadata_props 14 } */
static ct_status write_file(const ct_onnx *x, const ct_net *net, const ct_model *m,
                            const char *path)
{
    ct_text head = { 0 }, opset = { 0 }, name = { 0 };
    int64_t graph, size;
    uint64_t hash;
    ct_disk_file d;

    ct_onnx_put_text(&name, 2, (net->name != NULL) ? net->name : "net");
    ct_onnx_put_int(&head, 1, IR_VERSION);
    ct_onnx_put_text(&head, 2, "cortado");
    ct_onnx_put_int(&opset, 2, OPSET);
    ct_onnx_put_message(&head, 8, &opset);
    put_class_names(&head, net, m);
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
    ct_onnx_names_destroy(&x->node_names);
    ct_onnx_names_destroy(&x->value_names);
    ct_text_destroy(&x->node_name);
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

    status = add_layers(&x, net, m);
    for (int i = 0; (i < x.n_value) && (status == CT_OK); i++) {
        if (x.value[i].output)
            add_value(&x.values, GRAPH_OUTPUT, x.value[i].name, x.value[i].shape);
    }
    if ((status == CT_OK) && !x.failed && (x.nodes.length == 0))
        status = CT_FAIL(CT_ERR_CONFIG,
                         "%s: in the phase TEST no layer of the net computes anything", path);
    if ((status == CT_OK) && (x.failed || x.nodes.failed || x.values.failed))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", path);
    if (status == CT_OK) status = write_file(&x, net, m, temp);
    if (status == CT_OK) status = ct_file_commit(temp, path);
    drop(&x);
    free(temp);
    return status;
}

/* ---- what an ONNX file holds of a net: what leads to an output of the graph. Losses and measures
 * are none, so labels, and what is computed of labels alone, are left out. */

typedef struct uses { /* of the values that blobs have behind the layer under way */
    const char **blob;
    ct_onnx_use *use;
    int n;
} uses;

static bool is_type(const ct_layer *l, const char *type)
{
    return strcmp(l->ops->type, type) == 0;
}

static ct_onnx_use onnx_bottom_use(const ct_layer *l, int i)
{
    if (is_type(l, "Silence")) return CT_ONNX_DROPPED;
    if (is_type(l, "Accuracy")) return (i == 0) ? CT_ONNX_UNREAD : CT_ONNX_DROPPED;
    if (i != 1) return CT_ONNX_NEEDED;
    if (is_type(l, "SoftmaxWithLoss")) return CT_ONNX_DROPPED;
    /* its shape alone, which is written out */
    return (is_type(l, "Crop") || is_type(l, "Interp")) ? CT_ONNX_DROPPED : CT_ONNX_NEEDED;
}

static ct_onnx_use *find(uses *u, const char *blob)
{
    int i = 0;

    while ((i < u->n) && (strcmp(u->blob[i], blob) != 0)) i++;
    if (i == u->n) {
        u->blob[u->n] = blob;
        u->use[u->n++] = CT_ONNX_UNREAD;
    }
    return &u->use[i];
}

/* The net puts these between a value and its reader, which goes on naming the value. */
static bool stays_out(const ct_layer *l)
{
    return is_type(l, "Reorder") || is_type(l, "Cast");
}

/* The tops of a Split that the net put in are named by nobody. */
static bool is_written(const ct_layer *l, const ct_onnx_live *live)
{
    bool silent = is_type(l, "Silence") || is_type(l, "Accuracy");
    bool passes = is_type(l, "Split");

    if (is_type(l, "SoftmaxWithLoss") || (!silent && (l->param->n_top == 0))) return true;
    for (size_t t = 0; !silent && (t < l->param->n_top); t++) {
        if (live->top[t] == CT_ONNX_NEEDED) return true;
        if ((live->top[t] == CT_ONNX_UNREAD) && !passes && (l->n_bottom > 0)) return true;
    }
    return false;
}

/* Layer l, those behind it being known. */
static void look_at(const ct_layer *l, uses *u, ct_onnx_live *live)
{
    for (size_t t = 0; t < l->param->n_top; t++) live->top[t] = *find(u, l->param->top[t]);
    live->written = !stays_out(l) && is_written(l, live);
    if (stays_out(l) || (!live->written && is_type(l, "Split"))) return;
    for (size_t t = 0; t < l->param->n_top; t++) *find(u, l->param->top[t]) = CT_ONNX_UNREAD;
    for (size_t i = 0; i < l->param->n_bottom; i++) {
        ct_onnx_use use = onnx_bottom_use(l, (int)i), *now = find(u, l->param->bottom[i]);

        if (!live->written && (use == CT_ONNX_NEEDED)) use = CT_ONNX_DROPPED;
        if (use > *now) *now = use;
    }
}

static ct_status onnx_live_create(const ct_net *net, ct_onnx_live **live_p)
{
    ct_onnx_live *live = calloc((size_t)net->n_layer + 1, sizeof(*live));
    uses u = { .n = 0 };
    size_t most = 1;
    bool failed;

    for (int l = 0; l < net->n_layer; l++)
        most += net->layer[l]->param->n_bottom + net->layer[l]->param->n_top;
    u.blob = calloc(most, sizeof(u.blob[0]));
    u.use = calloc(most, sizeof(u.use[0]));
    failed = (live == NULL) || (u.blob == NULL) || (u.use == NULL);
    for (int l = 0; !failed && (l < net->n_layer); l++) {
        live[l].top = calloc(net->layer[l]->param->n_top + 1, sizeof(live[l].top[0]));
        failed = (live[l].top == NULL);
    }
    for (int l = net->n_layer - 1; !failed && (l >= 0); l--) look_at(net->layer[l], &u, &live[l]);
    free(u.blob);
    free(u.use);
    if (failed) {
        onnx_live_destroy(live, net->n_layer);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for what an ONNX file holds of %d layers",
                       net->n_layer);
    }
    *live_p = live;
    return CT_OK;
}

static void onnx_live_destroy(ct_onnx_live *live, int n_layer)
{
    for (int l = 0; (live != NULL) && (l < n_layer); l++) free(live[l].top);
    free(live);
}
