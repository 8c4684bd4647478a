/** @file named_tensor.h  Tensors by name in mapped files of others' making, and their values as
 * f32.
 *
 * What .safetensors and GGUF have in common: names, shapes with the last axis running fastest, and
 * values in one of a few forms. For readers of such files.
 */
#ifndef CT_SNAPSHOT_NAMED_TENSOR_H
#define CT_SNAPSHOT_NAMED_TENSOR_H

#include <stdint.h>

#include "framework/base/file_map.h"
#include "framework/tensor/tensor.h"

/** How values lie in a file. Q…: blocks of 32 that share a scale, and Q4_1 a least value, as ggml's
 *  block_q4_0, block_q4_1 and block_q8_0. */
typedef enum {
    CT_VALUES_OTHER, /* of a known size, but no weights: integers and the like */
    CT_VALUES_F32,
    CT_VALUES_F16,
    CT_VALUES_BF16,
    CT_VALUES_F64,
    CT_VALUES_Q4_0,
    CT_VALUES_Q4_1,
    CT_VALUES_Q8_0
} ct_value_form;

typedef struct ct_named_tensor {
    char *name; /* owned */
    ct_value_form form;
    char type[16]; /* as the file calls it */
    ct_shape shape;
    const uint8_t *data; /* within a mapped file; need not be aligned */
    uint64_t size;       /* bytes */
} ct_named_tensor;

typedef struct ct_tensor_set {
    const char *file; /* for messages; borrowed */
    int n_tensor, capacity;
    ct_named_tensor *tensor;        /* in the file's order                             */
    const ct_named_tensor **sorted; /* by name, once ct_tensor_set_sort() was called */
    int n_map, map_capacity;
    ct_file_map *map;
} ct_tensor_set;

/** Maps one more file, which lives as long as the set. CT_ERR_IO. */
ct_status ct_tensor_set_map(ct_tensor_set *s, const char *path, const ct_file_map **map_p);
/** Takes a copy of the name; the rest as it is. CT_ERR_NOMEM. */
ct_status ct_tensor_set_add(ct_tensor_set *s, const char *name, const ct_named_tensor *t);
/** When all are there: makes them be found by name. CT_ERR_DATA where one is there twice. */
ct_status ct_tensor_set_sort(ct_tensor_set *s);
/** The tensor of that name ; -1: none. */
int ct_tensor_set_find(const ct_tensor_set *s, const char *name);
/** Names of 1 to 512 bytes without control characters: others' lines stay whole. */
bool ct_tensor_name_is_plain(const char *name);
void ct_tensor_set_destroy(ct_tensor_set *s); /* zeroed ones allowed */

/** CT_ERR_DATA, logged, where two of the tensors from number `first` on share bytes. */
ct_status ct_tensor_set_check_overlap(const ct_tensor_set *s, int first);

/** Bytes of n values; 0: n is no multiple of the form's block, or it has no fixed size. */
uint64_t ct_value_form_bytes(ct_value_form form, uint64_t n);
/** All values as f32. Its form is not CT_VALUES_OTHER. */
void ct_named_tensor_read(const ct_named_tensor *t, float *out);

#endif
