#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <omp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/simd.h"
#include "framework/base/thread.h"
#include "runtime/compute.h"
#include "runtime/signals.h"
#include "runtime/config/features.h"
#include "runtime/call.h"
#include "cli/verb.h"

/* The value of an option that is needed before MPI starts, and with it the options' own reading,
 * which speaks for one rank and says what is wrong. NULL: not given. */
static const char *early_option(int argc, char **argv, const char *name, const char *twin)
{
    const char *value = getenv(twin);
    size_t n = strlen(name);

    for (int i = 1; i < argc; i++) {
        char word[64];

        if (strncmp(argv[i], "--", 2) != 0) continue;
        snprintf(word, sizeof(word), "%s", argv[i] + 2);
        for (char *c = word; (*c != '\0') && (*c != '='); c++) *c = (*c == '-') ? '_' : *c;
        if (strncmp(word, name, n) != 0) continue;
        if (word[n] == '=') value = argv[i] + 2 + n + 1;
        if ((word[n] == '\0') && (i + 1 < argc)) value = argv[i + 1];
    }
    return value;
}

/* Before the log starts: it reads CORTADO_LOG. */
static void set_log_level(int argc, char **argv)
{
    const char *level = early_option(argc, argv, "log", "CORTADO_LOG");

    if (level != NULL) setenv("CORTADO_LOG", level, 1);
}

/* Alone it needs no MPI. */
static bool is_server_in_job(const ct_verb *verb)
{
    return (verb->run == ct_verb_serve) && ct_job_is_launched();
}

/* Threads and MPI inherit the mask, so handlers come first. A verb that does not stop at a step's
 * end leaves signals their default actions. A server waits for them, and in a job MPI's threads
 * must not get them in its place. */
static void start_signals(const ct_verb *verb, int argc, char **argv)
{
    static const char *const known[] = { "none", "stop", "snapshot" };
    const char *text[] = { early_option(argc, argv, "sigint_effect", "CORTADO_SIGINT_EFFECT"),
                           early_option(argc, argv, "sighup_effect", "CORTADO_SIGHUP_EFFECT") };
    ct_signal_effect effect[] = { CT_SIGNAL_STOP, CT_SIGNAL_SNAPSHOT };

    ct_crash_install();
    for (int e = 0; e < 2; e++)
        for (int i = 0; (text[e] != NULL) && (i < 3); i++)
            if (strcmp(text[e], known[i]) == 0) effect[e] = (ct_signal_effect)i;
    if (verb->run == ct_verb_train) (void)ct_signals_install(effect[0], effect[1]);
    /* who reads the log may end first, and that is no reason to lose a training */
    if ((verb->run == ct_verb_train) || (verb->run == ct_verb_serve)) signal(SIGPIPE, SIG_IGN);
    if (!is_server_in_job(verb)) ct_signals_unblock();
}

/* Seconds that the start may be silent: --start_seconds. */
static double start_limit(int argc, char **argv)
{
    const char *text = early_option(argc, argv, "start_seconds", "CORTADO_START_SECONDS");
    double seconds = (text != NULL) ? strtod(text, NULL) : -1.0;

    return (seconds >= 0.0) ? seconds : 600.0;
}

/* A file would get the number of a stream that is closed, and with it what is printed. Output that
 * nobody takes fails; what is logged is dropped. */
static void open_streams(void)
{
    static const int how[] = { O_RDONLY, O_RDONLY, O_WRONLY };

    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if ((fcntl(fd, F_GETFD) < 0) && (errno == EBADF)) (void)open("/dev/null", how[fd]);
}

/* Tables are printed line by line, and looked after here. */
static ct_status check_output(ct_status status)
{
    bool lost = (fflush(stdout) != 0);

    lost = (ferror(stdout) != 0) || lost;
    if (!lost || (status != CT_OK)) return status;
    return CT_FAIL(CT_ERR_IO, "cannot write to standard output: not all that was printed is there");
}

/* What a rank starts beside OpenMP's threads: Open MPI 4.1 has 3, and 4 in what it starts for a job
 * of one rank; the watchdog, progress, what reads and writes. */
enum { THREADS_BESIDE = 11 };

/* Without OMP_NUM_THREADS the ranks of a node share out its cores once they know of one another:
 * how many threads one gets is not known yet, and as many as there are cores would be too many. */
static ct_status check_team(void)
{
    int team = (getenv("OMP_NUM_THREADS") != NULL) ? omp_get_max_threads() - 1 : 0;

    return ct_thread_room_check(team + THREADS_BESIDE);
}

