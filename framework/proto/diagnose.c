/* What the reader says when something is wrong: the place, the layer, the field, what may be
 * meant. The layer's name and type may stand behind the error, so they are looked up ahead. */
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "framework/proto/cortado.pb-c.h"
#include "framework/proto/reader.h"
#include "framework/proto/upgrade.h"

static bool has_field(const ProtobufCMessageDescriptor *type, const char *name)
{
    return protobuf_c_message_descriptor_get_field_by_name(type, name) != NULL;
}

static bool is_layer(const ct_frame *frame)
{
    return has_field(frame->type, "name") && has_field(frame->type, "type") &&
           has_field(frame->type, "bottom");
}

/* Walks a message's own fields (not those of messages in it) for `word: value`. */
static bool look_up(ct_lexer lex, const char *word, ct_token *value_p)
{
    int depth = 0;

    for (;;) {
        ct_token t = ct_lexer_next(&lex);

        if ((t.kind == CT_TOKEN_END) || (t.kind == CT_TOKEN_BAD)) return false;
        if (ct_token_is(&t, '{') || ct_token_is(&t, '<')) depth++;
        if (ct_token_is(&t, '}') || ct_token_is(&t, '>')) depth--;
        if (depth < 0) return false;
        if ((depth > 0) || !ct_token_is_name(&t, word)) continue;
        t = ct_lexer_next(&lex);
        if (ct_token_is(&t, ':')) t = ct_lexer_next(&lex);
        if ((t.kind == CT_TOKEN_STRING) || (t.kind == CT_TOKEN_NAME)) {
            *value_p = t;
            return true;
        }
    }
}

static bool look_up_type(const ct_frame *frame, ct_token *type_p)
{
    if (!look_up(frame->body, "type", type_p)) return false;
    if (type_p->kind == CT_TOKEN_STRING) {
        type_p->start++;
        type_p->length -= 2;
    }
    if (type_p->length > 40) type_p->length = 40;
    return true;
}

/* The type as the text gives it of the layer that `frame` is, even from behind; false where it is
 *  no layer or has no type. size: of the buffer. */
static bool frame_layer_type(const ct_frame *frame, char *type, size_t size)
{
    ct_token token;

    if (!is_layer(frame) || !look_up_type(frame, &token)) return false;
    snprintf(type, size, "%.*s", (int)token.length, token.start);
    return true;
}

static void add_layer(ct_text *t, const ct_frame *frame)
{
    ct_token name, type;
    bool has_name, has_type;

    while ((frame != NULL) && !is_layer(frame)) frame = frame->parent;
    if ((frame == NULL) || (frame->field == NULL)) return;
    has_name = look_up(frame->body, "name", &name) && (name.kind == CT_TOKEN_STRING);
    has_type = look_up_type(frame, &type);
    if (has_name) {
        ct_text_add(t, "in layer ");
        ct_text_add_quoted(t, name.start + 1, name.length - 2);
        if (has_type) ct_text_add(t, " (%.*s)", (int)type.length, type.start);
        ct_text_add(t, ": ");
    } else if (has_type) {
        ct_text_add(t, "in a layer of type %.*s: ", (int)type.length, type.start);
    }
}

static void add_frames(ct_text *t, const ct_prototxt_reader *r, const ct_frame *frame)
{
    if ((frame->field == NULL) || is_layer(frame)) return;
    /* the option's path ends with the field that its value is read into */
    if ((r->option_path != NULL) && (frame->parent->field == NULL)) return;
    add_frames(t, r, frame->parent);
    ct_text_add(t, "%s.", frame->field);
}

/* "convolution_param.weight_filler.std", from the layer down. */
static void add_path(ct_text *t, const ct_prototxt_reader *r)
{
    size_t before = t->length;

    if (r->option_path != NULL) ct_text_add(t, "%s.", r->option_path);
    add_frames(t, r, r->frame);
    if (r->field != NULL) ct_text_add(t, "%s.", r->field);
    if ((t->length > before) && !t->failed) t->text[--t->length] = '\0';
}

static void add_va(ct_text *t, const char *fmt, va_list ap)
{
    char text[1024];

    vsnprintf(text, sizeof(text), fmt, ap);
    ct_text_add(t, "%s", text);
}

