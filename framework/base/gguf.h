/** @file gguf.h  The container of GGUF files: keys with values, and tensors, all in the mapped
 * file.
 *
 * Versions 2 and 3, little-endian. Opening walks over all keys, values and tensors and checks them
 * against the file's size, so whatever a value or a tensor points to lies within the file. What
 * values mean is the caller's affair. Format:
 * https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 */
#ifndef CT_GGUF_H
#define CT_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "framework/base/file_map.h"
#include "framework/base/status.h"

/** Types of values, numbered as in the file. */
typedef enum ct_gguf_type {
    CT_GGUF_U8,
    CT_GGUF_I8,
    CT_GGUF_U16,
    CT_GGUF_I16,
    CT_GGUF_U32,
    CT_GGUF_I32,
    CT_GGUF_F32,
    CT_GGUF_BOOL,
    CT_GGUF_STRING,
    CT_GGUF_ARRAY,
    CT_GGUF_U64,
    CT_GGUF_I64,
    CT_GGUF_F64,
    CT_GGUF_N_TYPE
} ct_gguf_type;

/** A key's value. Of an array `item` is the elements' type, and count says how many there are. */
typedef struct ct_gguf_value {
    char *key;
    ct_gguf_type type, item; /* item == type and count == 1 where it is no array */
    uint64_t count;
    const uint8_t *data; /* the first element                                */
} ct_gguf_value;

enum { CT_GGUF_MAX_DIM = 4 };

/** ggml's numbers of element types, as far as we read them. */
typedef enum ct_gguf_dtype {
    CT_GGUF_DTYPE_F32 = 0,
    CT_GGUF_DTYPE_F16 = 1,
    CT_GGUF_DTYPE_Q4_0 = 2,
    CT_GGUF_DTYPE_Q4_1 = 3,
    CT_GGUF_DTYPE_Q5_0 = 6,
    CT_GGUF_DTYPE_Q5_1 = 7,
    CT_GGUF_DTYPE_Q8_0 = 8,
    CT_GGUF_DTYPE_BF16 = 30
} ct_gguf_dtype;

typedef struct ct_gguf_tensor {
    char *name;
    int n_dim;
    int64_t dim[CT_GGUF_MAX_DIM]; /* as in the file: the first runs fastest; 1 beyond n_dim */
    int64_t count;                /* elements                                               */
    uint32_t dtype;               /* a ct_gguf_dtype, or another number of ggml's           */
    const uint8_t *data;
    uint64_t bytes; /* 0: a type whose size we do not know; data is in the file nevertheless */
} ct_gguf_tensor;

typedef struct ct_gguf {
    char *path;
    ct_file_map map;
    uint32_t version;
    int64_t n_value, n_tensor;
    ct_gguf_value *value;
    ct_gguf_tensor *tensor;
} ct_gguf;

/** True where the file begins as GGUF does. */
bool ct_gguf_is(const char *path);
/** CT_ERR_IO: not there; CT_ERR_DATA, with the file and the key or tensor: damaged, or of a version
 *  that is not read. */
ct_status ct_gguf_open(const char *path, ct_gguf **g_p);
void ct_gguf_close(ct_gguf *g); /* NULL allowed */

/** NULL: there is no such key, or tensor. */
const ct_gguf_value *ct_gguf_find(const ct_gguf *g, const char *key);
const ct_gguf_tensor *ct_gguf_find_tensor(const ct_gguf *g, const char *name);
/** Element i of an integer or bool value or array; i < count. False: other elements, or a number
 *  beyond int64_t. */
bool ct_gguf_int(const ct_gguf_value *v, uint64_t i, int64_t *number_p);
/** The same as a float, also of integers. */
bool ct_gguf_float(const ct_gguf_value *v, uint64_t i, double *number_p);
/** The string at *at_p, which moves on to the next one; begin with at = v->data, v of strings, and
 *  ask v->count times at most. Not NUL-terminated. */
const char *ct_gguf_next_string(const uint8_t **at_p, size_t *length_p);
/** The value of a string key as a malloc'ed text. CT_ERR_DATA, with file and key: missing, no
 *  string, or one with a NUL. */
ct_status ct_gguf_text(const ct_gguf *g, const char *key, char **text_p);
/** "Q4_0", or "type 77": for messages. The text is in `room`, or static. */
const char *ct_gguf_dtype_name(uint32_t dtype, char room[16]);

#endif
