/** @file job.h  The parallel job around a verb: start, a common end, a common failure,
 * and what its ranks share to read data. */
#ifndef CT_JOB_H
#define CT_JOB_H

#include <mpi.h>
#include <stddef.h>

#include "comm/core/comm.h"
#include "framework/base/option.h"
#include "framework/base/status.h"
#include "framework/data/group.h"
#include "runtime/compute.h"
#include "runtime/failure_notice.h"

typedef struct ct_watchdog ct_watchdog;

/* ---- the groups of a job: framework/exchange/group.h over comm/ */

typedef struct ct_group_mpi {
    ct_comm *comm;                /* borrowed                                            */
    bool reproducible;            /* sums of floats as comm/collective/repro.h has them  */
    const ct_device_sum_ops *lib; /* that adds up a device's numbers; NULL: none         */
    void *library;                /* its group                                           */
} ct_group_mpi;

/** The group of a communicator's ranks. comm and reproducible are set. */
void ct_group_mpi_open(ct_group_mpi *g, ct_group *out);
/** lib opens its group, too, of whose id rank 0 tells the others. Collective. */
ct_status ct_group_mpi_take(ct_group_mpi *g, const ct_device *dev, const ct_device_sum_ops *lib,
                            ct_group *out);
void ct_group_mpi_close(ct_group_mpi *g);
/** As ct_group_agree(), of the first rank that failed; whoever did not fail logs what that one
 * said. first_rank: the job's number of c's rank 0, behind which the others follow. Collective over
 * c. */
ct_status ct_job_agree(ct_comm *c, int first_rank, ct_status mine);

/** Whoever needs other ranks asks one of these. Until ct_job_connect() they know rank and size. */
typedef struct ct_job_groups {
    ct_group job;  /* every rank: stops, errors, what rank 0 reads and writes for everyone     */
    ct_group data; /* the replicas that share this rank's gradients and batch, and what follows
                      from that: statistics, checksums, metrics. Today every rank              */
    ct_group node; /* those of `data` on this node: they read data together                    */
} ct_job_groups;

/* ---- the job */

typedef struct ct_job {
    int rank, size;
    char host[64];
    MPI_Comm node;      /* ranks of this host                                            */
    MPI_Comm of;        /* all its ranks; MPI_COMM_NULL: this process alone, without MPI */
    MPI_Comm agree;     /* for what ranks say of errors: its messages meet no others     */
    ct_comm *comm;      /* of group.job; NULL until ct_job_connect                       */
    ct_comm *data_comm; /* of group.data                                                 */
    ct_job_groups group;
    ct_group_mpi group_mpi[3]; /* behind those                                                  */
    struct ct_data_group *reading; /* how data is read together: group.h; NULL: each for itself */
    ct_threads threads;
    struct ct_team_wait *team_wait; /* NULL: threads wait as their OpenMP has it */
    bool shares_gpu;                /* another rank of this host computes on the same one */
    double gpu_bytes;               /* that this rank's GPU has; 0: it computes on the CPU */
    bool told;             /* rank 0 said why the job fails: ct_job_share()                    */
    ct_watchdog *watchdog; /* of the start, set before ct_job_start(); may be NULL */
    ct_failure_notice *failure; /* where nobody ends the job; NULL: none */
} ct_job;

/** Whether a launcher of MPI jobs started this process; before MPI_Init. */
bool ct_job_is_launched(void);
/** MPI_Init_thread (SERIALIZED, FUNNELED will do), the log, the check of the launch
 * (CT_ERR_LAUNCH). Of the job the watchdog alone is set. Collective. */
ct_status ct_job_start(ct_job *job);
/** The same on a communicator that others made: no MPI_Init, no log, no check of the launch. `of`
 *  may be freed when this returns. MPI_COMM_NULL: this process alone, and MPI is never called.
 *  ct_job_leave() ends it, in case of errors too. Collective. CT_ERR_ARG where MPI does not run, or
 *  not as is needed. */
ct_status ct_job_join(ct_job *job, MPI_Comm of);
/** Frees what the job has; MPI goes on. Collective. */
void ct_job_leave(ct_job *job);
static inline bool ct_job_has_mpi(const ct_job *job)
{
    return job->of != MPI_COMM_NULL;
}
/** Decides the threads, logs the map. wanted: --threads, 0: not given. Collective. */
ct_status ct_job_threads(ct_job *job, int wanted);
/** The topology, the communicators of comm/ and the groups; verify: as ct_comm_verify().
 *  Collective. */
ct_status ct_job_connect(ct_job *job, const char *topology, bool verify);
/** The groups of a job whose comm and data_comm are set, as ct_job_connect() does. Collective. */
ct_status ct_job_open_groups(ct_job *job);
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

/** Nodes are those of the job's data group, hosts (for stage) the real ones. one_reader: the
 * solver's node_reader. stage: borrowed; NULL: data is read where it lies. The job outlives it. */
ct_status ct_data_group_open(const ct_job *job, bool one_reader, const char *stage,
                             ct_data_group **group_p);
void ct_data_group_close(ct_data_group *g); /* NULL allowed */

/* ---- the watchdog: a thread that ends the job when a rank makes no progress.
 *
 * It starts in main, before MPI does. The main thread says what it does: at each stage of the start
 * and at every step (ct_watchdog_beat). Where it falls silent for the limit, the watchdog writes
 * one line with rank and host, what ran, and what the gradient exchange waits for. It leaves with
 * exit code 6, which makes the launcher end the job. At half the limit it warns. It calls no MPI,
 * its lines wait at most a second for a reader of stderr, and it goes by the monotonic clock. It
 * also answers SIGUSR2 with the same line.
 */

/** Fills text with what the rank waits for; called from the watchdog's thread. */
typedef void (*ct_watchdog_describe)(void *ctx, char *text, size_t size);

/** seconds 0: never ends the job, still answers SIGUSR2. */
ct_status ct_watchdog_start(double seconds, ct_watchdog **w_p);
void ct_watchdog_stop(ct_watchdog *w); /* NULL allowed */
/** Another limit from now on: that of the start ends, that of the steps begins. w may be NULL. */
void ct_watchdog_limit(ct_watchdog *w, double seconds);
/** Progress; ctx is the watchdog, or NULL: fits ct_solver_options.heartbeat. `what` is copied. */
void ct_watchdog_beat(void *ctx, const char *what);
/** What the last beat said, for the line of a crash: readable while the watchdog lives. */
const char *ct_watchdog_what(const ct_watchdog *w);
/** Who can tell what the rank waits for; NULL: nobody (before it is destroyed). w may
 *  be NULL. */
void ct_watchdog_watch(ct_watchdog *w, ct_watchdog_describe describe, void *ctx);

#endif
