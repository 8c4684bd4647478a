/** @file hdf5.h  One thread at a time in the HDF5 library, and arrays checked before they are read.
 *
 * Distributions build HDF5 without thread safety, and its state belongs to the process: readers'
 * prefetch threads and a snapshot in the main thread would meet in it. Whoever calls H5… holds this
 * lock. It may be taken again by the thread that holds it.
 */
#ifndef CT_HDF5_H
#define CT_HDF5_H

#include <hdf5.h>
#include <stdbool.h>
#include <stdint.h>

/** Takes the lock, and keeps HDF5 from printing its own error stack: callers report failures. */
void ct_hdf5_lock(void);
void ct_hdf5_unlock(void);

/* ---- What an HDF5 file says of an array, checked before memory is taken for it.
 *
 * A file may be broken or forged, so nothing that it says of itself is believed. An array has at
 * most CT_HDF5_MAX_DIM axes, its elements can be counted, and the file is long enough to hold them.
 * The caller holds the lock.
 */

enum { CT_HDF5_MAX_DIM = 8, CT_HDF5_WHY = 128 };

typedef struct ct_hdf5_array {
    H5T_class_t kind;
    bool is_text;   /* a string of a fixed length  */
    bool is_bytes;  /* unsigned, of 8 bits         */
    bool elsewhere; /* the values lie in other files */
    int64_t item;   /* bytes of one element, as stored */
    int n_dim;
    int64_t dim[CT_HDF5_MAX_DIM];
    int64_t count; /* elements */
} ct_hdf5_array;

/** Opens a regular file to read it, without file locks, which not every parallel file system has.
 *  Negative: it is no regular file, or no HDF5 file, or truncated. */
hid_t ct_hdf5_open(const char *path);
/** How links are followed: not into other files. Closed with H5Pclose(). */
hid_t ct_hdf5_link_access(void);
/** Opens any object of this file. Negative: there is none. */
hid_t ct_hdf5_open_object(hid_t group, const char *name);
/** Opens a data set whose values lie in this file. Negative: it is not there, and why is "", or a
 *  link, a virtual set or external storage names other files, and why continues its name. */
hid_t ct_hdf5_open_set(hid_t file, const char *name, char why[CT_HDF5_WHY]);
/** Likewise, in other files, too. Links lead into regular ones alone, since the library would wait
 *  for ever at a pipe. Negative: there is none. */
hid_t ct_hdf5_open_set_anywhere(hid_t file, const char *name);
/** What a data set is. False: it cannot be read safely, and why says the reason, which continues
 *  the name of the data set ("has 9 dimensions, …"). */
bool ct_hdf5_look(hid_t set, ct_hdf5_array *a_p, char why[CT_HDF5_WHY]);
/** Likewise, and the elements must be integers or floats. */
bool ct_hdf5_look_numbers(hid_t set, ct_hdf5_array *a_p, char why[CT_HDF5_WHY]);
/** Whether the file may hold so many bytes of the values: it is as long, or compressed. by_chunk:
 *  count the chunks that are there, which takes a look at each. Else the whole file counts. */
bool ct_hdf5_holds(hid_t set, const ct_hdf5_array *a, int64_t bytes, bool by_chunk,
                   char why[CT_HDF5_WHY]);

/* ---- Data sets of the HDF5 files that conversions write; private to framework/data */

/** A data set of this shape without the time of its making: equal content gives equal bytes.
 *  Negative: failed. The caller holds the lock of base/hdf5.h. */
hid_t ct_hdf5_make_set(hid_t file, const char *name, hid_t type, int ndim, const hsize_t *dim);

#endif
