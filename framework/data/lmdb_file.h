/** @file lmdb_file.h  The data file of an LMDB, read without the library: where each record lies.
 *
 * Nothing is locked, mapped or written, so any number of processes on any file system may do it. A
 * file that is cut off or damaged is an error message instead of a signal. Nobody may write to it
 * meanwhile. The layout is LMDB 0.9's (data format version 1) of 64-bit machines: two meta pages,
 * of which the one with the newer transaction counts; a B+ tree of branch and leaf pages; values of
 * more than about half a page on overflow pages of their own, in one piece.
 */
#ifndef CT_LMDB_FILE_H
#define CT_LMDB_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "framework/base/status.h"

typedef struct ct_lmdb_file {
    int fd;                 /* open for reading */
    const char *who, *path; /* borrowed: in front of messages */
    int64_t size, page;     /* bytes: of the file, of a page */
    int64_t n_page;         /* that are in use               */
    int64_t entries;        /* of the main database          */
    uint64_t root;          /* page of the tree's root; UINT64_MAX: empty */
    int64_t bytes_read;     /* by ct_lmdb_walk() and ct_lmdb_look() */
} ct_lmdb_file;

typedef struct ct_lmdb_entry {
    const char *key; /* not terminated; valid during the visit */
    size_t key_size;
    int64_t offset, size; /* of the value in the file; inside it */
} ct_lmdb_entry;

/** Reads the meta pages of an open file. CT_ERR_IO: cut off, damaged, of another kind; logged, here
 *  and by the walk, unless who is NULL. The caller closes fd. */
ct_status ct_lmdb_look(int fd, const char *path, const char *who, ct_lmdb_file *f);
/** Visits all entries in the order of their keys; a visit that does not return CT_OK ends the walk
 *  with its status. Reads branch and leaf pages, no overflow pages. CT_ERR_IO, logged. */
ct_status ct_lmdb_walk(ct_lmdb_file *f, ct_status (*visit)(void *ctx, const ct_lmdb_entry *e),
                       void *ctx);
/** Reads exactly n bytes at `at`. False: errno, or 0 where the file ends before. */
bool ct_read_at(int fd, void *to, size_t n, int64_t at);

/* ---- where each record of a data set lies, kept in a file beside the set.
 *
 * One index a data set, whatever the number of its files: made once by a walk over the keys,
 * written whole under another name and renamed, read by everyone else. It names the size, the time
 * of change and the entries of each file that it was made from; where these differ it is made anew,
 * and where its checksum does not fit, too. Where the folder cannot be written it stays in memory.
 */

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
