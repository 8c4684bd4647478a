/* Fields by path. A path is resolved against the schema first, so that nothing is touched when a
 * name or the value is wrong; then it is walked through the message, making what is missing. */
#include <stdlib.h>
#include <string.h>

#include "framework/proto/cortado.pb-c.h"
#include "framework/proto/message.h"
#include "framework/proto/reader.h"

enum { MAX_STEPS = 16 };

typedef struct step {
    const ProtobufCFieldDescriptor *f;
    const char *key; /* what stands in [ ]; NULL without */
    size_t key_length;
} step;

typedef struct route {
    step step[MAX_STEPS];
    int n;
    const char *path, *value, *origin; /* value and origin: of a set */
    ct_source_map *map;                /* NULL: nothing is noted     */
} route;

static bool is_repeated(const ProtobufCFieldDescriptor *f)
{
    return f->label == PROTOBUF_C_LABEL_REPEATED;
}

static const ProtobufCFieldDescriptor *field_named(const ProtobufCMessageDescriptor *type,
                                                   const char *name)
{
    return protobuf_c_message_descriptor_get_field_by_name(type, name);
}

/* "[key]" at *at_p, which ends before "." or the end, so that a key may hold brackets and dots;
 * quotes around it are left out. false: not closed. */
static bool read_key(const char **at_p, step *s)
{
    const char *open = *at_p, *close = open;

    do {
        close = strchr(close + 1, ']');
    } while ((close != NULL) && (close[1] != '.') && (close[1] != '\0'));
    if (close == NULL) return false;
    s->key = open + 1;
    s->key_length = (size_t)(close - open - 1);
    if ((s->key_length >= 2) && (s->key[0] == '"') && (close[-1] == '"')) {
        s->key++;
        s->key_length -= 2;
    }
    *at_p = close + 1;
    return true;
}

static ct_status fail(const route *r, const char *what, const char *detail)
{
    if (r->origin == NULL) return CT_ERR_CONFIG; /* a look-up, which only says false */
    return CT_FAIL(CT_ERR_CONFIG, "%s: %s: %s%s", r->origin, r->path, what, detail);
}

/* What --set takes beside fields. */
static void add_word_hint(ct_text *t, const ProtobufCMessageDescriptor *type, const char *word)
{
    static const char *const words[] = { "batch_size", "repeat.count" };
    const char *near = (type == &ct__solver_parameter__descriptor)
                           ? ct_text_nearest_within(word, words, 2, 2)
                           : NULL;

    if (near != NULL)
        ct_text_add(t, "; did you mean \"%s\"?", near);
    else
        ct_add_field_hint(t, type, NULL, word);
}

static ct_status fail_unknown(const route *r, const ProtobufCMessageDescriptor *type,
                              const char *name, size_t length)
{
    ct_text text = { 0 }, word = { 0 };
    ct_status status;

    if (r->origin == NULL) return CT_ERR_CONFIG;
    ct_text_add_quoted(&text, name, length);
    ct_text_add_bytes(&word, name, length);
    if (!word.failed) add_word_hint(&text, type, word.text);
    status = fail(r, "unknown field ", (text.text != NULL) ? text.text : "");
    ct_text_destroy(&text);
    ct_text_destroy(&word);
    return status;
}

/* The path against the schema. */
static ct_status resolve(route *r, const ProtobufCMessageDescriptor *type)
{
    const char *at = r->path;

    for (r->n = 0;; r->n++) {
        size_t length = strcspn(at, ".[");
        step *s = &r->step[r->n];

        if (length == 0) return fail(r, "a field's name is missing in the path", "");
        if (r->n == MAX_STEPS) return fail(r, "the path is too long", "");
        *s = (step){ .f = ct_field_find(type, at, length) };
        if (s->f == NULL) return fail_unknown(r, type, at, length);
        if (s->f->descriptor == &ct__repeat_parameter__descriptor)
            return fail(r,
                        "a repeat cannot be set, it is expanded while its file is read; its "
                        "copies' layers can be",
                        ", such as layer[h0_NAME]");
        at += length;
        if ((*at == '[') && !read_key(&at, s)) return fail(r, "\"[\" is not closed", "");
        if ((s->key != NULL) && !is_repeated(s->f)) {
            return fail(r, s->f->name, " is one value, which takes no [ ]");
        }
        if (*at == '\0') {
            r->n++;
            break;
        }
        if (*at++ != '.') return fail(r, "expected \".\" behind \"]\"", "");
        if (s->f->type != PROTOBUF_C_TYPE_MESSAGE) return fail(r, s->f->name, " has no fields");
        type = s->f->descriptor;
    }
    if (r->step[r->n - 1].key != NULL) {
        return fail(r, "one element cannot be set; give the whole list", "");
    }
    return CT_OK;
}

