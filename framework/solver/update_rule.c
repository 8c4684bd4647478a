/* The update rules there are: the table, what each needs of the solver's parameters, and the
 * numbers that it takes from them. Formulas: framework/math/update.h, sources: docs/training.md. */
#include "framework/solver/update_rule.h"

#include <math.h>
#include <string.h>

#include "framework/base/text.h"
#include "framework/math/update_math.h"

/* ---- what a rule needs */

static bool is_l1(const Ct__SolverParameter *p)
{
    return (p->regularization_type != NULL) && (strcmp(p->regularization_type, "L1") == 0);
}

static ct_status check_share(const ct_solver_text *t, const char *type, const char *name,
                             const float *field)
{
    if ((*field >= 0.0f) && (*field < 1.0f)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "%s: type \"%s\" needs %s of at least 0 and below 1, not %g",
                   ct_source_map_where(t->map, t->p, field, "solver").text, type, name,
                   (double)*field);
}

static ct_status check_delta(const ct_solver_text *t, const char *type)
{
    if (isfinite(t->p->delta) && (t->p->delta >= 0.0f)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "%s: type \"%s\" needs a delta of at least 0, not %g",
                   CT_SOLVER_AT(t, delta), type, (double)t->p->delta);
}

/* As Caffe does: a momentum that would not be looked at is a mistake. */
static ct_status check_no_momentum(const ct_solver_text *t, const char *type)
{
    if (t->p->momentum == 0.0f) return check_delta(t, type);
    return CT_FAIL(CT_ERR_CONFIG, "%s: momentum is %g, but type \"%s\" has none: leave it out",
                   CT_SOLVER_AT(t, momentum), (double)t->p->momentum, type);
}

static ct_status check_rmsprop(const ct_solver_text *t, const char *type)
{
    CT_TRY(check_no_momentum(t, type));
    return check_share(t, type, "rms_decay", &t->p->rms_decay);
}

static ct_status check_adadelta(const ct_solver_text *t, const char *type)
{
    CT_TRY(check_delta(t, type));
    return check_share(t, type, "momentum", &t->p->momentum);
}

static ct_status check_adam(const ct_solver_text *t, const char *type)
{
    CT_TRY(check_adadelta(t, type));
    return check_share(t, type, "momentum2", &t->p->momentum2);
}

/* Caffe does not have these, so no old file relies on a momentum of 0 where none is given. */
static ct_status check_own(const ct_solver_text *t, const char *type)
{
    if (!t->p->has_momentum)
        return CT_FAIL(CT_ERR_CONFIG, "%s: type \"%s\" needs momentum; 0.9 is usual",
                       CT_SOLVER_AT(t, type), type);
    if (is_l1(t->p) && (t->p->weight_decay != 0.0f))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: type \"%s\" is defined with the decay of regularization_type L2 only",
                       CT_SOLVER_AT(t, regularization_type), type);
    return CT_OK;
}

static ct_status check_adamw(const ct_solver_text *t, const char *type)
{
    CT_TRY(check_own(t, type));
    return check_adam(t, type);
}

static ct_status check_lars(const ct_solver_text *t, const char *type)
{
    CT_TRY(check_own(t, type));
    if (isfinite(t->p->local_gw_ratio) && (t->p->local_gw_ratio > 0.0f)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "%s: local_gw_ratio is %g, type \"%s\" needs more than 0",
                   CT_SOLVER_AT(t, local_gw_ratio), (double)t->p->local_gw_ratio, type);
}

/* ---- trust ratios */

static float trust_lars(const Ct__SolverParameter *p, const ct_update *u, double w, double g)
{
    return ct_update_trust(CT_UPDATE_LARS, (double)p->local_gw_ratio, (double)u->decay_l2, w, g);
}

static float trust_lamb(const Ct__SolverParameter *p, const ct_update *u, double w, double r)
{
    (void)p;
    (void)u;
    return ct_update_trust(CT_UPDATE_LAMB, 0.0, 0.0, w, r);
}

/* ---- the table */

static ct_status sgd_apply(const ct_update *u)
{
    return u->dev->math->sgd(NULL, u->count, u->scale, u->rate, u->momentum, u->decay_l2,
                             u->decay_l1, u->grad, u->state[0], u->weight);
}

