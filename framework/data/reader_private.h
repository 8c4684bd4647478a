/** @file reader_private.h  The backends; private to framework/data. */
#ifndef CT_READER_PRIVATE_H
#define CT_READER_PRIVATE_H

#include "framework/data/reader.h"

extern const ct_reader_ops ct_reader_lmdb, ct_reader_hdf5, ct_reader_images, ct_reader_synthetic,
    ct_reader_windows;

/** CT_ERR_CONFIG, logged: unknown, or not built in. */
ct_status ct_reader_find(const char *backend, const char *who, const ct_reader_ops **ops_p);
/** A reader with nothing but its names and a zeroed state. CT_ERR_NOMEM, logged. */
ct_status ct_reader_create(const ct_reader_ops *ops, const char *who, const char *source,
                           ct_reader **reader_p);

#endif
