#include "runtime/job.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/collective/blocking.h"
#include "framework/base/clock.h"
#include "framework/base/log.h"
#include "runtime/compute.h"
#include "runtime/signals.h"
#include "runtime/team_wait.h"

/* ---- error lines of ranks other than 0, held back until it is clear who else has them
 *
 * A mistake in a prototxt is found by every rank; on a thousand ranks it should still be one line.
 * So ranks other than 0 keep their error lines; when the job fails the ranks compare what they
 * have to say, and a rank speaks when it says something else than rank 0.
 */

#define MAX_HELD 16384

/* Part of the log, which is the one thing that is global. */
static struct {
    pthread_mutex_t lock;
    char text[MAX_HELD];
    size_t used;
    bool flushed;
} held = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void keep(void *ctx, const char *line)
{
    size_t n = strlen(line);

    (void)ctx;
    pthread_mutex_lock(&held.lock);
    if ((line[0] == 'E') && !held.flushed && (held.used + n < MAX_HELD)) {
        memcpy(held.text + held.used, line, n + 1);
        held.used += n;
    } else {
        fputs(line, stderr);
    }
    pthread_mutex_unlock(&held.lock);
}

static void deferred_errors_start(void)
{
    ct_log_set_sink(keep, NULL);
}

/* Writes the kept lines, and keeps none from now on. */
static void deferred_errors_flush(void)
{
    pthread_mutex_lock(&held.lock);
    fputs(held.text, stderr);
    held.text[0] = '\0';
    held.used = 0;
    held.flushed = true;
    pthread_mutex_unlock(&held.lock);
}

void ct_deferred_errors_flush_now(void)
{
    /* who holds the lock may be waiting for the reader of stderr */
    if (pthread_mutex_trylock(&held.lock) != 0) return;
    (void)ct_write_bounded(STDERR_FILENO, held.text, held.used, CT_ENDING_LIMIT_MS);
    held.text[0] = '\0';
    held.used = 0;
    held.flushed = true;
    pthread_mutex_unlock(&held.lock);
}

typedef struct said {
    int status;
    char text[600];
} said;

ct_status ct_job_agree(ct_comm *c, int first_rank, ct_status mine)
{
    int64_t behind = (mine == CT_OK) ? 0 : c->size - c->rank;
    int first;
    said s = { .status = (int)mine };

    CT_TRY(ct_comm_max(c, &behind, 1)); /* it gives up where a rank fails and does not come */
    if (behind == 0) return CT_OK;
    first = c->size - (int)behind;
    if (c->rank == first) ct_log_last_error(s.text, sizeof(s.text));
    CT_TRY_MPI(MPI_Bcast(&s, (int)sizeof(s), MPI_BYTE, first, c->mpi));
    if (mine != CT_OK) return mine; /* it has spoken for itself */
    return CT_FAIL((ct_status)s.status, "rank %d says: %s", first_rank + first, s.text);
}

/* ---- the ranks of a node that share data */

static ct_status agree(void *ctx, ct_status mine)
{
    return ct_job_agree(ctx, 0, mine);
}

static ct_status acquire(void *ctx, size_t bytes, void **base_p, void **handle_p)
{
    ct_comm *c = ctx;

    return ct_comm_share_block(c, (c->node_rank == 0) ? bytes : 0, "records", base_p, handle_p);
}

static void release(void *ctx, void *handle)
{
    ct_comm_release_block(ctx, handle);
}

