/** @file lexer.h  Tokens of the protobuf text format. Private to framework/proto.
 *
 * The lexer keeps no memory of its own: a token is a range of the text, and a copy of a lexer is
 * a place to look ahead from. What is wrong with the characters comes as a TOKEN_BAD that says so.
 */
#ifndef CT_PROTO_LEXER_H
#define CT_PROTO_LEXER_H

#include <stdbool.h>

#include "framework/base/text.h"

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

#endif
