/** @file reader.h  The state of a text-format parse, and its tokens. Private to framework/proto. */
#ifndef CT_PROTO_READER_H
#define CT_PROTO_READER_H

#include <stdbool.h>

#include "framework/base/text.h"
#include "framework/proto/message.h"

/* ---- tokens of the protobuf text format
 *
 * The lexer keeps no memory of its own: a token is a range of the text, and a copy of a lexer is
 * a place to look ahead from. What is wrong with the characters comes as a TOKEN_BAD that says so.
 */

typedef enum {
    CT_TOKEN_END,
    CT_TOKEN_NAME,   /* a field, an enum value, true, inf …          */
    CT_TOKEN_NUMBER, /* without its sign; its form is checked later  */
    CT_TOKEN_STRING, /* with its quotes; escapes not yet resolved    */
    CT_TOKEN_PUNCT,  /* one character of { } < > [ ] : , ; -         */
    CT_TOKEN_BAD     /* `problem` says why                           */
} ct_token_kind;

typedef struct ct_token {
    ct_token_kind kind;
    const char *start;
    size_t length;
    int line, column; /* from 1; columns count bytes */
    const char *problem;
} ct_token;

typedef struct ct_lexer {
    const char *at, *end, *line_start;
    int line;
} ct_lexer;

/** Opens text[0..size), which stays the caller's; skips a UTF-8 byte order mark. */
void ct_lexer_open(ct_lexer *lex, const char *text, size_t size);
ct_token ct_lexer_next(ct_lexer *lex);

bool ct_token_is(const ct_token *token, char punct);
/** True where a name token reads `word`. */
bool ct_token_is_name(const ct_token *token, const char *word);
/** Appends a string token's bytes with its escapes resolved. NULL, or what is wrong with the
 *  escape that begins *offset_p bytes into the token. */
const char *ct_token_unescape(const ct_token *token, ct_text *out, size_t *offset_p);
/** Appends the token as a message quotes it: clipped, without control characters. */
void ct_token_show(const ct_token *token, ct_text *out);
/** Appends bytes in double quotes, clipped to a length fit for a message. */
void ct_text_add_quoted(ct_text *out, const char *bytes, size_t length);

/* ---- messages */

/** A message that is being read; they lie on the C stack, innermost first. */
typedef struct ct_frame {
    const struct ct_frame *parent;
    const ProtobufCMessageDescriptor *type;
    const char *field; /* what the parent calls it; NULL at the root        */
    int line, column;  /* of that name                                       */
    ct_token open;     /* "{" or "<"; no token at the root                   */
    ct_lexer body;     /* behind it: where a look ahead for the name begins  */
} ct_frame;

/** What a blob's name stands for behind a repeat: repeat.c. */
typedef struct ct_alias ct_alias;

enum { CT_MOST_HINTS = 64 };

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
    ct_alias *alias;
    int n_alias;
    int32_t repeat_count; /* of the text's only repeat, instead of its own; 0: as it says */
    int n_repeat;         /* that stand in the net itself */
    size_t n_copied;      /* layers that repeats made */
    uint64_t copied_bytes;
    bool hint[CT_MOST_HINTS]; /* fields of hints.c that were ignored */
} ct_prototxt_reader;

enum { CT_MAX_DEPTH = 100 };

void ct_prototxt_reader_next(ct_prototxt_reader *r);

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

/** Appends what may be meant by a field `word` of a message `type`, such as
 *  `; did you mean "kernel_size"?`. frame: of that message, or NULL. */
void ct_add_field_hint(ct_text *t, const ProtobufCMessageDescriptor *type, const ct_frame *frame,
                       const char *word);
/** Appends `; did you mean "MAX"?` or `; expected one of MAX, AVE`. */
void ct_add_enum_hint(ct_text *t, const ProtobufCEnumDescriptor *type, const char *word);

/** `message`, a field of `around` (NULL: the root), is read, and still the innermost one: expands
 *  a repeat, and has layers behind one read what it made. Does nothing for others. */
ct_status ct_repeat_closed(ct_prototxt_reader *r, ProtobufCMessage *around,
                           ProtobufCMessage *message);
/** Forgets what names of blobs stand for in a message that ends. NULL: in all, at the end. */
void ct_repeat_leave(ct_prototxt_reader *r, const ct_frame *scope);

/** The current token names a field that is unknown: where it is a fork's hint for its engines,
 *  skips it and its value, and sets *skipped_p. CT_ERR_CONFIG where the map refuses hints. */
ct_status ct_hint_skip(ct_prototxt_reader *r, bool *skipped_p);
/** Logs one line with the hints that were skipped; none without. */
void ct_hint_report(const ct_prototxt_reader *r);

/** Reads what stands behind a field's ":": a value or, of a repeated field, a list of them.
 *  line, column: where the field is named, for the source map. */
ct_status ct_prototxt_reader_values(ct_prototxt_reader *r, ProtobufCMessage *m,
                                    const ProtobufCFieldDescriptor *f, int line, int column);

#endif
