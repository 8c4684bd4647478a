/* What may have been meant by a name that nobody knows. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "framework/proto/foreign.h"
#include "framework/proto/cortado.pb-c.h"
#include "framework/proto/reader.h"
#include "framework/proto/upgrade.h"

enum { MAX_CANDIDATES = 256, MAX_LISTED = 12 };

/* Fields that well-known forks of Caffe added, so that a user sees why a net that "works in Caffe"
 * does not read. */
static const struct {
    const char *field, *fork;
} fork_field[] = {
    { "video_data_param", "SSD" },
    { "eval_type", "SSD" },
    { "ap_version", "SSD" },
    { "box_annotator_ohem_param", "R-FCN" },
    { "dense_image_data_param", "SegNet" },
    { "seg_accuracy_param", "DeepLab or PSPNet" },
    { "reorg_param", "YOLO" },
    { "default_forward_type", "NVIDIA" },
    { "default_backward_type", "NVIDIA" },
    { "default_forward_math", "NVIDIA" },
    { "default_backward_math", "NVIDIA" },
    { "forward_type", "NVIDIA" },
    { "backward_type", "NVIDIA" },
    { "global_grad_scale", "NVIDIA" },
    { "scale_bias", "NVIDIA" },
    { "local_lr_auto", "NVIDIA" },
    { "larc", "NVIDIA" },
    { "larc_policy", "NVIDIA" },
    { "bn_stats_batch_size", "Intel" },
    { "multinode", "Intel" },
    { "fuse_type", "Intel" },
};

static const ProtobufCFieldDescriptor *field_of(const ProtobufCMessageDescriptor *type,
                                                const char *word)
{
    return protobuf_c_message_descriptor_get_field_by_name(type, word);
}

static const ProtobufCMessageDescriptor *child_type(const ProtobufCFieldDescriptor *f)
{
    return (f->type == PROTOBUF_C_TYPE_MESSAGE) ? f->descriptor : NULL;
}

/* Messages within `type` that know the word: "; it belongs in convolution_param { } or …". */
static bool add_child_hint(ct_text *t, const ProtobufCMessageDescriptor *type,
                           const ct_frame *frame, const char *word)
{
    const char *name[3] = { NULL };
    char own[64] = "";
    int n = 0;

    if ((frame != NULL) && ct_frame_layer_type(frame, own, sizeof(own) - sizeof("Parameter"))) {
        strcat(own, "Parameter");
    }

    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCMessageDescriptor *child = child_type(&type->fields[i]);

        if ((child == NULL) || (field_of(child, word) == NULL)) continue;
        if (n < 3) name[n] = type->fields[i].name;
        n++;
        if (strcasecmp(child->short_name, own) == 0) { /* the layer's own parameters */
            name[0] = type->fields[i].name;
            n = 1;
            break;
        }
    }
    if (n == 0) return false;
    ct_text_add(t, "; it belongs in %s { }", name[0]);
    for (int i = 1; (i < n) && (i < 3); i++) ct_text_add(t, " or %s { }", name[i]);
    if (n > 3) ct_text_add(t, " or others");
    return true;
}

/* A message around this one knows the word: mostly a closing bracket was forgotten. */
static bool add_parent_hint(ct_text *t, const ct_frame *frame, const char *word)
{
    if ((frame == NULL) || (frame->parent == NULL) || (frame->field == NULL)) return false;
    for (const ct_frame *f = frame->parent; f != NULL; f = f->parent) {
        if (field_of(f->type, word) == NULL) continue;
        ct_text_add(t, " in %s; is a \"%c\" missing? %s was opened at line %d", frame->field,
                    (*frame->open.start == '{') ? '}' : '>', frame->field, frame->open.line);
        return true;
    }
    return false;
}

/* The field nearest in spelling, else the only one that begins with the word. */
static const char *nearest_field(const ProtobufCMessageDescriptor *type, const char *word)
{
    const char *candidate[MAX_CANDIDATES] = { NULL }, *near, *longer = NULL;
    int n = 0, n_longer = 0;

    for (unsigned i = 0; (i < type->n_fields) && (n < MAX_CANDIDATES); i++) {
        candidate[n] = type->fields[i].name;
        if ((strlen(word) >= 3) && (strncmp(candidate[n], word, strlen(word)) == 0)) {
            longer = candidate[n];
            n_longer++;
        }
        n++;
    }
    near = ct_text_nearest(word, candidate, n);
    return ((near == NULL) && (n_longer == 1)) ? longer : near;
}

static bool add_near_hint(ct_text *t, const ProtobufCMessageDescriptor *type, const char *word)
{
    const char *near = nearest_field(type, word);

    if (near != NULL) {
        ct_text_add(t, "; did you mean \"%s\"?", near);
        return true;
    }
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCMessageDescriptor *child = child_type(&type->fields[i]);

        if (child != NULL) near = nearest_field(child, word);
        if (near == NULL) continue;
        ct_text_add(t, "; did you mean \"%s\" in %s { }?", near, type->fields[i].name);
        return true;
    }
    return false;
}

