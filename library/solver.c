/* Solvers of the library: training as the verb does it, on one rank. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/memory.h"
#include "framework/proto/prototxt.h"
#include "framework/proto/upgrade.h"
#include "framework/report/report.h"
#include "framework/snapshot/snapshot.h"
#include "framework/solver/solver.h"
#include "library/library.h"

struct cortado_solver {
    Ct__SolverParameter *param;
    ct_source_map *map;
    ct_report *report;
    ct_solver *solver;
    cortado_net *net, **test;
};

/* ---- open and close */

static void close_solver(cortado_solver *s)
{
    for (int i = 0; (s->test != NULL) && (i < ct_solver_n_test(s->solver)); i++)
        cortado_net_close(s->test[i]);
    free(s->test);
    cortado_net_close(s->net);
    ct_solver_destroy(s->solver);
    ct_report_destroy(s->report);
    if (s->param != NULL) ct__solver_parameter__free_unpacked(s->param, NULL);
    ct_source_map_destroy(s->map);
    free(s);
}

static ct_status show_nets(cortado_solver *s, bool keeps)
{
    int n = ct_solver_n_test(s->solver);

    CT_TRY(ct_library_show(ct_solver_net(s->solver), keeps, s->solver, &s->net));
    s->test = calloc((size_t)n + 1, sizeof(s->test[0]));
    if (s->test == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a solver's nets");
    for (int i = 0; i < n; i++)
        CT_TRY(ct_library_show(ct_solver_test_net(s->solver, i), keeps, NULL, &s->test[i]));
    return CT_OK;
}

/* As `cortado train` has them on one rank, without options. */
static void fill_options(const cortado_solver *s, bool keeps, ct_solver_options *o)
{
    const Ct__SolverParameter *p = s->param;

    *o = (ct_solver_options){ .param = p, .map = s->map, .keep_values = keeps };
    o->memory_limit = ct_memory_limit();
    o->report = s->report;
    o->env.n_rank = 1;
    o->env.global_batch_size = p->global_batch_size;
    o->env.deterministic = (p->deterministic != 0);
    o->env.winograd = p->winograd;
    o->env.precision = p->precision;
}

/* "path=value", NULL behind the last. */
static ct_status apply(cortado_solver *s, const char *const *settings)
{
    for (int i = 0; (settings != NULL) && (settings[i] != NULL); i++) {
        const char *value = strchr(settings[i], '=');
        char path[128];

        if ((value == NULL) || (value == settings[i]) ||
            ((size_t)(value - settings[i]) >= sizeof(path)))
            return CT_FAIL(CT_ERR_ARG, "setting \"%s\": expected FIELD=VALUE", settings[i]);
        snprintf(path, sizeof(path), "%.*s", (int)(value - settings[i]), settings[i]);
        CT_TRY(ct_prototxt_set_noted(&s->param->base, path, value + 1, "a setting", s->map));
    }
    return CT_OK;
}

static ct_status create(cortado_solver *s, const char *file, const char *const *settings,
                        bool keeps)
{
    const ct_report_options quiet = { .rank = 0 };
    ct_solver_options options;

    CT_TRY(ct_source_map_create(&s->map));
    CT_TRY(ct_solver_read(file, s->map, &s->param));
    CT_TRY(apply(s, settings));
    if (s->param->memory != NULL)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: the library has no place for `memory { }`: cortado train",
                       CT_SOLVER_AT((&(ct_solver_text){ s->param, s->map }), memory));
    CT_TRY(ct_report_create(&quiet, &s->report));
    fill_options(s, keeps, &options);
    CT_TRY(ct_solver_create(&options, &s->solver));
    return show_nets(s, keeps);
}

