/** @file h5.h  HDF5 files, written so that a full disk is an error and not a crash; private to
 *  framework/snapshot.
 *
 * HDF5 1.10 cannot close a file whose writes failed, and the process dies at exit. So the library
 * lays a file out in a sparse memory file, where arrays take no space. Our own code writes the
 * bytes to disk, arrays straight from where they lie, and hashes them on the way.
 *
 * Every function takes the HDF5 lock itself. Paths inside a file are absolute ("/data/ip1/0");
 * groups on the way are made.
 */
#ifndef CT_SNAPSHOT_H5_H
#define CT_SNAPSHOT_H5_H

#include <stddef.h>

#include "framework/base/text.h"
#include "framework/tensor/storage.h"
#include "framework/tensor/tensor.h"

#define CT_H5_HEAD 512 /* bytes in front of the HDF5 part where a file has a head line */

typedef struct ct_h5_writer ct_h5_writer;

/** head: room for CT_H5_HEAD bytes of our own in front. */
ct_status ct_h5_writer_create(bool head, ct_h5_writer **w_p);
void ct_h5_writer_destroy(ct_h5_writer *w); /* NULL allowed */
/** An f32 array; data (host memory) is borrowed until ct_h5_writer_finish(). */
ct_status ct_h5_put_floats(ct_h5_writer *w, const char *path, const ct_shape *shape,
                           const float *data);
/** Likewise, from float `from` of a storage on, which is borrowed. It is read range by range while
 *  the file is written. */
ct_status ct_h5_put_stored(ct_h5_writer *w, const char *path, const ct_shape *shape,
                           ct_storage *storage, int64_t from);
ct_status ct_h5_put_doubles(ct_h5_writer *w, const char *path, const double *v, int64_t n);
ct_status ct_h5_put_int(ct_h5_writer *w, const char *path, int64_t v);
ct_status ct_h5_put_text(ct_h5_writer *w, const char *path, const char *text);
/** A string attribute of the file. */
ct_status ct_h5_put_attribute(ct_h5_writer *w, const char *name, const char *text);
/** Writes the file and syncs it. *hash_p: of all bytes, less the head where there is one; the head
 *  then is the line "TITLE HASH". *size_p: of the whole file. CT_ERR_IO: nothing is left at path.
 */
ct_status ct_h5_writer_finish(ct_h5_writer *w, const char *path, const char *title,
                              uint64_t *hash_p, int64_t *size_p);

/** What ct_h5_writer_finish() will find, without a file. Arrays must not change from here on, and
 *  nothing is added. path: for messages. */
ct_status ct_h5_writer_foresee(ct_h5_writer *w, const char *path, uint64_t *hash_p,
                               int64_t *size_p);

typedef struct ct_h5_reader ct_h5_reader;

/** CT_ERR_IO where the file cannot be opened or is not HDF5. why: takes the text of errors, of this
 *  and later calls, which are not logged then; NULL: they are logged. */
ct_status ct_h5_reader_create(const char *path, ct_text *why, ct_h5_reader **r_p);
void ct_h5_reader_destroy(ct_h5_reader *r); /* NULL allowed */
/** The hash of a file's bytes from `from` on, and its size. CT_ERR_IO, not logged. */
ct_status ct_h5_file_hash(const char *path, int64_t from, uint64_t *hash_p, int64_t *size_p);
/** True where path names an HDF5 file. */
bool ct_h5_is_hdf5(const char *path);
bool ct_h5_has(ct_h5_reader *r, const char *path);
/** All of these: CT_ERR_DATA where the object is missing, of another kind or size, or larger than
 *  the file can hold. */
ct_status ct_h5_get_shape(ct_h5_reader *r, const char *path, ct_shape *shape_p);
ct_status ct_h5_get_floats(ct_h5_reader *r, const char *path, int64_t count, float *data);
/** Floats [from, from + count) of an array of this shape; both are whole rows of
 *  ct_h5_row_floats(). */
ct_status ct_h5_get_rows(ct_h5_reader *r, const char *path, const ct_shape *shape, int64_t from,
                         int64_t count, float *data);
/** What one step along the first axis of more than one element is apart: parts of an array are read
 *  by such rows. */
int64_t ct_h5_row_floats(const ct_shape *shape);
ct_status ct_h5_get_doubles(ct_h5_reader *r, const char *path, int64_t capacity, double *v,
                            int64_t *n_p);
ct_status ct_h5_get_int(ct_h5_reader *r, const char *path, int64_t *v_p);
/** A number from least to most. */
ct_status ct_h5_get_count(ct_h5_reader *r, const char *path, int64_t least, int64_t most,
                          int64_t *v_p);
/** One string of a fixed length; *text_p is malloc'ed. */
ct_status ct_h5_get_text(ct_h5_reader *r, const char *path, char **text_p);
/** Calls visit for every array below group, by its path without "GROUP/", in name order; stops at
 *  the first status that is not CT_OK. */
ct_status ct_h5_visit(ct_h5_reader *r, const char *group,
                      ct_status (*visit)(void *ctx, const char *path), void *ctx);

/* ---- named arrays as one HDF5 file: what `cortado extract` writes */

typedef struct ct_named_array {
    const char *name; /* of the data set; a '/' in it makes a group */
    ct_shape shape;
    const float *data;
} ct_named_array;

/** Writes the file whole or not at all. Uniform byte order, f32. CT_ERR_IO, CT_ERR_NOMEM. */
ct_status ct_array_file_write(const char *path, const ct_named_array *array, int n);

/** Appends a name as one part of a path: %2F, %2E and %25 in place of slashes, points and %. */
void ct_h5_add_escaped(ct_text *t, const char *name);

#endif
