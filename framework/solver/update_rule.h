/** @file update_rule.h  How weights follow from gradients: one row a solver type.
 *
 * A rule is element-wise over ranges of the arenas (framework/math/update.h). Two of them also take
 * a ratio of two norms, a number a parameter: those are summed over the whole parameter before any
 * element is updated.
 */
#ifndef CT_UPDATE_RULE_H
#define CT_UPDATE_RULE_H

#include <stdbool.h>

#include "framework/math/update.h"
#include "framework/proto/cortado.pb-c.h"
#include "framework/solver/where.h"

/** Element-wise update rule; state tensors are arenas as long as the gradient arena. */
typedef struct ct_update_rule {
    const char *type; /* solver `type:` */
    int n_state;
    const char *state_name[2]; /* "momentum" … */
    /** State 0 is a momentum that codecs may correct, U summed over the ranks: comm/codec/codec.h.
     */
    bool corrects;
    ct_update_kind kind;
    ct_status (*check)(const ct_solver_text *t, const char *type); /* NULL: needs nothing */
    ct_status (*apply)(const ct_update *u);
    /** Sums of squares over a range, of weights and of what else the ratio is about; NULL: no
     *  ratio. Called for every range of a parameter, once, before apply is for any. */
    ct_status (*norms)(const ct_update *u, double *weight_p, double *step_p);
    /** The ratio from the norms of a whole parameter, both above 0. */
    float (*trust)(const Ct__SolverParameter *p, const ct_update *u, double weight, double step);
} ct_update_rule;

/** The rule of a solver type; NULL: SGD. CT_ERR_CONFIG with the known ones. */
ct_status ct_update_rule_find(const char *type, const ct_update_rule **rule_p);
/** Bytes that a rank keeps of a solver's own, beside weights and gradients: the states of its rule
 *  and averages of the weights, each as long as the gradient arena of grad_count floats. 0 where
 *  its type is none. */
int64_t ct_update_rule_state_bytes(const Ct__SolverParameter *p, int64_t grad_count);
/** Whether there is a rule of the solver's type, and its parameters suit it. CT_ERR_CONFIG. */
ct_status ct_update_rule_check(const ct_solver_text *t);
/** Fills in momentum, momentum2, delta and the corrections of the update of iteration `iteration`
 *  (from 0), and a trust ratio of 1. */
void ct_update_rule_numbers(const ct_update_rule *rule, const Ct__SolverParameter *p,
                            int64_t iteration, ct_update *u);

#endif
