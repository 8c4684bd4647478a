/** @file text.h  Small helpers for messages and file formats. */
#ifndef CT_TEXT_H
#define CT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "framework/base/status.h"

/** A growing string; zero-initialise. text is NULL until something is added. */
typedef struct ct_text {
    char *text;
    size_t length, capacity;
    bool failed; /* an append ran out of memory; checked once at the end */
} ct_text;

/** Appends as printf() does. Where there is no memory, this and all others set t->failed, and what
 *  was there stays. */
void ct_text_add(ct_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/** Appends n bytes as they are; a NUL behind the last is not counted. */
void ct_text_add_bytes(ct_text *t, const char *bytes, size_t n);
/** Appends s as a JSON string with its quotes. */
void ct_text_add_json(ct_text *t, const char *s);
/** The same of n bytes, which may be NULL where n is 0. Whole characters stay as they
 * are, control characters are escaped, bytes that are no UTF-8 become U+FFFD. */
void ct_text_add_json_bytes(ct_text *t, const char *bytes, size_t n);
/** Appends a JSON number with 9 significant digits; null where v is not finite. */
void ct_text_add_number(ct_text *t, double v);
void ct_text_destroy(ct_text *t);

/** Whether `end` is the end of `text`, or all of it. */
bool ct_text_ends_with(const char *text, const char *end);

/** The candidate nearest to `word` by edit distance, or NULL when none is near enough to be
 *  meant (distance over a third of the word, at least 1). The result is one of the candidates. */
const char *ct_text_nearest(const char *word, const char *const *candidate, int n);
/** The same, with a distance of `most` at most, and of a third of the word. */
const char *ct_text_nearest_within(const char *word, const char *const *candidate, int n, int most);

#endif
