/* Solvers of the library: training as the verb does it, on one rank or on the caller's. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "framework/net/program_layer.h"
#include "framework/report/report.h"
#include "library/library.h"
#include "runtime/training/training.h"

struct cortado_solver {
    ct_job job;
    ct_call call; /* without options */
    ct_config config;
    ct_report *report;
    ct_training run;
    cortado_net *net, **test;
    ct_status met; /* what ranks agreed on while it was opened */
    cortado_step_calls calls;
    bool torn; /* ranks failed at different places: what they made together nobody can release */
    cortado_solver *next; /* of those that stay */
};

/* Solvers that were closed and whose memory stays: MPI may still write to it. */
static cortado_solver *_Atomic kept;

static void keep_memory(cortado_solver *s)
{
    s->next = atomic_load(&kept);
    while (!atomic_compare_exchange_weak(&kept, &s->next, s)) {
    }
}

/* ---- open and close */

/* What ranks have together can be let go of. */
static bool can_release(const cortado_solver *s)
{
    int ended = 0;

    if (!ct_job_has_mpi(&s->job)) return true;
    MPI_Finalized(&ended); /* nobody can after that */
    return !ended && !s->torn;
}

static void close_solver(cortado_solver *s)
{
    if (!can_release(s)) {
        keep_memory(s);
        return;
    }
    for (int i = 0; (s->test != NULL) && (i < ct_solver_n_test(s->run.solver)); i++)
        cortado_net_close(s->test[i]);
    free(s->test);
    cortado_net_close(s->net);
    ct_training_close(&s->run);
    ct_report_destroy(s->report);
    ct_config_destroy(&s->config);
    ct_job_leave(&s->job);
    free(s);
}

static ct_status show_nets(cortado_solver *s, bool keeps)
{
    int n = ct_solver_n_test(s->run.solver);

    CT_TRY(ct_library_show(ct_solver_net(s->run.solver), keeps, s->run.solver, &s->net));
    s->test = calloc((size_t)n + 1, sizeof(s->test[0]));
    if (s->test == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a solver's nets");
    for (int i = 0; i < n; i++)
        CT_TRY(ct_library_show(ct_solver_test_net(s->run.solver, i), keeps, NULL, &s->test[i]));
    s->net->in_groups = ct_solver_has_outer(s->run.solver);
    for (int i = 0; i < n; i++) s->test[i]->in_groups = s->net->in_groups;
    return CT_OK;
}

static ct_status read_config(cortado_solver *s, const char *file, const char *const *settings)
{
    const Ct__SolverParameter *p;
    uint64_t seed;

    for (int i = 0; (settings != NULL) && (settings[i] != NULL); i++)
        if (strchr(settings[i], '=') == NULL)
            return CT_FAIL(CT_ERR_ARG, "setting \"%s\": expected FIELD=VALUE", settings[i]);
    CT_TRY(ct_config_read_solver(file, settings, &s->config));
    if ((s->config.solver->random_seed < 0) && ct_public_seed(&seed))
        s->config.solver->random_seed = (int64_t)seed;
    p = s->config.solver;
    if (p->solver_mode != CT__SOLVER_PARAMETER__SOLVER_MODE__GPU) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "%s: solver_mode GPU: solvers of the library run on the CPU yet",
                   CT_SOLVER_AT((&(ct_solver_text){ p, s->config.map }), solver_mode));
}

/* The status of all ranks. */
static ct_status agree(cortado_solver *s, ct_status mine)
{
    bool torn;

    mine = ct_failure_notice_agree(s->job.failure, mine, &torn);
    if (torn && !s->torn) ct_training_abandon(&s->run);
    s->torn = s->torn || torn;
    return mine;
}

/* Fits ct_solver_options.agree. */
static ct_status meet(void *ctx, ct_status mine)
{
    cortado_solver *s = ctx;

    if (s->met == CT_OK) s->met = agree(s, mine);
    return s->met;
}

