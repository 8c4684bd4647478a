/** @file writer_private.h  The backends; private to framework/data. */
#ifndef CT_WRITER_PRIVATE_H
#define CT_WRITER_PRIVATE_H

#include "framework/data/writer.h"

extern const ct_writer_ops ct_writer_lmdb, ct_writer_hdf5;

#endif
