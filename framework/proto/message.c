#include "framework/proto/message.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/proto/prototxt.h"

ProtobufCMessage *ct_message_create(const ProtobufCMessageDescriptor *type)
{
    ProtobufCMessage *m = malloc(type->sizeof_message);

    if (m != NULL) protobuf_c_message_init(type, m);
    return m;
}

/* Bytes of one value of the field in memory. */
static size_t field_size(const ProtobufCFieldDescriptor *f)
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
    return *CT_CONST_MEMBER(char *const, m, f->offset) + i * field_size(f);
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
    size_t size = field_size(f), *n;
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
        release_value(f, *CT_MEMBER(char *, m, f->offset) + i * field_size(f));
    }
    free(*CT_MEMBER(void *, m, f->offset));
}

/* The storage of a field from one message into a field of the same kind of another. */
static void copy_storage(ProtobufCMessage *to, const ProtobufCFieldDescriptor *to_field,
                         const ProtobufCMessage *from, const ProtobufCFieldDescriptor *f)
{
    bool is_list = (f->label == PROTOBUF_C_LABEL_REPEATED);

    memcpy(CT_MEMBER(char, to, to_field->offset), CT_CONST_MEMBER(char, from, f->offset),
           is_list ? sizeof(void *) : field_size(f));
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

        if ((strncmp(candidate, name, length) == 0) && (candidate[length] == '\0') &&
            !ct_field_is_private(&type->fields[i])) {
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

/* ---- a hash table from the address of a message, or of a member of one, to its place; open
 * addressing. */

typedef struct entry {
    const void *message; /* NULL: empty; GONE: was removed */
    int file, line, column;
} entry;

struct ct_source_map {
    entry *entry;
    size_t n_used, capacity; /* n_used counts removed ones too; capacity is a power of two */
    char **file;
    int n_file;
    bool refuses_hints;
};

static const char gone_mark = 0;
#define GONE ((const void *)&gone_mark)

ct_status ct_source_map_create(ct_source_map **map_p)
{
    ct_source_map *map = calloc(1, sizeof(*map));

    if (map == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a source map");
    *map_p = map;
    return CT_OK;
}

void ct_source_map_destroy(ct_source_map *map)
{
    if (map == NULL) return;
    for (int i = 0; i < map->n_file; i++) free(map->file[i]);
    free(map->file);
    free(map->entry);
    free(map);
}

void ct_source_map_refuse_hints(ct_source_map *map)
{
    map->refuses_hints = true;
}

bool ct_source_map_refuses_hints(const ct_source_map *map)
{
    return (map != NULL) && map->refuses_hints;
}

static size_t slot_of(const ct_source_map *map, const void *message)
{
    uint64_t h = (uint64_t)(uintptr_t)message * UINT64_C(0x9E3779B97F4A7C15);
    size_t mask = map->capacity - 1, i = (size_t)(h >> 32) & mask;

    while ((map->entry[i].message != NULL) && (map->entry[i].message != message)) {
        i = (i + 1) & mask;
    }
    return i;
}

static const entry *find(const ct_source_map *map, const void *message)
{
    const entry *e;

    if ((map == NULL) || (map->capacity == 0) || (message == NULL)) return NULL;
    e = &map->entry[slot_of(map, message)];
    return (e->message != NULL) ? e : NULL;
}

static ct_status grow(ct_source_map *map)
{
    ct_source_map wider = *map;

    wider.capacity = (map->capacity > 0) ? 2 * map->capacity : 64;
    wider.n_used = 0;
    wider.entry = calloc(wider.capacity, sizeof(entry));
    if (wider.entry == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a source map");
    for (size_t i = 0; i < map->capacity; i++) {
        const entry *e = &map->entry[i];

        if ((e->message == NULL) || (e->message == GONE)) continue;
        wider.entry[slot_of(&wider, e->message)] = *e;
        wider.n_used++;
    }
    free(map->entry);
    *map = wider;
    return CT_OK;
}

static ct_status insert(ct_source_map *map, const entry *e)
{
    entry *slot;

    if (2 * (map->n_used + 1) > map->capacity) CT_TRY(grow(map));
    slot = &map->entry[slot_of(map, e->message)];
    if (slot->message == NULL) map->n_used++;
    *slot = *e;
    return CT_OK;
}

ct_status ct_source_map_add_file(ct_source_map *map, const char *name, int *file_p)
{
    char **file, *copy;

    for (int i = 0; i < map->n_file; i++) {
        if (strcmp(map->file[i], name) == 0) {
            *file_p = i;
            return CT_OK;
        }
    }
    file = realloc(map->file, (size_t)(map->n_file + 1) * sizeof(*file));
    if (file != NULL) map->file = file;
    copy = strdup(name);
    if ((file == NULL) || (copy == NULL)) {
        free(copy);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a source map");
    }
    map->file[map->n_file] = copy;
    *file_p = map->n_file++;
    return CT_OK;
}

ct_status ct_source_map_add(ct_source_map *map, const void *message, int file, int line, int column)
{
    return insert(map, &(entry){ message, file, line, column });
}

ct_place ct_source_map_find(const ct_source_map *map, const void *message)
{
    const entry *e = find(map, message);

    if (e == NULL) return (ct_place){ "", 0, 0 };
    return (ct_place){ map->file[e->file], e->line, e->column };
}

ct_where ct_source_map_where(const ct_source_map *map, const void *message, const void *field,
                             const char *otherwise)
{
    ct_place p = ct_source_map_find(map, field);
    ct_where w;

    if (p.file[0] == '\0') p = ct_source_map_find(map, message);
    if (p.file[0] == '\0') p.file = otherwise;
    if (p.line > 0)
        snprintf(w.text, sizeof(w.text), "%s:%d:%d", p.file, p.line, p.column);
    else
        snprintf(w.text, sizeof(w.text), "%s", p.file);
    return w;
}

ct_status ct_source_map_copy(ct_source_map *map, const void *message, const void *like)
{
    const entry *found = find(map, like);
    entry e;

    if (found == NULL) return CT_OK;
    e = *found;
    e.message = message;
    return insert(map, &e);
}

ct_status ct_source_map_copy_all(ct_source_map *map, const ProtobufCMessage *message,
                                 const ProtobufCMessage *like)
{
    const ProtobufCMessageDescriptor *type = message->descriptor;

    if (map == NULL) return CT_OK;
    CT_TRY(ct_source_map_copy(map, message, like));
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &type->fields[i];

        CT_TRY(ct_source_map_copy(map, (const char *)message + f->offset,
                                  (const char *)like + f->offset));
        if (f->type != PROTOBUF_C_TYPE_MESSAGE) continue;
        for (size_t k = 0; k < ct_field_count(message, f); k++) {
            CT_TRY(ct_source_map_copy_all(map, ct_field_message(message, f, k),
                                          ct_field_message(like, f, k)));
        }
    }
    return CT_OK;
}

static void forget(ct_source_map *map, const void *key)
{
    if (find(map, key) != NULL) map->entry[slot_of(map, key)].message = GONE;
}

void ct_source_map_forget(ct_source_map *map, const ProtobufCMessage *message)
{
    const ProtobufCMessageDescriptor *type;

    if ((map == NULL) || (map->capacity == 0) || (message == NULL)) return;
    type = message->descriptor;
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &type->fields[i];

        forget(map, (const char *)message + f->offset);
        if (f->type != PROTOBUF_C_TYPE_MESSAGE) continue;
        for (size_t k = 0; k < ct_field_count(message, f); k++) {
            ct_source_map_forget(map, ct_field_message(message, f, k));
        }
    }
    forget(map, message);
}
