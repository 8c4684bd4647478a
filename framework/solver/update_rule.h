/** @file update_rule.h  How weights follow from gradients: one row a solver type.
 *
 * A rule is element-wise over ranges of the arenas. Its row holds every fact about it: what the
 * solver's fields must be, the names of its states in snapshots, its formula for the reference.
 * Rows come from CT_UPDATE_LIST in framework/math/update_math.h, beside what the kernels do to an
 * element. Nothing else knows a rule by its name.
 */
#ifndef CT_UPDATE_RULE_H
#define CT_UPDATE_RULE_H

#include <stdbool.h>

#include "framework/base/text.h"
#include "framework/math/update.h"
#include "framework/proto/cortado.pb-c.h"

struct ct_solver_text;

enum { CT_UPDATE_STATES = 2 /* of a rule, at most */ };

/** Element-wise update rule; state tensors are arenas as long as the gradient arena. */
typedef struct ct_update_rule {
    const char *type; /* solver `type:`                              */
    int kind;         /* ct_update_kind: what kernels know it by     */
    int n_state;
    const char *state_name[CT_UPDATE_STATES]; /* in snapshots: "momentum" …      */
    /** Fields of the solver that it reads: CT_UPDATE_MOMENTUM … A momentum that it does not read
     *  must be 0; a delta must be at least 0. */
    unsigned reads;
    bool means; /* momentum is how much of a mean stays: at least 0 and below 1 */
    bool own;   /* Caffe does not have it: momentum must be given, and decay is that of L2 */
    bool joint; /* its correction is that of both means at once, as Adam's */
    /** State 0 is a momentum that codecs may correct, U summed over the ranks; nesterov: as that
     *  rule applies it (comm/codec/codec.h). */
    bool corrects, nesterov;
    /** State 0 is a mean and state 1 a mean square that may stay as it is
     * (ct_update_rule_freeze()).
     */
    bool freezes;
    ct_update_ratio ratio; /* of two norms of a parameter, which scales its steps */
    /** NULL: by the kernels of its kind. On a device that updates many parameters in one pass, the
     *  kernels are taken all the same. */
    ct_status (*apply)(const ct_update *u);
    const char *formula, *source; /* for the reference, Markdown */
} ct_update_rule;

/** Rule i of the table, in the order of kinds; NULL beyond its end. */
const ct_update_rule *ct_update_rule_at(int i);
/** The type of a solver's rule: of OptEx that of its steps. NULL: the first. */
const char *ct_update_rule_type(const Ct__SolverParameter *p);
/** The rule of a solver type; NULL: the first, SGD. CT_ERR_CONFIG with the known ones. */
ct_status ct_update_rule_find(const char *type, const ct_update_rule **rule_p);
/** An unknown type: false. Saying so is ct_solver_check()'s, which has the place. */
bool ct_update_rule_is_nesterov(const char *type);
bool ct_update_rule_has_ratio(const char *type); /* likewise */
/** Likewise: may codecs put its momentum in front of what they leave behind? */
bool ct_update_rule_corrects(const char *type);
/** Likewise: may its mean square stay as it is, while codecs send its mean? */
bool ct_update_rule_freezes(const char *type);
/** Bytes that a rank keeps of a solver's own, beside weights and gradients: the states of its rule,
 *  averages of the weights, and of OptEx points and gradients. Each is as long as the gradient
 *  arena of grad_count floats. 0 where its type is none. */
int64_t ct_update_rule_state_bytes(const Ct__SolverParameter *p, int64_t grad_count);
/** Gradients are scaled by the norm of all of them: clip_gradients, where no local_clip of each
 * rank takes its place. */
bool ct_update_clips(const Ct__SolverParameter *p);
/** No weight may change before all gradients are known: a norm, or whether they are finite. */
bool ct_update_waits_for_all(const Ct__SolverParameter *p);
/** Whether there is a rule of the solver's type, and its parameters suit it. CT_ERR_CONFIG. */
ct_status ct_update_rule_check(const struct ct_solver_text *t);
/** Fills in momentum, momentum2, delta and the corrections of the update of iteration `iteration`
 *  (from 0), and a trust ratio of 1. */
void ct_update_rule_numbers(const ct_update_rule *rule, const Ct__SolverParameter *p,
                            int64_t iteration, ct_update *u);
/** Of a rule that freezes: the mean square, which has had so many updates, stays as it is. */
void ct_update_rule_freeze(const ct_update_rule *rule, const Ct__SolverParameter *p,
                           int64_t iteration, int64_t steps, ct_update *u);
/** The ratio of a rule that has one, from the norms of a whole parameter (ct_update_norms()), both
 *  above 0. They are summed for every range of a parameter before any element is updated. */
float ct_update_rule_trust(const ct_update_rule *rule, const Ct__SolverParameter *p,
                           const ct_update *u, double weight, double step);
/** One update of a range. */
ct_status ct_update_rule_apply(const ct_update_rule *rule, const ct_update *u);
/** Appends the section of the reference about all rules. */
void ct_update_rule_reference(ct_text *out);

#endif
