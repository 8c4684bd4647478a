/* Learning-rate policies. The formulas are those Caffe documents for lr_policy, in double
 * precision; each is a function of the iteration alone, so a resumed run needs no state (plateau is
 * the exception). */
#include "framework/solver/solver_private.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "framework/base/text.h"

/* What a policy cannot do without: an unset field would silently mean 0. */
enum {
    NEEDS_GAMMA = 1,
    NEEDS_POWER = 2,
    NEEDS_STEPSIZE = 4,
    NEEDS_STEPVALUE = 8,
    NEEDS_MAX_ITER = 16,
    NEEDS_STAGES = 32,
    NEEDS_PLATEAU = 64,
    NO_BASE_LR = 128,
    HAS_LEAST = 256 /* falls to min_lr */
};

typedef struct lr_policy {
    const char *name;
    int needs;
    /* of base_lr, or of what base_lr is over min_lr; iteration: as the policy counts */
    double (*factor)(const Ct__SolverParameter *p, double iteration);
} lr_policy;

/* The policy's iteration 0: the first one, or the end of the warm-up. */
static int32_t begins_at(const Ct__SolverParameter *p)
{
    return ((p->warmup != NULL) && p->warmup->policy_after) ? p->warmup->iterations : 0;
}

/* max_iter is known when the data set is. */
static bool ends_by_epochs(const Ct__SolverParameter *p)
{
    return !p->has_max_iter && (p->max_epoch > 0.0f);
}

/* What a policy needs of the fields that are known by now. */
static int needs_of(const Ct__SolverParameter *p, const lr_policy *policy)
{
    return ends_by_epochs(p) ? policy->needs & ~NEEDS_MAX_ITER : policy->needs;
}

/* How much of its way to max_iter a policy has behind it, up to 1. */
static double done(const Ct__SolverParameter *p, double iteration)
{
    double share = iteration / (p->max_iter - begins_at(p));

    return (share < 1.0) ? share : 1.0; /* the pass after the end shows the last rate */
}

/* How often a policy in steps has stepped; iteration: as the policy counts. */
static int64_t n_step(const Ct__SolverParameter *p, int64_t iteration)
{
    int64_t step = 0;

    if (strcmp(p->lr_policy, "multistep") == 0) {
        while ((step < (int64_t)p->n_stepvalue) && (iteration >= p->stepvalue[step])) step++;
    } else if ((strcmp(p->lr_policy, "step") == 0) && (p->stepsize > 0)) {
        step = iteration / p->stepsize;
    }
    return step;
}

static double factor_fixed(const Ct__SolverParameter *p, double iteration)
{
    (void)p;
    (void)iteration;
    return 1.0;
}

static double factor_step(const Ct__SolverParameter *p, double iteration)
{
    return pow((double)p->gamma, floor(iteration / p->stepsize));
}

static double factor_exp(const Ct__SolverParameter *p, double iteration)
{
    return pow((double)p->gamma, iteration);
}

static double factor_inv(const Ct__SolverParameter *p, double iteration)
{
    return pow(1.0 + (double)p->gamma * iteration, -(double)p->power);
}

static double factor_multistep(const Ct__SolverParameter *p, double iteration)
{
    return pow((double)p->gamma, (double)n_step(p, (int64_t)iteration));
}

static double factor_poly(const Ct__SolverParameter *p, double iteration)
{
    return pow(1.0 - done(p, iteration), (double)p->power);
}

static double factor_sigmoid(const Ct__SolverParameter *p, double iteration)
{
    return 1.0 / (1.0 + exp(-(double)p->gamma * (iteration - p->stepsize)));
}

/* Loshchilov and Hutter, "SGDR", ICLR 2017, eq. 5 with one period. */
static double factor_cosine(const Ct__SolverParameter *p, double iteration)
{
    return 0.5 * (1.0 + cos(acos(-1.0) * done(p, iteration)));
}

/* Intel's: stagelr[i] up to and with iteration stageiter[i], the last one beyond. */
static double factor_multifixed(const Ct__SolverParameter *p, double iteration)
{
    size_t i = 0;

    while ((i + 1 < p->n_stagelr) && (iteration > (double)p->stageiter[i])) i++;
    return (double)p->stagelr[i];
}

