/** @file zip.h  As much of the zip format as .npz files need: stored and deflated entries are read,
 *  stored ones written. Not encrypted, not split over files. APPNOTE.TXT, version 6.3.
 */
#ifndef CT_SNAPSHOT_ZIP_H
#define CT_SNAPSHOT_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"

typedef struct ct_zip ct_zip;

typedef struct ct_zip_entry {
    char *name;
    uint64_t size;   /* of the content              */
    uint64_t packed; /* of the same in the file     */
    uint64_t offset; /* of its local header         */
    uint32_t crc;
    int method; /* 0 stored, 8 deflated             */
} ct_zip_entry;

/** True where the file begins as a zip file does. */
bool ct_zip_is(const char *path);
/** Reads the directory at the end. CT_ERR_IO, CT_ERR_DATA. */
ct_status ct_zip_open(const char *path, ct_zip **z_p);
void ct_zip_close(ct_zip *z); /* NULL allowed */
int ct_zip_count(const ct_zip *z);
const ct_zip_entry *ct_zip_at(const ct_zip *z, int i);
/** The first n bytes of the content, n at most its size. CT_ERR_DATA. */
ct_status ct_zip_read(ct_zip *z, const ct_zip_entry *e, uint8_t *out, size_t n);
/** Whether the whole content has the checksum that the file says. */
bool ct_zip_sound(const ct_zip_entry *e, const uint8_t *content);

typedef struct ct_zip_writer ct_zip_writer;

ct_status ct_zip_create(const char *path, ct_zip_writer **z_p);
/** An entry of head and data, one behind the other. CT_ERR_DATA beyond 4 GiB. */
ct_status ct_zip_put(ct_zip_writer *z, const char *name, const void *head, int64_t head_bytes,
                     const void *data, int64_t data_bytes);
/** The same with an array of floats in it, as .npz files have them; name: with its ".npy", which
 *  NumPy does not show. */
ct_status ct_npz_put(ct_zip_writer *z, const char *name, const ct_shape *shape,
                     const float *values);
/** Writes the directory, where status is CT_OK, syncs and frees the writer. Otherwise nothing is
 *  left on disk and status is returned. */
ct_status ct_zip_finish(ct_zip_writer *z, ct_status status, uint64_t *hash_p, int64_t *size_p);

#endif
