/* The net for use that belongs to a net for training: an Input in place of data layers,
 * probabilities in place of losses, and how pictures become the Input. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/text.h"
#include "framework/net/graph.h"
#include "framework/proto/prototxt.h"
#include "framework/proto/message.h"

typedef struct making {
    const Ct__NetParameter *net;
    ct_shape input;                 /* of one sample, behind transform_param */
    const Ct__LayerParameter *data; /* what becomes the Input        */
    float weight;                   /* the largest of the losses' */
    const char **spare; /* names of blobs that lead to losses of less weight alone, as it seems */
    int n_spare;
    const char **gone; /* names of blobs that are not there, at this place */
    int n_gone;
    Ct__NetParameter *out; /* has room for all layers */
} making;

static bool is_gone(const making *m, const char *blob)
{
    for (int i = 0; i < m->n_gone; i++)
        if (strcmp(m->gone[i], blob) == 0) return true;
    return false;
}

static void set_gone(making *m, const char *blob, bool gone)
{
    if (gone && !is_gone(m, blob)) m->gone[m->n_gone++] = blob;
    for (int i = 0; !gone && (i < m->n_gone); i++)
        if (strcmp(m->gone[i], blob) == 0) m->gone[i] = m->gone[--m->n_gone];
}

/* ---- fields */

static ct_status clear(ProtobufCMessage *m, const char *name)
{
    const ProtobufCFieldDescriptor *f = ct_field_find(m->descriptor, name, strlen(name));

    return (f != NULL) ? ct_field_clear(m, f) : CT_OK;
}

/* Weights come from a file. */
static ct_status clear_fillers(ProtobufCMessage *m)
{
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];

        if ((f->type == PROTOBUF_C_TYPE_MESSAGE) &&
            (f->descriptor == &ct__filler_parameter__descriptor))
            CT_TRY(ct_field_clear(m, f));
    }
    return CT_OK;
}

/* A layer as it is, without what only training reads. */
static ct_status copy_layer(const Ct__LayerParameter *l, Ct__LayerParameter **copy_p)
{
    static const char *const training[] = { "include",        "exclude", "loss_weight",
                                            "propagate_down", "phase",   "blobs" };
    size_t size = ct__layer_parameter__get_packed_size(l);
    uint8_t *bytes = malloc(size + 1);
    Ct__LayerParameter *c = NULL;
    bool shares = false;

    if (bytes != NULL) {
        ct__layer_parameter__pack(l, bytes);
        c = ct__layer_parameter__unpack(NULL, size, bytes);
        free(bytes);
    }
    if (c == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for layer \"%s\"", l->name);
    *copy_p = c;
    for (size_t i = 0; i < sizeof(training) / sizeof(training[0]); i++)
        CT_TRY(clear(&c->base, training[i]));
    for (size_t i = 0; i < c->n_param; i++)
        shares |= (c->param[i]->name != NULL) && (c->param[i]->name[0] != '\0');
    if (!shares) CT_TRY(clear(&c->base, "param"));
    for (unsigned i = 0; i < c->base.descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &c->base.descriptor->fields[i];

        if ((f->type == PROTOBUF_C_TYPE_MESSAGE) && (f->label != PROTOBUF_C_LABEL_REPEATED) &&
            (ct_field_count(&c->base, f) > 0))
            CT_TRY(clear_fillers(ct_field_message(&c->base, f, 0)));
    }
    return CT_OK;
}

/* ---- layers */

/* Texts to go on with: the scores of the net are asked for, which are chosen from outside of it. */
static bool reads_text(const Ct__LayerParameter *l)
{
    return ct_layer_param_is(l, "TokenData") || ct_layer_param_is(l, "TextData");
}

static bool reads_samples(const Ct__LayerParameter *l)
{
    static const char *const type[] = { "Data",      "ImageData",  "HDF5Data",  "AnnotatedData",
                                        "DummyData", "MemoryData", "TokenData", "WindowData",
                                        "Input",     "TextData" };

    for (size_t i = 0; i < sizeof(type) / sizeof(type[0]); i++)
        if (ct_layer_param_is(l, type[i])) return l->n_top > 0;
    return false;
}

