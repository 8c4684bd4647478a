/** @file json_writer.h  JSON that is written bit by bit into a text: the one way to do so.
 *
 *      ct_text line = { 0 };
 *      ct_json_writer w = ct_json_into(&line);
 *
 *      ct_json_begin_object(&w, NULL);
 *      ct_json_add_text(&w, "net", "LeNet");
 *      ct_json_begin_list(&w, "step_ms");
 *      ct_json_add_number(&w, NULL, 1.25);
 *      ct_json_end(&w);
 *      ct_json_end(&w);                         {"net":"LeNet","step_ms":[1.25]}
 *
 * The writer sets commas, colons and brackets, and no blanks. `key` is the name of a member of an
 * object; it is NULL for an element of a list, and for the value that is the whole text. NaN and
 * infinity, which JSON lacks, are null. Members keep their order, and nothing looks for doubles.
 *
 * Misuse is an error of the program: a member without a key, an element with one, a second value
 * where one is whole, an end where nothing is open. It is logged, and sets the text's `failed`, as
 * a lack of memory does: the caller looks at it once, at the end.
 */
#ifndef CT_JSON_WRITER_H
#define CT_JSON_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "framework/base/text.h"

enum { CT_JSON_MOST_DEPTH = 63 };

/** The position in a text. A copy of it is another position; use one. */
typedef struct ct_json_writer {
    ct_text *to;     /* the caller's */
    uint64_t lists;  /* bit d: what is open at depth d is a list */
    int depth, base; /* what is open now; what was at the start */
    bool more;       /* something stands before the next value */
    bool breaks;     /* a line break goes before what comes next */
} ct_json_writer;

/** Appends one value to a text. */
ct_json_writer ct_json_into(ct_text *to);
/** Appends members of an object without its braces: another writer takes them, by
 *  ct_json_add_members(). The text is empty. */
ct_json_writer ct_json_members_into(ct_text *to);

void ct_json_begin_object(ct_json_writer *w, const char *key);
void ct_json_begin_list(ct_json_writer *w, const char *key);
/** Ends the object or list that was begun last. */
void ct_json_end(ct_json_writer *w);

/** s is UTF-8; NULL is written as null. Bytes that are no UTF-8 become U+FFFD. */
void ct_json_add_text(ct_json_writer *w, const char *key, const char *s);
/** A string of n bytes, which may be NULL where n is 0. */
void ct_json_add_bytes(ct_json_writer *w, const char *key, const char *bytes, size_t n);
/** A string of bytes as base64. */
void ct_json_add_base64(ct_json_writer *w, const char *key, const void *bytes, size_t n);
/** A string of 16 hexadecimal digits. */
void ct_json_add_hash(ct_json_writer *w, const char *key, uint64_t hash);
void ct_json_add_integer(ct_json_writer *w, const char *key, int64_t v);
void ct_json_add_unsigned(ct_json_writer *w, const char *key, uint64_t v);
/** 9 significant digits: what a float needs to come back. */
void ct_json_add_number(ct_json_writer *w, const char *key, double v);
/** `digits` significant digits; 17 bring a double back. */
void ct_json_add_digits(ct_json_writer *w, const char *key, double v, int digits);
/** `decimals` digits behind the point, 0 for a whole number. */
void ct_json_add_decimals(ct_json_writer *w, const char *key, double v, int decimals);
void ct_json_add_bool(ct_json_writer *w, const char *key, bool v);
void ct_json_add_null(ct_json_writer *w, const char *key);

/** A value that is JSON already. */
void ct_json_add_made(ct_json_writer *w, const char *key, const char *json);
/** Members that ct_json_members_into() collected; NULL or "": none. */
void ct_json_add_members(ct_json_writer *w, const char *members);
/** What comes next, a value or an end, begins a line: files that people read, too. */
void ct_json_break(ct_json_writer *w);

#endif