/* The message within `type`, at any depth, that knows the word. The schema is a tree of small
 * depth; the limit is for others. */
static const ProtobufCMessageDescriptor *find_deep(const ProtobufCMessageDescriptor *type,
                                                   const char *word, int depth)
{
    if (field_of(type, word) != NULL) return type;
    for (unsigned i = 0; (i < type->n_fields) && (depth > 0); i++) {
        const ProtobufCMessageDescriptor *child = child_type(&type->fields[i]), *found = NULL;

        if (child != NULL) found = find_deep(child, word, depth - 1);
        if (found != NULL) return found;
    }
    return NULL;
}

static bool add_file_hint(ct_text *t, const ProtobufCMessageDescriptor *type, const char *word)
{
    const ProtobufCMessageDescriptor *net = &ct__net_parameter__descriptor;
    const ProtobufCMessageDescriptor *solver = &ct__solver_parameter__descriptor;

    if ((type == solver) && (field_of(net, word) != NULL)) {
        ct_text_add(t, "; this is a field of a net: is the file a net, not a solver?");
        return true;
    }
    if ((type == net) && (field_of(solver, word) != NULL)) {
        ct_text_add(t, "; this is a field of a solver: is the file a solver, not a net?");
        return true;
    }
    return false;
}

static bool add_elsewhere_hint(ct_text *t, const ProtobufCMessageDescriptor *type, const char *word)
{
    const ProtobufCMessageDescriptor *found;

    found = find_deep(&ct__solver_parameter__descriptor, word, 5);
    if (found == NULL) return false;
    ct_text_add(t, " in %s; it is a field of %s", type->short_name, found->short_name);
    return true;
}

static bool add_fork_hint(ct_text *t, const char *word)
{
    for (size_t i = 0; i < sizeof(fork_field) / sizeof(fork_field[0]); i++) {
        if (strcmp(word, fork_field[i].field) != 0) continue;
        ct_text_add(t, "; it belongs to the %s fork of Caffe, and is not supported",
                    fork_field[i].fork);
        return true;
    }
    return false;
}

/* Parameters of a layer whose type nobody knows: the type is what is at fault. */
static bool add_type_hint(ct_text *t, const ProtobufCMessageDescriptor *type, const ct_frame *frame,
                          const char *word)
{
    size_t n = strlen(word);
    char own[64];

    if ((type != &ct__layer_parameter__descriptor) || (frame == NULL) || (n < 6) ||
        (strcmp(word + n - 6, "_param") != 0) || !ct_frame_layer_type(frame, own, sizeof(own)) ||
        ct_layer_type_reads(own, NULL))
        return false;
    ct_text_add(t, "; layers of type \"%s\" are not there", own);
    if (ct_foreign_why(own) != NULL) ct_text_add(t, ": %s", ct_foreign_why(own));
    return true;
}

void ct_add_field_hint(ct_text *t, const ProtobufCMessageDescriptor *type, const ct_frame *frame,
                       const char *word)
{
    if (add_file_hint(t, type, word) || add_child_hint(t, type, frame, word) ||
        add_parent_hint(t, frame, word) || add_fork_hint(t, word) ||
        add_type_hint(t, type, frame, word) || add_near_hint(t, type, word) ||
        add_elsewhere_hint(t, type, word)) {
        return;
    }
    ct_text_add(t, " in %s", type->short_name);
    if (type->n_fields > MAX_LISTED) return;
    ct_text_add(t, "; it has ");
    for (unsigned i = 0; i < type->n_fields; i++) {
        ct_text_add(t, "%s%s", (i > 0) ? ", " : "", type->fields[i].name);
    }
}

void ct_add_enum_hint(ct_text *t, const ProtobufCEnumDescriptor *type, const char *word)
{
    const char *candidate[MAX_CANDIDATES] = { NULL }, *near;
    int n = 0;

    for (unsigned i = 0; (i < type->n_value_names) && (n < MAX_CANDIDATES); i++) {
        candidate[n++] = type->values_by_name[i].name;
    }
    near = ct_text_nearest(word, candidate, n);
    if (near != NULL) {
        ct_text_add(t, "; did you mean \"%s\"?", near);
        return;
    }
    if (type->n_values > 2 * MAX_LISTED) {
        ct_text_add(t, " of %s", type->short_name);
        return;
    }
    ct_text_add(t, "; expected one of ");
    for (unsigned i = 0; i < type->n_values; i++) {
        ct_text_add(t, "%s%s", (i > 0) ? ", " : "", type->values[i].name);
    }
}
