/* An ONNX file as a net and its weights: the graph from its inputs to its outputs. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/onnx/read/onnx_read.h"
#include "framework/base/file.h"
#include "framework/base/memory.h"
#include "framework/proto/message.h"
#include "framework/proto/prototxt.h"

enum { FIRST_OPSET = 7, LAST_OPSET = 21 };

/* ---- the file */

static ct_status read_file(ct_onnx_reader *r)
{
    char *data;
    size_t size;
    const Onnx__ModelProto *m;
    const char *why;

    CT_TRY(ct_file_read(r->path, &data, &size));
    r->model = (Onnx__ModelProto *)(void *)ct_message_unpack(&onnx__model_proto__descriptor, data,
                                                             size, &why);
    free(data);
    m = r->model;
    if ((m == NULL) || (m->graph == NULL))
        return CT_FAIL(CT_ERR_DATA, "%s: no ONNX model, or a damaged file: %s", r->path,
                       (m == NULL) ? why : "it has no graph");
    for (size_t i = 0; i < m->n_opset_import; i++) {
        const Onnx__OperatorSetIdProto *o = m->opset_import[i];

        if ((o->domain == NULL) || (o->domain[0] == '\0') || (strcmp(o->domain, "ai.onnx") == 0))
            r->opset = o->version;
    }
    if ((r->opset < FIRST_OPSET) || (r->opset > LAST_OPSET))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: operators of opset %" PRId64 "; those of %d to %d are taken", r->path,
                       r->opset, FIRST_OPSET, LAST_OPSET);
    if (m->graph->n_node == 0) return CT_FAIL(CT_ERR_DATA, "%s: a graph without nodes", r->path);
    if (m->graph->n_node > 1000000)
        return CT_FAIL(CT_ERR_DATA, "%s: %zu nodes, at most a million are taken", r->path,
                       m->graph->n_node);
    return CT_OK;
}

static ct_status add_initializers(ct_onnx_reader *r)
{
    const Onnx__GraphProto *g = r->model->graph;
    ct_onnx_operand *v;

    for (size_t i = 0; i < g->n_initializer; i++) {
        const Onnx__TensorProto *t = g->initializer[i];
        char who[200];

        if ((t->name == NULL) || (t->name[0] == '\0'))
            return CT_FAIL(CT_ERR_DATA, "%s: initializer %zu has no name", r->path, i);
        snprintf(who, sizeof(who), "initializer \"%s\"", t->name);
        CT_TRY(ct_onnx_value_add(r, t->name, &v));
        CT_TRY(ct_onnx_tensor_read(r, t, who, v));
    }
    return CT_OK;
}

/* ---- inputs */

/* The size that `sizes` (NAME:N,NAME:N) gives to a name; 0: none. */
static int64_t size_given(const ct_onnx_reader *r, const char *name)
{
    size_t n = strlen(name);

    for (const char *at = r->sizes; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if ((n > 0) && (strncmp(at, name, n) == 0) && (at[n] == ':'))
            return strtoll(at + n + 1, NULL, 10);
    }
    return 0;
}

static ct_status input_shape(const ct_onnx_reader *r, const Onnx__ValueInfoProto *info,
                             ct_shape *s_p)
{
    const Onnx__TypeProto__Tensor *t = (info->type != NULL) ? info->type->tensor_type : NULL;
    ct_shape s = { 0 };

    if ((t == NULL) || (t->shape == NULL) || (t->shape->n_dim > CT_MAX_DIM))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: input \"%s\" is no tensor of a known number of axes, at "
                       "most %d",
                       r->path, info->name, CT_MAX_DIM);
    s.ndim = (int)t->shape->n_dim;
    for (int d = 0; d < s.ndim; d++) {
        const Onnx__TensorShapeProto__Dimension *dim = t->shape->dim[d];
        const char *name = (dim->dim_param != NULL) ? dim->dim_param : "";

        s.dim[d] = dim->has_dim_value ? dim->dim_value : size_given(r, name);
        if ((s.dim[d] == 0) && !dim->has_dim_value && (d == 0)) s.dim[d] = 1; /* the batch */
        if (s.dim[d] < 1)
            return CT_FAIL(CT_ERR_CONFIG,
                           "%s: axis %d of input \"%s\" has no size%s%s%s; give it by "
                           "--sizes=NAME:N",
                           r->path, d, info->name, (name[0] != '\0') ? ", but the name \"" : "",
                           name, (name[0] != '\0') ? "\"" : "");
    }
    *s_p = s;
    return ct_onnx_shape_check(r, info->name, &s);
}

