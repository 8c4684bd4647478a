/** @file prototxt.h  Protobuf text format, read and written through protobuf-c's descriptors.
 *
 * The whole text format as Caffe nets use it: comments, strings with escapes and concatenation,
 * enums by name or number, [a, b] lists, {} and <>, optional ':' before a message, ',' and ';'
 * between fields, CRLF, BOM, hex and octal integers, float forms (1e-3, .5, 1.f, inf, nan).
 * Errors name file:line:col, the layer where there is one, the field, what was expected and the
 * nearest known name:
 *   net.prototxt:12:5: in layer "conv1" (Convolution): unknown field "kernal_size"; did you mean
 *   "kernel_size"?
 */
#ifndef CT_PROTOTXT_H
#define CT_PROTOTXT_H

#include <protobuf-c/protobuf-c.h>

#include "framework/base/text.h"

/** Where each message of a parsed file stands, and each field of one. A field goes by the address
 *  of its member: ct_source_map_find(map, &solver->base_lr); of a repeated one, the last given. */
typedef struct ct_source_map ct_source_map;

typedef struct ct_place {
    const char *file; /* "" : unknown */
    int line, column; /* 0: file is the name of the option that set it */
} ct_place;

typedef struct ct_where {
    char text[400];
} ct_where;

ct_status ct_source_map_create(ct_source_map **map_p);
void ct_source_map_destroy(ct_source_map *map); /* NULL allowed */
/** From here on readers that note their places in `map` refuse the fields of forks that they would
 *  ignore otherwise. */
void ct_source_map_refuse_hints(ct_source_map *map);
/** The place of a message or field that a reader made; {"", 0, 0} where unknown or map is NULL. */
ct_place ct_source_map_find(const ct_source_map *map, const void *message);
/** "solver.prototxt:4:1", or "--set": of the field, of the message where the field was not given,
 *  else `otherwise`. */
ct_where ct_source_map_where(const ct_source_map *map, const void *message, const void *field,
                             const char *otherwise);
/** Says that `message` or field (made by an upgrade, a copy) stands where `like` does. */
ct_status ct_source_map_copy(ct_source_map *map, const void *message, const void *like);

/** Parses text[0..size) of file `name` into a new message; *message_p is freed with
 *  protobuf_c_message_free_unpacked(). map may be NULL. CT_ERR_CONFIG, logged. */
ct_status ct_prototxt_parse(const ProtobufCMessageDescriptor *type, const char *name,
                            const char *text, size_t size, ct_source_map *map,
                            ProtobufCMessage **message_p);
/** The same of a file. CT_ERR_CONFIG, CT_ERR_IO. */
ct_status ct_prototxt_read(const ProtobufCMessageDescriptor *type, const char *path,
                           ct_source_map *map, ProtobufCMessage **message_p);
/** … of a net, whose only `repeat` has `count` copies, whatever it says; 0: as it says. */
ct_status ct_prototxt_read_repeat(const ProtobufCMessageDescriptor *type, const char *path,
                                  int32_t count, ct_source_map *map, ProtobufCMessage **message_p);
/** Writes message as text format that parses back to an equal message. Excepted are an enum number
 *  that its type does not know, and fields unknown to the schema, which only binary files bring. So
 *  is what `repeat` the layers came from. Equal messages give equal texts. CT_ERR_NOMEM. */
ct_status ct_prototxt_write(const ProtobufCMessage *message, ct_text *out);
/** Appends text as a string with its quotes, for those who write text format bit by bit. */
void ct_prototxt_quote(const char *text, ct_text *out);

/** Sets a field by path: "base_lr", "comm.bucket_mb", "layer[conv1].convolution_param.num_output",
 *  "layer[conv1].param[1].lr_mult". [ ] holds a name (all messages of that name are set, such as a
 *  data layer of TRAIN and one of TEST) or an index. A missing message is made. value is text
 *  format, where quotes around a string and [ ] around a list of numbers may be left out. origin
 *  names the option in messages. A repeated field is replaced. An unknown name and a wrong value
 *  change nothing. CT_ERR_CONFIG with the nearest name. */
ct_status ct_prototxt_set(ProtobufCMessage *message, const char *path, const char *value,
                          const char *origin);
/** The same, and map (NULL allowed) says from then on that the field stands in the option. */
ct_status ct_prototxt_set_noted(ProtobufCMessage *message, const char *path, const char *value,
                                const char *origin, ct_source_map *map);

/* ---- the reference of all configuration fields, made from the schema */

/** Appends a Markdown page: for each message that a solver or a net can hold a table of its
 *  fields with type, default and meaning. CT_ERR_NOMEM. */
ct_status ct_config_reference(ct_text *out);

/** What a field means in one line, for "Message" and "field"; NULL where nothing is said of itself
 *  (of a layer's messages of parameters the page says which types read them). */
const char *ct_config_meaning(const char *message, const char *field);

/* The table behind it, in reference_table.c; ends with NULL. Private to framework/proto. */
typedef struct ct_meaning {
    const char *field; /* "Message.field"; "Message.*": all of them */
    const char *text;
} ct_meaning;
extern const ct_meaning ct_meaning_table[];

#endif