/* clang-format off */
static const ct_update_rule rule_table[] = {
    { "SGD", 1, { "momentum" }, true, CT_UPDATE_SGD, NULL, sgd_apply, NULL, NULL },
    { "Nesterov", 1, { "momentum" }, true, CT_UPDATE_NESTEROV, NULL, ct_update_nesterov, NULL, NULL },
    { "AdaGrad", 1, { "sum_square" }, false, CT_UPDATE_ADAGRAD, check_no_momentum, ct_update_adagrad, NULL, NULL },
    { "RMSProp", 1, { "mean_square" }, false, CT_UPDATE_RMSPROP, check_rmsprop, ct_update_rmsprop, NULL, NULL },
    { "AdaDelta", 2, { "mean_square", "mean_square_update" }, false, CT_UPDATE_ADADELTA, check_adadelta, ct_update_adadelta, NULL, NULL },
    { "Adam", 2, { "mean", "mean_square" }, false, CT_UPDATE_ADAM, check_adam, ct_update_adam, NULL, NULL },
    { "AdamW", 2, { "mean", "mean_square" }, false, CT_UPDATE_ADAMW, check_adamw, ct_update_adamw, NULL, NULL },
    { "LARS", 1, { "momentum" }, false, CT_UPDATE_LARS, check_lars, ct_update_lars, ct_update_lars_norms, trust_lars },
    { "LAMB", 2, { "mean", "mean_square" }, false, CT_UPDATE_LAMB, check_adamw, ct_update_lamb, ct_update_lamb_norms, trust_lamb },
};
/* clang-format on */
enum { N_RULE = (int)(sizeof(rule_table) / sizeof(rule_table[0])) };

/* where: of the type. */
static ct_status find(const char *type, const char *where, const ct_update_rule **rule_p)
{
    const char *known[N_RULE], *near;
    ct_text list = { 0 };
    ct_status status;

    if (type == NULL) type = rule_table[0].type;
    for (int i = 0; i < N_RULE; i++) {
        if (strcmp(rule_table[i].type, type) == 0) {
            ct_text_destroy(&list);
            *rule_p = &rule_table[i];
            return CT_OK;
        }
        known[i] = rule_table[i].type;
        ct_text_add(&list, "%s%s", (i > 0) ? ", " : "", known[i]);
    }
    near = ct_text_nearest(type, known, N_RULE);
    status = CT_FAIL(CT_ERR_CONFIG, "%s: type \"%s\" is unknown%s%s%s; known: %s", where, type,
                     (near != NULL) ? "; did you mean \"" : "", (near != NULL) ? near : "",
                     (near != NULL) ? "\"?" : "", (list.text != NULL) ? list.text : "");
    ct_text_destroy(&list);
    return status;
}

ct_status ct_update_rule_find(const char *type, const ct_update_rule **rule_p)
{
    return find(type, "solver", rule_p);
}

int64_t ct_update_rule_state_bytes(const Ct__SolverParameter *p, int64_t grad_count)
{
    bool averages =
        (p->average != NULL) && (p->average->type != CT__WEIGHT_AVERAGE_PARAMETER__TYPE__NONE);

    const char *type = (p->type != NULL) ? p->type : rule_table[0].type;

    for (int i = 0; i < N_RULE; i++) {
        if (strcmp(rule_table[i].type, type) == 0)
            return (int64_t)sizeof(float) * grad_count *
                   (rule_table[i].n_state + (averages ? 1 : 0));
    }
    return 0;
}

ct_status ct_update_rule_check(const ct_solver_text *t)
{
    const ct_update_rule *rule;

    CT_TRY(find(t->p->type, CT_SOLVER_AT(t, type), &rule));
    return (rule->check != NULL) ? rule->check(t, rule->type) : CT_OK;
}

/* 1 / (1 - beta^t), in double as Caffe has it. */
static double correction(float beta, int64_t t)
{
    return 1.0 / (1.0 - pow((double)beta, (double)t));
}

void ct_update_rule_numbers(const ct_update_rule *rule, const Ct__SolverParameter *p,
                            int64_t iteration, ct_update *u)
{
    bool rms = (rule->apply == ct_update_rmsprop), adam = (rule->apply == ct_update_adam);
    double first = correction(p->momentum, iteration + 1);
    double second = correction(p->momentum2, iteration + 1);

    u->momentum = p->momentum;
    u->momentum2 = rms ? p->rms_decay : p->momentum2;
    u->delta = p->delta;
    u->correction = (float)(adam ? first / sqrt(second) : first);
    u->correction2 = (float)second;
    u->trust = 1.0f;
}
