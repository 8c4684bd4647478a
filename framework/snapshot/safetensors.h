/** @file safetensors.h  The container .safetensors: a length of 8 bytes, a JSON object with dtype,
 * shape and range of bytes of each tensor, and the bytes. Files of one part, and those in shards
 * that a model.safetensors.index.json names. Source: the README of huggingface/safetensors.
 *
 * Nothing that a file says is believed. The header lies within the file, and each range within what
 * follows it. A range is as long as shape and dtype say, no two overlap, and no byte is without a
 * tensor. Private to framework/snapshot.
 */
#ifndef CT_SNAPSHOT_SAFETENSORS_H
#define CT_SNAPSHOT_SAFETENSORS_H

#include <jansson.h>

#include "framework/snapshot/disk_file.h"
#include "framework/snapshot/named_tensor.h"

/** By its name, or by its first bytes: a length that could be, and the brace of the header. */
bool ct_safetensors_is(const char *file);
/** Whether the file begins as JSON does, as an index of shards. */
bool ct_safetensors_is_index(const char *file);

/** Adds the tensors of a file. metadata_p: its __metadata__, for json_decref(); NULL where there is
 *  none. CT_ERR_IO, CT_ERR_DATA. */
ct_status ct_safetensors_read(const char *path, ct_tensor_set *s, json_t **metadata_p);
/** Adds the tensors of all shards that the index names, which lie beside it. CT_ERR_IO,
 *  CT_ERR_DATA. */
ct_status ct_safetensors_read_index(const char *path, ct_tensor_set *s);

/** A tensor to be written, of f32. */
typedef struct ct_safetensors_entry {
    char *name;
    ct_shape shape;
} ct_safetensors_entry;

typedef struct ct_safetensors_source {
    int n;
    const ct_safetensors_entry *entry;
    json_t *metadata; /* an object of texts; NULL: none */
    /** Appends the values of entry k. */
    ct_status (*put)(void *ctx, int k, ct_disk_file *d);
    void *ctx;
} ct_safetensors_source;

/** Writes path itself, synced. CT_ERR_IO, CT_ERR_NOMEM, what put returns. */
ct_status ct_safetensors_write(const char *path, const ct_safetensors_source *from,
                               uint64_t *hash_p, int64_t *size_p);

#endif
