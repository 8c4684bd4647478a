/** @file array_file.h  Named arrays as one HDF5 file: what `cortado extract` writes. */
#ifndef CT_ARRAY_FILE_H
#define CT_ARRAY_FILE_H

#include "framework/tensor/tensor.h"

typedef struct ct_named_array {
    const char *name; /* of the data set; a '/' in it makes a group */
    ct_shape shape;
    const float *data;
} ct_named_array;

/** Writes the file whole or not at all. Uniform byte order, f32. CT_ERR_IO, CT_ERR_NOMEM. */
ct_status ct_array_file_write(const char *path, const ct_named_array *array, int n);

#endif