static bool has_name(const ProtobufCMessage *m, const step *s)
{
    const ProtobufCFieldDescriptor *f = field_named(m->descriptor, "name");
    const char *name;

    if ((f == NULL) || (f->type != PROTOBUF_C_TYPE_STRING) || (ct_field_count(m, f) == 0)) {
        return false;
    }
    name = *(char *const *)ct_field_at(m, f, 0);
    return (strlen(name) == s->key_length) && (memcmp(name, s->key, s->key_length) == 0);
}

/* A key that is a number; false where it is none. */
static bool read_index(const step *s, size_t *index_p)
{
    size_t v = 0;

    if ((s->key_length == 0) || (s->key_length > 9)) return false;
    for (size_t i = 0; i < s->key_length; i++) {
        if ((s->key[i] < '0') || (s->key[i] > '9')) return false;
        v = 10 * v + (size_t)(s->key[i] - '0');
    }
    *index_p = v;
    return true;
}

static ct_status fail_no_element(const route *r, const ProtobufCMessage *m, const step *s)
{
    const ProtobufCFieldDescriptor *name = field_named(s->f->descriptor, "name");
    size_t n = ct_field_count(m, s->f), n_name = 0, index;
    const char **names = calloc(n + 1, sizeof(*names)), *near = NULL;
    ct_text text = { 0 }, word = { 0 };
    ct_status status;

    ct_text_add(&text, "no %s ", s->f->name);
    ct_text_add_quoted(&text, s->key, s->key_length);
    ct_text_add_bytes(&word, s->key, s->key_length);
    for (size_t i = 0; (names != NULL) && (name != NULL) && (i < n); i++) {
        ProtobufCMessage *element = ct_field_message(m, s->f, i);

        if (ct_field_count(element, name) == 0) continue;
        names[n_name++] = *(char *const *)ct_field_at(element, name, 0);
    }
    if ((n_name > 0) && !word.failed && !read_index(s, &index))
        near = ct_text_nearest(word.text, names, (int)n_name);
    if (near != NULL) {
        ct_text_add(&text, "; did you mean \"%s\"?", near);
    } else {
        ct_text_add(&text, "; there are %zu", n);
    }
    status = fail(r, (text.text != NULL) ? text.text : "", "");
    ct_text_destroy(&text);
    ct_text_destroy(&word);
    free(names);
    return status;
}

/* Parses the value into the last field of m, a message made for it. */
static ct_status parse_value(const route *r, ProtobufCMessage *m, const char *text)
{
    const ProtobufCFieldDescriptor *f = r->step[r->n - 1].f;
    ct_frame root = { .type = m->descriptor };
    ct_prototxt_reader reader = { .name = r->origin, .option_path = r->path, .frame = &root };
    ct_locale locale = ct_locale_enter();
    ct_status status;

    ct_lexer_open(&reader.lex, text, strlen(text));
    root.body = reader.lex;
    ct_prototxt_reader_next(&reader);
    status = ct_prototxt_reader_values(&reader, m, f, 0, 0);
    if ((status == CT_OK) && (reader.token.kind != CT_TOKEN_END)) {
        status = ct_prototxt_reader_fail_expected(&reader, "nothing behind the value");
    }
    ct_repeat_leave(&reader, NULL);
    ct_locale_leave(locale);
    return status;
}