/* The name of a blob is the input's own, or as near to it as a prototxt can say. */
static ct_status add_inputs(ct_onnx_reader *r)
{
    const Onnx__GraphProto *g = r->model->graph;
    Onnx__NodeProto as_node = ONNX__NODE_PROTO__INIT;

    for (size_t i = 0; i < g->n_input; i++) {
        char *name = g->input[i]->name;
        ct_onnx_step step = { .proto = &as_node, .op = "input" }, *steps = r->step;
        ct_text dims = { 0 };
        ct_status status;
        ct_shape s;

        if (name == NULL) return CT_FAIL(CT_ERR_DATA, "%s: input %zu has no name", r->path, i);
        if (ct_onnx_value_find(r, name) != NULL) continue; /* an initializer */
        CT_TRY(input_shape(r, g->input[i], &s));
        for (int d = 0; d < s.ndim; d++) ct_text_add(&dims, " dim: %" PRId64, s.dim[d]);
        as_node.name = name;
        as_node.output = &name;
        as_node.n_output = 1;
        r->step = &step; /* an input makes its value as a node does */
        r->at = 0;
        status = ct_onnx_emit(r, "Input", NULL, 0, NULL, &s, NULL, "input_param { shape {%s } }",
                              (dims.text != NULL) ? dims.text : "");
        r->step = steps;
        ct_text_destroy(&dims);
        CT_TRY(status);
    }
    return CT_OK;
}

/* ---- nodes */

static const ct_onnx_op *find_op(const char *name)
{
    const ct_onnx_op *const table[] = { ct_onnx_window_ops,    ct_onnx_element_ops,
                                        ct_onnx_shape_ops,     ct_onnx_matrix_ops,
                                        ct_onnx_recurrent_ops, ct_onnx_attention_ops,
                                        ct_onnx_detection_ops };

    for (size_t k = 0; k < sizeof(table) / sizeof(table[0]); k++) {
        for (const ct_onnx_op *op = table[k]; op->name != NULL; op++) {
            if (strcmp(op->name, name) == 0) return op;
        }
    }
    return NULL;
}

/* Each attribute is known to the operator: what is not read could change what it computes. */
static ct_status check_attributes(const ct_onnx_reader *r, const ct_onnx_op *op)
{
    const Onnx__NodeProto *n = r->step[r->at].proto;
    char word[100];

    for (size_t i = 0; (i < n->n_attribute) && (r->step[r->at].n_in == 0); i++) {
        const char *name = (n->attribute[i]->name != NULL) ? n->attribute[i]->name : "";

        snprintf(word, sizeof(word), " %s ", name);
        if (strstr(op->attributes, word) != NULL) continue;
        return ct_onnx_refuse(r, "attribute \"%s\" is not taken;%s%s", name,
                              (op->attributes[1] != '\0') ? " known are" : " there are none",
                              op->attributes);
    }
    return CT_OK;
}

/* Inputs that are there have values, whose pads an operator takes that knows them. *all_p: all of
 * them are constants. */
static ct_status check_inputs(const ct_onnx_reader *r, const ct_onnx_op *op, bool *all_p)
{
    const ct_onnx_step *s = &r->step[r->at];
    int n = ct_onnx_n_in(r);

    if ((n < op->min_in) || (n > op->max_in))
        return ct_onnx_refuse(r, "%d inputs; %d to %d are taken", n, op->min_in, op->max_in);
    *all_p = true;
    for (int i = 0; i < n; i++) {
        const char *name = (s->n_in > 0) ? s->in[i] : s->proto->input[i];
        const ct_onnx_operand *v = ct_onnx_in(r, i);

        if ((v == NULL) && ((name[0] != '\0') || (i < op->min_in)))
            return ct_onnx_refuse(r, "input %d, \"%s\", is made by no node before this one", i,
                                  name);
        if (v == NULL) continue;
        *all_p = *all_p && v->constant;
        if (v->padded && (strcmp(op->name, "Conv") != 0))
            return ct_onnx_refuse(r, "it reads a Pad; that is taken before Conv alone");
    }
    return CT_OK;
}

