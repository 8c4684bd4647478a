/** @file hdf5_lock.h  One thread at a time in the HDF5 library.
 *
 * Distributions build HDF5 without thread safety, and its state belongs to the process: readers'
 * prefetch threads and a snapshot in the main thread would meet in it. Whoever calls H5… holds this
 * lock. It may be taken again by the thread that holds it.
 */
#ifndef CT_HDF5_LOCK_H
#define CT_HDF5_LOCK_H

/** Takes the lock, and keeps HDF5 from printing its own error stack: callers report failures. */
void ct_hdf5_lock(void);
void ct_hdf5_unlock(void);

#endif