ct_status ct_data_group_open(const ct_job *job, bool one_reader, const char *stage,
                             ct_data_group **group_p)
{
    ct_comm *comm = job->data_comm;
    ct_data_group *g;
    int host_rank = 0;

    if (!ct_job_has_mpi(job)) return CT_OK;
    g = calloc(1, sizeof(*g));
    if (g == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a group of ranks");
    MPI_Comm_rank(comm->host, &host_rank);
    *g = (ct_data_group){ .data = job->group.data,
                          .node = job->group.node,
                          .member = comm->node_member,
                          .one_reader = one_reader && comm->node_shares &&
                                        (ct_topo_max_node_size(comm->topo) > 1),
                          .stage = stage,
                          .copies = (host_rank == 0),
                          .agree = agree,
                          .acquire = acquire,
                          .release = release,
                          .ctx = comm };
    *group_p = g;
    return CT_OK;
}

void ct_data_group_close(ct_data_group *g)
{
    free(g);
}

#define AGREE_S 3.0 /* how long a failing rank waits for the others to fail as well */
#define GRACE_S 5.0 /* how long the others give rank 0 to end the job              */

/* ---- the job */

static void nap(void)
{
    usleep(2000);
}

bool ct_job_is_launched(void)
{
    static const char *const word[] = { "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK",
                                        "PMI_SIZE" };
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS");

    for (size_t i = 0; i < sizeof(word) / sizeof(word[0]); ++i)
        if (getenv(word[i]) != NULL) return true;
    return (tasks != NULL) && (atoi(tasks) > 1);
}

ct_status ct_job_start(ct_job *job)
{
    int provided, rc;

    *job = (ct_job){ .watchdog = job->watchdog,
                     .of = MPI_COMM_WORLD,
                     .agree = MPI_COMM_NULL,
                     .node = MPI_COMM_NULL };
    CT_TRY(ct_comm_check_launcher());
    ct_comm_prepare_launch();
    ct_watchdog_beat(job->watchdog, "the start: MPI_Init");
    rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    if (rc != MPI_SUCCESS) return CT_FAIL(CT_ERR_COMM, "MPI_Init_thread failed: %d", rc);
    ct_crash_install();
    ct_watchdog_beat(job->watchdog, "the start: the first words between the ranks");
    MPI_Comm_rank(MPI_COMM_WORLD, &job->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &job->size);
    job->group.job = job->group.data = (ct_group){ .rank = job->rank, .size = job->size };
    if (gethostname(job->host, sizeof(job->host)) != 0) snprintf(job->host, sizeof(job->host), "?");
    job->host[sizeof(job->host) - 1] = '\0';
    ct_log_init(job->rank, job->size, job->host);
    if (job->rank != 0) deferred_errors_start();
    CT_TRY_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &job->agree));
    CT_TRY_MPI(MPI_Comm_set_errhandler(job->agree, MPI_ERRORS_RETURN));
    CT_TRY_MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, job->rank, MPI_INFO_NULL,
                                   &job->node));
    if (provided < MPI_THREAD_FUNNELED) {
        return CT_FAIL(CT_ERR_COMM, "this MPI gives thread level %d; MPI_THREAD_FUNNELED is needed",
                       provided);
    }
    CT_TRY(ct_comm_check_launch(job->size));
    ct_blas_core_log();
    return CT_OK;
}

/* MPI runs, and lets this thread call it. */
static ct_status check_mpi(void)
{
    int began = 0, ended = 0, level = MPI_THREAD_SINGLE;

    MPI_Initialized(&began);
    MPI_Finalized(&ended);
    if (!began || ended)
        return CT_FAIL(CT_ERR_ARG,
                       "a communicator is given, but the MPI that cortado is linked with %s",
                       ended ? "was finalized" : "is not initialized: MPI_Init_thread comes first");
    MPI_Query_thread(&level);
    if (level >= MPI_THREAD_FUNNELED) return CT_OK;
    return CT_FAIL(CT_ERR_ARG, "MPI was initialized with thread level MPI_THREAD_SINGLE; "
                               "MPI_THREAD_FUNNELED is needed");
}

ct_status ct_job_join(ct_job *job, MPI_Comm of)
{
    *job = (ct_job){ .size = 1, .of = of, .agree = MPI_COMM_NULL, .node = MPI_COMM_NULL };
    if (gethostname(job->host, sizeof(job->host)) != 0) snprintf(job->host, sizeof(job->host), "?");
    job->host[sizeof(job->host) - 1] = '\0';
    if (of != MPI_COMM_NULL) {
        CT_TRY(check_mpi());
        CT_TRY_MPI(MPI_Comm_dup(of, &job->agree));
        CT_TRY_MPI(MPI_Comm_set_errhandler(job->agree, MPI_ERRORS_RETURN));
        job->of = job->agree; /* the caller may free theirs */
        CT_TRY_MPI(MPI_Comm_rank(job->of, &job->rank));
        CT_TRY_MPI(MPI_Comm_size(job->of, &job->size));
        CT_TRY_MPI(MPI_Comm_split_type(job->of, MPI_COMM_TYPE_SHARED, job->rank, MPI_INFO_NULL,
                                       &job->node));
        CT_TRY_MPI(MPI_Comm_set_errhandler(job->node, MPI_ERRORS_RETURN));
        CT_TRY(ct_failure_notice_open(job->agree, &job->failure));
    }
    job->group.job = job->group.data = (ct_group){ .rank = job->rank, .size = job->size };
    return CT_OK;
}

ct_status ct_job_threads(ct_job *job, int wanted)
{
    CT_TRY(ct_threads_set(job->node, wanted, &job->threads));
    CT_TRY(ct_threads_log(job->node, &job->threads));
    ct_team_wait_stop(job->team_wait);
    return ct_team_wait_start(job->threads.n, job->threads.n_core, &job->team_wait);
}

ct_status ct_job_open_groups(ct_job *job)
{
    ct_group *const group[] = { &job->group.job, &job->group.data, &job->group.node };

    job->group_mpi[0].comm = job->comm;
    job->group_mpi[1].comm = job->data_comm;
    CT_TRY(ct_comm_of_node(job->data_comm, &job->group_mpi[2].comm));
    for (int i = 0; i < 3; i++) ct_group_mpi_open(&job->group_mpi[i], group[i]);
    return CT_OK;
}

