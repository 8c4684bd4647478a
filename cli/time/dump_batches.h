/** @file dump_batches.h  What data layers give, written down in the order of the global batch. */
#ifndef CT_DUMP_BATCHES_H
#define CT_DUMP_BATCHES_H

#include "framework/exchange/group.h"
#include "framework/net/net.h"

/** Batches 0 to n_batch - 1 of the data layers of a net, which is all it has, as NumPy's .npz: an
 *  array "TOP/BATCH" for each top that a data set fills, with the samples of all ranks of g in the
 *  order of their places in the global batch. Collective over g; rank 0 writes the file, whole or
 *  not at all. CT_ERR_CONFIG: more than such a file holds; what the layers fail with. */
ct_status ct_dump_batches(const ct_group *g, ct_pass *pass, int64_t n_batch, const char *file);

#endif
