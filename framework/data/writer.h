/** @file writer.h  Writes a data set: all of it under its final name, or nothing.
 *
 * A writer works under a temporary name beside the target and renames at the commit. Backends are
 * listed in writer.c.
 */
#ifndef CT_WRITER_H
#define CT_WRITER_H

#include "framework/data/sample.h"

/** One record to be written. */
typedef struct ct_record {
    const char *key;       /* LMDB: records are read in the order of their keys              */
    const uint8_t *values; /* planes of bytes, channels x height x width; or a compressed image */
    size_t n;
    bool encoded;
    int channels;
    int64_t height, width;
    int label;
    const float *box; /* rows of boxes (augment/boxes.h): an AnnotatedDatum; NULL: a Datum. LMDB */
    int64_t n_box;
} ct_record;

typedef struct ct_writer ct_writer;

typedef struct ct_writer_ops {
    const char *name;
    /** Creates w->temporary. */
    ct_status (*open)(ct_writer *w);
    ct_status (*put)(ct_writer *w, const ct_record *record);
    /** Writes what waits in memory; NULL: nothing does. */
    ct_status (*flush)(ct_writer *w);
    /** Everything on disk, and closed. */
    ct_status (*finish)(ct_writer *w);
    void (*close)(ct_writer *w); /* frees; also after a failure half way */
    size_t state_size;
} ct_writer_ops;

struct ct_writer {
    const ct_writer_ops *ops;
    char *path, *temporary;
    int64_t expected, count; /* records to come, records put */
    bool force;
    bool single;                    /* LMDB: a file by itself, not a folder with data.mdb */
    const struct ct_shards *shards; /* while a striped set is opened   */
    void *state;
};

typedef struct ct_writer_entry {
    const char *name;
    const ct_writer_ops *ops; /* NULL: not built in */
    const char *without;
} ct_writer_entry;

extern const ct_writer_entry ct_writer_table[]; /* ends with name NULL */

/** Starts a data set of exactly `expected` records at path. force: an existing one is replaced at
 *  the commit; without it CT_ERR_CONFIG. CT_ERR_IO where nothing can be made there. Logged. */
ct_status ct_writer_open(const char *backend, const char *path, int64_t expected, bool force,
                         ct_writer **writer_p);
/** A striped set (stripes.h) of n_file LMDB files, in stripes of `stripe` records or a few more (0:
 *  1024, or what gives each file one); fewer files where there are fewer stripes. CT_ERR_CONFIG. */
ct_status ct_writer_open_shards(const char *path, int64_t expected, bool force, int64_t n_file,
                                int64_t stripe, ct_writer **writer_p);
/** CT_ERR_IO: a full disk, …; CT_ERR_DATA: a record that does not fit the others (HDF5). Logged. */
ct_status ct_writer_put(ct_writer *w, const ct_record *record);
/** Syncs and renames. Frees w in any case; where it fails nothing is left behind. */
ct_status ct_writer_commit(ct_writer *w);
/** Removes what was written, and frees. NULL allowed. */
void ct_writer_abort(ct_writer *w);

/** CT_ERR_CONFIG, logged, where path exists and force is false. What killed jobs left is removed
 *  first (ct_path_remove_leftovers()). */
ct_status ct_path_check_free(const char *path, bool force);

/* ---- the backends */

extern const ct_writer_ops ct_writer_lmdb, ct_writer_hdf5;

/** CT_ERR_CONFIG, logged: unknown, or not built in. */
ct_status ct_writer_find(const char *backend, const ct_writer_ops **ops_p);
/** ct_writer_open() with ops that are no backend of their own. shards may be NULL. */
ct_status ct_writer_open_with(const ct_writer_ops *ops, const struct ct_shards *shards,
                              const char *path, int64_t expected, bool force, ct_writer **writer_p);

#endif
