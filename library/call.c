#include "library/library.h"

#include <omp.h>
#include <pthread.h>
#include <stdio.h>

#include "build_info.h"
#include "framework/base/log.h"
#include "runtime/compute.h"

/* What cortado_log_to(), _set_threads() and _set_seed() said. They are called while no other call
 * runs. */
static struct {
    void (*sink)(void *ctx, const char *line);
    void *ctx;
    ct_threads threads;
    int wanted; /* of threads; 0: nobody said */
    uint64_t seed;
    bool has_seed;
} settings;

enum { MOST_THREADS = 4096 }; /* OpenMP ends a process that it can make no more threads for */

/* An error's text is for the thread whose call it was. */
static _Thread_local char error_text[600];

static void pass_on(void *ctx, const char *line)
{
    (void)ctx;
    if (settings.sink != NULL) settings.sink(settings.ctx, line);
}

static ct_status take_threads(int wanted)
{
    int before = omp_get_max_threads();

    CT_TRY(ct_threads_set(MPI_COMM_NULL, wanted, &settings.threads));
    omp_set_num_threads(before);
    return CT_OK;
}

static void begin(void)
{
    ct_log_set_sink(pass_on, NULL);
    ct_log_set_level(CT_LOG_ERROR);
    if (take_threads(0) != CT_OK) settings.threads.n = 1;
}

/* Before anything is logged, whichever thread comes first. */
static void begin_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, begin);
}

ct_status ct_public_share_threads(ct_job *job)
{
    job->threads = settings.threads;
    if (!ct_job_has_mpi(job)) return CT_OK;
    CT_TRY(ct_job_threads(job, settings.wanted));
    settings.threads = job->threads;
    return CT_OK;
}

bool ct_public_seed(uint64_t *seed_p)
{
    *seed_p = settings.seed;
    return settings.has_seed;
}

void ct_public_begin(ct_public_call *c)
{
    begin_once();
    ct_log_forget_error();
    c->n_thread = omp_get_max_threads();
    omp_set_num_threads(settings.threads.n);
}

static cortado_status public_status(ct_status status)
{
    switch (status) {
    case CT_OK:
        return CORTADO_OK;
    case CT_ERR_ARG:
        return CORTADO_ERR_ARG;
    case CT_ERR_CONFIG:
        return CORTADO_ERR_CONFIG;
    case CT_ERR_SHAPE:
        return CORTADO_ERR_SHAPE;
    case CT_ERR_NOMEM:
        return CORTADO_ERR_NOMEM;
    case CT_ERR_IO:
        return CORTADO_ERR_IO;
    case CT_ERR_DATA:
        return CORTADO_ERR_DATA;
    case CT_ERR_DIVERGED:
        return CORTADO_ERR_DIVERGED;
    default:
        return CORTADO_ERR_RUN;
    }
}

cortado_status ct_public_end(const ct_public_call *c, ct_status status)
{
    omp_set_num_threads(c->n_thread);
    if (status == CT_OK) return CORTADO_OK;
    ct_log_last_error(error_text, sizeof(error_text));
    if (error_text[0] == '\0') /* another thread of the call found it */
        snprintf(error_text, sizeof(error_text), "%s", ct_status_str(status));
    return public_status(status);
}

/* ---- what users call */

const char *cortado_version(void)
{
    return CT_BUILD_VERSION;
}

const char *cortado_error(void)
{
    return error_text;
}

const char *cortado_status_name(cortado_status status)
{
    static const char *const name[] = { [CORTADO_OK] = "CORTADO_OK",
                                        [CORTADO_ERR_ARG] = "CORTADO_ERR_ARG",
                                        [CORTADO_ERR_CONFIG] = "CORTADO_ERR_CONFIG",
                                        [CORTADO_ERR_SHAPE] = "CORTADO_ERR_SHAPE",
                                        [CORTADO_ERR_NOMEM] = "CORTADO_ERR_NOMEM",
                                        [CORTADO_ERR_IO] = "CORTADO_ERR_IO",
                                        [CORTADO_ERR_DATA] = "CORTADO_ERR_DATA",
                                        [CORTADO_ERR_RUN] = "CORTADO_ERR_RUN",
                                        [CORTADO_ERR_DIVERGED] = "CORTADO_ERR_DIVERGED" };
    size_t i = (size_t)status;

    return (i < sizeof(name) / sizeof(name[0])) ? name[i] : "unknown status";
}

void cortado_log_to(void (*sink)(void *ctx, const char *line), void *ctx, cortado_level level)
{
    begin_once();
    settings.sink = sink;
    settings.ctx = ctx;
    ct_log_set_level((sink != NULL) ? (ct_log_level)level : CT_LOG_ERROR);
}

cortado_status cortado_set_threads(int n)
{
    ct_public_call c;
    ct_status status;

    ct_public_begin(&c);
    if ((n < 0) || (n > MOST_THREADS))
        return ct_public_end(
            &c, CT_FAIL(CT_ERR_ARG, "%d threads: 1 to %d, or 0", n, (int)MOST_THREADS));
    status = take_threads(n);
    if (status == CT_OK) settings.wanted = n;
    return ct_public_end(&c, status);
}

void cortado_set_seed(uint32_t seed)
{
    settings.seed = seed;
    settings.has_seed = true;
}
