#include "cli/onnx/onnx.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/json_writer.h"
#include "cli/onnx/onnx_impl.h"
#include "framework/proto/message.h"
#include "framework/snapshot/set_files.h"

/* One entry a layer of the net. CT_ERR_NOMEM. */
static ct_status onnx_live_create(const ct_net *net, ct_onnx_live **live_p);
/* NULL allowed */
static void onnx_live_destroy(ct_onnx_live *live, int n_layer);
/* What layer l does with its bottom i. */
static ct_onnx_use onnx_bottom_use(const ct_layer *l, int i);

enum { IR_VERSION = 7, OPSET = 13 };

/* ---- the graph */

void ct_onnx_add_value(ct_onnx *x, const char *field, const char *name, const ct_shape *shape)
{
    Onnx__ValueInfoProto *info = ct_onnx_add(x, x->graph, field);
    Onnx__TypeProto *type = ct_onnx_add(x, info, "type");
    Onnx__TypeProto__Tensor *tensor = ct_onnx_add(x, type, "tensor_type");
    Onnx__TensorShapeProto *dims = ct_onnx_add(x, tensor, "shape");

    ct_onnx_put_text(x, info, "name", name);
    ct_onnx_put_int(x, tensor, "elem_type", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT);
    for (int i = 0; i < shape->ndim; i++)
        ct_onnx_put_int(x, ct_onnx_add(x, dims, "dim"), "dim_value", shape->dim[i]);
}

