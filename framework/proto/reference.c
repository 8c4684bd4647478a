#include "framework/proto/prototxt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/proto/cortado.pb-c.h"
#include "framework/proto/upgrade.h"
#include "framework/proto/message.h"

enum { MAX_MESSAGES = 256 };

/* The messages that can stand in a file, each once: the solver, Cortado's own, the net, the layer,
 * then the others by name. */
typedef struct page {
    const ProtobufCMessageDescriptor *type[MAX_MESSAGES];
    int n;
} page;

static const char *const first[] = {
    "SolverParameter", "CommParameter",  "CompressionParameter", "WarmupParameter",
    "NetParameter",    "LayerParameter", "KernelParameter",      "ParamSpec",
    "NetStateRule",    "NetState",       "FillerParameter",      "TransformationParameter"
};

static bool is_old(const char *name)
{
    return (strcmp(name, "V1LayerParameter") == 0) || (strcmp(name, "V0LayerParameter") == 0);
}

static void collect(page *p, const ProtobufCMessageDescriptor *type)
{
    for (int i = 0; i < p->n; i++) {
        if (p->type[i] == type) return;
    }
    if (is_old(type->short_name) || (p->n == MAX_MESSAGES)) return;
    p->type[p->n++] = type;
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &type->fields[i];

        if ((f->type == PROTOBUF_C_TYPE_MESSAGE) && !ct_field_is_private(f))
            collect(p, f->descriptor);
    }
}

static int rank_of(const char *name)
{
    int n = (int)(sizeof(first) / sizeof(first[0]));

    for (int i = 0; i < n; i++) {
        if (strcmp(first[i], name) == 0) return i;
    }
    return n;
}

static int by_rank_and_name(const void *a, const void *b)
{
    const char *x = (*(const ProtobufCMessageDescriptor *const *)a)->short_name;
    const char *y = (*(const ProtobufCMessageDescriptor *const *)b)->short_name;

    return (rank_of(x) != rank_of(y)) ? rank_of(x) - rank_of(y) : strcmp(x, y);
}

const char *ct_config_meaning(const char *message, const char *field)
{
    size_t n = strlen(message);

    for (const ct_meaning *m = ct_meaning_table; m->field != NULL; m++) {
        const char *name = m->field + n + 1;

        if ((strncmp(m->field, message, n) == 0) && (m->field[n] == '.') &&
            ((strcmp(name, field) == 0) || (strcmp(name, "*") == 0))) {
            return m->text;
        }
    }
    return NULL;
}

/* A layer's messages of parameters say who reads them, in order of the names. */
static bool add_readers(ct_text *out, const char *message, const char *field)
{
    const char *last = "", *type = NULL;
    int n = 0;

    if (strcmp(message, "LayerParameter") != 0) return false;
    for (;; last = type) {
        type = NULL;
        for (int k = 0; ct_layer_type_reading(field, k) != NULL; k++) {
            const char *t = ct_layer_type_reading(field, k);

            if ((strcmp(t, last) > 0) && ((type == NULL) || (strcmp(t, type) < 0))) type = t;
        }
        if (type == NULL) break;
        ct_text_add(out, (n++ == 0) ? "Parameters of layers of type `%s`" : ", `%s`", type);
    }
    if (n > 0) ct_text_add(out, ".");
    return n > 0;
}

