/** @file message.h  Fields of a protobuf-c message through its descriptor. For
 *  framework/proto, and what prints configurations.
 *
 * A field's storage is: repeated: a size_t count (quantifier) and an array; optional number, enum,
 * bool or bytes: a protobuf_c_boolean (quantifier) and the value; string or message: a pointer,
 * set where it is neither NULL nor the descriptor's default; required: the value alone.
 */
#ifndef CT_PROTO_MESSAGE_H
#define CT_PROTO_MESSAGE_H

#include <stdbool.h>

#include "framework/proto/prototxt.h"

#define CT_MEMBER(_type, _message, _offset) ((_type *)(void *)((char *)(_message) + (_offset)))
#define CT_CONST_MEMBER(_type, _message, _offset)                                                  \
    ((const _type *)(const void *)((const char *)(_message) + (_offset)))

/** Fields of these numbers are between the reader and the net: no text holds them. */
enum { CT_FIRST_PRIVATE_FIELD = 29000, CT_LAST_PRIVATE_FIELD = 29999 };

static inline bool ct_field_is_private(const ProtobufCFieldDescriptor *f)
{
    return (f->id >= CT_FIRST_PRIVATE_FIELD) && (f->id <= CT_LAST_PRIVATE_FIELD);
}

/** A message with its defaults, or NULL without memory. */
ProtobufCMessage *ct_message_create(const ProtobufCMessageDescriptor *type);

/** A message of a file's bytes, or NULL with a reason. It is NULL also where its messages are
 * nested deeper than a text's may be, where a string is longer than 16 MiB, or where many messages
 * would take more than 256 MiB. Quiet. */
ProtobufCMessage *ct_message_unpack(const ProtobufCMessageDescriptor *type, const void *data,
                                    size_t size, const char **why_p);

/** Elements of a repeated field; 1 or 0 for another, as it is set (required: always 1, unless it
 *  is a pointer). */
size_t ct_field_count(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f);
/** The storage of value i; valid where i < ct_field_count() or the field is not repeated. */
const void *ct_field_at(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, size_t i);
/** Message i of a message field. */
ProtobufCMessage *ct_field_message(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f,
                                   size_t i);
/** Sets the field (a repeated one gets one element more) to the value at `value`, of
 *  ct_field_size() bytes. The message then owns its memory. is_exact: the array may stem from
 *  elsewhere, so its capacity is its count. Else it grew only here. CT_ERR_NOMEM, logged. */
ct_status ct_field_put(ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, const void *value,
                       bool is_exact);
/** Frees what the field holds and sets it back to its default, unset. CT_ERR_NOMEM, logged. */
ct_status ct_field_clear(ProtobufCMessage *m, const ProtobufCFieldDescriptor *f);
/** Moves a field of one message into a field of the same kind of another; the target's old value
 *  is freed, the source's becomes unset. CT_ERR_NOMEM, logged. */
ct_status ct_field_move(ProtobufCMessage *to, const ProtobufCFieldDescriptor *to_field,
                        ProtobufCMessage *from, const ProtobufCFieldDescriptor *from_field);
/** The field a message type calls `name`[0..length), or NULL; private ones have no name here. */
const ProtobufCFieldDescriptor *ct_field_find(const ProtobufCMessageDescriptor *type,
                                              const char *name, size_t length);

/** Makes numbers read and print as in the C locale in this thread, whatever the program's is;
 *  the result goes to ct_locale_leave(). */
typedef struct ct_locale {
    void *c, *before;
} ct_locale;
ct_locale ct_locale_enter(void);
void ct_locale_leave(ct_locale l);

/* Of the source map, for the reader and the upgrades. */
bool ct_source_map_refuses_hints(const ct_source_map *map); /* NULL: no */
ct_status ct_source_map_add_file(ct_source_map *map, const char *name, int *file_p);
ct_status ct_source_map_add(ct_source_map *map, const void *message, int file, int line,
                            int column);
/** ct_source_map_copy() of a message, its fields and all below it. The two are equal; map may be
 *  NULL. */
ct_status ct_source_map_copy_all(ct_source_map *map, const ProtobufCMessage *message,
                                 const ProtobufCMessage *like);
/** Forgets a message and all below it, before it is freed; map may be NULL. */
void ct_source_map_forget(ct_source_map *map, const ProtobufCMessage *message);

/* ---- single values as text */

/** Appends a value of a field that is no message, as the text format writes it. The caller sees
 *  to the C locale. */
void ct_text_add_scalar(ct_text *out, const ProtobufCFieldDescriptor *f, const void *value);
/** Appends a field's default; it must have one (default_value is not NULL). */
void ct_text_add_default(ct_text *out, const ProtobufCFieldDescriptor *f);

#endif