static const lr_policy policy_table[] = {
    { "fixed", 0, factor_fixed },
    { "step", NEEDS_GAMMA | NEEDS_STEPSIZE, factor_step },
    { "exp", NEEDS_GAMMA, factor_exp },
    { "inv", NEEDS_GAMMA | NEEDS_POWER, factor_inv },
    { "multistep", NEEDS_GAMMA | NEEDS_STEPVALUE, factor_multistep },
    { "poly", NEEDS_POWER | NEEDS_MAX_ITER | HAS_LEAST, factor_poly },
    { "sigmoid", NEEDS_GAMMA | NEEDS_STEPSIZE, factor_sigmoid },
    { "cosine", NEEDS_MAX_ITER | HAS_LEAST, factor_cosine },
    { "multifixed", NEEDS_STAGES | NO_BASE_LR, factor_multifixed },
    { "plateau", NEEDS_GAMMA | NEEDS_PLATEAU, factor_fixed }, /* its steps: ct_plateau_note() */
};
enum { N_POLICY = (int)(sizeof(policy_table) / sizeof(policy_table[0])) };

static ct_status find_policy(const ct_solver_text *t, const lr_policy **policy_p)
{
    const char *name = t->p->lr_policy;
    const char *known[N_POLICY], *near;

    for (int i = 0; i < N_POLICY; i++) {
        if ((name != NULL) && (strcmp(policy_table[i].name, name) == 0)) {
            *policy_p = &policy_table[i];
            return CT_OK;
        }
        known[i] = policy_table[i].name;
    }
    near = (name != NULL) ? ct_text_nearest(name, known, N_POLICY) : NULL;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s: lr_policy %s%s%s%s%s%s; known: fixed, step, exp, inv, multistep, poly, "
                   "sigmoid, cosine, multifixed, plateau",
                   CT_SOLVER_AT(t, lr_policy), (name != NULL) ? "\"" : "is not set",
                   (name != NULL) ? name : "", (name != NULL) ? "\" is unknown" : "",
                   (near != NULL) ? "; did you mean \"" : "", (near != NULL) ? near : "",
                   (near != NULL) ? "\"?" : "");
}

static ct_status check_fields(const ct_solver_text *t, const lr_policy *policy)
{
    const Ct__SolverParameter *p = t->p;
    ct_text missing = { 0 };
    ct_status status = CT_OK;

    if (!(policy->needs & NO_BASE_LR) && !p->has_base_lr) ct_text_add(&missing, " base_lr");
    if ((policy->needs & NEEDS_GAMMA) && !p->has_gamma) ct_text_add(&missing, " gamma");
    if ((policy->needs & NEEDS_POWER) && !p->has_power) ct_text_add(&missing, " power");
    if ((policy->needs & NEEDS_STEPSIZE) && !p->has_stepsize) ct_text_add(&missing, " stepsize");
    if ((policy->needs & NEEDS_STEPVALUE) && (p->n_stepvalue == 0))
        ct_text_add(&missing, " stepvalue");
    if ((needs_of(p, policy) & NEEDS_MAX_ITER) && !p->has_max_iter)
        ct_text_add(&missing, " max_iter");
    if ((policy->needs & NEEDS_STAGES) && (p->n_stagelr == 0)) ct_text_add(&missing, " stagelr");
    if ((policy->needs & NEEDS_STAGES) && (p->n_stageiter == 0))
        ct_text_add(&missing, " stageiter");
    if ((policy->needs & NEEDS_PLATEAU) && (p->n_plateau_winsize == 0))
        ct_text_add(&missing, " plateau_winsize");
    if (missing.text != NULL)
        status = CT_FAIL(CT_ERR_CONFIG, "%s: lr_policy \"%s\" needs a value for:%s",
                         CT_SOLVER_AT(t, lr_policy), policy->name, missing.text);
    ct_text_destroy(&missing);
    return status;
}

/* The rate at max_iter. */
static ct_status check_least(const ct_solver_text *t, const lr_policy *policy)
{
    const Ct__SolverParameter *p = t->p;

    if (!p->has_min_lr) return CT_OK;
    if (!(policy->needs & HAS_LEAST))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: min_lr is what \"cosine\" and \"poly\" fall to, but lr_policy is "
                       "\"%s\"",
                       CT_SOLVER_AT(t, min_lr), policy->name);
    if ((p->min_lr >= 0.0f) && (p->min_lr <= p->base_lr)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "%s: min_lr is %g, needs 0 to base_lr, which is %g",
                   CT_SOLVER_AT(t, min_lr), (double)p->min_lr, (double)p->base_lr);
}

