/** @file reader.h  The state of a text-format parse. Private to framework/proto. */
#ifndef CT_PROTO_READER_H
#define CT_PROTO_READER_H

#include "framework/proto/lexer.h"
#include "framework/proto/message.h"

/** A message that is being read; they lie on the C stack, innermost first. */
typedef struct ct_frame {
    const struct ct_frame *parent;
    const ProtobufCMessageDescriptor *type;
    const char *field; /* what the parent calls it; NULL at the root        */
    int line, column;  /* of that name                                       */
    ct_token open;     /* "{" or "<"; no token at the root                   */
    ct_lexer body;     /* behind it: where a look ahead for the name begins  */
} ct_frame;

typedef struct ct_prototxt_reader {
    ct_lexer lex;
    ct_token token; /* the current one, not yet consumed */
    const char *name;
    const char *option_path; /* not NULL: the text is the value of an option that sets this field,
                              * so messages name no line */
    ct_source_map *map;
    int file;
    const ct_frame *frame;
    const char *field; /* being read; NULL between fields */
    int depth;
} ct_prototxt_reader;

enum { CT_MAX_DEPTH = 100 };

void ct_prototxt_reader_next(ct_prototxt_reader *r);
/** Consumes `punct` where it is the current token. */
bool ct_prototxt_reader_accept(ct_prototxt_reader *r, char punct);

/** Logs "FILE:LINE:COL: in layer "NAME" (TYPE): MESSAGE"; CT_ERR_CONFIG. */
ct_status ct_prototxt_reader_fail_at(ct_prototxt_reader *r, int line, int column, const char *fmt,
                                     ...) __attribute__((format(printf, 4, 5)));
/** The same with the path of the field or message being read before MESSAGE. */
ct_status ct_prototxt_reader_fail_value(ct_prototxt_reader *r, int line, int column,
                                        const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/** The current token is not what was expected: "PATH: expected WHAT, got TOKEN"; what is wrong
 *  with its characters, where they are no token. */
ct_status ct_prototxt_reader_fail_expected(ct_prototxt_reader *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/** The current token names no field of the innermost message; says what may be meant. */
ct_status ct_prototxt_reader_fail_unknown(ct_prototxt_reader *r);
/** The type as the text gives it of the layer that `frame` is, even from behind; false where it is
 *  no layer or has no type. size: of the buffer. */
bool ct_frame_layer_type(const ct_frame *frame, char *type, size_t size);
/** Appends what may be meant by a field `word` of a message `type`, such as
 *  `; did you mean "kernel_size"?`. frame: of that message, or NULL. */
void ct_add_field_hint(ct_text *t, const ProtobufCMessageDescriptor *type, const ct_frame *frame,
                       const char *word);
/** Appends `; did you mean "MAX"?` or `; expected one of MAX, AVE`. */
void ct_add_enum_hint(ct_text *t, const ProtobufCEnumDescriptor *type, const char *word);

/** Reads one value of a field that is no message, at the current token. */
ct_status ct_prototxt_reader_scalar(ct_prototxt_reader *r, ProtobufCMessage *m,
                                    const ProtobufCFieldDescriptor *f);
/** Reads what stands behind a field's ":": a value or, of a repeated field, a list of them.
 *  line, column: where the field is named, for the source map. */
ct_status ct_prototxt_reader_values(ct_prototxt_reader *r, ProtobufCMessage *m,
                                    const ProtobufCFieldDescriptor *f, int line, int column);

#endif
