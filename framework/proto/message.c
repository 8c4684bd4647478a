#include "framework/proto/message.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

ProtobufCMessage *ct_message_create(const ProtobufCMessageDescriptor *type)
{
    ProtobufCMessage *m = malloc(type->sizeof_message);

    if (m != NULL) protobuf_c_message_init(type, m);
    return m;
}

size_t ct_field_size(const ProtobufCFieldDescriptor *f)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 8;
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    default:
        return 4;
    }
}

static bool is_pointer(const ProtobufCFieldDescriptor *f)
{
    return (f->type == PROTOBUF_C_TYPE_STRING) || (f->type == PROTOBUF_C_TYPE_MESSAGE);
}

size_t ct_field_count(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    if (f->label == PROTOBUF_C_LABEL_REPEATED) {
        return *CT_CONST_MEMBER(size_t, m, f->quantifier_offset);
    }
    if (is_pointer(f)) {
        const void *p = *CT_CONST_MEMBER(void *const, m, f->offset);

        return (p != NULL) && (p != f->default_value);
    }
    if (f->label == PROTOBUF_C_LABEL_REQUIRED) return 1;
    return *CT_CONST_MEMBER(protobuf_c_boolean, m, f->quantifier_offset) != 0;
}

const void *ct_field_at(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, size_t i)
{
    if (f->label != PROTOBUF_C_LABEL_REPEATED) return CT_CONST_MEMBER(char, m, f->offset);
    return *CT_CONST_MEMBER(char *const, m, f->offset) + i * ct_field_size(f);
}

ProtobufCMessage *ct_field_message(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f,
                                   size_t i)
{
    return *(ProtobufCMessage *const *)ct_field_at(m, f, i);
}

static void release_value(const ProtobufCFieldDescriptor *f, void *value)
{
    if (f->type == PROTOBUF_C_TYPE_STRING) {
        char *s = *(char **)value;

        if (s != f->default_value) free(s);
    } else if (f->type == PROTOBUF_C_TYPE_BYTES) {
        uint8_t *data = ((ProtobufCBinaryData *)value)->data;
        const ProtobufCBinaryData *byte_default = f->default_value;

        if ((byte_default == NULL) || (data != byte_default->data)) free(data);
    } else if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
        protobuf_c_message_free_unpacked(*(ProtobufCMessage **)value, NULL);
    }
}

ct_status ct_field_put(ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, const void *value,
                       bool is_exact)
{
    size_t size = ct_field_size(f), *n;
    char **array;

    if (f->label != PROTOBUF_C_LABEL_REPEATED) {
        release_value(f, CT_MEMBER(void, m, f->offset));
        memcpy(CT_MEMBER(char, m, f->offset), value, size);
        if ((f->label == PROTOBUF_C_LABEL_OPTIONAL) && !is_pointer(f)) {
            *CT_MEMBER(protobuf_c_boolean, m, f->quantifier_offset) = 1;
        }
        return CT_OK;
    }
    n = CT_MEMBER(size_t, m, f->quantifier_offset);
    array = CT_MEMBER(char *, m, f->offset);
    if (is_exact || ((*n & (*n - 1)) == 0)) { /* full at every power of two */
        size_t want = is_exact ? *n + 1 : (*n == 0) ? 1 : 2 * *n;
        char *grown = (want <= SIZE_MAX / size) ? realloc(*array, want * size) : NULL;

        if (grown == NULL) {
            return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu values of field %s", want, f->name);
        }
        *array = grown;
    }
    memcpy(*array + *n * size, value, size);
    ++*n;
    return CT_OK;
}

static void release_field(ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    if (f->label != PROTOBUF_C_LABEL_REPEATED) {
        release_value(f, CT_MEMBER(void, m, f->offset));
        return;
    }
    for (size_t i = 0; i < ct_field_count(m, f); i++) {
        release_value(f, *CT_MEMBER(char *, m, f->offset) + i * ct_field_size(f));
    }
    free(*CT_MEMBER(void *, m, f->offset));
}

/* The storage of a field from one message into a field of the same kind of another. */
static void copy_storage(ProtobufCMessage *to, const ProtobufCFieldDescriptor *to_field,
                         const ProtobufCMessage *from, const ProtobufCFieldDescriptor *f)
{
    bool is_list = (f->label == PROTOBUF_C_LABEL_REPEATED);

    memcpy(CT_MEMBER(char, to, to_field->offset), CT_CONST_MEMBER(char, from, f->offset),
           is_list ? sizeof(void *) : ct_field_size(f));
    if (is_list) {
        *CT_MEMBER(size_t, to, to_field->quantifier_offset) =
            *CT_CONST_MEMBER(size_t, from, f->quantifier_offset);
    } else if ((f->label == PROTOBUF_C_LABEL_OPTIONAL) && !is_pointer(f)) {
        *CT_MEMBER(protobuf_c_boolean, to, to_field->quantifier_offset) =
            *CT_CONST_MEMBER(protobuf_c_boolean, from, f->quantifier_offset);
    }
}

/* The field as it is in a new message; what it held is somebody else's by now. */
static ct_status forget_field(ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    ProtobufCMessage *fresh = ct_message_create(m->descriptor);

    if (fresh == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a message");
    copy_storage(m, f, fresh, f);
    free(fresh);
    return CT_OK;
}

ct_status ct_field_clear(ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    ProtobufCMessage *fresh = ct_message_create(m->descriptor);

    if (fresh == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a message");
    release_field(m, f);
    copy_storage(m, f, fresh, f);
    free(fresh);
    return CT_OK;
}

ct_status ct_field_move(ProtobufCMessage *to, const ProtobufCFieldDescriptor *to_field,
                        ProtobufCMessage *from, const ProtobufCFieldDescriptor *from_field)
{
    CT_TRY(ct_field_clear(to, to_field));
    if ((from_field->type == PROTOBUF_C_TYPE_STRING) &&
        (from_field->label != PROTOBUF_C_LABEL_REPEATED) &&
        (ct_field_count(from, from_field) == 0)) {
        return CT_OK; /* the default's own text stays where it is */
    }
    copy_storage(to, to_field, from, from_field);
    return forget_field(from, from_field);
}

const ProtobufCFieldDescriptor *ct_field_find(const ProtobufCMessageDescriptor *type,
                                              const char *name, size_t length)
{
    for (unsigned i = 0; i < type->n_fields; i++) {
        const char *candidate = type->fields[i].name;

        if ((strncmp(candidate, name, length) == 0) && (candidate[length] == '\0')) {
            return &type->fields[i];
        }
    }
    return NULL;
}

ct_locale ct_locale_enter(void)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);

    if (c == (locale_t)0) return (ct_locale){ NULL, NULL };
    return (ct_locale){ c, uselocale(c) };
}

void ct_locale_leave(ct_locale l)
{
    if (l.c == NULL) return;
    uselocale((locale_t)l.before);
    freelocale((locale_t)l.c);
}