/* Logs and frees `message`. */
static ct_status report(ct_prototxt_reader *r, int line, int column, ct_text *message)
{
    ct_text text = { 0 };
    ct_status status;

    if (r->option_path != NULL) {
        ct_text_add(&text, "%s: ", r->name);
        add_path(&text, r);
        ct_text_add(&text, ": ");
    } else {
        ct_text_add(&text, "%s:%d:%d: ", r->name, line, column);
        add_layer(&text, r->frame);
    }
    ct_text_add(&text, "%s", (message->text != NULL) ? message->text : "");
    if (text.failed || message->failed) {
        status = CT_FAIL(CT_ERR_NOMEM, "%s:%d:%d: no memory for a message", r->name, line, column);
    } else {
        status = CT_FAIL(CT_ERR_CONFIG, "%s", text.text);
    }
    ct_text_destroy(&text);
    ct_text_destroy(message);
    return status;
}

ct_status ct_prototxt_reader_fail_at(ct_prototxt_reader *r, int line, int column, const char *fmt,
                                     ...)
{
    ct_text message = { 0 };
    va_list ap;

    va_start(ap, fmt);
    add_va(&message, fmt, ap);
    va_end(ap);
    return report(r, line, column, &message);
}

ct_status ct_prototxt_reader_fail_value(ct_prototxt_reader *r, int line, int column,
                                        const char *fmt, ...)
{
    ct_text message = { 0 };
    va_list ap;

    if (r->option_path == NULL) add_path(&message, r); /* else report() adds it to all */
    if (message.length > 0) ct_text_add(&message, ": ");
    va_start(ap, fmt);
    add_va(&message, fmt, ap);
    va_end(ap);
    return report(r, line, column, &message);
}

ct_status ct_prototxt_reader_fail_expected(ct_prototxt_reader *r, const char *fmt, ...)
{
    ct_text message = { 0 };
    va_list ap;

    if (r->token.kind == CT_TOKEN_BAD) {
        ct_text_add(&message, "%s", r->token.problem);
        if (strcmp(r->token.problem, "unexpected character") == 0) {
            ct_text_add(&message, " ");
            ct_token_show(&r->token, &message);
        }
        return report(r, r->token.line, r->token.column, &message);
    }
    if (r->option_path == NULL) add_path(&message, r);
    ct_text_add(&message, (message.length > 0) ? ": expected " : "expected ");
    va_start(ap, fmt);
    add_va(&message, fmt, ap);
    va_end(ap);
    ct_text_add(&message, ", got ");
    ct_token_show(&r->token, &message);
    return report(r, r->token.line, r->token.column, &message);
}

ct_status ct_prototxt_reader_fail_unknown(ct_prototxt_reader *r)
{
    ct_text message = { 0 }, word = { 0 };

    ct_text_add(&message, "unknown field ");
    ct_text_add_quoted(&message, r->token.start, r->token.length);
    ct_text_add_bytes(&word, r->token.start, r->token.length);
    if (!word.failed) ct_add_field_hint(&message, r->frame->type, r->frame, word.text);
    ct_text_destroy(&word);
    return report(r, r->token.line, r->token.column, &message);
}

/* ---- what may have been meant by a name that nobody knows */

enum { MAX_CANDIDATES = 256, MAX_LISTED = 15 };

/* Fields that well-known forks of Caffe added, so that a user sees why a net that "works in Caffe"
 * does not read. */
static const struct {
    const char *field, *fork;
    const char *instead; /* NULL: nothing */
} fork_field[] = {
    { "video_data_param", "SSD", "cut the video into images, and read them with ImageData" },
    { "box_annotator_ohem_param", "R-FCN", NULL },
    { "dense_image_data_param", "SegNet", "read images and their labels as two tops of HDF5Data" },
    { "seg_accuracy_param", "DeepLab or PSPNet", NULL },
    { "reorg_param", "YOLO",
      "Reshape, Permute and Reshape give the same order of blocks as channels" },
    { "label_smoothing", "NVIDIA or Intel", "give distributions as labels" },
    { "pre_fixed_normalizer", "R-FCN or Intel",
      "normalization: NONE with a loss_weight of one over the normalizer" },
    { "fuse_type", "OpenCL",
      "relu: true for FUSED_CONV_RELU; for sums an Eltwise and a ReLU behind the layer" },
    { "local_lr_auto", "NVIDIA", "type: \"LARS\" with local_gw_ratio" },
    { "larc", "NVIDIA", "type: \"LARS\" with local_gw_ratio, larc_eta times 1 less momentum" },
    { "larc_policy", "NVIDIA", "type: \"LARS\" scales rates; none clips them" },
    { "larc_eta", "NVIDIA", "type: \"LARS\" with local_gw_ratio, larc_eta times 1 less momentum" },
    { "larc_turbo", "NVIDIA", NULL },
};

