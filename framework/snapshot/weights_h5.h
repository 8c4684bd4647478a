/** @file weights_h5.h  Weights in Caffe's HDF5 layout, for sets and for single files; private to
 *  framework/snapshot.
 */
#ifndef CT_SNAPSHOT_WEIGHTS_H5_H
#define CT_SNAPSHOT_WEIGHTS_H5_H

#include "framework/net/net.h"

/** Writes path itself (a temporary name), synced. provenance may be NULL. */
ct_status ct_weights_write_h5(const char *path, const ct_net *net, const char *provenance,
                              uint64_t *hash_p, int64_t *size_p);
/** Reads all weights of net, statistics too; the file must fit exactly. CT_ERR_DATA with the list
 *  of what does not; net is untouched then. */
ct_status ct_weights_read_h5(const char *path, ct_net *net);

#endif