static ct_status check_values(const ct_solver_text *t, const lr_policy *policy)
{
    const Ct__SolverParameter *p = t->p;

    if ((policy->needs & NEEDS_GAMMA) && !(p->gamma >= 0.0f))
        return CT_FAIL(CT_ERR_CONFIG, "%s: gamma is %g, lr_policy \"%s\" needs at least 0",
                       CT_SOLVER_AT(t, gamma), (double)p->gamma, policy->name);
    if ((policy->needs & NEEDS_STEPSIZE) && (p->stepsize <= 0))
        return CT_FAIL(CT_ERR_CONFIG, "%s: stepsize is %d, lr_policy \"%s\" needs at least 1",
                       CT_SOLVER_AT(t, stepsize), p->stepsize, policy->name);
    if ((needs_of(p, policy) & NEEDS_MAX_ITER) && (p->max_iter <= 0))
        return CT_FAIL(CT_ERR_CONFIG, "%s: max_iter is %d, lr_policy \"%s\" needs at least 1",
                       CT_SOLVER_AT(t, max_iter), p->max_iter, policy->name);
    for (size_t i = 1; (policy->needs & NEEDS_STEPVALUE) && (i < p->n_stepvalue); i++) {
        if (p->stepvalue[i] <= p->stepvalue[i - 1])
            return CT_FAIL(CT_ERR_CONFIG, "%s: stepvalue %d stands after %d; they must ascend",
                           CT_SOLVER_AT(t, stepvalue), p->stepvalue[i], p->stepvalue[i - 1]);
    }
    if ((policy->needs & NEEDS_STAGES) && (p->n_stagelr != p->n_stageiter))
        return CT_FAIL(CT_ERR_CONFIG, "%s: %zu stagelr and %zu stageiter; each stage has both",
                       CT_SOLVER_AT(t, stagelr), p->n_stagelr, p->n_stageiter);
    for (size_t i = 1; (policy->needs & NEEDS_STAGES) && (i < p->n_stageiter); i++) {
        if (p->stageiter[i] <= p->stageiter[i - 1])
            return CT_FAIL(CT_ERR_CONFIG, "%s: stageiter %d stands after %d; they must ascend",
                           CT_SOLVER_AT(t, stageiter), p->stageiter[i], p->stageiter[i - 1]);
    }
    for (size_t i = 0; (policy->needs & NEEDS_PLATEAU) && (i < p->n_plateau_winsize); i++) {
        if (p->plateau_winsize[i] < 1)
            return CT_FAIL(CT_ERR_CONFIG, "%s: plateau_winsize is %d, needs at least 1",
                           CT_SOLVER_AT(t, plateau_winsize), p->plateau_winsize[i]);
    }
    return check_least(t, policy);
}

/* Where a warm-up begins. */
static ct_status check_start(const ct_solver_text *t)
{
    const Ct__SolverParameter *p = t->p;

    if ((p->warmup != NULL) &&
        (!isfinite(p->warmup->start_factor) || (p->warmup->start_factor < 0.0f)))
        return CT_FAIL(CT_ERR_CONFIG, "%s: warmup.start_factor is %g, needs at least 0",
                       CT_SOLVER_AT(t, warmup->start_factor), (double)p->warmup->start_factor);
    if (!isfinite(p->warmup_start_lr))
        return CT_FAIL(CT_ERR_CONFIG, "%s: warmup_start_lr is %g", CT_SOLVER_AT(t, warmup_start_lr),
                       (double)p->warmup_start_lr);
    if (!isfinite(p->rampup_lr))
        return CT_FAIL(CT_ERR_CONFIG, "%s: rampup_lr is %g", CT_SOLVER_AT(t, rampup_lr),
                       (double)p->rampup_lr);
    return CT_OK;
}

