/* The update rules there are: the table, what each needs of the solver's parameters, and the
 * numbers that it takes from them. */
#include "framework/solver/update_rule.h"

#include <math.h>
#include <string.h>

#include "framework/math/math.h"
#include "framework/math/update_math.h"
#include "framework/solver/optex.h"
#include "framework/solver/solver.h"

#define ROW_OF(_name, _kind, ...) { .kind = CT_UPDATE_##_kind, __VA_ARGS__ },
static const ct_update_rule rule_table[] = { CT_UPDATE_LIST(ROW_OF) };

const ct_update_rule *ct_update_rule_at(int i)
{
    return ((i >= 0) && (i < CT_UPDATE_N)) ? &rule_table[i] : NULL;
}

/* NULL: there is none of this type. */
static const ct_update_rule *rule_of(const char *type)
{
    if (type == NULL) return &rule_table[0];
    for (int i = 0; i < CT_UPDATE_N; i++)
        if (strcmp(rule_table[i].type, type) == 0) return &rule_table[i];
    return NULL;
}

const char *ct_update_rule_type(const Ct__SolverParameter *p)
{
    return ct_optex_is(p) ? ct_optex_param(p)->base_type : p->type;
}

/* field, at `where`: what says the type. A solver's own may be OptEx, too. */
static ct_status find(const char *type, const char *field, const char *where,
                      const ct_update_rule **rule_p)
{
    const ct_update_rule *rule = rule_of(type);
    const char *known[CT_UPDATE_N + 1], *near;
    int n = CT_UPDATE_N;
    ct_text list = { 0 };
    ct_status status;

    if (rule != NULL) {
        *rule_p = rule;
        return CT_OK;
    }
    for (int i = 0; i < CT_UPDATE_N; i++) {
        known[i] = rule_table[i].type;
        ct_text_add(&list, "%s%s", (i > 0) ? ", " : "", known[i]);
    }
    if (strcmp(field, "type") == 0) {
        known[n++] = CT_OPTEX_TYPE;
        ct_text_add(&list, ", %s", CT_OPTEX_TYPE);
    }
    near = ct_text_nearest(type, known, n);
    status = CT_FAIL(CT_ERR_CONFIG, "%s: %s \"%s\" is unknown%s%s%s; known: %s", where, field, type,
                     (near != NULL) ? "; did you mean \"" : "", (near != NULL) ? near : "",
                     (near != NULL) ? "\"?" : "", (list.text != NULL) ? list.text : "");
    ct_text_destroy(&list);
    return status;
}

ct_status ct_update_rule_find(const char *type, const ct_update_rule **rule_p)
{
    return find(type, "type", "solver", rule_p);
}

bool ct_update_rule_is_nesterov(const char *type)
{
    const ct_update_rule *rule = rule_of(type);

    return (rule != NULL) && rule->nesterov;
}

bool ct_update_rule_corrects(const char *type)
{
    const ct_update_rule *rule = rule_of(type);

    return (rule != NULL) && rule->corrects;
}

bool ct_update_rule_freezes(const char *type)
{
    const ct_update_rule *rule = rule_of(type);

    return (rule != NULL) && rule->freezes;
}

bool ct_update_rule_has_ratio(const char *type)
{
    const ct_update_rule *rule = rule_of(type);

    return (rule != NULL) && (rule->ratio != CT_UPDATE_NO_RATIO);
}

int64_t ct_update_rule_state_bytes(const Ct__SolverParameter *p, int64_t grad_count)
{
    bool averages =
        (p->average != NULL) && (p->average->type != CT__WEIGHT_AVERAGE_PARAMETER__TYPE__NONE);
    const ct_update_rule *rule = rule_of(ct_update_rule_type(p));

    if (rule == NULL) return 0;
    return (int64_t)sizeof(float) * grad_count *
           (rule->n_state + (averages ? 1 : 0) + ct_optex_arrays(p, rule->n_state));
}

/* ---- what a rule needs */

static ct_status check_share(const ct_solver_text *t, const char *type, const char *name,
                             const float *field)
{
    if ((*field >= 0.0f) && (*field < 1.0f)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "%s: type \"%s\" needs %s of at least 0 and below 1, not %g",
                   ct_source_map_where(t->map, t->p, field, "solver").text, type, name,
                   (double)*field);
}

/* Caffe does not have these rules, so no old file relies on a momentum of 0 where none is given. */
static ct_status check_own(const ct_solver_text *t, const char *type)
{
    const char *norm = t->p->regularization_type;

    if (!t->p->has_momentum)
        return CT_FAIL(CT_ERR_CONFIG, "%s: type \"%s\" needs momentum; 0.9 is usual",
                       CT_SOLVER_AT(t, type), type);
    if ((norm != NULL) && (strcmp(norm, "L1") == 0) && (t->p->weight_decay != 0.0f))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: type \"%s\" is defined with the decay of regularization_type L2 only",
                       CT_SOLVER_AT(t, regularization_type), type);
    return CT_OK;
}