static ct_status create(cortado_solver *s, bool keeps)
{
    const ct_report_options quiet = { .rank = s->job.rank };
    ct_training_ask ask = { .keep_values = keeps, .program = ct_public_layers() };

    ask.agree = meet;
    ask.agree_ctx = s;
    CT_TRY(ct_public_share_threads(&s->job));
    CT_TRY(ct_report_create(&quiet, &s->report));
    ask.report = s->report;
    s->call = (ct_call){ .job = &s->job };
    s->run = (ct_training){ .call = &s->call, .config = &s->config };
    CT_TRY(ct_training_connect(&s->run));
    CT_TRY(ct_training_open(&s->run, &ask));
    return show_nets(s, keeps);
}

static ct_status open_in_job(cortado_solver *s, const char *file, const char *const *settings,
                             cortado_keep keep)
{
    ct_status status = CT_OK;
    bool torn; /* nothing is under way yet */

    if ((keep != CORTADO_KEEP_OUTPUTS) && (keep != CORTADO_KEEP_ALL))
        status =
            CT_FAIL(CT_ERR_ARG, "keep is %d: CORTADO_KEEP_OUTPUTS or CORTADO_KEEP_ALL", (int)keep);
    else if (s->job.rank == 0)
        status = read_config(s, file, settings);
    CT_TRY(ct_failure_notice_agree(s->job.failure, status, &torn));
    CT_TRY(ct_config_share(&s->job, &s->config));
    status = create(s, keep == CORTADO_KEEP_ALL);
    return (s->met != CT_OK) ? s->met : agree(s, status);
}

