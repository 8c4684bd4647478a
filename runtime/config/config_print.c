#include "runtime/config/config.h"

#include <inttypes.h>
#include <string.h>

#include "framework/base/json_writer.h"
#include "framework/proto/message.h"

/* What a walk over a message does with every scalar field. */
typedef struct visitor {
    const ct_config *config;
    ct_json_writer *values, *origins; /* NULL: not wanted */
    ct_text *defaults;                /* their line, likewise */
} visitor;

/* What an enum or a string says; NULL: the field is of another type. */
static const char *word_of(const ProtobufCFieldDescriptor *f, const void *at)
{
    const ProtobufCEnumValue *v;
    const char *text;

    if (f->type == PROTOBUF_C_TYPE_ENUM) {
        v = protobuf_c_enum_descriptor_get_value(f->descriptor, *(const int *)at);
        return (v != NULL) ? v->name : "?";
    }
    if (f->type == PROTOBUF_C_TYPE_BYTES) return "";
    if (f->type != PROTOBUF_C_TYPE_STRING) return NULL;
    text = *(const char *const *)at;
    return (text != NULL) ? text : "";
}

/* A scalar value as a prototxt has it, and JSON where it is no word. */
static void add_value(ct_text *t, const ProtobufCFieldDescriptor *f, const void *at)
{

    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        ct_text_add(t, "%" PRId32, *(const int32_t *)at);
        break;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        ct_text_add(t, "%" PRIu32, *(const uint32_t *)at);
        break;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        ct_text_add(t, "%" PRId64, *(const int64_t *)at);
        break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        ct_text_add(t, "%" PRIu64, *(const uint64_t *)at);
        break;
    case PROTOBUF_C_TYPE_FLOAT:
        ct_text_add(t, "%.7g", (double)*(const float *)at);
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        ct_text_add(t, "%.15g", *(const double *)at);
        break;
    case PROTOBUF_C_TYPE_BOOL:
        ct_text_add(t, "%s", *(const protobuf_c_boolean *)at ? "true" : "false");
        break;
    case PROTOBUF_C_TYPE_ENUM:
        ct_text_add(t, "%s", word_of(f, at));
        break;
    default:
        ct_text_add(t, "\"%s\"", word_of(f, at));
    }
}

static void add_json(ct_json_writer *w, const char *key, const ProtobufCFieldDescriptor *f,
                     const void *at)
{
    ct_text t = { 0 };

    if (word_of(f, at) != NULL) {
        ct_json_add_text(w, key, word_of(f, at));
        return;
    }
    add_value(&t, f, at);
    if (t.failed)
        w->to->failed = true;
    else
        ct_json_add_made(w, key, t.text);
    ct_text_destroy(&t);
}

static ct_origin origin_of(const ct_config *c, const char *path, bool is_set)
{
    for (int i = c->n_set - 1; i >= 0; i--) {
        size_t n = strlen(c->set[i].path);

        if ((strncmp(path, c->set[i].path, n) == 0) && ((path[n] == '\0') || (path[n] == '.'))) {
            return c->set[i].origin;
        }
    }
    return (is_set && !c->is_model) ? CT_ORIGIN_FILE : CT_ORIGIN_DEFAULT;
}

static void log_field(visitor *v, const char *path, const char *text, bool is_set)
{
    ct_origin origin = origin_of(v->config, path, is_set);

    if (origin == CT_ORIGIN_DEFAULT) {
        ct_text_add(v->defaults, "%s%s = %s", (v->defaults->length > 0) ? ", " : "", path, text);
    } else {
        CT_INFO("config: %s = %s (%s)", path, text,
                (origin == CT_ORIGIN_FILE) ? v->config->file : ct_origin_str(origin));
    }
}

static void visit_field(visitor *v, const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f,
                        const char *path)
{
    bool repeated = (f->label == PROTOBUF_C_LABEL_REPEATED);
    size_t n = ct_field_count(m, f);
    ct_text text = { 0 };

    if (!repeated && (n == 0) && (f->default_value == NULL)) return; /* unset, no default */
    if (repeated && (n == 0)) return;
    if (v->defaults == NULL) { /* JSON, and no log */
        if (repeated) ct_json_begin_list(v->values, path);
        for (size_t i = 0; i < (repeated ? n : 1); i++)
            add_json(v->values, repeated ? NULL : path, f, ct_field_at(m, f, i));
        if (repeated) ct_json_end(v->values);
        ct_json_add_text(v->origins, path, ct_origin_str(origin_of(v->config, path, n > 0)));
        return;
    }
    if (repeated) ct_text_add(&text, "[");
    for (size_t i = 0; i < (repeated ? n : 1); i++) {
        ct_text_add(&text, "%s", (i > 0) ? ", " : "");
        add_value(&text, f, ct_field_at(m, f, i));
    }
    if (repeated) ct_text_add(&text, "]");
    if (!text.failed) log_field(v, path, text.text, n > 0);
    ct_text_destroy(&text);
}

/* Nets are left out: they are files of their own. */
static void walk(visitor *v, const ProtobufCMessage *m, const char *prefix)
{
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        char path[128];

        snprintf(path, sizeof(path), "%s%s", prefix, f->name);
        if (f->type != PROTOBUF_C_TYPE_MESSAGE) {
            visit_field(v, m, f, path);
        } else if (f->descriptor != &ct__net_parameter__descriptor) {
            bool repeated = (f->label == PROTOBUF_C_LABEL_REPEATED);
            size_t n = ct_field_count(m, f);

            for (size_t k = 0; k < n; k++) {
                if (repeated) {
                    snprintf(path, sizeof(path), "%s%s[%zu].", prefix, f->name, k);
                } else {
                    snprintf(path, sizeof(path), "%s%s.", prefix, f->name);
                }
                walk(v, ct_field_message(m, f, k), path);
            }
        }
    }
}

void ct_config_log(const ct_config *c)
{
    ct_text defaults = { 0 };
    visitor v = { .config = c, .defaults = &defaults };

    walk(&v, &c->solver->base, "");
    for (int i = 0; i < c->n_set; i++) { /* of the nets: the walk does not see those */
        if ((strcmp(c->set[i].path, "batch_size") == 0) ||
            (strcmp(c->set[i].path, "memory_data") == 0) || ct_config_names_net(c->set[i].path) ||
            (strncmp(c->set[i].path, "layer[", 6) == 0)) {
            CT_INFO("config: %s = %s (%s)", c->set[i].path, c->set[i].value,
                    ct_origin_str(c->set[i].origin));
        }
    }
    if (!defaults.failed && (defaults.length > 0)) CT_INFO("config: default %s", defaults.text);
    ct_text_destroy(&defaults);
}

void ct_config_json(const ct_config *c, ct_json_writer *values, ct_json_writer *origins)
{
    visitor v = { .config = c, .values = values, .origins = origins };

    walk(&v, &c->solver->base, "");
}
