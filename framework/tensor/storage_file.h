/** @file storage_file.h  A storage in a file: chunks that come into a ring of buffers and go back.
 *
 * A chunk that is wanted is read, unless it is there already; what was changed is written back
 * while the next chunks are worked on. Chunks are wanted in nearly the same order in each step, so
 * the storage reads ahead what followed the last time. On the CPU; a range lies in one chunk
 * (ct_storage_together()).
 */
#ifndef CT_STORAGE_FILE_H
#define CT_STORAGE_FILE_H

#include "framework/base/async_io.h"
#include "framework/tensor/storage.h"

/** What storages of one process have in common. */
typedef struct ct_storage_files {
    const char *folder; /* borrowed */
    ct_io *io;          /* borrowed */
    int64_t chunk;      /* floats that move at once; 0: 1 Mi. Rounded up to pages */
    int ahead;          /* chunks that are read ahead; 0: 12                     */
    bool checksum;      /* each chunk is looked at when it comes back            */
    /* of all that are open */
    int64_t file_bytes;    /* in files        */
    int64_t read, written; /* bytes, so far   */
    double waited_s;       /* for reads and writes, so far */
    bool direct;           /* past the page cache */
} ct_storage_files;

/** What one of `count` floats takes: bytes of its file, and of the ring in memory. Of files chunk
 * and ahead are read. */
void ct_storage_file_size(const ct_storage_files *files, int64_t count, int64_t *file_p,
                          int64_t *ring_p);
/** A ct_storage_open_fn; ctx: a ct_storage_files, which outlives it. CT_ERR_IO, CT_ERR_NOMEM. */
ct_status ct_storage_open_file(void *ctx, const ct_device *dev, int64_t count, ct_storage *s_p);

#endif
