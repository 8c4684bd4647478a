/* What a sweep's file asks for: the settings of each run, and rounds. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/sweep/sweep.h"
#include "framework/base/file.h"
#include "framework/base/name_map.h"
#include "framework/base/rng.h"
#include "framework/proto/upgrade.h"
#include "framework/snapshot/set_files.h"
#include "runtime/config/config.h"

#define AT(_s, _message, _field)                                                                   \
    ct_source_map_where((_s)->map, _message, &(_message)->_field, (_s)->file).text

/* ---- what must be said */

static bool has_range(const Ct__SweepFieldParameter *f)
{
    return f->has_from || f->has_to;
}

static ct_status check_range(const ct_sweep *s, const Ct__SweepFieldParameter *f)
{
    if (!f->has_from || !f->has_to || !(f->from < f->to) || !isfinite(f->from) || !isfinite(f->to))
        return CT_FAIL(CT_ERR_CONFIG, "%s: \"%s\" needs `from` below `to`, both numbers",
                       AT(s, f, from), f->field);
    if (f->log && !(f->from > 0.0))
        return CT_FAIL(CT_ERR_CONFIG, "%s: \"%s\" goes from %g by `log`, which needs more than 0",
                       AT(s, f, from), f->field, f->from);
    if ((f->steps < 0) || (f->steps == 1) || (f->steps > CT_SWEEP_MAX_RUN))
        return CT_FAIL(CT_ERR_CONFIG, "%s: steps is %d, needs 2 to %d", AT(s, f, steps), f->steps,
                       CT_SWEEP_MAX_RUN);
    return CT_OK;
}

/* before: fields in front of it; it becomes one. */
static ct_status check_field(const ct_sweep *s, size_t i, ct_name_map *before)
{
    const Ct__SweepFieldParameter *f = s->param->vary[i];

    if ((f->field == NULL) || (f->field[0] == '\0'))
        return CT_FAIL(CT_ERR_CONFIG, "%s: vary has no `field`; give one as --set takes it",
                       AT(s, f, field));
    if (ct_name_map_find(before, f->field, strlen(f->field)) >= 0)
        return CT_FAIL(CT_ERR_CONFIG, "%s: \"%s\" varies twice", AT(s, f, field), f->field);
    CT_TRY(ct_name_map_put(before, f->field, (int)i));
    if ((f->n_value > 0) == has_range(f))
        return CT_FAIL(CT_ERR_CONFIG, "%s: \"%s\" needs either `value`, or `from` and `to`",
                       AT(s, f, field), f->field);
    return has_range(f) ? check_range(s, f) : CT_OK;
}

static ct_status check_fields(const ct_sweep *s)
{
    ct_name_map before = { .n = 0 };
    ct_status status = CT_OK;

    for (size_t i = 0; (i < s->param->n_vary) && (status == CT_OK); i++)
        status = check_field(s, i, &before);
    ct_name_map_destroy(&before);
    return status;
}

static ct_status at_least(const ct_sweep *s, const int32_t *field, const char *name, int32_t least)
{
    if (*field >= least) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "%s: %s is %d, needs at least %d",
                   ct_source_map_where(s->map, s->param, field, s->file).text, name, *field, least);
}

static ct_status check(const ct_sweep *s)
{
    const Ct__SweepParameter *p = s->param;

    if ((p->solver == NULL) || (p->solver[0] == '\0'))
        return CT_FAIL(CT_ERR_CONFIG, "%s: solver is not set", AT(s, p, solver));
    if ((p->metric == NULL) || (p->metric[0] == '\0'))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: metric is not set; give an output of the solver's test net",
                       AT(s, p, metric));
    if (p->n_vary == 0)
        return CT_FAIL(CT_ERR_CONFIG, "%s: nothing varies; give vary { field value }", s->file);
    CT_TRY(at_least(s, &p->at_once, "at_once", 1));
    CT_TRY(at_least(s, &p->ranks, "ranks", 1));
    CT_TRY(at_least(s, &p->threads, "threads", 1));
    CT_TRY(at_least(s, &p->runs, "runs", 0));
    CT_TRY(at_least(s, &p->test_net, "test_net", 0));
    CT_TRY(at_least(s, &p->reduce, "reduce", 2));
    CT_TRY(check_fields(s));
    if ((p->search == CT__SWEEP_PARAMETER__SEARCH__RANDOM) && (p->runs == 0))
        return CT_FAIL(CT_ERR_CONFIG, "%s: RANDOM needs `runs`, how many there are to be",
                       AT(s, p, search));
    if ((p->search == CT__SWEEP_PARAMETER__SEARCH__GRID) && p->has_runs)
        return CT_FAIL(CT_ERR_CONFIG, "%s: runs is for RANDOM and HALVING; GRID has all there are",
                       AT(s, p, runs));
    return CT_OK;
}