static int run_alone(const ct_verb *verb, ct_call *call)
{
    ct_options *options = NULL;
    ct_status status;

    ct_log_init(0, 1, "");
    /* where not all threads can start, OpenMP ends the process, or its stack does */
    status = (getenv("OMP_NUM_THREADS") != NULL) ? check_team() : CT_OK;
    if ((status == CT_OK) && (verb->form == NULL)) {
        status =
            ct_options_parse(ct_option_table, ct_option_table_n, call->argc, call->argv, &options);
    }
    call->options = options;
    if (status == CT_OK) status = check_output(verb->run(call));
    ct_options_destroy(options);
    if ((status != CT_OK) && (status != CT_STOPPED) && (ct_log_n_error() == 0) && !call->told) {
        ct_log_at(CT_LOG_ERROR, __FILE__, __LINE__, "failed: %s", ct_status_str(status));
    }
    return ct_status_exit_code(status);
}

/* The first rank makes the files; the others wait, and all end alike. */
static ct_status run_on_first(const ct_verb *verb, const ct_call *call)
{
    ct_call alone = *call;
    ct_status status = CT_OK;

    alone.job = NULL;
    if (call->job->rank == 0) status = verb->run(&alone);
    return ct_job_share(call->job, status);
}

static ct_status check_room(void)
{
    CT_TRY(ct_process_room_check());
    return check_team();
}

static int run_in_job(const ct_verb *verb, ct_call *call)
{
    ct_options *options = NULL;
    ct_job job = { .watchdog = NULL };
    ct_status status = check_room();

    if (status == CT_OK)
        status = ct_watchdog_start(start_limit(call->full_argc, call->full_argv), &job.watchdog);
    if (status == CT_OK) {
        ct_crash_tell(ct_watchdog_what(job.watchdog));
        status = ct_job_start(&job);
    }
    call->job = &job;
    if ((status == CT_OK) && (verb->form == NULL)) {
        status =
            ct_options_parse(ct_option_table, ct_option_table_n, call->argc, call->argv, &options);
    }
    call->options = options;
    /* only a training tells the watchdog what it does, and a server what it runs */
    if (verb->run != ct_verb_train) ct_watchdog_limit(job.watchdog, 0.0);
    if (status == CT_OK)
        status = (verb->place == CT_VERB_ON_FIRST) ? run_on_first(verb, call) : verb->run(call);
    status = check_output(status);
    if ((status != CT_OK) && (status != CT_STOPPED)) ct_job_fail(&job, status);
    ct_options_destroy(options);
    ct_job_finish(&job);
    call->options = NULL;
    call->job = NULL;
    return ct_status_exit_code(status);
}

/* A program built for SVE of one length gives wrong numbers with another. */
static ct_status check_registers(void)
{
    int built, here;

    ct_simd_built(&built, &here);
    if (built == here) return CT_OK;
    if (here == 0)
        return CT_FAIL(CT_ERR_CONFIG,
                       "built with SVE=%d, but this processor has no SVE: build without", built);
    return CT_FAIL(CT_ERR_CONFIG,
                   "built with SVE=%d, but this processor's vectors have %d bits: build with "
                   "SVE=256 or 512 as it has them, or without for processors of any",
                   built, here);
}

int main(int argc, char **argv)
{
    const ct_verb *verb;
    ct_call call = { .argc = argc - 1, .argv = argv + 1, .full_argv = argv, .full_argc = argc };

    open_streams();
    ct_signals_block();
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* lines stay in order with those of stderr */
    if (argc < 2) {
        ct_help_verbs(stderr);
        return ct_status_exit_code(CT_ERR_CONFIG);
    }
    if (ct_help_is_asked(argc, argv)) return ct_status_exit_code(check_output(ct_help(argc, argv)));
    if (strcmp(argv[1], "--version") == 0) {
        printf("cortado %s\n", ct_build_version());
        return ct_status_exit_code(check_output(CT_OK));
    }
    verb = ct_verb_find(argv[1]);
    if (verb == NULL) return ct_status_exit_code(ct_help_fail_verb(argv[1]));
    if (check_registers() != CT_OK) return ct_status_exit_code(CT_ERR_CONFIG);
    ct_cores_keep();
    ct_blas_core_ensure(argv);
    start_signals(verb, argc, argv);
    signal(SIGXFSZ,
           SIG_IGN); /* a file that may not grow is told as a full disk is, with its name */
    /* Large blocks come and go with every collective and file: give them back to the heap, not to
     * the system, whose page faults cost more than the copies. */
    mallopt(M_MMAP_THRESHOLD, INT_MAX);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
    set_log_level(argc, argv);
    if ((verb->place == CT_VERB_IN_JOB) || is_server_in_job(verb) ||
        ((verb->place == CT_VERB_ON_FIRST) && ct_job_is_launched()) ||
        ((verb->run == ct_verb_info) && ct_show_topology_in_job(argc, argv)))
        return run_in_job(verb, &call);
    return run_alone(verb, &call);
}