/* The three ways to say how the rate rises at the start. */
static ct_status check_warmup(const ct_solver_text *t, const lr_policy *policy)
{
    const Ct__SolverParameter *p = t->p;
    int32_t own = (p->warmup != NULL) ? p->warmup->iterations : 0;

    CT_TRY(check_start(t));
    if (own < 0)
        return CT_FAIL(CT_ERR_CONFIG, "%s: warmup.iterations is %d, needs at least 0",
                       CT_SOLVER_AT(t, warmup->iterations), own);
    if (p->warmup_iter < 0)
        return CT_FAIL(CT_ERR_CONFIG, "%s: warmup_iter is %d, needs at least 0",
                       CT_SOLVER_AT(t, warmup_iter), p->warmup_iter);
    if (p->rampup_interval < 0)
        return CT_FAIL(CT_ERR_CONFIG, "%s: rampup_interval is %d, needs at least 0",
                       CT_SOLVER_AT(t, rampup_interval), p->rampup_interval);
    if ((own > 0) + (p->warmup_iter > 0) + (p->rampup_interval > 0) > 1)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: warmup { }, warmup_iter and rampup_interval say the same thing in "
                       "three ways; give one",
                       (p->warmup_iter > 0) ? CT_SOLVER_AT(t, warmup_iter)
                                            : CT_SOLVER_AT(t, rampup_interval));
    if ((needs_of(p, policy) & NEEDS_MAX_ITER) && (begins_at(p) >= p->max_iter))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: warmup.iterations is %d and max_iter %d, which leaves nothing to the "
                       "policy that follows (policy_after)",
                       CT_SOLVER_AT(t, warmup->iterations), own, p->max_iter);
    return CT_OK;
}

/* Intel's and NVIDIA's: a line from a rate of its own to base_lr, instead of the policy. */
static bool ramp(const Ct__SolverParameter *p, int64_t iteration, double *rate_p)
{
    bool intel = (p->warmup_iter > 0);
    int64_t n = intel ? p->warmup_iter : p->rampup_interval;
    double start = (double)(intel ? p->warmup_start_lr : p->rampup_lr);

    if (iteration >= n) return false;
    *rate_p = start + ((double)p->base_lr - start) * (double)iteration / (double)n;
    return true;
}

int64_t ct_learning_rate_step(const Ct__SolverParameter *p, int64_t iteration)
{
    int64_t own = iteration - begins_at(p);

    return ((p->lr_policy != NULL) && (own > 0)) ? n_step(p, own) : 0;
}

static ct_status check(const ct_solver_text *t, const lr_policy **policy_p)
{
    CT_TRY(find_policy(t, policy_p));
    CT_TRY(check_fields(t, *policy_p));
    CT_TRY(check_values(t, *policy_p));
    return check_warmup(t, *policy_p);
}

ct_status ct_learning_rate_check(const ct_solver_text *t)
{
    const lr_policy *policy;

    return check(t, &policy);
}

ct_status ct_learning_rate(const Ct__SolverParameter *p, int64_t iteration, double *rate_p)
{
    const lr_policy *policy = NULL;
    int64_t own = iteration - begins_at(p);
    double rate, least = (double)p->min_lr;

    CT_TRY(check(&(ct_solver_text){ p, NULL }, &policy));
    if (ramp(p, iteration, rate_p)) return CT_OK;
    rate = policy->factor(p, (double)((own > 0) ? own : 0));
    if (!(policy->needs & NO_BASE_LR)) rate = least + rate * ((double)p->base_lr - least);
    if ((p->warmup != NULL) && (iteration < p->warmup->iterations)) {
        double start = (double)p->warmup->start_factor;

        rate *= start + (1.0 - start) * (double)iteration / p->warmup->iterations;
    }
    *rate_p = rate;
    return CT_OK;
}

/* ---- lr_policy "plateau", as Intel's Caffe defines it: an event is a new least loss or a step;
 * when there was none for plateau_winsize[step] iterations, the rate takes the next step down. The
 * loss is the shown one, the mean of the last average_loss iterations, over the global batch.
 *
 * The rate must be known before the first gradients leave, so the loss of an iteration counts from
 * the next one on, where Intel's counts it at once. */

bool ct_plateau_is(const Ct__SolverParameter *p)
{
    return (p->lr_policy != NULL) && (strcmp(p->lr_policy, "plateau") == 0);
}

void ct_plateau_note(const Ct__SolverParameter *p, int64_t iteration, double loss,
                     ct_plateau *state)
{
    int64_t step = state->step;

    if (!state->begun || (loss < state->least)) {
        state->begun = true;
        state->least = loss;
        state->event = iteration;
    }
    if ((step >= (int64_t)p->n_plateau_winsize) ||
        (iteration < state->event + p->plateau_winsize[step]))
        return;
    state->step = step + 1;
    state->event = iteration;
    CT_INFO("Plateau Status: Iteration %" PRId64 ", step = %" PRId64 ", minimum loss %g", iteration,
            state->step, state->least);
}

double ct_plateau_factor(const Ct__SolverParameter *p, const ct_plateau *state)
{
    return pow((double)p->gamma, (double)state->step);
}
