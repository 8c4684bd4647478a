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

void ct_text_add(ct_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ct_text_add_bytes(ct_text *t, const char *bytes, size_t n);
/** Appends s as a JSON string with its quotes. */
void ct_text_add_json(ct_text *t, const char *s);
/** Appends a JSON number with 9 significant digits; null where v is not finite. */
void ct_text_add_number(ct_text *t, double v);
void ct_text_destroy(ct_text *t);

bool ct_text_ends_with(const char *text, const char *end);
/** What follows the last slash. */
const char *ct_path_base(const char *path);

/** The candidate nearest to `word` by edit distance, or NULL when none is near enough to be
 *  meant (distance over a third of the word, at least 1). The result is one of the candidates. */
const char *ct_text_nearest(const char *word, const char *const *candidate, int n);

/** Reads a whole file; *data_p is NUL-terminated beyond *size_p and freed by the caller with
 *  free(). Errors: CT_ERR_IO, logged with the reason. */
ct_status ct_file_read(const char *path, char **data_p, size_t *size_p);
/** The same of a file that people write, or that describes something: beyond CT_MOST_SETTINGS bytes
 *  CT_ERR_DATA, logged, and nothing is read. */
ct_status ct_settings_read(const char *path, char **data_p, size_t *size_p);
#define CT_MOST_SETTINGS ((int64_t)256 << 20)
/** Appends PATH.WORD.PROCESS-HOST: the number of this process, and 32 bits of a hash of its host's
 *  name, so that other processes, also on other hosts, call their files otherwise. */
void ct_path_add_own(ct_text *t, const char *path, const char *word);
/** Makes a file under a temporary name and opens it to write. What has the name already, a link or
 *  what a killed process left, is removed and never written through. -1, NULL: errno says why. */
int ct_file_create(const char *path);
FILE *ct_file_create_stream(const char *path);
/** CT_ERR_IO, logged, where ct_file_write() would fail for want of the folder or of rights: asked
 *  before the work whose result is to be written. */
ct_status ct_file_check_writable(const char *path);
/** Writes a file whole or not at all: a temporary name, flush, fsync, rename. CT_ERR_IO. */
ct_status ct_file_write(const char *path, const void *data, size_t size);

#endif
