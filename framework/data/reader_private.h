/** @file reader_private.h  The backends; private to framework/data. */
#ifndef CT_READER_PRIVATE_H
#define CT_READER_PRIVATE_H

#include "framework/data/reader.h"

extern const ct_reader_ops ct_reader_lmdb, ct_reader_hdf5, ct_reader_images, ct_reader_synthetic,
    ct_reader_windows;

#endif
