/** @file disk_file.h  A file written front to back, hashed on the way, whole on disk or not there;
 *  private to framework/snapshot.
 */
#ifndef CT_SNAPSHOT_DISK_FILE_H
#define CT_SNAPSHOT_DISK_FILE_H

#include "framework/base/hash.h"
#include "framework/base/status.h"

typedef struct ct_disk_file {
    int fd;
    int64_t at; /* where the next bytes go */
    ct_hash hash;
    int error; /* errno of the first call that failed; what follows does nothing */
} ct_disk_file;

/** Makes the file as ct_file_create() does. Writing begins at byte `from`; an error is kept for
 * ct_disk_finish(). */
void ct_disk_open(ct_disk_file *d, const char *path, int64_t from);
void ct_disk_add(ct_disk_file *d, const void *data, int64_t bytes);
/** Bytes at the very front, which are not hashed. */
void ct_disk_head(ct_disk_file *d, const void *data, int64_t bytes);
/** Syncs and closes. CT_ERR_IO, logged: nothing is left at path. */
ct_status ct_disk_finish(ct_disk_file *d, const char *path, uint64_t *hash_p, int64_t *size_p);
/** Closes and removes what was written so far. */
void ct_disk_drop(ct_disk_file *d, const char *path);

#endif