/* A layer without bottoms is where values come from; those that nobody needs are no inputs. */
static void add_inputs(ct_onnx *x, const ct_onnx_layer *l)
{
    for (int i = 0; i < (int)l->layer->param->n_top; i++) {
        const char *blob = l->layer->param->top[i];

        if (l->live->top[i] != CT_ONNX_NEEDED) continue;
        ct_onnx_set_value(x, l, i, blob);
        ct_onnx_add_value(x, "input", blob, &l->in->top[i]->data.shape);
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

/* The first value of each blob gets the blob's name. */
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

/* A JSON array of the names of the classes, 0 first. Of the net's file, else of the weights'. */
static void put_class_names(ct_onnx *x, const ct_net *net, const ct_model *m)
{
    ct_text names = { 0 };
    ct_json_writer w = ct_json_into(&names);
    char *rest = NULL, *at, *own = NULL;
    bool any;

    ct_json_begin_list(&w, NULL);
    for (int64_t i = 0; i < net->n_class_name; i++) ct_json_add_text(&w, NULL, net->class_name[i]);
    if ((net->n_class_name == 0) && (m->class_names != NULL)) own = rest = strdup(m->class_names);
    while ((rest != NULL) && (*rest != '\0') && ((at = strsep(&rest, "\n")) != NULL))
        ct_json_add_text(&w, NULL, at);
    any = w.more;
    ct_json_end(&w);
    free(own);
    if (any && !names.failed) {
        Onnx__StringStringEntryProto *entry = ct_onnx_add(x, x->model, "metadata_props");

        ct_onnx_put_text(x, entry, "key", "class_names");
        ct_onnx_put_text(x, entry, "value", names.text);
    }
    x->failed |= names.failed;
    ct_text_destroy(&names);
}

static ct_status write_file(const ct_onnx *x, const char *path)
{
    ct_disk_file d;
    int64_t size;
    uint64_t hash;
    ct_status status;

    ct_disk_open(&d, path, 0);
    status = ct_onnx_pack(&x->model->base, &d);
    if (status == CT_OK) return ct_disk_finish(&d, path, &hash, &size);
    ct_disk_drop(&d, path);
    return status;
}

/* Both files are whole before either has its name. */
static ct_status write_files(ct_onnx *x, const ct_onnx_source *s, const char *path)
{
    bool large = protobuf_c_message_get_packed_size(&x->model->base) > INT32_MAX;
    char *temp = ct_path_temp(path), *data_temp = NULL;
    ct_text data = { 0 };
    ct_status status = CT_OK;

    ct_text_add(&data, "%s.data", path);
    if (!data.failed) data_temp = ct_path_temp(data.text);
    if ((temp == NULL) || (data_temp == NULL))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", path);
    else if (s->beside || large)
        status = ct_onnx_write_beside(x, &data, data_temp, s->force);
    else
        ct_text_destroy(&data);
    if (status == CT_OK) status = write_file(x, temp);
    if ((status == CT_OK) && (data.text != NULL)) status = ct_file_commit(data_temp, data.text);
    if (status == CT_OK) status = ct_file_commit(temp, path);
    if ((status != CT_OK) && (temp != NULL)) unlink(temp);
    if ((status != CT_OK) && (data_temp != NULL)) unlink(data_temp);
    ct_text_destroy(&data);
    free(data_temp);
    free(temp);
    return status;
}

/* The model but for its layers. */
static void begin(ct_onnx *x, const ct_net *net, const ct_model *m)
{
    x->model = (Onnx__ModelProto *)(void *)ct_message_create(&onnx__model_proto__descriptor);
    x->graph = ct_onnx_add(x, x->model, "graph");
    ct_onnx_put_int(x, x->model, "ir_version", IR_VERSION);
    ct_onnx_put_text(x, x->model, "producer_name", "cortado");
    ct_onnx_put_int(x, ct_onnx_add(x, x->model, "opset_import"), "version", OPSET);
    ct_onnx_put_text(x, x->graph, "name",
                     ((net->name != NULL) && (net->name[0] != '\0')) ? net->name : "net");
    put_class_names(x, net, m);
    x->failed = x->failed || (x->graph == NULL);
}

static void drop(ct_onnx *x)
{
    for (size_t i = 0; (x->graph != NULL) && (i < x->graph->n_initializer); i++) {
        if (x->borrowed[i]) x->graph->initializer[i]->raw_data = (ProtobufCBinaryData){ 0 };
    }
    if (x->model != NULL) onnx__model_proto__free_unpacked(x->model, NULL);
    ct_onnx_names_destroy(&x->node_names);
    ct_onnx_names_destroy(&x->value_names);
    ct_text_destroy(&x->node_name);
    free(x->borrowed);
    free(x->value);
}

static void swap_texts(ct_onnx *x, char **text, size_t n, const char *a, const char *b)
{
    for (size_t i = 0; i < n; i++) {
        const char *other = (strcmp(text[i], a) == 0) ? b : (strcmp(text[i], b) == 0) ? a : NULL;
        char *copy = (other != NULL) ? strdup(other) : NULL;

        x->failed = x->failed || ((other != NULL) && (copy == NULL));
        if (copy == NULL) continue;
        free(text[i]);
        text[i] = copy;
    }
}

/* Whether a node makes a value of that name, which no output of the graph has. */
static bool is_inner(const ct_onnx *x, const char *name)
{
    for (int i = 0; i < x->n_value; i++) {
        if (x->value[i].output && (strcmp(x->value[i].name, name) == 0)) return false;
    }
    for (size_t i = 0; i < x->graph->n_node; i++) {
        const Onnx__NodeProto *n = x->graph->node[i];

        for (size_t o = 0; o < n->n_output; o++)
            if (strcmp(n->output[o], name) == 0) return true;
    }
    return false;
}

/* A user asks for a blob by its name. Where a layer writes it in place, it is the last value that
 * is an output: that one and the blob's first value change names. */
static void name_outputs(ct_onnx *x)
{
    for (int i = 0; i < x->n_value; i++) {
        const ct_onnx_value *v = &x->value[i];
        const char *blob = v->blob, *name = v->name;

        if (!v->output || (blob[0] == '\0') || (strcmp(blob, name) == 0) || !is_inner(x, blob))
            continue;
        for (size_t k = 0; k < x->graph->n_node; k++) {
            Onnx__NodeProto *n = x->graph->node[k];

            swap_texts(x, n->input, n->n_input, blob, name);
            swap_texts(x, n->output, n->n_output, blob, name);
        }
        for (int k = 0; k < x->n_value; k++) {
            ct_onnx_value *u = &x->value[k];

            if (strcmp(u->name, name) == 0)
                u->name = blob;
            else if (strcmp(u->name, blob) == 0)
                u->name = name;
        }
    }
}

/* The whole model of a net. */
static ct_status build(ct_onnx *x, const ct_net *net, const ct_model *m, const char *path)
{
    ct_status status = CT_OK;

    x->batch_axis = ct_onnx_batch_axis(net);
    begin(x, net, m);
    if (!x->failed) status = add_layers(x, net, m);
    if ((status == CT_OK) && !x->failed) name_outputs(x);
    for (int i = 0; (i < x->n_value) && (status == CT_OK); i++) {
        if (x->value[i].output)
            ct_onnx_add_value(x, "output", x->value[i].name, &x->value[i].shape);
    }
    if ((status == CT_OK) && !x->failed && (x->graph->n_node == 0))
        status = CT_FAIL(CT_ERR_CONFIG,
                         "%s: in the phase TEST no layer of the net computes anything", path);
    if ((status == CT_OK) && x->failed)
        status = CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", path);
    return status;
}

static void tell_nobody(void *ctx, const char *text)
{
    (void)ctx;
    (void)text;
}

/* why: empty where the file is for any batch now. What a wider net fails with is no error. */
static void open_batch(ct_onnx *x, const ct_onnx_source *s, const char *path, ct_text *why)
{
    Ct__NetParameter *param = NULL;
    ct_net *wider = NULL;
    ct_onnx y = { .failed = false };
    char error[300];

    ct_log_set_sink(tell_nobody, NULL);
    ct_onnx_widen(s, &param, &wider, why);
    if ((wider != NULL) && (build(&y, wider, s->model, path) != CT_OK)) {
        ct_log_last_error(error, sizeof(error));
        ct_text_add(why, "%s", error);
    } else if (wider != NULL) {
        ct_onnx_open_batch(x, &y, why);
    }
    ct_log_set_sink(NULL, NULL);
    drop(&y);
    ct_net_destroy(wider);
    if (param != NULL) ct__net_parameter__free_unpacked(param, NULL);
}

ct_status ct_onnx_write(const ct_onnx_source *s, const char *path)
{
    ct_onnx x = { .failed = false };
    ct_text why = { 0 };
    ct_status status = build(&x, s->net, s->model, path);

    if ((status == CT_OK) && !s->fixed_batch) open_batch(&x, s, path, &why);
    if ((status == CT_OK) && (x.failed || why.failed))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", path);
    if (status == CT_OK) status = write_files(&x, s, path);
    if (status == CT_OK)
        CT_INFO("wrote %s%s%s", path,
                (why.length > 0) ? ", for the net's batch alone: "
                : s->fixed_batch ? ""
                                 : ", for any batch",
                (why.length > 0) ? why.text : "");
    ct_text_destroy(&why);
    drop(&x);
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
    /* shapes alone, which are written out */
    if (is_type(l, "PriorBox")) return CT_ONNX_DROPPED;
    if (i != 1) return CT_ONNX_NEEDED;
    if (is_type(l, "SoftmaxWithLoss")) return CT_ONNX_DROPPED;
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
