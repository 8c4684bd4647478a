/** @file npy.h  Heads of NumPy's .npy arrays; private to framework/snapshot.
 */
#ifndef CT_SNAPSHOT_NPY_H
#define CT_SNAPSHOT_NPY_H

#include <stddef.h>

#include "framework/tensor/tensor.h"

enum { CT_NPY_HEAD_MAX = 1024 /* bytes of the longest head that is known */ };

typedef struct ct_npy {
    ct_shape shape;
    size_t head;  /* bytes in front of the values */
    size_t item;  /* 4 or 8 bytes a value         */
    bool fortran; /* the first index runs fastest */
} ct_npy;

/** The head at the start of `size` bytes; false where it is broken, or of values that are no
 *  little-endian floats. */
bool ct_npy_read_head(const uint8_t *bytes, size_t size, ct_npy *npy);
/** Values as floats, the last index fastest. */
void ct_npy_values(const ct_npy *npy, const uint8_t *values, float *out);
/** A head of float32 with room for CT_NPY_HEAD_MAX; returns its bytes. */
int64_t ct_npy_write_head(const ct_shape *shape, uint8_t *head);

#endif