static void add_type(ct_text *out, const ProtobufCFieldDescriptor *f)
{
    static const char *const name[] = {
        [PROTOBUF_C_TYPE_INT32] = "int32",    [PROTOBUF_C_TYPE_SINT32] = "int32",
        [PROTOBUF_C_TYPE_SFIXED32] = "int32", [PROTOBUF_C_TYPE_INT64] = "int64",
        [PROTOBUF_C_TYPE_SINT64] = "int64",   [PROTOBUF_C_TYPE_SFIXED64] = "int64",
        [PROTOBUF_C_TYPE_UINT32] = "uint32",  [PROTOBUF_C_TYPE_FIXED32] = "uint32",
        [PROTOBUF_C_TYPE_UINT64] = "uint64",  [PROTOBUF_C_TYPE_FIXED64] = "uint64",
        [PROTOBUF_C_TYPE_FLOAT] = "float",    [PROTOBUF_C_TYPE_DOUBLE] = "double",
        [PROTOBUF_C_TYPE_BOOL] = "bool",      [PROTOBUF_C_TYPE_STRING] = "string",
        [PROTOBUF_C_TYPE_BYTES] = "bytes",
    };
    const ProtobufCMessageDescriptor *message = f->descriptor;
    const ProtobufCEnumDescriptor *choice = f->descriptor;

    if (f->label == PROTOBUF_C_LABEL_REPEATED) ct_text_add(out, "list of ");
    if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
        if (is_old(message->short_name)) {
            ct_text_add(out, "%s", message->short_name);
            return;
        }
        ct_text_add(out, "[%s](#", message->short_name);
        for (const char *c = message->short_name; *c != '\0'; c++) {
            ct_text_add(out, "%c", ((*c >= 'A') && (*c <= 'Z')) ? *c - 'A' + 'a' : *c);
        }
        ct_text_add(out, ")");
    } else if (f->type == PROTOBUF_C_TYPE_ENUM) {
        for (unsigned i = 0; i < choice->n_values; i++) {
            ct_text_add(out, "%s%s", (i > 0) ? ", " : "", choice->values[i].name);
        }
    } else {
        ct_text_add(out, "%s", name[f->type]);
    }
}

static void add_field(ct_text *out, const char *message, const ProtobufCFieldDescriptor *f)
{
    const char *meaning = ct_config_meaning(message, f->name);

    ct_text_add(out, "| `%s` | ", f->name);
    add_type(out, f);
    ct_text_add(out, " | ");
    if (f->label == PROTOBUF_C_LABEL_REQUIRED) {
        ct_text_add(out, "must be given");
    } else if (f->default_value != NULL) {
        ct_text_add(out, "`");
        ct_text_add_default(out, f);
        ct_text_add(out, "`");
    }
    ct_text_add(out, " | ");
    if (meaning != NULL)
        ct_text_add(out, "%s", meaning);
    else
        add_readers(out, message, f->name);
    ct_text_add(out, " |\n");
}

static void add_message(ct_text *out, const ProtobufCMessageDescriptor *type)
{
    ct_text_add(out, "\n## %s\n\n| field | type | default | meaning |\n|---|---|---|---|\n",
                type->short_name);
    for (unsigned i = 0; i < type->n_fields; i++) {
        if (!ct_field_is_private(&type->fields[i]))
            add_field(out, type->short_name, &type->fields[i]);
    }
}

ct_status ct_config_reference(ct_text *out)
{
    ct_locale locale = ct_locale_enter();
    page p = { .n = 0 };

    collect(&p, &ct__solver_parameter__descriptor);
    collect(&p, &ct__machine_parameter__descriptor);
    collect(&p, &ct__parallel_parameter__descriptor);
    collect(&p, &ct__sweep_parameter__descriptor);
    qsort(p.type, (size_t)p.n, sizeof(p.type[0]), by_rank_and_name);
    ct_text_add(
        out,
        "# Configuration reference\n\n"
        "Made from the schema by `cortado info --config-reference`; do not edit.\n\n"
        "A solver file is a `SolverParameter`, a net file a `NetParameter`, a machine file\n"
        "(topology.md) a `MachineParameter`, a parallel file (parallel.md) a\n"
        "`ParallelParameter`, a file of a sweep (sweep.md) a `SweepParameter`. Names and\n"
        "meanings are Caffe's; what Cortado adds is marked. A field without a default is unset\n"
        "unless given. A field that is refused ends the run with exit code 2. One without effect\n"
        "is taken, since files for Caffe have it.\n");
    for (int i = 0; i < p.n; i++) add_message(out, p.type[i]);
    ct_locale_leave(locale);
    if (out->failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for the reference");
    return CT_OK;
}
