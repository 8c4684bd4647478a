/** @file disk_file.h  A file written front to back, hashed on the way, whole on disk or not there;
 *  private to framework/snapshot.
 */
#ifndef CT_SNAPSHOT_DISK_FILE_H
#define CT_SNAPSHOT_DISK_FILE_H

#include <stdbool.h>

#include "framework/base/hash.h"
#include "framework/base/status.h"
#include "framework/tensor/storage.h"
#include "framework/tensor/tensor.h"

typedef struct ct_disk_file {
    int fd;
    bool dry;   /* nothing is written, only counted and hashed */
    int64_t at; /* where the next bytes go */
    ct_hash hash;
    int error; /* errno of the first call that failed; what follows does nothing */
} ct_disk_file;

/** Makes the file as ct_file_create() does. Writing begins at byte `from`; an error is kept for
 * ct_disk_finish(). */
void ct_disk_open(ct_disk_file *d, const char *path, int64_t from);
/** Of a file that is only thought of: what follows makes its hash and size. */
void ct_disk_open_dry(ct_disk_file *d, int64_t from);
void ct_disk_add(ct_disk_file *d, const void *data, int64_t bytes);
/** Floats to be written: in host memory, or from float `from` of a storage on. */
typedef struct ct_disk_floats {
    const float *data; /* NULL: the storage's */
    ct_storage *storage;
    int64_t from;
} ct_disk_floats;

/** Those of a storage are written chunk by chunk. Errors are the storage's. */
ct_status ct_disk_add_floats(ct_disk_file *d, const ct_disk_floats *v, int64_t count);
/** Bytes at the very front, which are not hashed. */
void ct_disk_head(ct_disk_file *d, const void *data, int64_t bytes);
/** Syncs and closes. CT_ERR_IO, logged: nothing is left at path. */
ct_status ct_disk_finish(ct_disk_file *d, const char *path, uint64_t *hash_p, int64_t *size_p);
/** Closes and removes what was written so far. */
void ct_disk_drop(ct_disk_file *d, const char *path);

void ct_proto_number(ct_disk_file *d, uint64_t v);
/** Tag and length of a field of `bytes` bytes. */
void ct_proto_field(ct_disk_file *d, unsigned field, uint64_t bytes);
/** Bytes of such a field, tag and length counted. */
int64_t ct_proto_field_size(unsigned field, int64_t bytes);
/** A BlobProto { data shape }, and its bytes. */
int64_t ct_proto_blob_size(const ct_shape *shape);
ct_status ct_proto_blob(ct_disk_file *d, const ct_shape *shape, const ct_disk_floats *v);
/** Where in a packed message the fields above `field` begin: fields stand in order. */
size_t ct_proto_split(const uint8_t *message, size_t size, unsigned field);

#endif
