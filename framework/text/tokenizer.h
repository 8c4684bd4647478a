/** @file tokenizer.h  Texts as ids of tokens, and back.
 *
 * A tokenizer comes from a file, known by its bytes: a tokenizer.json of Hugging Face (byte-level
 * BPE, WordPiece, or characters), a rank file of tiktoken, a GGUF's vocabulary. Or it is `bytes`,
 * whose ids are the bytes. It never changes once it is open, so any number of threads may use it.
 *
 * Byte-level tokenizers take any bytes and give them back. What is no UTF-8 is, to their splits, a
 * symbol. Ids are those of the program that made the file, without what it adds around a text.
 */
#ifndef CT_TOKENIZER_H
#define CT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "framework/base/status.h"
#include "framework/base/text.h"

typedef struct ct_tokenizer ct_tokenizer;

/** Opens a file, or "bytes". pattern: where the file is one of ranks, what it splits by: "gpt2",
 *  "cl100k", "o200k" or "llama3"; else NULL. CT_ERR_CONFIG: a pattern that is missing, unknown or
 *  given in vain; CT_ERR_IO, CT_ERR_DATA with the file and its line or key. */
ct_status ct_tokenizer_open(const char *what, const char *pattern, ct_tokenizer **t_p);
void ct_tokenizer_close(ct_tokenizer *t); /* NULL allowed */

#define CT_WORD_END     "<eos>" /* stands at the end of every line      */
#define CT_WORD_UNKNOWN "<unk>" /* stands for words that have no number */

/** The words of a list, one a line, whose ids are their lines from 0 on. A text is words between
 *  blanks, and CT_WORD_END for the end of a line. A last line without one has not ended yet. Words
 *  that the list has not are CT_WORD_UNKNOWN, where that is one. source: its name in messages.
 *  Nothing ends a text. CT_ERR_DATA, with the line: a word twice, a blank in one, no CT_WORD_END.
 */
ct_status ct_tokenizer_words(const char *list, size_t size, const char *source, ct_tokenizer **t_p);

/** Ids are less than that. Some may have no token. */
int64_t ct_tokenizer_size(const ct_tokenizer *t);
/** The file, or "bytes", for messages. */
const char *ct_tokenizer_source(const ct_tokenizer *t);
bool ct_tokenizer_has(const ct_tokenizer *t, int32_t id);
/** The id that ends a text, or -1: the eos_token of a tokenizer_config.json beside the file, or
 *  tokenizer.ggml.eos_token_id, or a special token of a usual name. */
int32_t ct_tokenizer_end(const ct_tokenizer *t);
/** Names of special tokens: i in [0, ct_tokenizer_n_special()). */
int ct_tokenizer_n_special(const ct_tokenizer *t);
const char *ct_tokenizer_special(const ct_tokenizer *t, int i, int32_t *id_p);
/** The id of the special token of that name; -1: there is none. */
int32_t ct_tokenizer_find_special(const ct_tokenizer *t, const char *name);
/** Whether decoding what was encoded gives the same bytes, whatever they are. */
bool ct_tokenizer_is_exact(const ct_tokenizer *t);

/** A growing list of ids; zero-initialise. */
typedef struct ct_ids {
    int32_t *id;
    int64_t n, room;
} ct_ids;

void ct_ids_destroy(ct_ids *ids); /* zeroed ones allowed */
/** Room for `room` ids in all, so that adding so many does not fail. CT_ERR_NOMEM, logged. */
ct_status ct_ids_reserve(ct_ids *ids, int64_t room);
ct_status ct_ids_add(ct_ids *ids, const int32_t *id, int64_t n);

/** Takes ids in their order. */
typedef ct_status (*ct_ids_sink)(void *ctx, const int32_t *id, int64_t n);

/** Gives the ids of text[n] to `sink`, piece by piece. special: names of special tokens become
 * their ids; else they are text. source: the text's name in messages. Uses the threads of the team;
 * the ids are the same with any number. CT_ERR_DATA, with the line, where something has no token.
 */
ct_status ct_tokenizer_encode_to(const ct_tokenizer *t, const char *text, size_t n, bool special,
                                 const char *source, ct_ids_sink sink, void *ctx);
/** The same, appended to ids. */
ct_status ct_tokenizer_encode(const ct_tokenizer *t, const char *text, size_t n, bool special,
                              const char *source, ct_ids *ids);
/** Appends the bytes of ids[n]. Where ct_tokenizer_is_exact(), parts one after the other give what
 *  the whole gives. WordPiece, and words: a blank between two. CT_ERR_DATA: an id without a token.
 */
ct_status ct_tokenizer_decode(const ct_tokenizer *t, const int32_t *ids, int64_t n, ct_text *to);

/** Trains byte-level BPE on the text: 256 bytes, merges of the most frequent pair until there are
 *  n - 1 tokens, and <|endoftext|>; GPT-2's split. Of equally frequent pairs the one of lower ids.
 *  Fewer merges where no pair is left. CT_ERR_CONFIG: n below 257. */
ct_status ct_tokenizer_train(const char *text, size_t size, int64_t n, ct_tokenizer **t_p);
/** A text and its name in messages. */
typedef struct ct_named_text {
    const char *text, *source;
    size_t n;
} ct_named_text;

/** A tokenizer of the characters of n texts, by code point. CT_ERR_DATA, with the line: no UTF-8,
 * or a byte of value 0. */
ct_status ct_tokenizer_chars(const ct_named_text *text, int n, ct_tokenizer **t_p);
/** Writes what these two made as a tokenizer.json, which Hugging Face loads. */
ct_status ct_tokenizer_write(const ct_tokenizer *t, const char *path);

#endif
