/** @file caffe_state.h  Caffe's own solver states: binary (.solverstate) and HDF5; private to
 *  framework/snapshot.
 *
 * Caffe keeps the histories without names: by learnable parameter, in the order of the layers and
 * of their blobs (a shared weight once, statistics and rates of 0 too); solvers with two have first
 * those of all parameters, then the second ones of all.
 */
#ifndef CT_SNAPSHOT_CAFFE_STATE_H
#define CT_SNAPSHOT_CAFFE_STATE_H

#include "framework/snapshot/snapshot.h"

/** True where the file is not one of ours. */
bool ct_caffe_state_is(const char *file);
/** Weights (from its learned_net), histories, iteration and step; the rest of state stays as it is.
 *  CT_ERR_IO, CT_ERR_DATA. */
ct_status ct_caffe_state_read(const char *file, ct_net *net, ct_snapshot_state *state);
/** The binary form, of the rule's own histories. Writes path itself, synced. */
ct_status ct_caffe_state_write(const char *path, const char *learned_net, const ct_net *net,
                               const ct_snapshot_state *state, uint64_t *hash_p, int64_t *size_p);

#endif
