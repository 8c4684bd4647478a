/** @file words.h  A text as numbers of words, in an HDF5 file: `words`, one 32-bit integer each,
 * and `vocabulary`, bytes, the words by number, one a line. Made by `cortado convert text`.
 */
#ifndef CT_WORDS_H
#define CT_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "framework/base/status.h"

typedef struct ct_words {
    char *path;
    int64_t count;        /* words                            */
    int64_t n_vocabulary; /* numbers are in [0, n_vocabulary) */
} ct_words;

/** Reads the sizes; `who` stands in front of messages. CT_ERR_IO: not there, not HDF5; CT_ERR_DATA:
 *  not such a file. */
ct_status ct_words_open(const char *path, const char *who, ct_words *w);
void ct_words_close(ct_words *w); /* zeroed ones allowed */
/** Words [first, first + n) of the text. CT_ERR_DATA where a number is not in the vocabulary. */
ct_status ct_words_read(const ct_words *w, const char *who, int64_t first, int64_t n, int32_t *to);
/** The vocabulary, one word a line; malloc'ed. */
ct_status ct_words_vocabulary(const ct_words *w, char **text_p, size_t *size_p);
/** Writes a file, whole or not at all. */
ct_status ct_words_write(const char *path, const int32_t *word, int64_t n, const char *vocabulary,
                         size_t vocabulary_size);

#endif
