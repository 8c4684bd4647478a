/** @file vocabulary.h  Words and their numbers; private to framework/data.
 *
 * Numbers count from 0. While words are counted they are given in order of appearance;
 * ct_vocabulary_rank() renumbers by frequency.
 */
#ifndef CT_VOCABULARY_H
#define CT_VOCABULARY_H

#include <stddef.h>
#include <stdint.h>

#include "framework/base/status.h"

#define CT_WORD_END     "<eos>" /* stands at the end of every line      */
#define CT_WORD_UNKNOWN "<unk>" /* stands for words that have no number */

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