/* ---- settings */

static int64_t count_of(const Ct__SweepFieldParameter *f)
{
    return has_range(f) ? f->steps : (int64_t)f->n_value;
}

/* The number at share u of a range, from 0 to 1. */
static char *number_at(const Ct__SweepFieldParameter *f, double u)
{
    double v = f->log ? f->from * pow(f->to / f->from, u) : f->from + (f->to - f->from) * u;
    ct_text t = { 0 };

    ct_text_add(&t, f->whole ? "%.0f" : "%.6g", f->whole ? round(v) : v);
    if (t.failed) ct_text_destroy(&t);
    return t.text;
}

static char *grid_value(const Ct__SweepFieldParameter *f, int64_t k)
{
    return has_range(f) ? number_at(f, (double)k / (f->steps - 1)) : strdup(f->value[k]);
}

/* Run i's, by the seed, the field and i alone. */
static char *drawn_value(const ct_sweep *s, size_t field, int i)
{
    const Ct__SweepFieldParameter *f = s->param->vary[field];
    uint64_t key = ct_rng_key((uint64_t)s->param->seed, ct_rng_hash("sweep"), field);
    double u = (double)ct_rng_uniform_at(key, (uint64_t)i);
    size_t k = (size_t)(u * (double)f->n_value);

    if (has_range(f)) return number_at(f, u);
    return strdup(f->value[(k < f->n_value) ? k : f->n_value - 1]);
}

static ct_status count_grid(const ct_sweep *s, int64_t *n_p)
{
    *n_p = 1;
    for (size_t i = 0; i < s->param->n_vary; i++) {
        const Ct__SweepFieldParameter *f = s->param->vary[i];

        if (count_of(f) == 0)
            return CT_FAIL(CT_ERR_CONFIG, "%s: a grid over \"%s\" needs `steps`", AT(s, f, field),
                           f->field);
        *n_p *= count_of(f);
        if (*n_p > CT_SWEEP_MAX_RUN) break;
    }
    return CT_OK;
}

