/** @file split.h  Where tokenizers cut a text into pieces before they look for tokens.
 *
 * The patterns of OpenAI's and others' tokenizers are regular expressions; each is a function here.
 * A piece depends on what follows it, never on what stands in front of it, so splitting may begin
 * at any place where a piece ends.
 */
#ifndef CT_SPLIT_H
#define CT_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

typedef enum ct_split {
    CT_SPLIT_GPT2,
    CT_SPLIT_CL100K, /* tiktoken's: blanks at the text's very end are one piece */
    CT_SPLIT_LLAMA3, /* the same otherwise                                      */
    CT_SPLIT_QWEN2,  /* the same, digits one by one                             */
    CT_SPLIT_O200K,
    CT_SPLIT_DIGITS,      /* each number character, and what stands between them */
    CT_SPLIT_DIGIT_RUNS,  /* runs of them                                        */
    CT_SPLIT_DIGITS_BY_3, /* pieces of up to three of them                       */
    CT_SPLIT_BERT,        /* blanks, punctuation one by one, and words           */
    CT_SPLIT_N
} ct_split;

/** The end of the piece that begins at `at` < end; end is the end of the text. Pieces of all but
 *  CT_SPLIT_BERT make up the text. There those of blanks are to be left out. */
const uint8_t *ct_split_next(ct_split split, const uint8_t *at, const uint8_t *end);
/** Whether a piece of every text begins between a line feed and a letter. */
bool ct_split_ends_lines(ct_split split);
/** The split of a regular expression as it stands in tokenizer.json; false: not known. */
bool ct_split_of_regex(const char *regex, ct_split *split_p);

#endif
