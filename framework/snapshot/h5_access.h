/** @file h5_access.h  What h5_write.c and h5_read.c share; the only header that shows HDF5's types.
 */
#ifndef CT_SNAPSHOT_H5_ACCESS_H
#define CT_SNAPSHOT_H5_ACCESS_H

#include <hdf5.h>

/** A file access list without file locks: not every parallel file system has them. The caller holds
 *  the HDF5 lock and closes the list. */
hid_t ct_h5_access(void);

#endif