/* On a command line quotes around a string are a nuisance, and so are [ ] around numbers. */
static ct_status read_value(const route *r, ProtobufCMessage *m)
{
    const ProtobufCFieldDescriptor *f = r->step[r->n - 1].f;
    const char *first = r->value + strspn(r->value, " \t");
    bool is_text = (*first == '"') || (*first == '\'') || (is_repeated(f) && (*first == '['));
    ct_text list = { 0 };
    ct_status status;

    if ((f->type == PROTOBUF_C_TYPE_STRING) && !is_text) {
        char *copy = strdup(r->value);

        if (copy == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a value");
        status = ct_field_put(m, f, &copy, true);
        if (status != CT_OK) free(copy);
        return status;
    }
    if (!is_repeated(f) || is_text || (*first == '\0') || (f->type == PROTOBUF_C_TYPE_MESSAGE)) {
        return parse_value(r, m, r->value);
    }
    ct_text_add(&list, "[%s]", r->value);
    status =
        list.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for a value") : parse_value(r, m, list.text);
    ct_text_destroy(&list);
    return status;
}

/* The field stands in the option now. */
static ct_status note_place(const route *r, const ProtobufCMessage *m,
                            const ProtobufCFieldDescriptor *f)
{
    int file;

    if (r->map == NULL) return CT_OK;
    CT_TRY(ct_source_map_add_file(r->map, r->origin, &file));
    return ct_source_map_add(r->map, (const char *)m + f->offset, file, 0, 0);
}

static ct_status set_leaf(const route *r, ProtobufCMessage *m)
{
    const ProtobufCFieldDescriptor *f = r->step[r->n - 1].f;
    ProtobufCMessage *scratch = ct_message_create(m->descriptor);
    ct_status status;

    if (scratch == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a value");
    status = read_value(r, scratch);
    for (size_t k = 0; (f->type == PROTOBUF_C_TYPE_MESSAGE) && (k < ct_field_count(m, f)); k++)
        ct_source_map_forget(r->map, ct_field_message(m, f, k)); /* about to be freed */
    if (status == CT_OK) status = ct_field_move(m, f, scratch, f);
    if (status == CT_OK) status = note_place(r, m, f);
    protobuf_c_message_free_unpacked(scratch, NULL);
    return status;
}

static ct_status add_message(const route *r, ProtobufCMessage *m, const step *s)
{
    const ProtobufCMessageDescriptor *type = s->f->descriptor;
    ProtobufCMessage *child;
    ct_status status;

    for (unsigned i = 0; i < type->n_fields; i++) {
        if (type->fields[i].label == PROTOBUF_C_LABEL_REQUIRED) {
            return fail(r, s->f->name, " is not there, and needs several fields: set it whole");
        }
    }
    child = ct_message_create(type);
    if (child == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a message");
    status = ct_field_put(m, s->f, &child, true);
    if (status != CT_OK) protobuf_c_message_free_unpacked(child, NULL);
    return status;
}

static ct_status set_at(const route *r, ProtobufCMessage *m, int i);

/* Step i leads to elements of a repeated field: by name all that have it, else by index. */
static ct_status set_elements(const route *r, ProtobufCMessage *m, int i)
{
    const step *s = &r->step[i];
    size_t n = ct_field_count(m, s->f), index = 0;
    bool found = false, is_layer = field_named(s->f->descriptor, "bottom") != NULL;

    for (size_t k = 0; (s->key != NULL) && (k < n); k++) {
        ProtobufCMessage *element = ct_field_message(m, s->f, k);

        if (!has_name(element, s)) continue;
        found = true;
        CT_TRY(set_at(r, element, i + 1));
    }
    if (found) return CT_OK;
    if (s->key != NULL) {
        if (!read_index(s, &index)) return fail_no_element(r, m, s);
    } else if (n > 1) {
        return fail(r, s->f->name, " stands there several times; say which with [ ], from [0] on");
    }
    if ((index > n) || ((index == n) && is_layer)) {
        step none = *s;

        if (s->key == NULL) none.key = "";
        return fail_no_element(r, m, &none);
    }
    if (index == n) CT_TRY(add_message(r, m, s));
    return set_at(r, ct_field_message(m, s->f, index), i + 1);
}

static ct_status set_at(const route *r, ProtobufCMessage *m, int i)
{
    const step *s = &r->step[i];

    if (i == r->n - 1) return set_leaf(r, m);
    if (is_repeated(s->f)) return set_elements(r, m, i);
    if (ct_field_count(m, s->f) == 0) CT_TRY(add_message(r, m, s));
    return set_at(r, ct_field_message(m, s->f, 0), i + 1);
}

/* The value alone, so that a wrong one changes nothing. */
static ct_status check_value(const route *r, const ProtobufCMessageDescriptor *root)
{
    const ProtobufCMessageDescriptor *type = (r->n > 1) ? r->step[r->n - 2].f->descriptor : root;
    ProtobufCMessage *scratch = ct_message_create(type);
    ct_status status;

    if (scratch == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a value");
    status = read_value(r, scratch);
    protobuf_c_message_free_unpacked(scratch, NULL);
    return status;
}

ct_status ct_prototxt_set(ProtobufCMessage *message, const char *path, const char *value,
                          const char *origin)
{
    return ct_prototxt_set_noted(message, path, value, origin, NULL);
}

ct_status ct_prototxt_set_noted(ProtobufCMessage *message, const char *path, const char *value,
                                const char *origin, ct_source_map *map)
{
    route r = {
        .path = path, .value = value, .origin = (origin != NULL) ? origin : "set", .map = map
    };

    CT_TRY(resolve(&r, message->descriptor));
    CT_TRY(check_value(&r, message->descriptor));
    return set_at(&r, message, 0);
}
