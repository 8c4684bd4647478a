/** @file lmdb_file.h  The data file of an LMDB, read without the library: where each record lies.
 *
 * Nothing is locked, mapped or written, so any number of processes on any file system may do it,
 * and a file that is cut off or damaged is an error message instead of a signal. Nobody may write
 * to it meanwhile. The layout is LMDB 0.9's (data format version 1) of 64-bit machines: two meta
 * pages, of which the one with the newer transaction counts; a B+ tree of branch and leaf pages;
 * values of more than about half a page on overflow pages of their own, in one piece.
 */
#ifndef CT_LMDB_FILE_H
#define CT_LMDB_FILE_H

#include <stdint.h>
#include <stdbool.h>
#include <stddef.h>

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

#endif
