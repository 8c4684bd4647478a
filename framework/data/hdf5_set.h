/** @file hdf5_set.h  Data sets of the HDF5 files that conversions write; private to framework/data.
 */
#ifndef CT_HDF5_SET_H
#define CT_HDF5_SET_H

#include <hdf5.h>

/** A data set of this shape without the time of its making: equal content gives equal bytes.
 *  Negative: failed. The caller holds the lock of base/hdf5.h. */
hid_t ct_hdf5_make_set(hid_t file, const char *name, hid_t type, int ndim, const hsize_t *dim);

#endif