static const ProtobufCFieldDescriptor *field_of(const ProtobufCMessageDescriptor *type,
                                                const char *word)
{
    return ct_field_find(type, word, strlen(word));
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

    if ((frame != NULL) && frame_layer_type(frame, own, sizeof(own) - sizeof("Parameter"))) {
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

/* A message around this one knows the word: mostly a closing bracket was forgotten. A word that
 * begins a message there, as "layer", is surer than one that a message within this one knows, too.
 */
static bool add_parent_hint(ct_text *t, const ct_frame *frame, const char *word, bool message)
{
    if ((frame == NULL) || (frame->parent == NULL) || (frame->field == NULL)) return false;
    for (const ct_frame *f = frame->parent; f != NULL; f = f->parent) {
        const ProtobufCFieldDescriptor *known = field_of(f->type, word);

        if ((known == NULL) || (message && (child_type(known) == NULL))) continue;
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
        if (ct_field_is_private(&type->fields[i])) continue;
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

        if ((child == &ct__v0_layer_parameter__descriptor) ||
            (child == &ct__v1_layer_parameter__descriptor))
            continue; /* nobody writes these any more */
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
    if ((type == &ct__sweep_parameter__descriptor) && (field_of(solver, word) != NULL)) {
        ct_text_add(t, "; this is a field of a solver: is the file a solver, not a sweep?");
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
        ct_text_add(t, "; it belongs to the %s fork of Caffe, and is not supported%s%s",
                    fork_field[i].fork, (fork_field[i].instead != NULL) ? "; instead: " : "",
                    (fork_field[i].instead != NULL) ? fork_field[i].instead : "");
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
        (strcmp(word + n - 6, "_param") != 0) || !frame_layer_type(frame, own, sizeof(own)) ||
        ct_layer_type_reads(own, NULL))
        return false;
    ct_text_add(t, "; layers of type \"%s\" are not there", own);
    if (ct_foreign_why(own) != NULL) ct_text_add(t, ": %s", ct_foreign_why(own));
    return true;
}

void ct_add_field_hint(ct_text *t, const ProtobufCMessageDescriptor *type, const ct_frame *frame,
                       const char *word)
{
    if (add_file_hint(t, type, word) || add_parent_hint(t, frame, word, true) ||
        add_child_hint(t, type, frame, word) || add_parent_hint(t, frame, word, false) ||
        add_fork_hint(t, word) || add_type_hint(t, type, frame, word) ||
        add_near_hint(t, type, word) || add_elsewhere_hint(t, type, word)) {
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
    if ((type == &ct__loss_parameter__normalization_mode__descriptor) &&
        (strcmp(word, "PRE_FIXED") == 0)) {
        ct_text_add(t, "; it belongs to the R-FCN and Intel forks of Caffe, and is not supported; "
                       "instead: NONE with a loss_weight of one over pre_fixed_normalizer");
        return;
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

/* ---- layer types of Caffe and of its forks that are known and not there: what each would take. A
 * type that is in the table of layers is not looked up here. */

const ct_foreign_type ct_foreign_table[] = {
    { "Affinity", "of the OpenCL branch; make affinities beforehand, and read them with HDF5Data" },
    { "BoxAnnotatorOHEM",
      "hard examples are not picked while a net runs; losses take all regions" },
    { "ManhattanLoss", "L1Loss is: a sum of |a - b| over the number of samples" },
    { "MergeCrop",
      "of the OpenCL branch; a Crop of the second bottom with offset, and a Concat of both (or an "
      "Eltwise for operation ADD) give it" },
    { "Proposal",
      "no boxes are proposed while a net runs; let proposals come in as boxes, through an "
      "Input or HDF5Data layer" },
    { "Region", "YOLO's layers are not there" },
    { "Reorg", "YOLO's layers are not there" },
    { "SmoothL1LossOHEM", "hard examples are not picked while a net runs; SmoothL1Loss takes all" },
    { "SoftmaxFocalLoss", "FocalLoss is, and takes a softmax too" },
    { "SoftmaxWithLossOHEM",
      "hard examples are not picked while a net runs; SoftmaxWithLoss takes all" },
    { "VideoData", "cut the video into images, and read them with ImageData" },
    { NULL, NULL },
};

const char *ct_foreign_why(const char *type)
{
    for (const ct_foreign_type *f = ct_foreign_table; f->type != NULL; f++) {
        if (strcmp(f->type, type) == 0) return f->why;
    }
    return NULL;
}