static ct_status add(making *m, Ct__LayerParameter *l)
{
    m->out->layer[m->out->n_layer++] = l;
    for (size_t t = 0; t < l->n_top; t++) set_gone(m, l->top[t], false);
    return CT_OK;
}

static ct_status parse_layer(const ct_text *text, Ct__LayerParameter **l_p)
{
    ProtobufCMessage *p = NULL;

    if (text->failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for a layer");
    CT_TRY(ct_prototxt_parse(&ct__layer_parameter__descriptor, "deploy", text->text, text->length,
                             NULL, &p));
    *l_p = (Ct__LayerParameter *)(void *)p;
    return CT_OK;
}

/* Its second top says where a text begins, and is no label. */
static bool has_beginnings(const Ct__LayerParameter *data)
{
    return ct_layer_param_is(data, "TextData") && (data->n_top > 1);
}

static ct_status add_input(making *m, const Ct__LayerParameter *data)
{
    Ct__LayerParameter *l = NULL;
    ct_text t = { 0 };
    ct_status status;

    ct_text_add(&t, "type: \"Input\" name: ");
    ct_prototxt_quote(data->name, &t);
    ct_text_add(&t, " top: ");
    ct_prototxt_quote(data->top[0], &t);
    if (has_beginnings(data)) {
        ct_text_add(&t, " top: ");
        ct_prototxt_quote(data->top[1], &t);
    }
    ct_text_add(&t, " input_param {");
    for (int top = 0; top < (has_beginnings(data) ? 2 : 1); top++) {
        ct_text_add(&t, " shape { dim: 1");
        for (int i = 0; i < m->input.ndim; i++) ct_text_add(&t, " dim: %" PRId64, m->input.dim[i]);
        ct_text_add(&t, " }");
    }
    ct_text_add(&t, ct_layer_param_is(data, "TokenData") ? " varies: true }" : " }");
    status = parse_layer(&t, &l);
    ct_text_destroy(&t);
    m->data = data;
    return (status == CT_OK) ? add(m, l) : status;
}

static bool is_taken(const making *m, const char *name)
{
    for (size_t i = 0; i < m->net->n_layer; i++)
        if (strcmp(m->net->layer[i]->name, name) == 0) return true;
    for (size_t i = 0; i < m->out->n_layer; i++)
        if (strcmp(m->out->layer[i]->name, name) == 0) return true;
    return false;
}

/* A loss that has the probabilities inside of it. */
static ct_status add_probability(making *m, const Ct__LayerParameter *loss, const char *type)
{
    const char *name = is_taken(m, "prob") ? loss->name : "prob";
    Ct__LayerParameter *l = NULL;
    ct_text t = { 0 };
    ct_status status;

    ct_text_add(&t, "type: \"%s\" name: ", type);
    ct_prototxt_quote(name, &t);
    ct_text_add(&t, " bottom: ");
    ct_prototxt_quote(loss->bottom[0], &t);
    ct_text_add(&t, " top: ");
    ct_prototxt_quote(name, &t);
    if ((loss->softmax_param != NULL) && loss->softmax_param->has_axis)
        ct_text_add(&t, " softmax_param { axis: %d }", (int)loss->softmax_param->axis);
    status = parse_layer(&t, &l);
    ct_text_destroy(&t);
    return (status == CT_OK) ? add(m, l) : status;
}

/* ---- heads that only help in training, such as GoogLeNet's two: their losses weigh less than the
 * net's own. What leads to them alone is left out. */

static float weight_of(const Ct__LayerParameter *loss)
{
    return (loss->n_loss_weight > 0) ? loss->loss_weight[0] : 1.0f;
}

static bool is_spare(const making *m, const char *blob)
{
    for (int i = 0; i < m->n_spare; i++)
        if (strcmp(m->spare[i], blob) == 0) return true;
    return false;
}

static void set_spare(making *m, const char *blob)
{
    if (!is_spare(m, blob)) m->spare[m->n_spare++] = blob;
}

/* Whether a layer behind layer i of the new net reads the blob. */
static bool is_read(const making *m, size_t i, const char *blob)
{
    for (size_t k = i + 1; k < m->out->n_layer; k++) {
        const Ct__LayerParameter *l = m->out->layer[k];

        for (size_t b = 0; (l != NULL) && (b < l->n_bottom); b++)
            if (strcmp(l->bottom[b], blob) == 0) return true;
    }
    return false;
}

static bool is_left_out(const making *m, size_t i)
{
    const Ct__LayerParameter *l = m->out->layer[i];

    for (size_t t = 0; t < l->n_top; t++)
        if (!is_spare(m, l->top[t]) || is_read(m, i, l->top[t])) return false;
    return l->n_bottom > 0;
}

/* Names in `spare` are those of `net`, since layers of the new one go. */
static const char *name_in_net(const making *m, const char *blob)
{
    for (size_t i = 0; i < m->net->n_layer; i++)
        for (size_t t = 0; t < m->net->layer[i]->n_top; t++)
            if (strcmp(m->net->layer[i]->top[t], blob) == 0) return m->net->layer[i]->top[t];
    return blob;
}

static void drop_heads(making *m)
{
    size_t kept = 0;

    for (size_t i = m->out->n_layer; (m->n_spare > 0) && (i-- > 0);) {
        Ct__LayerParameter *l = m->out->layer[i];

        if (!is_left_out(m, i)) continue;
        for (size_t b = 0; b < l->n_bottom; b++) set_spare(m, name_in_net(m, l->bottom[b]));
        ct__layer_parameter__free_unpacked(l, NULL);
        m->out->layer[i] = NULL;
    }
    for (size_t i = 0; i < m->out->n_layer; i++)
        if (m->out->layer[i] != NULL) m->out->layer[kept++] = m->out->layer[i];
    m->out->n_layer = kept;
}

static ct_status add_head(making *m, const Ct__LayerParameter *loss)
{
    if (weight_of(loss) < m->weight) {
        set_spare(m, loss->bottom[0]);
        return CT_OK;
    }
    if ((m->data != NULL) && reads_text(m->data)) return CT_OK;
    return add_probability(m, loss,
                           ct_layer_param_is(loss, "SoftmaxWithLoss") ? "Softmax" : "Sigmoid");
}

static bool is_head(const Ct__LayerParameter *l)
{
    return (l->n_bottom > 0) && (ct_layer_param_is(l, "SoftmaxWithLoss") ||
                                 ct_layer_param_is(l, "SigmoidCrossEntropyLoss"));
}

static bool needs_gone(const making *m, const Ct__LayerParameter *l)
{
    for (size_t b = 0; b < l->n_bottom; b++)
        if (is_gone(m, l->bottom[b])) return true;
    return false;
}

static ct_status add_layer(making *m, const Ct__LayerParameter *l)
{
    Ct__LayerParameter *copy = NULL;
    ct_status status;

    if ((l->n_bottom == 0) && reads_samples(l)) {
        for (size_t t = 0; t < l->n_top; t++) set_gone(m, l->top[t], true);
        return (m->data == NULL) ? add_input(m, l) : CT_OK;
    }
    if (is_head(l) && !is_gone(m, l->bottom[0])) return add_head(m, l);
    if (needs_gone(m, l) || ct_layer_param_is(l, "Accuracy") ||
        ct_text_ends_with(l->type, "Loss")) {
        for (size_t t = 0; t < l->n_top; t++) set_gone(m, l->top[t], true);
        return CT_OK;
    }
    status = copy_layer(l, &copy);
    if (copy != NULL) (void)add(m, copy);
    return status;
}

/* ---- what becomes of pictures */

/* The data layer's, without what only training does. */
static ct_status add_serve(making *m, const ct_shape *sample)
{
    const Ct__TransformationParameter *t = m->data->transform_param;
    /* images with boxes are resized and cut from the size that each has */
    bool sized = (t != NULL) && !ct_layer_param_is(m->data, "AnnotatedData") &&
                 ((t->crop_size > 0) || (t->crop_h > 0) || (t->resize_param != NULL));
    ct_text text = { 0 };
    ProtobufCMessage *p = NULL;
    ct_status status = CT_OK;

    if ((t == NULL) || (m->out->serve != NULL)) return CT_OK;
    ct_text_add(&text, "transform_param { ");
    if (t->scale != 1.0f) ct_text_add(&text, "scale: %.9g ", (double)t->scale);
    if (t->crop_size > 0) ct_text_add(&text, "crop_size: %u ", t->crop_size);
    if (t->crop_h > 0) ct_text_add(&text, "crop_h: %u crop_w: %u ", t->crop_h, t->crop_w);
    if (t->resize_param != NULL) {
        ct_text_add(&text, "resize_param { ");
        if (status == CT_OK) status = ct_prototxt_write(&t->resize_param->base, &text);
        ct_text_add(&text, " } ");
    }
    if (t->random_resized_crop != NULL)
        ct_text_add(&text, "random_resized_crop { size: %u test_resize: %u } ",
                    t->random_resized_crop->size, t->random_resized_crop->test_resize);
    if (t->mean_file != NULL) {
        ct_text_add(&text, "mean_file: ");
        ct_prototxt_quote(t->mean_file, &text);
    }
    for (size_t i = 0; i < t->n_mean_value; i++)
        ct_text_add(&text, " mean_value: %.9g", (double)t->mean_value[i]);
    ct_text_add(&text, " }");
    if (sized)
        ct_text_add(&text, " new_height: %" PRId64 " new_width: %" PRId64, sample->dim[1],
                    sample->dim[2]);
    if (text.failed) status = CT_FAIL(CT_ERR_NOMEM, "no memory for a net");
    if (status == CT_OK)
        status = ct_prototxt_parse(&ct__serve_parameter__descriptor, "deploy", text.text,
                                   text.length, NULL, &p);
    m->out->serve = (Ct__ServeParameter *)(void *)p;
    ct_text_destroy(&text);
    return status;
}

/* ---- the net */

/* All of the net but its layers. */
static ct_status copy_head(making *m)
{
    Ct__NetParameter head = *m->net;
    uint8_t *bytes;
    size_t size;

    head.n_layer = 0;
    head.layer = NULL;
    head.n_repeat = 0;
    head.repeat = NULL;
    head.state = NULL;
    head.has_force_backward = head.has_debug_info = head.has_recompute = false;
    size = ct__net_parameter__get_packed_size(&head);
    bytes = malloc(size + 1);
    if (bytes != NULL) {
        ct__net_parameter__pack(&head, bytes);
        m->out = ct__net_parameter__unpack(NULL, size, bytes);
        free(bytes);
    }
    if (m->out == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a net");
    m->out->layer = calloc(m->net->n_layer + 1, sizeof(m->out->layer[0]));
    return (m->out->layer != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for a net");
}

static bool has_input(const Ct__LayerParameter *const *kept, int n)
{
    for (int i = 0; i < n; i++)
        if ((kept[i]->n_bottom == 0) && reads_samples(kept[i])) return true;
    return false;
}

static ct_status make(making *m, const Ct__LayerParameter *const *kept, int n,
                      const ct_shape *sample)
{
    int most = 0;

    for (int i = 0; i < n; i++) {
        most += (int)(kept[i]->n_top + kept[i]->n_bottom);
        if (is_head(kept[i]) && (weight_of(kept[i]) > m->weight)) m->weight = weight_of(kept[i]);
    }
    m->gone = calloc((size_t)most + 1, sizeof(m->gone[0]));
    m->spare = calloc((size_t)most + 1, sizeof(m->spare[0]));
    if ((m->gone == NULL) || (m->spare == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a net");
    if (!has_input(kept, n)) return CT_UNSUPPORTED;
    CT_TRY(copy_head(m));
    for (int i = 0; i < n; i++) CT_TRY(add_layer(m, kept[i]));
    drop_heads(m);
    if (m->out->n_layer > 1) return add_serve(m, sample);
    return CT_UNSUPPORTED;
}

ct_status ct_net_make_deploy(const Ct__NetParameter *net, const ct_shape *sample,
                             const ct_shape *input, Ct__NetParameter **deploy_p)
{
    ct_net_options o = { .phase = CT_TEST };
    const Ct__LayerParameter **kept = NULL;
    making m = { .net = net, .input = *input };
    int n = 0;
    ct_status status;

    ct_net_options_alone(&o);
    CT_TRY(ct_graph_filter(net, &o, &kept, &n));
    status = make(&m, kept, n, sample);
    free(kept);
    free(m.gone);
    free(m.spare);
    if (status == CT_OK)
        *deploy_p = m.out;
    else if (m.out != NULL)
        ct__net_parameter__free_unpacked(m.out, NULL);
    return status;
}