/* Operators that do the same with constants and with blobs. */
static bool only_reshapes(const char *op)
{
    static const char *const name[] = { "Dropout", "Flatten", "Identity",
                                        "Reshape", "Squeeze", "Unsqueeze" };

    for (size_t k = 0; k < sizeof(name) / sizeof(name[0]); k++) {
        if (strcmp(op, name[k]) == 0) return true;
    }
    return false;
}

static ct_status add_node(ct_onnx_reader *r)
{
    ct_onnx_step *s = &r->step[r->at];
    const ct_onnx_op *op = find_op(s->op);
    bool constants = true, folded = false;

    if ((s->proto->domain != NULL) && (s->proto->domain[0] != '\0') &&
        (strcmp(s->proto->domain, "ai.onnx") != 0))
        return ct_onnx_refuse(r, "an operator of \"%s\"; ONNX's own are taken", s->proto->domain);
    if (op == NULL) return ct_onnx_refuse(r, "this operator has no layers here");
    if ((s->proto->n_output == 0) || (s->proto->output[0][0] == '\0'))
        return ct_onnx_refuse(r, "it has no output");
    CT_TRY(check_attributes(r, op));
    CT_TRY(check_inputs(r, op, &constants));
    s->done = true;
    if (constants || (strcmp(s->op, "Shape") == 0) || (strcmp(s->op, "Size") == 0))
        CT_TRY(ct_onnx_fold(r, &folded));
    if (folded) return CT_OK;
    if ((op->to_layers == NULL) || (constants && !only_reshapes(s->op)))
        return ct_onnx_refuse(r, constants ? "it is not computed here from constants alone"
                                           : "it is taken of constants alone");
    return op->to_layers(r);
}

/* Of the many nodes that other detections are made of, the one that says what they are. */
static ct_status refuse_detections(ct_onnx_reader *r)
{
    for (r->at = 0; r->at < r->n_step; r->at++) {
        if (!r->step[r->at].done && (strcmp(r->step[r->at].op, "NonMaxSuppression") == 0))
            return ct_onnx_refuse(r, "detections are taken as Cortado's own files have them, or a "
                                     "graph that ends with locations and scores");
    }
    return CT_OK;
}

/* Nodes that hold constants, and names for such, come first: patterns look at them. */
static ct_status add_nodes(ct_onnx_reader *r)
{
    const Onnx__GraphProto *g = r->model->graph;

    r->n_step = (int)g->n_node;
    for (r->at = 0; r->at < r->n_step; r->at++) {
        ct_onnx_step *s = &r->step[r->at];
        const Onnx__NodeProto *n = g->node[r->at];

        *s = (ct_onnx_step){ .proto = n, .op = (n->op_type != NULL) ? n->op_type : "" };
    }
    for (r->at = 0; r->at < r->n_step; r->at++) {
        const ct_onnx_step *s = &r->step[r->at];
        const ct_onnx_operand *v = (s->proto->n_input == 1) ? ct_onnx_in(r, 0) : NULL;

        if ((strcmp(s->op, "Constant") == 0) ||
            ((strcmp(s->op, "Identity") == 0) && (v != NULL) && v->constant))
            CT_TRY(add_node(r));
    }
    CT_TRY(ct_onnx_take_detections(r));
    CT_TRY(refuse_detections(r));
    if (r->n_attends > 0) CT_TRY(ct_onnx_take_attention(r));
    CT_TRY(ct_onnx_find_patterns(r));
    for (r->at = 0; r->at < r->n_step; r->at++) {
        if (!r->step[r->at].done) CT_TRY(add_node(r));
    }
    return CT_OK;
}

