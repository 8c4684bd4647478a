/** @file run_folder.h  A folder with all that a training was and made: --run=DIR.
 *
 *   run.json           where it comes from: versions, command line, host, every field with its
 *                      origin, as in the metrics' run event
 *   solver.prototxt    the solver as it ran, its nets inside
 *   net.prototxt       the net that tests run
 *   deploy.prototxt    the net for use, where the net is one of samples
 *   log.txt            what rank 0 said
 *   metrics.jsonl      --metrics, unless that names another file
 *   snapshots/         snapshot_iter_N.…
 *
 * A link `latest` beside it leads to the run that began last.
 */
#ifndef CT_RUN_FOLDER_H
#define CT_RUN_FOLDER_H

#include "runtime/call.h"

/** The net that tests run. */
#define CT_RUN_NET "net.prototxt"
/** The net for use, with an Input: ct_net_make_deploy(). */
#define CT_RUN_DEPLOY "deploy.prototxt"

typedef struct ct_run_folder {
    char *path;   /* without a slash at its end, on rank 0; NULL: there is none */
    bool made;    /* by this run */
    bool goes_on; /* with a run that is there */
    int log;
} ct_run_folder;

/** Makes the folder of --run, which must not be there unless the run goes on with a snapshot or may
 *  overwrite; from here on the log goes there, too. Nothing where --run was not given. Collective,
 *  before ct_call_setup(). CT_ERR_CONFIG: it is there already, CT_ERR_IO. */
ct_status ct_run_folder_open(ct_call *call, ct_run_folder *f);
/** Writes what the run is, and the link. provenance: a JSON object. Collective. CT_ERR_IO. */
ct_status ct_run_folder_describe(ct_call *call, ct_run_folder *f, const ct_config *c,
                                 const char *provenance);
/** begun: the first step was reached; otherwise a folder that this run made is removed. */
void ct_run_folder_close(ct_run_folder *f, bool begun);

/** The best weights of a run's folder, or, where the run kept none as such, the newest. *file_p is
 *  malloc'ed; NULL: there are none. Rank 0 calls it. CT_ERR_IO, CT_ERR_NOMEM. */
ct_status ct_run_folder_weights(const char *folder, char **file_p);

/** For verbs that use a run: gives --weights the best weights of the folder of --run, or the newest
 *  where the run kept none as such, the average where there is one. Gives --model the file `net`
 *  there. Where the command line names others, those count. Nothing where --run was not given.
 *  Collective. CT_ERR_IO, logged: no run, no snapshot.
 */
ct_status ct_run_folder_take(ct_call *call, const char *net);

#endif
