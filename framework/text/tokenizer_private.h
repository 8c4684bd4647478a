/** @file tokenizer_private.h  What a tokenizer is made of. Private to framework/text. */
#ifndef CT_TOKENIZER_PRIVATE_H
#define CT_TOKENIZER_PRIVATE_H

#include "framework/text/split.h"
#include "framework/text/token_table.h"
#include "framework/text/tokenizer.h"

typedef enum ct_tokenizer_model {
    CT_MODEL_BYTES,      /* ids are bytes                                */
    CT_MODEL_BPE,        /* begins with bytes                            */
    CT_MODEL_CHARS,      /* BPE without merges, begins with characters   */
    CT_MODEL_WORD_PIECE, /* the longest piece that the table has, again and again */
    CT_MODEL_WORDS       /* whole words and ends of lines: word_list.c           */
} ct_tokenizer_model;

/** One of a tokenizer's splits, one after the other. */
typedef struct ct_split_step {
    ct_split split;    /* CT_SPLIT_N: none              */
    bool prefix_blank; /* a blank in front of each piece that has none, before the split */
} ct_split_step;

/** What is done to a text first, in this order. */
typedef enum ct_normal_step {
    CT_NORMAL_NFC,
    CT_NORMAL_NFD,
    CT_NORMAL_LOWER,
    CT_NORMAL_STRIP_MARKS,  /* leaves out marks of all kinds: Hugging Face's StripAccents */
    CT_NORMAL_BERT_ACCENTS, /* leaves out non-spacing ones                             */
    CT_NORMAL_BERT_CLEAN,   /* control characters out, white space becomes a blank       */
    CT_NORMAL_BERT_CJK      /* blanks around ideographs                                  */
} ct_normal_step;

/** A token that is looked for in the text before anything else. */
typedef struct ct_added_token {
    uint8_t *text; /* normalised where normalised is set; text[n] = 0 */
    char *name;    /* as the file has it                              */
    size_t n;
    int32_t id;
    int shorter; /* the longest other one that this text begins with, of those behind
                    ct_tokenizer_finish(); of equal ones the next; -1: none                 */
    bool special, left_blanks, right_blanks, single_word, normalised;
} ct_added_token;

enum { CT_MAX_STEPS = 8 };

struct ct_tokenizer {
    char *source;
    ct_tokenizer_model model;
    ct_token_table table; /* bytes of tokens; WordPiece: with "##"          */
    ct_merges merges;
    int32_t byte_id[256]; /* -1: none                                       */
    int32_t end;          /* -1: none                                       */
    int32_t unknown;      /* WordPiece's [UNK], CT_WORD_UNKNOWN; -1: none   */
    int32_t line_end;     /* of words: CT_WORD_END                          */
    int64_t max_chars;    /* of a word of WordPiece                         */
    char *prefix;         /* of its pieces within a word: "##"              */
    bool whole_pieces;    /* a piece that is a token is not merged anew     */
    int n_step, n_form;
    ct_split_step step[CT_MAX_STEPS];
    ct_normal_step form[CT_MAX_STEPS];
    int n_added, room_added;
    ct_added_token *added;
};

ct_status ct_tokenizer_create(const char *source, ct_tokenizer **t_p);
/** Takes a token with its id into the table, and into those that are looked for. Its text is
 *  normalised by ct_tokenizer_finish(). */
ct_status ct_tokenizer_add(ct_tokenizer *t, const ct_added_token *token);
/** To be called once all is set: finds the end token where `end` is -1, and readies what encoding
 *  looks up. */
ct_status ct_tokenizer_finish(ct_tokenizer *t);
/** text through all forms, appended. */
void ct_tokenizer_normalise(const ct_tokenizer *t, const uint8_t *text, size_t n, ct_text *to);

/** The byte that a character of GPT-2's alphabet of printable characters stands for, or -1. */
int ct_byte_of_char(uint32_t c);
uint32_t ct_char_of_byte(uint8_t byte);
/** The bytes of a token in that alphabet, appended; text that has other characters as it is. */
void ct_bytes_of_alphabet(const char *text, size_t n, ct_text *to);

/** Of CT_MODEL_WORDS: the words of text[n] to `sink`, and a word behind those of `to`. */
ct_status ct_word_list_encode(const ct_tokenizer *t, const uint8_t *text, size_t n,
                              const char *source, ct_ids_sink sink, void *ctx);
void ct_word_list_add(const ct_tokenizer *t, int32_t id, ct_text *to);

/** Readers of the file formats; t is empty but for its source. */
ct_status ct_tokenizer_read_json(ct_tokenizer *t, const char *text, size_t n);
ct_status ct_tokenizer_read_ranks(ct_tokenizer *t, const char *text, size_t n, const char *pattern);
ct_status ct_tokenizer_read_gguf(ct_tokenizer *t);

#endif