/* Outputs that are constants become blobs. */
static ct_status add_constant_outputs(ct_onnx_reader *r)
{
    const Onnx__GraphProto *g = r->model->graph;
    Onnx__NodeProto as_node = ONNX__NODE_PROTO__INIT;
    ct_onnx_step step = { .proto = &as_node, .op = "output" }, *steps = r->step;
    ct_status status = CT_OK;

    for (size_t i = 0; (i < g->n_output) && (status == CT_OK); i++) {
        const char *name = (g->output[i]->name != NULL) ? g->output[i]->name : "";
        ct_onnx_operand *v = ct_onnx_value_find(r, name), *made;

        if ((v == NULL) || !v->constant) continue;
        as_node.name = v->name;
        r->step = &step;
        r->at = 0;
        status = ct_onnx_as_blob(r, v, "constant", &made);
        r->step = steps;
        if (status != CT_OK) break;
        v->constant = false;
        v->blob = strdup(made->blob);
        if (v->blob == NULL) status = CT_FAIL(CT_ERR_NOMEM, "no memory for \"%s\"", name);
    }
    return status;
}

/* ---- the net */

static void add_name(ct_text *t, const char *name)
{
    for (; *name != '\0'; name++)
        ct_text_add(t, "%c",
                    ((*name < ' ') || (*name > '~') || (*name == '"') || (*name == '\\')) ? '_'
                                                                                          : *name);
}

/* An output that is another value under a name of its own gets a layer that hands it on. */
static ct_status add_outputs(const ct_onnx_reader *r, ct_text *t)
{
    const Onnx__GraphProto *g = r->model->graph;

    for (size_t i = 0; i < g->n_output; i++) {
        const char *name = (g->output[i]->name != NULL) ? g->output[i]->name : "";
        const ct_onnx_operand *v = ct_onnx_value_find(r, name);

        if (v == NULL)
            return CT_FAIL(CT_ERR_DATA, "%s: output \"%s\" is made by no node", r->path, name);
        if (v->padded)
            return CT_FAIL(CT_ERR_CONFIG,
                           "%s: output \"%s\" is a Pad, which is taken before Conv "
                           "alone",
                           r->path, name);
        if ((strcmp(v->blob, name) == 0) || (ct_name_map_find(&r->blobs, name, strlen(name)) >= 0))
            continue;
        ct_text_add(t, "layer { name: \"");
        add_name(t, name);
        ct_text_add(t, "\" type: \"Split\" bottom: \"%s\" top: \"", v->blob);
        add_name(t, name);
        ct_text_add(t, "\" }\n");
    }
    return CT_OK;
}

/* The names of the classes, as our own files have them: a JSON array of texts. */
static void add_class_names(const ct_onnx_reader *r, ct_text *t)
{
    for (size_t i = 0; i < r->model->n_metadata_props; i++) {
        const Onnx__StringStringEntryProto *e = r->model->metadata_props[i];
        json_t *names, *name;
        size_t k;

        if ((e->key == NULL) || (e->value == NULL) || (strcmp(e->key, "class_names") != 0))
            continue;
        names = json_loads(e->value, 0, NULL);
        json_array_foreach(names, k, name)
        {
            const char *text = json_string_value(name);

            ct_text_add(t, "class_name: \"");
            for (; (text != NULL) && (*text != '\0'); text++)
                ct_text_add(t, ((*text == '"') || (*text == '\\')) ? "\\%c" : "%c",
                            ((unsigned char)*text < ' ') ? ' ' : *text);
            ct_text_add(t, "\"\n");
        }
        json_decref(names);
    }
}

