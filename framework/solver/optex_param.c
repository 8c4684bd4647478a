#include "framework/solver/optex.h"

#include <math.h>
#include <string.h>

#include "framework/solver/gradient_predictor.h"
#include "framework/solver/optex_guard.h"

/* ---- what it says */

bool ct_optex_is(const Ct__SolverParameter *p)
{
    return (p->type != NULL) && (strcmp(p->type, CT_OPTEX_TYPE) == 0);
}

const Ct__OptExParameter *ct_optex_param(const Ct__SolverParameter *p)
{
    static const Ct__OptExParameter none = CT__OPT_EX_PARAMETER__INIT;

    return (p->optex != NULL) ? p->optex : &none;
}

int ct_optex_points(const Ct__SolverParameter *p)
{
    return ct_optex_is(p) ? ct_optex_param(p)->parallel : 1;
}

int ct_optex_sharers(const Ct__SolverParameter *p, int n_rank)
{
    int points = ct_optex_points(p);

    return ((n_rank > points) && (n_rank % points == 0)) ? n_rank / points : 1;
}

ct_turns ct_optex_turns(const Ct__SolverParameter *p, int rank, int n_rank)
{
    int points = ct_optex_points(p), sharers = ct_optex_sharers(p, n_rank);
    int n = (n_rank < points) ? points / n_rank : 1;

    if ((points == 1) || (n_rank == 1)) return (ct_turns){ .round = 0 };
    return (ct_turns){ .round = points, .first = rank / sharers * n, .n = n };
}

bool ct_optex_predicts(const Ct__OptExParameter *o)
{
    return (o->parallel > 1) && (o->predictor != CT__OPT_EX_PARAMETER__PREDICTOR__NONE);
}

int ct_optex_arrays(const Ct__SolverParameter *p, int n_state)
{
    const Ct__OptExParameter *o = ct_optex_param(p);

    if (!ct_optex_is(p) || (o->parallel < 2)) return 0;
    return 2 * o->parallel + 2 * n_state + (ct_optex_predicts(o) ? 2 * o->history : 0);
}

/* ---- what it may say */

static ct_status within(const ct_solver_text *t, const int32_t *field, const char *name, int most)
{
    if ((*field >= 1) && (*field <= most)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "%s: optex.%s is %d, needs 1 to %d",
                   ct_source_map_where(t->map, t->p, field, "solver").text, name, *field, most);
}

static ct_status not_negative(const ct_solver_text *t, const float *field, const char *name)
{
    if (isfinite(*field) && (*field >= 0.0f)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "%s: optex.%s is %g, needs at least 0",
                   ct_source_map_where(t->map, t->p, field, "solver").text, name, (double)*field);
}

/* A field that nothing would look at is a mistake. */
static ct_status check_kernel(const ct_solver_text *t, const Ct__OptExParameter *o)
{
    const char *name = o->has_kernel         ? "kernel"
                       : o->has_length_scale ? "length_scale"
                       : o->has_noise        ? "noise"
                       : o->has_prior_mean   ? "prior_mean"
                                             : NULL;

    CT_TRY(not_negative(t, &o->length_scale, "length_scale"));
    CT_TRY(not_negative(t, &o->noise, "noise"));
    if ((name == NULL) || (o->predictor == CT__OPT_EX_PARAMETER__PREDICTOR__KERNEL)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "%s: optex.%s is for predictor KERNEL alone: leave it out",
                   CT_SOLVER_AT(t, optex), name);
}

static ct_status refuse(const ct_solver_text *t, const char *what, const char *why)
{
    return CT_FAIL(CT_ERR_CONFIG, "%s: type \"%s\" and %s do not go together: %s",
                   CT_SOLVER_AT(t, type), CT_OPTEX_TYPE, what, why);
}

/* What is about gradients on their way, and what about weights between the steps of a round. */
static ct_status check_exchange(const ct_solver_text *t)
{
    const Ct__SolverParameter *p = t->p;

    if ((p->compression != NULL) && (p->compression->type != CT__COMPRESSION_PARAMETER__TYPE__NONE))
        return refuse(t, "compression",
                      "what a codec leaves behind belongs to one point, and counts at the next");
    if (p->iter_size > 1)
        return refuse(t, "iter_size above 1",
                      "the batches of a step would run in turn, as points do: take a larger batch, "
                      "or more points in optex.parallel");
    if (p->reproducible_sum)
        return refuse(t, "reproducible_sum",
                      "it fixes the order of one sum over all ranks, and each point has its own");
    if (p->outer != NULL)
        return refuse(t, "outer",
                      "both split the ranks into groups, and a round begins at one point for all");
    return CT_OK;
}

static ct_status check_beside(const ct_solver_text *t)
{
    const Ct__SolverParameter *p = t->p;

    if (p->precision == CT__SOLVER_PARAMETER__PRECISION__FP16)
        return refuse(t, "precision FP16",
                      "a step whose gradients are not finite would leave its round half done; "
                      "BF16 needs no loss scale");
    if (ct_update_rule_has_ratio(ct_update_rule_type(p)))
        return refuse(t, "a base with trust ratios",
                      "their norms are found as gradients land, before the weights are those of "
                      "the step");
    if ((p->average != NULL) && (p->average->type != CT__WEIGHT_AVERAGE_PARAMETER__TYPE__NONE))
        return refuse(t, "average", "points that a round leaves again would count in it");
    if (p->memory != NULL)
        return refuse(t, "memory { }",
                      "the weights of several points are there at once, whole and in memory");
    if (p->snapshot_async && ct_optex_param(p)->snapshot_history)
        return refuse(
            t, "snapshot_async",
            "the history is written between steps; snapshot_history: false leaves it out");
    return CT_OK;
}

ct_status ct_optex_check(const ct_solver_text *t)
{
    const Ct__SolverParameter *p = t->p;

    if (!ct_optex_is(p) && (p->optex != NULL))
        return CT_FAIL(CT_ERR_CONFIG, "%s: optex is given, but type is \"%s\": it is for \"%s\"",
                       CT_SOLVER_AT(t, optex), (p->type != NULL) ? p->type : "SGD", CT_OPTEX_TYPE);
    if (!ct_optex_is(p)) return CT_OK;
    if (p->optex != NULL) {
        CT_TRY(within(t, &p->optex->parallel, "parallel", CT_OPTEX_POINTS));
        CT_TRY(within(t, &p->optex->history, "history", CT_PREDICTOR_ROOM));
        CT_TRY(check_kernel(t, p->optex));
    }
    CT_TRY(check_exchange(t));
    return check_beside(t);
}