static ct_status open_solver(const char *file, const char *const *settings, cortado_keep keep,
                             cortado_solver **solver_p)
{
    cortado_solver *s;
    ct_status status;

    if ((file == NULL) || (solver_p == NULL))
        return CT_FAIL(CT_ERR_ARG, "a solver's file, or where the solver goes, is NULL");
    if ((keep != CORTADO_KEEP_OUTPUTS) && (keep != CORTADO_KEEP_ALL))
        return CT_FAIL(CT_ERR_ARG, "keep is %d: CORTADO_KEEP_OUTPUTS or CORTADO_KEEP_ALL",
                       (int)keep);
    s = calloc(1, sizeof(*s));
    if (s == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a solver");
    status = create(s, file, settings, keep == CORTADO_KEEP_ALL);
    if (status == CT_OK)
        *solver_p = s;
    else
        close_solver(s);
    return status;
}

cortado_status cortado_solver_open(const char *file, cortado_keep keep, cortado_solver **solver_p)
{
    ct_public_call c;

    ct_public_begin(&c);
    return ct_public_end(&c, open_solver(file, NULL, keep, solver_p));
}

cortado_status cortado_solver_open_with(const char *file, const char *const *settings,
                                        cortado_keep keep, cortado_solver **solver_p)
{
    ct_public_call c;

    ct_public_begin(&c);
    return ct_public_end(&c, open_solver(file, settings, keep, solver_p));
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
    status = (n < 0) ? ct_solver_run(s->solver) : ct_solver_steps(s->solver, n);
    CT_TRY(ct_library_after_steps(s->net));
    return status;
}

static ct_status check(const cortado_solver *s)
{
    return (s != NULL) ? CT_OK : CT_FAIL(CT_ERR_ARG, "the solver is NULL");
}

cortado_status cortado_solver_step(cortado_solver *solver, int64_t n)
{
    ct_public_call c;
    ct_status status;

    ct_public_begin(&c);
    status = check(solver);
    if ((status == CT_OK) && (n < 0))
        status = CT_FAIL(CT_ERR_ARG, "%" PRId64 " steps: at least 0", n);
    if (status == CT_OK) status = run(solver, n);
    return ct_public_end(&c, status);
}

cortado_status cortado_solver_run(cortado_solver *solver)
{
    ct_public_call c;
    ct_status status;

    ct_public_begin(&c);
    status = check(solver);
    if (status == CT_OK) status = run(solver, -1);
    return ct_public_end(&c, status);
}

int64_t cortado_solver_iteration(const cortado_solver *solver)
{
    return ct_solver_iteration(solver->solver);
}

/* ---- weights and snapshots */

cortado_status cortado_solver_load(cortado_solver *solver, const char *files)
{
    ct_public_call c;
    ct_status status;

    ct_public_begin(&c);
    status = check(solver);
    if ((status == CT_OK) && (files == NULL))
        status = CT_FAIL(CT_ERR_ARG, "the name of the weights is NULL");
    if (status == CT_OK) status = ct_solver_load_weights(solver->solver, files);
    return ct_public_end(&c, status);
}

cortado_status cortado_solver_snapshot(cortado_solver *solver)
{
    ct_public_call c;
    ct_status status;

    ct_public_begin(&c);
    status = check(solver);
    if (status == CT_OK) status = ct_solver_save(solver->solver);
    return ct_public_end(&c, status);
}

cortado_status cortado_solver_restore(cortado_solver *solver, const char *file)
{
    ct_public_call c;
    ct_status status;

    ct_public_begin(&c);
    status = check(solver);
    if ((status == CT_OK) && (file == NULL))
        status = CT_FAIL(CT_ERR_ARG, "the name of the snapshot is NULL");
    if (status == CT_OK) status = ct_solver_restore(solver->solver, file);
    return ct_public_end(&c, status);
}

/* ---- its nets */

cortado_net *cortado_solver_net(cortado_solver *solver)
{
    return solver->net;
}

cortado_net *cortado_solver_test_net(cortado_solver *solver, int i)
{
    return ((i >= 0) && (i < ct_solver_n_test(solver->solver))) ? solver->test[i] : NULL;
}