static ct_status net_of(const ct_onnx_reader *r, ProtobufCMessage **net_p)
{
    ct_text t = { 0 };
    ct_status status;

    ct_text_add(&t, "name: \"");
    add_name(&t, (r->model->graph->name != NULL) ? r->model->graph->name : "net");
    ct_text_add(&t, "\"\n");
    add_class_names(r, &t);
    for (int i = 0; i < r->n_layer; i++) {
        const ct_onnx_layer_made *l = &r->layer[i];

        ct_text_add(&t, "layer { name: \"%s\" type: \"%s\"%s%s%s }\n", l->name, l->type,
                    (l->bottoms.text != NULL) ? l->bottoms.text : "",
                    (l->tops.text != NULL) ? l->tops.text : "",
                    (l->fields.text != NULL) ? l->fields.text : "");
        t.failed |= l->bottoms.failed || l->tops.failed || l->fields.failed;
    }
    status = add_outputs(r, &t);
    if ((status == CT_OK) && t.failed)
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for the net of %s", r->path);
    if (status == CT_OK)
        status = ct_prototxt_parse(&ct__net_parameter__descriptor, r->path, t.text, t.length, NULL,
                                   net_p);
    ct_text_destroy(&t);
    return status;
}

/* All but the file and what was found in it. */
static void drop_layers(ct_onnx_reader *r)
{
    for (int i = 0; i < r->n_value; i++) {
        free(r->value[i]->name);
        free(r->value[i]->blob);
        free(r->value[i]->owned);
        free(r->value[i]);
    }
    for (int i = 0; i < r->n_layer; i++) {
        free(r->layer[i].name);
        ct_text_destroy(&r->layer[i].bottoms);
        ct_text_destroy(&r->layer[i].tops);
        ct_text_destroy(&r->layer[i].fields);
    }
    ct_name_map_destroy(&r->by_name);
    ct_name_map_destroy(&r->blobs);
    ct_name_map_destroy(&r->layers);
    free(r->value);
    free(r->layer);
    free(r->step);
    free(r->detects);
    ct_model_close(r->weights);
}

static void drop(ct_onnx_reader *r)
{
    drop_layers(r);
    free(r->attends);
    if (r->model != NULL) onnx__model_proto__free_unpacked(r->model, NULL);
}

static ct_status add_all(ct_onnx_reader *r)
{
    r->step = calloc(r->model->graph->n_node + 1, sizeof(r->step[0]));
    r->weights = calloc(1, sizeof(*r->weights));
    if ((r->step == NULL) || (r->weights == NULL) || ((r->weights->file = strdup(r->path)) == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the net of %s", r->path);
    CT_TRY(add_initializers(r));
    CT_TRY(add_inputs(r));
    CT_TRY(add_nodes(r));
    return add_constant_outputs(r);
}

/* Layers of all nodes; and again, where some of them are attention. */
static ct_status add_layers(ct_onnx_reader *r)
{
    ct_onnx_attends *found;
    int n;

    CT_TRY(add_all(r));
    CT_TRY(ct_onnx_find_attention(r, &found, &n));
    if (n == 0) return CT_OK;
    drop_layers(r);
    *r = (ct_onnx_reader){ .path = r->path,
                           .sizes = r->sizes,
                           .model = r->model,
                           .opset = r->opset,
                           .attends = found,
                           .n_attends = n };
    return add_all(r);
}

static ct_status convert(ct_onnx_reader *r, const ct_onnx_target *to)
{
    ProtobufCMessage *net = NULL;
    ct_text text = { 0 };
    ct_status status;
    bool weighs;

    CT_TRY(read_file(r));
    CT_TRY(add_layers(r));
    CT_TRY(net_of(r, &net));
    status = ct_prototxt_write(net, &text);
    weighs = r->weights->n_layer > 0;
    if ((status == CT_OK) && (to->weights != NULL) && weighs)
        status = ct_model_save(r->weights, to->weights);
    if ((status == CT_OK) && (to->net != NULL))
        status = ct_file_write(to->net, text.text, text.length);
    if ((status == CT_OK) && (to->net != NULL))
        CT_INFO("wrote %s%s%s", to->net, ((to->weights != NULL) && weighs) ? " and " : "",
                !weighs                 ? ", which has no weights"
                : (to->weights != NULL) ? to->weights
                                        : "; --weights_to=FILE would write its weights");
    ct_text_destroy(&text);
    protobuf_c_message_free_unpacked(net, NULL);
    return status;
}

ct_status ct_onnx_convert(const char *path, const ct_onnx_target *to)
{
    ct_onnx_reader r = { .path = path, .sizes = to->sizes };
    ct_status status = convert(&r, to);

    drop(&r);
    return status;
}
