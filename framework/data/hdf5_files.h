/** @file hdf5_files.h  The files of an HDF5 set: which there are, opening and closing them, their
 * rows. Private to framework/data. The process-wide lock is held in every call but
 * ct_hdf5_read_list().
 */
#ifndef CT_HDF5_FILES_H
#define CT_HDF5_FILES_H

#include <hdf5.h>

#include "framework/data/reader_private.h"

typedef struct ct_hdf5_file {
    char *path;
    int64_t first, rows;
    bool open;
    hid_t file, set[CT_MAX_FIELD];
} ct_hdf5_file;

typedef struct ct_hdf5_state {
    ct_hdf5_file *file;
    int n_file, n_open, next_closed;
    char *name[CT_MAX_FIELD];
    bool u8;                 /* field 0 is of bytes in every file */
    void *ram[CT_MAX_FIELD]; /* whole fields, or NULL              */
} ct_hdf5_state;

static inline size_t ct_hdf5_value_size(const ct_hdf5_state *s, int field)
{
    return ((field == 0) && s->u8) ? 1 : sizeof(float);
}

/** The files that r->source names, or lists. Logged, as all errors here but ct_hdf5_read_rows()'s.
 */
ct_status ct_hdf5_read_list(ct_reader *r);
/** What a file has of every field, and how many rows. */
ct_status ct_hdf5_scan_file(ct_reader *r, int index);
/** Opens it, if it is not open, and closes another where too many are. */
ct_status ct_hdf5_open_file(const ct_reader *r, ct_hdf5_file *f);
void ct_hdf5_close_file(ct_hdf5_state *s, ct_hdf5_file *f, int n_field);
/** Rows [first, first + n) of one field of an open file. */
ct_status ct_hdf5_read_rows(const ct_reader *r, ct_hdf5_file *f, int field, int64_t first,
                            int64_t n, void *to, ct_why *why);
/** All rows of all files into memory. */
ct_status ct_hdf5_load_all(ct_reader *r);

#endif
