/** @file weights.h  Weights of a net to a file and back, for sets; private to framework/snapshot.
 */
#ifndef CT_SNAPSHOT_WEIGHTS_H
#define CT_SNAPSHOT_WEIGHTS_H

#include "framework/snapshot/model.h"

/** Writes path itself (a temporary name), synced. learned: in place of the learned weights, in the
 *  order of the gradient arena; may be NULL. provenance may be NULL. */
ct_status ct_weights_write(const char *path, const ct_net *net, const float *learned,
                           const ct_model_format *format, const char *provenance, uint64_t *hash_p,
                           int64_t *size_p);
/** Reads all weights of net, statistics too; the file must fit exactly. CT_ERR_DATA with the list
 *  of what does not; net is untouched then. */
ct_status ct_weights_read(const char *path, ct_net *net);

#endif
