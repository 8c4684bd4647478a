/** @file words.h  A text as numbers of words, in an HDF5 file: `words`, one 32-bit integer each,
 * and `vocabulary`, bytes, the words by number, one a line. Made by `cortado convert text`.
 */
#ifndef CT_WORDS_H
#define CT_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "framework/base/status.h"
#include "framework/text/tokenizer.h" /* CT_WORD_END, CT_WORD_UNKNOWN */

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

/* ---- words and their numbers
 *
 * Numbers count from 0. While words are counted they are given in order of appearance;
 * ct_vocabulary_rank() renumbers by frequency.
 */

typedef struct ct_word {
    char *text;
    size_t length;
    int64_t count;
} ct_word;

typedef struct ct_vocabulary {
    ct_word *word; /* by number */
    int64_t n, room;
    int32_t *slot; /* hash table of numbers, -1: free */
    int64_t n_slot;
} ct_vocabulary;

void ct_vocabulary_destroy(ct_vocabulary *v); /* zeroed ones allowed */
/** The word's number, or -1. */
int32_t ct_vocabulary_find(const ct_vocabulary *v, const char *word, size_t length);
/** Counts a word, new or not; count 0 only makes it known. CT_ERR_NOMEM; CT_ERR_DATA: more words
 *  than numbers. */
ct_status ct_vocabulary_add(ct_vocabulary *v, const char *word, size_t length, int64_t count);
/** Renumbers, the most frequent first, equally frequent ones by their bytes, and keeps the first
 *  `most` (0: all); CT_WORD_END and CT_WORD_UNKNOWN always stay where they are known. */
ct_status ct_vocabulary_rank(ct_vocabulary *v, int64_t most);
/** Adds the words of text, one a line, in that order. `source` is for messages. CT_ERR_DATA: none,
 * a word twice, a space in one. */
ct_status ct_vocabulary_parse(ct_vocabulary *v, const char *text, size_t size, const char *source);

#endif