static ct_status open_solver(const char *file, const char *const *settings, cortado_keep keep,
                             const MPI_Comm *comm, cortado_solver **solver_p)
{
    cortado_solver *s;
    ct_status status;

    if ((file == NULL) || (solver_p == NULL))
        return CT_FAIL(CT_ERR_ARG, "a solver's file, or where the solver goes, is NULL");
    s = calloc(1, sizeof(*s));
    if (s == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a solver");
    status = ct_job_join(&s->job, (comm != NULL) ? *comm : MPI_COMM_NULL);
    if (status == CT_OK) status = open_in_job(s, file, settings, keep);
    if (status == CT_OK)
        *solver_p = s;
    else
        close_solver(s);
    return status;
}

cortado_status cortado_solver_open_on(const char *file, const char *const *settings,
                                      cortado_keep keep, const void *mpi_comm,
                                      cortado_solver **solver_p)
{
    ct_public_call c;

    ct_public_begin(&c);
    return ct_public_end(&c, open_solver(file, settings, keep, mpi_comm, solver_p));
}

cortado_status cortado_solver_open(const char *file, cortado_keep keep, cortado_solver **solver_p)
{
    return cortado_solver_open_on(file, NULL, keep, NULL, solver_p);
}

cortado_status cortado_solver_open_with(const char *file, const char *const *settings,
                                        cortado_keep keep, cortado_solver **solver_p)
{
    return cortado_solver_open_on(file, settings, keep, NULL, solver_p);
}

void cortado_solver_close(cortado_solver *solver)
{
    if (solver != NULL) close_solver(solver);
}

/* ---- steps */

/* n < 0: all there are to be. Views of the net that learns show the last batch. */
static ct_status run(cortado_solver *s, int64_t n)
{
    ct_status status;

    CT_TRY(ct_library_before_steps(s->net));
    status = (n < 0) ? ct_solver_run(s->run.solver) : ct_solver_steps(s->run.solver, n);
    CT_TRY(ct_library_after_steps(s->net));
    return status;
}

static ct_status check(const cortado_solver *s)
{
    if (s == NULL) return CT_FAIL(CT_ERR_ARG, "the solver is NULL");
    if (!s->torn) return CT_OK;
    return CT_FAIL(CT_ERR_COMM, "an earlier call failed on some ranks in the middle of what others "
                                "waited for: the solver can only be closed");
}

cortado_status cortado_solver_step(cortado_solver *solver, int64_t n)
{
    ct_public_call c;
    ct_status status;

    ct_public_begin(&c);
    status = check(solver);
    if ((status == CT_OK) && (n < 0))
        status = CT_FAIL(CT_ERR_ARG, "%" PRId64 " steps: at least 0", n);
    if (status == CT_OK) status = agree(solver, run(solver, n));
    return ct_public_end(&c, status);
}

cortado_status cortado_solver_run(cortado_solver *solver)
{
    ct_public_call c;
    ct_status status;

    ct_public_begin(&c);
    status = check(solver);
    if (status == CT_OK) status = agree(solver, run(solver, -1));
    return ct_public_end(&c, status);
}

int64_t cortado_solver_iteration(const cortado_solver *solver)
{
    return (solver != NULL) ? ct_solver_iteration(solver->run.solver) : 0;
}

/* ---- who looks into steps */

static ct_status ask(const cortado_solver *s, int (*call)(void *ctx, char *why, size_t n_why),
                     const char *what)
{
    char why[CT_PROGRAM_WHY] = "";

    if (call(s->calls.ctx, why, sizeof(why)) == 0) return CT_OK;
    return CT_FAIL(CT_ERR_DATA, "%s: %s", what, why);
}

/* What is written to inputs counts in this step already. */
static ct_status on_start(void *ctx)
{
    cortado_solver *s = ctx;

    CT_TRY(ask(s, s->calls.start, "the call at the start of a step"));
    return ct_library_before_steps(s->net);
}

static ct_status on_gradients(void *ctx)
{
    const cortado_solver *s = ctx;

    return ask(s, s->calls.gradients, "the call at the gradients of a step");
}

cortado_status cortado_solver_watch(cortado_solver *solver, const cortado_step_calls *calls)
{
    const ct_step_calls none = { .ctx = NULL };
    ct_step_calls mine = { .ctx = solver };
    ct_public_call c;
    ct_status status;

    ct_public_begin(&c);
    status = check(solver);
    if ((status == CT_OK) && (calls != NULL)) {
        if (calls->start != NULL) mine.start = on_start;
        if (calls->gradients != NULL) mine.gradients = on_gradients;
    }
    if (status == CT_OK)
        status = ct_solver_watch(solver->run.solver, (calls != NULL) ? &mine : &none);
    if ((status == CT_OK) && (calls != NULL)) solver->calls = *calls;
    return ct_public_end(&c, status);
}

/* ---- weights and snapshots */

/* What a file has to do with a solver. */
static cortado_status use_file(cortado_solver *solver, const char *file, const char *what,
                               ct_status (*use)(ct_solver *s, const char *file))
{
    ct_public_call c;
    ct_status status;

    ct_public_begin(&c);
    status = check(solver);
    if ((status == CT_OK) && (file == NULL))
        status = CT_FAIL(CT_ERR_ARG, "the name of the %s is NULL", what);
    if (status == CT_OK) status = agree(solver, use(solver->run.solver, file));
    return ct_public_end(&c, status);
}

cortado_status cortado_solver_load(cortado_solver *solver, const char *files)
{
    return use_file(solver, files, "weights", ct_solver_load_weights);
}

cortado_status cortado_solver_restore(cortado_solver *solver, const char *file)
{
    return use_file(solver, file, "snapshot", ct_solver_restore);
}

cortado_status cortado_solver_snapshot(cortado_solver *solver)
{
    ct_public_call c;
    ct_status status;

    ct_public_begin(&c);
    status = check(solver);
    if (status == CT_OK) status = agree(solver, ct_solver_save(solver->run.solver));
    return ct_public_end(&c, status);
}

cortado_status cortado_solver_checksum(cortado_solver *solver, uint64_t *checksum)
{
    ct_public_call c;
    ct_status status;

    ct_public_begin(&c);
    status = check(solver);
    if ((status == CT_OK) && (checksum == NULL))
        status = CT_FAIL(CT_ERR_ARG, "where the checksum goes is NULL");
    if (status == CT_OK) status = agree(solver, ct_solver_checksum(solver->run.solver, checksum));
    return ct_public_end(&c, status);
}

/* ---- its nets */

cortado_net *cortado_solver_net(cortado_solver *solver)
{
    return (solver != NULL) ? solver->net : NULL;
}

cortado_net *cortado_solver_test_net(cortado_solver *solver, int i)
{
    bool there = (solver != NULL) && (i >= 0) && (i < ct_solver_n_test(solver->run.solver));

    return there ? solver->test[i] : NULL;
}
