/** @file optex_param.h  What type "OptEx" and `optex { }` of the solver say, and may say. */
#ifndef CT_OPTEX_PARAM_H
#define CT_OPTEX_PARAM_H

#include "framework/solver/solver.h"

#define CT_OPTEX_TYPE "OptEx"
/** Where a field of `optex` stands; the solver's type, where there is no `optex`. */
#define CT_OPTEX_AT(_t, _field)                                                                    \
    (((_t)->p->optex != NULL) ? CT_SOLVER_AT(_t, optex->_field) : CT_SOLVER_AT(_t, type))

bool ct_optex_is(const Ct__SolverParameter *p);
/** The solver's, or the defaults. */
const Ct__OptExParameter *ct_optex_param(const Ct__SolverParameter *p);
/** Steps of an iteration; 1 of any other type. */
int ct_optex_points(const Ct__SolverParameter *p);
/** A round has points to predict, from others. */
bool ct_optex_predicts(const Ct__OptExParameter *o);
/** Arrays as long as the gradient arena that a rank keeps for rounds of a rule with n_state states.
 */
int ct_optex_arrays(const Ct__SolverParameter *p, int n_state);
/** What `optex` and the fields beside it may say. CT_ERR_CONFIG. */
ct_status ct_optex_check(const ct_solver_text *t);

#endif
