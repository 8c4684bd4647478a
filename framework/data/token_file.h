/** @file token_file.h  A text as one stream of token ids in a `.bin` file, mapped.
 *
 * Three forms are known by their first bytes:
 *  - raw little-endian ids of 16 or 32 bits and nothing else, as `cortado convert text` and nanoGPT
 *    write them;
 *  - llm.c's GPT-2 form: 256 32-bit numbers (20240520, version 1, tokens, zeros), ids of 16 bits;
 *  - llm.c's Llama-3 form: the same with 20240801 and version 7, ids of 32 bits.
 */
#ifndef CT_TOKEN_FILE_H
#define CT_TOKEN_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/base/file_map.h"
#include "framework/base/status.h"

typedef struct ct_token_file {
    char *path;
    ct_file_map map;
    const uint8_t *ids; /* the first token                       */
    int width;          /* bytes of a token, 2 or 4              */
    bool has_head;      /* llm.c's; else raw                     */
    int64_t count;      /* tokens                                */
} ct_token_file;

/** Bytes of a token where ids are less than n_vocabulary: 2, or 4 above 65 536 ids. */
int ct_token_width(int64_t n_vocabulary);
/** Opens a file. width: of a raw one, from ct_token_width(), or 0 where the vocabulary is not
 *  known. Then the ids tell: the file has 32 bits where each of the first 2^20 numbers, read so, is
 *  less than 2^21, and one of them more than 2^8. CT_ERR_IO: not there; CT_ERR_DATA: a size that
 *  does not fit, or a head that promises other than follows. */
ct_status ct_token_file_open(const char *path, int width, ct_token_file *f_p);
void ct_token_file_close(ct_token_file *f); /* zeroed ones allowed */
/** Copies tokens [offset, offset + count) to `to`. CT_ERR_ARG beyond the end; CT_ERR_DATA, with the
 *  token's place, where an id is above 2^31 - 1. */
ct_status ct_token_file_get(const ct_token_file *f, int64_t offset, int64_t count, int32_t *to);
/** The first token whose id is at least n_vocabulary, or -1: none. Reads the whole file. */
int64_t ct_token_file_find_large(const ct_token_file *f, int64_t n_vocabulary);
/** Writes raw ids of `width` bytes, whole or not at all. CT_ERR_IO, CT_ERR_NOMEM. */
ct_status ct_token_file_write(const char *path, const int32_t *id, int64_t n, int width);

/** The same, piece by piece. */
typedef struct ct_token_writer ct_token_writer;

ct_status ct_token_writer_open(const char *path, int width, ct_token_writer **w_p);
/** An error is kept for ct_token_writer_close(). */
void ct_token_writer_add(ct_token_writer *w, const int32_t *id, int64_t n);
/** Gives the file its name where `status` is CT_OK and all was written; else nothing is left. Frees
 *  w. Returns status, or CT_ERR_IO. */
ct_status ct_token_writer_close(ct_token_writer *w, ct_status status);

#endif
