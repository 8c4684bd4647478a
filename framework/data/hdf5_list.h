/** @file hdf5_list.h  Which files an HDF5 source means, and what is in one; private to
 * framework/data.
 */
#ifndef CT_HDF5_LIST_H
#define CT_HDF5_LIST_H

#include <hdf5.h>

#include "framework/base/status.h"

/** The files of a source: itself where it is an HDF5 file, else those that it lists, between
 * blanks. A listed name is taken as it stands, as in Caffe, else from the folder of the list.
 * *path_p and each of its *n_p names are freed by the caller. CT_ERR_IO, CT_ERR_DATA (none),
 * logged. */
ct_status ct_hdf5_list(const char *source, const char *who, char ***path_p, int *n_p);
/** CT_ERR_DATA, logged: the file has no data set `wanted`; says which it has and which may be
 * meant. The caller holds the lock of base/hdf5.h. */
ct_status ct_hdf5_no_set(hid_t file, const char *path, const char *wanted, const char *who);

#endif
