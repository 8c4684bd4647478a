/** @file record_index.h  Where each record of a data set lies, kept in a file beside the set.
 *
 * One index a data set, whatever the number of its files: made once by a walk over the keys,
 * written whole under another name and renamed, read by everyone else. It names the size, the time
 * of change and the entries of each file that it was made from; where these differ it is made anew,
 * and where its checksum does not fit, too. Where the folder cannot be written it stays in memory.
 */
#ifndef CT_RECORD_INDEX_H
#define CT_RECORD_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/base/status.h"

/** What tells whether a file is still the one that was indexed. */
typedef struct ct_file_stamp {
    int64_t size, mtime_s, mtime_ns, entries;
} ct_file_stamp;

/** Records in the order of the set's samples. */
typedef struct ct_record_index {
    int64_t count, n_file;
    int64_t largest, bytes; /* of one record, of all */
    ct_file_stamp *file;    /* [n_file] */
    int64_t *offset;        /* [count] in its file */
    uint32_t *size;         /* [count] */
} ct_record_index;

typedef enum { CT_INDEX_GOOD, CT_INDEX_ABSENT, CT_INDEX_STALE, CT_INDEX_CORRUPT } ct_index_state;

/** Room for count records of n_file files. CT_ERR_NOMEM, logged. */
ct_status ct_record_index_create(ct_record_index *x, int64_t count, int64_t n_file);
void ct_record_index_release(ct_record_index *x);
/** Fills largest and bytes. */
void ct_record_index_sum(ct_record_index *x);

/** Reads the index of exactly x->n_file files with the stamps x->file and x->count records into x,
 *  which create() made. What it returns is no error: *bytes_p are what was read. Every record of a
 *  good index lies inside its file: of record i file_of(ctx, i). */
ct_index_state ct_record_index_load(ct_record_index *x, const char *path,
                                    int64_t (*file_of)(const void *ctx, int64_t i), const void *ctx,
                                    int64_t *bytes_p);
/** False, with errno, where it cannot be kept there; then nothing is left behind. Quiet. */
bool ct_record_index_save(const ct_record_index *x, const char *path);

#endif
