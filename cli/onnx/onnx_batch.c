/* A file for any batch. What follows the batch is found by trying: a net with one sample more gives
 * the same nodes and weights, or the file is for one batch alone. */
#include <stdlib.h>
#include <string.h>

#include "cli/onnx/onnx_impl.h"
#include "framework/proto/message.h"

int ct_onnx_batch_axis(const ct_net *net)
{
    for (int i = 0; i < net->n_layer; i++) {
        const char *type = net->layer[i]->ops->type;

        if ((strcmp(type, "LSTM") == 0) || (strcmp(type, "RNN") == 0)) return 1;
    }
    return 0;
}

/* ---- a wider net */

/* batch_size of whatever data layer this is. */
static bool widen_batch_size(ProtobufCMessage *m)
{
    const ProtobufCFieldDescriptor *f =
        protobuf_c_message_descriptor_get_field_by_name(m->descriptor, "batch_size");

    if ((f == NULL) || (f->type != PROTOBUF_C_TYPE_UINT32) || (ct_field_count(m, f) == 0))
        return false;
    ++*CT_MEMBER(uint32_t, m, f->offset);
    return true;
}

/* Those shapes whose axis is as long as that of the first of all, *batch. */
static bool widen_shapes(size_t n, Ct__BlobShape *const *shape, size_t axis, int64_t *batch)
{
    bool any = false;

    for (size_t i = 0; i < n; i++) {
        if (shape[i]->n_dim <= axis) continue;
        if (*batch == 0) *batch = shape[i]->dim[axis];
        if (shape[i]->dim[axis] != *batch) continue;
        shape[i]->dim[axis]++;
        any = true;
    }
    return any;
}

static bool widen_layer(Ct__LayerParameter *p, size_t axis, int64_t *batch)
{
    const ProtobufCMessageDescriptor *type = p->base.descriptor;
    bool any = false;

    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &type->fields[i];

        if ((f->type != PROTOBUF_C_TYPE_MESSAGE) || (f->label == PROTOBUF_C_LABEL_REPEATED) ||
            (ct_field_count(&p->base, f) == 0))
            continue;
        any |= widen_batch_size(ct_field_message(&p->base, f, 0));
    }
    if (p->input_param != NULL)
        any |= widen_shapes(p->input_param->n_shape, p->input_param->shape, axis, batch);
    if (p->dummy_data_param != NULL)
        any |= widen_shapes(p->dummy_data_param->n_shape, p->dummy_data_param->shape, axis, batch);
    return any;
}

static Ct__NetParameter *copy_of(const Ct__NetParameter *net)
{
    size_t size = ct__net_parameter__get_packed_size(net);
    uint8_t *bytes = malloc(size + 1);
    Ct__NetParameter *copy = NULL;

    if (bytes != NULL) {
        ct__net_parameter__pack(net, bytes);
        copy = ct__net_parameter__unpack(NULL, size, bytes);
    }
    free(bytes);
    return copy;
}

void ct_onnx_widen(const ct_onnx_source *s, Ct__NetParameter **param_p, ct_net **net_p,
                   ct_text *why)
{
    ct_net_options o = s->net->options;
    Ct__NetParameter *p = copy_of(s->param);
    bool any = false;
    int64_t batch = 0;
    char error[300];

    *param_p = p;
    *net_p = NULL;
    o.map = NULL;
    for (size_t i = 0; (p != NULL) && (i < p->n_layer); i++)
        any |= widen_layer(p->layer[i], (size_t)ct_onnx_batch_axis(s->net), &batch);
    if (!any) {
        ct_text_add(why, (p == NULL) ? "no memory for another" : "it has no inputs with one");
    } else if (ct_net_create(p, &o, net_p) != CT_OK) {
        ct_log_last_error(error, sizeof(error));
        ct_text_add(why, "%s", error);
    }
}

/* ---- two models */

static bool same_message(const ProtobufCMessage *a, const ProtobufCMessage *b, bool *failed)
{
    size_t n = protobuf_c_message_get_packed_size(a);
    uint8_t *x = malloc(n + 1), *y = malloc(n + 1);
    bool same = (n == protobuf_c_message_get_packed_size(b)) && (x != NULL) && (y != NULL);

    *failed |= (x == NULL) || (y == NULL);
    if (same) {
        protobuf_c_message_pack(a, x);
        protobuf_c_message_pack(b, y);
        same = memcmp(x, y, n) == 0;
    }
    free(x);
    free(y);
    return same;
}

static bool same_tensor(const Onnx__TensorProto *a, const Onnx__TensorProto *b)
{
    if ((a->n_dims != b->n_dims) || (a->raw_data.len != b->raw_data.len)) return false;
    for (size_t d = 0; d < a->n_dims; d++)
        if (a->dims[d] != b->dims[d]) return false;
    return (a->raw_data.data == b->raw_data.data) ||
           (memcmp(a->raw_data.data, b->raw_data.data, a->raw_data.len) == 0);
}

/* Whether both have the same nodes and weights. */
static bool same_graph(const Onnx__GraphProto *a, const Onnx__GraphProto *b, bool *failed,
                       ct_text *why)
{
    bool same = (a->n_node == b->n_node) && (a->n_initializer == b->n_initializer) &&
                (a->n_input == b->n_input) && (a->n_output == b->n_output);
    const char *what = "the nodes";

    for (size_t i = 0; same && (i < a->n_node); i++) {
        same = same_message(&a->node[i]->base, &b->node[i]->base, failed);
        what = a->node[i]->name;
    }
    for (size_t i = 0; same && (i < a->n_initializer); i++) {
        same = same_tensor(a->initializer[i], b->initializer[i]);
        what = a->initializer[i]->name;
    }
    if (!same) ct_text_add(why, "%s would be another with one more", what);
    return same;
}

static Onnx__TensorShapeProto *shape_of(const Onnx__ValueInfoProto *v)
{
    return v->type->tensor_type->shape;
}

/* Sizes of a in which b differs: the batch has a name, others are left out. */
static void open_sizes(ct_onnx *x, Onnx__ValueInfoProto *a, const Onnx__ValueInfoProto *b,
                       int64_t *batch)
{
    for (size_t d = 0; d < shape_of(a)->n_dim; d++) {
        Onnx__TensorShapeProto__Dimension *dim = shape_of(a)->dim[d];
        int64_t wide = shape_of(b)->dim[d]->dim_value;

        if (dim->dim_value == wide) continue;
        if (*batch == 0) *batch = dim->dim_value; /* of the first input */
        if ((dim->dim_value == *batch) && (wide == *batch + 1))
            ct_onnx_put_text(x, dim, "dim_param", "batch");
        dim->has_dim_value = false;
    }
}

void ct_onnx_open_batch(ct_onnx *x, const ct_onnx *y, ct_text *why)
{
    Onnx__GraphProto *a = x->graph;
    const Onnx__GraphProto *b = y->graph;
    int64_t batch = 0;

    if (!same_graph(a, b, &x->failed, why)) return;
    for (size_t i = 0; i < a->n_input; i++) open_sizes(x, a->input[i], b->input[i], &batch);
    for (size_t i = 0; i < a->n_output; i++) open_sizes(x, a->output[i], b->output[i], &batch);
}
