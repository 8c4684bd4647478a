/** @file job.h  The parallel job around a verb: start, a common end, a common failure,
 * and what its ranks share to read data. */
#ifndef CT_JOB_H
#define CT_JOB_H

#include <mpi.h>

#include "comm/core/comm.h"
#include "framework/base/option.h"
#include "framework/data/group.h"
#include "runtime/compute.h"
#include "runtime/watchdog.h"

typedef struct ct_job {
    int rank, size;
    char host[64];
    MPI_Comm node;              /* ranks of this host                                            */
    MPI_Comm agree;             /* for ct_job_fail alone: its messages meet no others            */
    ct_comm *comm;              /* NULL until ct_job_connect                                     */
    struct ct_data_group *data; /* how data is read together: data_group.h; NULL: each for itself */
    ct_threads threads;
    bool shares_gpu;       /* another rank of this host computes on the same one */
    bool told;             /* rank 0 said why the job fails: ct_job_share()                    */
    ct_watchdog *watchdog; /* of the start, set before ct_job_start(); may be NULL */
} ct_job;

/** MPI_Init_thread (SERIALIZED, FUNNELED will do), the log, the check of the launch
 * (CT_ERR_LAUNCH). Of the job the watchdog alone is set. Collective. */
ct_status ct_job_start(ct_job *job);
/** Decides the threads, logs the map. wanted: --threads, 0: not given. Collective. */
ct_status ct_job_threads(ct_job *job, int wanted);
/** The topology and communicators of comm/. Collective. */
ct_status ct_job_connect(ct_job *job, const char *topology);
/** status of rank 0 for everyone, for work that rank 0 does alone. Collective. */
ct_status ct_job_share(ct_job *job, ct_status status);
/** Rank 0's bytes (malloc'ed, *size_p) to everyone; the others get them malloc'ed. Collective. */
ct_status ct_job_broadcast(ct_job *job, void **data_p, size_t *size_p);
/** Ends a job that went well: MPI_Finalize. Collective. */
void ct_job_finish(ct_job *job);
/** Ends the whole job with the exit code of `status`, called by any rank at any moment. Ranks that
 *  fail within a few seconds of each other compare their error lines, and what rank 0 said is not
 *  said again. Does not return. */
void ct_job_fail(ct_job *job, ct_status status) __attribute__((noreturn));

/** The same for the watchdog: waits for no lock, and at most a second for a reader of stderr. */
void ct_deferred_errors_flush_now(void);

/* ---- framework/data/group.h over MPI: who reads for a node */

/** The group of a job: nodes are comm's, hosts (for stage) the real ones. one_reader: the solver's
 *  node_reader. stage: borrowed; NULL: data is read where it lies. Collective. */
ct_status ct_data_group_open(ct_comm *comm, bool one_reader, const char *stage,
                             ct_data_group **group_p);
void ct_data_group_close(ct_data_group *g); /* NULL allowed */

#endif