/* The first field changes last. */
static ct_status make_runs(ct_sweep *s)
{
    const Ct__SweepParameter *p = s->param;
    int64_t n = p->runs;

    if (n == 0) CT_TRY(count_grid(s, &n));
    if (n > CT_SWEEP_MAX_RUN)
        return CT_FAIL(CT_ERR_CONFIG, "%s: more than %d runs", AT(s, p, runs), CT_SWEEP_MAX_RUN);
    s->run = calloc((size_t)n, sizeof(*s->run));
    if (s->run == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d runs", (int)n);
    for (s->n_run = 0; s->n_run < n;) {
        ct_sweep_run *r = &s->run[s->n_run++];
        int64_t rest = s->n_run - 1;

        r->value = calloc(p->n_vary, sizeof(*r->value));
        for (size_t i = p->n_vary; (r->value != NULL) && (i-- > 0);) {
            int64_t count = (p->runs == 0) ? count_of(p->vary[i]) : 1;

            r->value[i] = (p->runs == 0) ? grid_value(p->vary[i], rest % count)
                                         : drawn_value(s, i, s->n_run - 1);
            rest /= count;
            if (r->value[i] == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for settings");
        }
        if (r->value == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for settings");
    }
    return CT_OK;
}

/* ---- the solver */

static bool is_of_net(const char *field)
{
    return (strncmp(field, "layer[", 6) == 0) || (strcmp(field, "batch_size") == 0) ||
           (strcmp(field, "repeat.count") == 0) || ct_config_names_net(field);
}

/* What all runs are given, FIELD=VALUE. */
static ct_status try_set(const ct_sweep *s, const char *set, Ct__SolverParameter *solver)
{
    const char *equals = strchr(set, '=');
    ct_where at = ct_source_map_where(s->map, s->param, &s->param->set, s->file);
    ct_text field = { 0 };
    ct_status status = CT_OK;

    if ((equals == NULL) || (equals == set))
        return CT_FAIL(CT_ERR_CONFIG, "%s: set \"%s\": expected FIELD=VALUE", at.text, set);
    ct_text_add_bytes(&field, set, (size_t)(equals - set));
    if (field.failed)
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for settings");
    else if (!is_of_net(field.text))
        status = ct_prototxt_set(&solver->base, field.text, equals + 1, at.text);
    ct_text_destroy(&field);
    return status;
}

/* Before rounds are made of the solver: what runs are given may end them elsewhere. */
static ct_status set_all(const ct_sweep *s, Ct__SolverParameter *solver)
{
    for (size_t i = 0; i < s->param->n_set; i++) CT_TRY(try_set(s, s->param->set[i], solver));
    return CT_OK;
}

/* Fields of the solver itself are tried out now; those of nets when a run begins. */
static ct_status try_settings(const ct_sweep *s, Ct__SolverParameter *solver)
{
    const Ct__SweepParameter *p = s->param;

    for (int r = 0; r < s->n_run; r++) {
        for (size_t i = 0; i < p->n_vary; i++) {
            const char *field = p->vary[i]->field;

            if (is_of_net(field)) continue;
            CT_TRY(ct_prototxt_set(&solver->base, field, s->run[r].value[i],
                                   AT(s, p->vary[i], field)));
        }
    }
    return CT_OK;
}

/* Rounds end where tests are, the last one where the solver ends. */
static ct_status make_rounds(ct_sweep *s, const Ct__SolverParameter *solver)
{
    const Ct__SweepParameter *p = s->param;
    int64_t end = solver->max_iter, test = (solver->test_interval > 0) ? solver->test_interval : 1;
    int64_t divisor = 1;
    int n = 1;

    s->n_round = 1;
    if (p->search != CT__SWEEP_PARAMETER__SEARCH__HALVING) return CT_OK;
    if (!solver->has_max_iter || (solver->max_epoch > 0.0f))
        return CT_FAIL(CT_ERR_CONFIG, "%s: HALVING needs the solver's max_iter, without max_epoch",
                       AT(s, p, search));
    if ((p->first_iter < 1) || (p->first_iter >= end))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: first_iter is %d, needs 1 to below the solver's max_iter, %" PRId64,
                       AT(s, p, first_iter), p->first_iter, end);
    for (int64_t d = p->reduce; (end / d >= p->first_iter) && (n < CT_SWEEP_MAX_ROUND); n++)
        d *= p->reduce;
    s->n_round = n;
    for (int r = n - 1; r >= 0; r--, divisor *= p->reduce) {
        int64_t at = (end / divisor + test - 1) / test * test;

        s->stop[r] = ((r == n - 1) || (at > end)) ? end : at;
    }
    return CT_OK;
}

static ct_status read_solver(ct_sweep *s)
{
    Ct__SolverParameter *solver = NULL;
    ct_status status;

    CT_TRY(ct_solver_read(s->solver, NULL, &solver));
    status = set_all(s, solver);
    s->seed = (solver->random_seed >= 0) ? -1 : s->param->seed;
    if (status == CT_OK) status = make_rounds(s, solver);
    if (status == CT_OK) status = try_settings(s, solver);
    ct__solver_parameter__free_unpacked(solver, NULL);
    return status;
}

ct_status ct_sweep_read(const char *file, const char *folder, ct_sweep *s)
{
    ProtobufCMessage *m = NULL;

    s->file = strdup(file);
    s->folder = strdup(folder);
    if ((s->file == NULL) || (s->folder == NULL)) return CT_FAIL(CT_ERR_NOMEM, "no memory");
    for (size_t n = strlen(s->folder); (n > 1) && (s->folder[n - 1] == '/'); n--)
        s->folder[n - 1] = '\0';
    CT_TRY(ct_source_map_create(&s->map));
    CT_TRY(ct_prototxt_read(&ct__sweep_parameter__descriptor, file, s->map, &m));
    s->param = (Ct__SweepParameter *)(void *)m;
    CT_TRY(check(s));
    s->solver = (access(s->param->solver, R_OK) == 0) ? strdup(s->param->solver)
                                                      : ct_path_beside(file, s->param->solver);
    if (s->solver == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a file name");
    if (access(s->solver, R_OK) != 0)
        return CT_FAIL(CT_ERR_IO, "%s: solver \"%s\": %s", AT(s, s->param, solver),
                       s->param->solver, ct_path_why(s->solver, errno).text);
    CT_TRY(make_runs(s));
    return read_solver(s);
}

void ct_sweep_destroy(ct_sweep *s)
{
    for (int r = 0; r < s->n_run; r++) {
        for (size_t i = 0; (s->run[r].value != NULL) && (i < s->param->n_vary); i++)
            free(s->run[r].value[i]);
        free(s->run[r].value);
    }
    free(s->run);
    if (s->param != NULL) ct__sweep_parameter__free_unpacked(s->param, NULL);
    ct_source_map_destroy(s->map);
    free(s->file);
    free(s->folder);
    free(s->solver);
    *s = (ct_sweep){ 0 };
}
