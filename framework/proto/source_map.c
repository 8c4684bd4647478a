/* A hash table from the address of a message, or of a member of one, to its place; open
 * addressing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/proto/message.h"
#include "framework/proto/prototxt.h"

typedef struct entry {
    const void *message; /* NULL: empty; GONE: was removed */
    int file, line, column;
} entry;

struct ct_source_map {
    entry *entry;
    size_t n_used, capacity; /* n_used counts removed ones too; capacity is a power of two */
    char **file;
    int n_file;
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
