/** @file set_files.h  The files of snapshot sets: names, listing, committing, removing; private to
 *  framework/snapshot, but for the directories.
 */
#ifndef CT_SNAPSHOT_SET_FILES_H
#define CT_SNAPSHOT_SET_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/base/status.h"

struct ct_snapshot_state;

#define CT_SET_WEIGHTS        "caffemodel.h5"
#define CT_SET_AVERAGE        "average.caffemodel.h5"
#define CT_SET_BINARY         "caffemodel" /* this and the next two with snapshot_format BINARYPROTO */
#define CT_SET_AVERAGE_BINARY "average.caffemodel"
#define CT_SET_CAFFE          "solverstate" /* for Caffe; CT_SET_STATE is there all the same */
#define CT_SET_STATE          "solverstate.h5"
#define CT_SET_TEMP           ".tmp" /* behind the final name while a file is being written */

/** Makes the directories in front of the last '/' of prefix. CT_ERR_IO. */
ct_status ct_set_directories(const char *prefix);
/** "PREFIX_iter_N.SUFFIX", malloc'ed; NULL without memory. */
char *ct_set_path(const char *prefix, int64_t iteration, const char *suffix);
/** The directory of path, with base put into it; malloc'ed; NULL without memory. */
char *ct_path_beside(const char *path, const char *base);
/** path + CT_SET_TEMP, malloc'ed; NULL without memory. */
char *ct_path_temp(const char *path);

typedef struct ct_set_entry {
    int64_t iteration;
    bool committed; /* its solverstate is there, whatever that holds */
} ct_set_entry;

/** The sets of prefix, and what unfinished ones left, latest iteration first. *list_p is malloc'ed.
 *  No directory: no sets. CT_ERR_IO where it cannot be read, CT_ERR_NOMEM. */
ct_status ct_set_list(const char *prefix, ct_set_entry **list_p, int *n_p);
/** Removes the temporary files that killed runs left. */
void ct_set_clean(const char *prefix);
/** The weights of a set, their average where it has one; *file_p is malloc'ed, or NULL where the
 * set is damaged or not there, which is said. */
ct_status ct_set_weights(const char *prefix, int64_t iteration, char **file_p);
/** Removes the set of an iteration, whole. */
void ct_set_remove(const char *prefix, int64_t iteration);
/** state is of the newest set. Removes committed sets of earlier iterations so that `keep` remain
 *  with that one and the best that it spares. Also removes rank files of its own from n_rank on.
 *  keep <= 0: all stay. */
void ct_set_prune(const char *prefix, const struct ct_snapshot_state *state, int keep,
                  int n_rank_file);
/** Renames temp to path and syncs the directory. CT_ERR_IO: there is no file `temp` any more. */
ct_status ct_file_commit(const char *temp, const char *path);

#endif