static ct_status check_fields(const ct_solver_text *t, const ct_update_rule *rule)
{
    const Ct__SolverParameter *p = t->p;
    const char *type = rule->type;
    unsigned reads = rule->reads;

    if (rule->own) CT_TRY(check_own(t, type));
    /* as Caffe does: a momentum that would not be looked at is a mistake */
    if (!(reads & CT_UPDATE_MOMENTUM) && (p->momentum != 0.0f))
        return CT_FAIL(CT_ERR_CONFIG, "%s: momentum is %g, but type \"%s\" has none: leave it out",
                       CT_SOLVER_AT(t, momentum), (double)p->momentum, type);
    if ((reads & CT_UPDATE_DELTA) && !(isfinite(p->delta) && (p->delta >= 0.0f)))
        return CT_FAIL(CT_ERR_CONFIG, "%s: type \"%s\" needs a delta of at least 0, not %g",
                       CT_SOLVER_AT(t, delta), type, (double)p->delta);
    if (rule->means) CT_TRY(check_share(t, type, "momentum", &p->momentum));
    if (reads & CT_UPDATE_MOMENTUM2) CT_TRY(check_share(t, type, "momentum2", &p->momentum2));
    if (reads & CT_UPDATE_RMS_DECAY) CT_TRY(check_share(t, type, "rms_decay", &p->rms_decay));
    if ((reads & CT_UPDATE_LOCAL_RATIO) &&
        !(isfinite(p->local_gw_ratio) && (p->local_gw_ratio > 0.0f)))
        return CT_FAIL(CT_ERR_CONFIG, "%s: local_gw_ratio is %g, type \"%s\" needs more than 0",
                       CT_SOLVER_AT(t, local_gw_ratio), (double)p->local_gw_ratio, type);
    return CT_OK;
}

ct_status ct_update_rule_check(const ct_solver_text *t)
{
    const ct_update_rule *rule;

    if (ct_optex_is(t->p))
        CT_TRY(
            find(ct_update_rule_type(t->p), "optex.base_type", CT_OPTEX_AT(t, base_type), &rule));
    else
        CT_TRY(find(t->p->type, "type", CT_SOLVER_AT(t, type), &rule));
    return check_fields(t, rule);
}

/* ---- what it does */

bool ct_update_clips(const Ct__SolverParameter *p)
{
    const Ct__CompressionParameter *c = p->compression;

    return (p->clip_gradients >= 0.0f) && ((c == NULL) || !(c->local_clip > 0.0f));
}

bool ct_update_waits_for_all(const Ct__SolverParameter *p)
{
    return ct_update_clips(p) || (p->precision == CT__SOLVER_PARAMETER__PRECISION__FP16);
}

/* 1 / (1 - beta^t), in double as Caffe has it. */
static double correction(float beta, int64_t t)
{
    return 1.0 / (1.0 - pow((double)beta, (double)t));
}

static void correct(const ct_update_rule *rule, double first, double second, ct_update *u)
{
    u->correction = (float)(rule->joint ? first / sqrt(second) : first);
    u->correction2 = (float)second;
}

void ct_update_rule_freeze(const ct_update_rule *rule, const Ct__SolverParameter *p,
                           int64_t iteration, int64_t steps, ct_update *u)
{
    u->momentum2 = 1.0f;
    correct(rule, correction(p->momentum, iteration + 1), correction(p->momentum2, steps), u);
}

void ct_update_rule_numbers(const ct_update_rule *rule, const Ct__SolverParameter *p,
                            int64_t iteration, ct_update *u)
{
    double first = correction(p->momentum, iteration + 1);
    double second = correction(p->momentum2, iteration + 1);

    u->momentum = p->momentum;
    u->momentum2 = (rule->reads & CT_UPDATE_RMS_DECAY) ? p->rms_decay : p->momentum2;
    u->delta = p->delta;
    correct(rule, first, second, u);
    u->trust = 1.0f;
}

float ct_update_rule_trust(const ct_update_rule *rule, const Ct__SolverParameter *p,
                           const ct_update *u, double weight, double step)
{
    return ct_update_trust(rule->ratio, (double)p->local_gw_ratio, (double)u->decay_l2, weight,
                           step);
}

ct_status ct_update_rule_apply(const ct_update_rule *rule, const ct_update *u)
{
    return (rule->apply != NULL) ? rule->apply(u) : u->dev->math->update(NULL, rule->kind, u);
}

/* ---- what the reference says of it */

static const char *const reference_head =
    "\n## Update rules\n\n"
    "`type` of the solver. g is the gradient: clipped, divided by `iter_size`, regularised (+ d w\n"
    "for L2, + d sign(w) for L1). d = `weight_decay` x `decay_mult`, lr is the policy's rate x\n"
    "`lr_mult`, m = `momentum`, m2 = `momentum2`, r = `rms_decay`, e = `delta`, c =\n"
    "`local_gw_ratio` (Intel's name). t counts from 1. h is the first state, v the second; both\n"
    "begin at 0. [training.md](training.md#solver-types) says more.\n\n"
    "| type | states | fields | rule | source |\n|---|---|---|---|---|\n";

void ct_update_rule_reference(ct_text *out)
{
    static const char *const field[] = { "momentum", "momentum2", "rms_decay", "delta",
                                         "local_gw_ratio" };

    ct_text_add(out, "%s", reference_head);
    for (int i = 0; i < CT_UPDATE_N; i++) {
        const ct_update_rule *rule = &rule_table[i];
        const char *between = "";

        ct_text_add(out, "| `%s` | ", rule->type);
        for (int k = 0; k < rule->n_state; k++)
            ct_text_add(out, "%s`%s`", (k > 0) ? ", " : "", rule->state_name[k]);
        ct_text_add(out, " | ");
        for (unsigned k = 0; k < sizeof(field) / sizeof(field[0]); k++) {
            if (!(rule->reads & (1u << k))) continue;
            ct_text_add(out, "%s`%s`", between, field[k]);
            between = ", ";
        }
        ct_text_add(out, " | %s | %s |\n", rule->formula, rule->source);
    }
}