/* One rank whose messages would have nobody to go to. */
static ct_status connect_alone(ct_job *job)
{
    const uint64_t host = 0;
    ct_topo *topo;

    CT_TRY(ct_topo_from_hosts(&host, 1, "one process", &topo));
    CT_TRY(ct_comm_create_planned(topo, 0, &job->comm));
    job->data_comm = job->comm;
    job->group.job = job->group.data = job->group.node = (ct_group){ .size = 1, .topo = topo };
    return CT_OK;
}

ct_status ct_job_connect(ct_job *job, const char *topology, bool verify)
{
    if (!ct_job_has_mpi(job)) return connect_alone(job);
    CT_TRY(ct_comm_create(job->of, topology, &job->comm));
    if (verify) CT_TRY(ct_comm_verify(job->comm));
    job->data_comm = job->comm; /* every rank holds the whole net: all are replicas */
    if (job->failure != NULL) ct_comm_listen(job->comm, ct_failure_notice_poll, job->failure);
    return ct_job_open_groups(job);
}

ct_status ct_job_share(ct_job *job, ct_status status)
{
    int word = (int)status;

    if (!ct_job_has_mpi(job)) return status;
    CT_TRY_MPI(MPI_Bcast(&word, 1, MPI_INT, 0, job->agree));
    job->told = (word != CT_OK) && (job->rank != 0);
    return (ct_status)word;
}

ct_status ct_job_broadcast(ct_job *job, void **data_p, size_t *size_p)
{
    const size_t part = (size_t)1 << 30;
    uint64_t size = *size_p;
    char *data = *data_p;

    if (!ct_job_has_mpi(job)) return CT_OK;
    CT_TRY_MPI(MPI_Bcast(&size, 1, MPI_UINT64_T, 0, job->agree));
    if (job->rank != 0) data = malloc((size_t)size + 1);
    if (data == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu bytes", (size_t)size);
    for (size_t at = 0; at < size; at += part) {
        size_t n = (size - at < part) ? (size_t)size - at : part;

        CT_TRY_MPI(MPI_Bcast(data + at, (int)n, MPI_BYTE, 0, job->agree));
    }
    *data_p = data;
    *size_p = (size_t)size;
    return CT_OK;
}

void ct_job_leave(ct_job *job)
{
    ct_team_wait_stop(job->team_wait);
    ct_data_group_close(job->reading);
    if (job->data_comm != job->comm) ct_comm_destroy(job->data_comm);
    ct_comm_destroy(job->comm);
    ct_failure_notice_close(job->failure);
    if (job->node != MPI_COMM_NULL) MPI_Comm_free(&job->node);
    if (job->agree != MPI_COMM_NULL) MPI_Comm_free(&job->agree);
}

void ct_job_finish(ct_job *job)
{
    ct_watchdog_beat(job->watchdog, "the end: MPI_Finalize");
    ct_job_leave(job);
    MPI_Finalize();
    ct_crash_tell(NULL);
    ct_watchdog_stop(job->watchdog);
}

/* True when all ranks got here within AGREE_S; all_p[r] is then what rank r has to say. */
static bool all_fail(ct_job *job, uint64_t mine, uint64_t *all)
{
    double start = ct_clock_s();
    MPI_Request request;
    int done = 0;

    if (MPI_Iallgather(&mine, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, job->agree, &request) !=
        MPI_SUCCESS) {
        return false;
    }
    while (ct_clock_s() - start < AGREE_S) {
        if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
        if (done) return true;
        nap();
    }
    return false;
}

/* Where a line was written, on whatever rank, it says more than this. */
static void say_status(ct_status status)
{
    ct_log_at(CT_LOG_ERROR, __FILE__, __LINE__, "failed: %s", ct_status_str(status));
}

static bool any_speaks(const uint64_t *all, int n)
{
    for (int r = 0; r < n; r++)
        if (all[r] != 0) return true;
    return false;
}

void ct_job_fail(ct_job *job, ct_status status)
{
    int code = ct_status_exit_code(status), running = 0;
    bool silent = (ct_log_n_error() == 0) && !job->told;
    double start;

    ct_signals_begin();
    MPI_Initialized(&running);
    if (!running) _exit(code);
    if (job->comm != NULL) ct_comm_lock(job->comm); /* for good: no other thread calls MPI now */
    if (job->agree != MPI_COMM_NULL) {
        uint64_t mine = ct_log_error_hash(), *all = calloc((size_t)job->size, sizeof(*all));

        if ((all != NULL) && all_fail(job, mine, all)) {
            silent = false;
            if ((job->rank == 0) && !any_speaks(all, job->size)) say_status(status);
            if (!job->told && (all[job->rank] != all[0])) deferred_errors_flush();
            start = ct_clock_s();
            /* rank 0 ends the job; it leaves the others a moment to speak */
            while (ct_clock_s() - start < ((job->rank == 0) ? 0.1 : GRACE_S)) nap();
        }
    }
    if (silent) say_status(status);
    deferred_errors_flush();
    fflush(NULL);
    /* alone there is nobody to take down, and MPI_Abort would put its own words below ours */
    if (job->size == 1)
        MPI_Finalize();
    else
        MPI_Abort(MPI_COMM_WORLD, code);
    _exit(code);
}
