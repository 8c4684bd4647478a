/** @file writer_private.h  The backends; private to framework/data. */
#ifndef CT_WRITER_PRIVATE_H
#define CT_WRITER_PRIVATE_H

#include "framework/data/writer.h"

extern const ct_writer_ops ct_writer_lmdb, ct_writer_hdf5;

/** CT_ERR_CONFIG, logged: unknown, or not built in. */
ct_status ct_writer_find(const char *backend, const ct_writer_ops **ops_p);
/** ct_writer_open() with ops that are no backend of their own. shards may be NULL. */
ct_status ct_writer_open_with(const ct_writer_ops *ops, const struct ct_shards *shards,
                              const char *path, int64_t expected, bool force, ct_writer **writer_p);

#endif
