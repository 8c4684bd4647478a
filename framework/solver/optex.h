/** @file optex.h  The solver's type "OptEx": an iteration is a round of several steps of a rule
 * (optex_round.h), as `optex { }` says, with what sets of snapshots have of them.
 *
 * An iteration, so `max_iter`, rates, tests and snapshots, counts rounds. Of N points a round,
 * round t has the batches of steps N t to N t + N - 1.
 */
#ifndef CT_OPTEX_H
#define CT_OPTEX_H

#include "framework/exchange/exchange.h"
#include "framework/solver/solver.h"
#include "framework/solver/train_step.h"

#define CT_OPTEX_TYPE "OptEx"
/** Where a field of `optex` stands; the solver's type, where there is no `optex`. */
#define CT_OPTEX_AT(_t, _field)                                                                    \
    (((_t)->p->optex != NULL) ? CT_SOLVER_AT(_t, optex->_field) : CT_SOLVER_AT(_t, type))

/* ---- what the solver says of it, and may say: optex_param.c */

bool ct_optex_is(const Ct__SolverParameter *p);
/** The solver's, or the defaults. */
const Ct__OptExParameter *ct_optex_param(const Ct__SolverParameter *p);
/** Steps of an iteration; 1 of any other type. */
int ct_optex_points(const Ct__SolverParameter *p);
/** Ranks of n_rank that share each point's batch: above 1 where n_rank is a multiple of the points,
 *  of which other types have one. */
int ct_optex_sharers(const Ct__SolverParameter *p, int n_rank);
/** The steps whose batches a rank of n_rank evaluates: those of its points. */
ct_turns ct_optex_turns(const Ct__SolverParameter *p, int rank, int n_rank);
/** A round has points to predict, from others. */
bool ct_optex_predicts(const Ct__OptExParameter *o);
/** Arrays as long as the gradient arena that one rank keeps for rounds of a rule with n_state
 *  states; several ranks share them out. */
int ct_optex_arrays(const Ct__SolverParameter *p, int n_state);
/** What `optex` and the fields beside it may say. CT_ERR_CONFIG. */
ct_status ct_optex_check(const ct_solver_text *t);

/* ---- rounds */

typedef struct ct_optex ct_optex;

/** step: open; it sends no gradient where a round has several points. ranks: share these out. Both
 * are borrowed. *states become those of OptEx, which borrow *o_p. CT_ERR_CONFIG: a device, several
 * batches a step, ct_optex_round_open(). */
ct_status ct_optex_create(const Ct__SolverParameter *param, ct_train_step *step,
                          const ct_group *ranks, ct_sync_states *states, ct_optex **o_p);
void ct_optex_destroy(ct_optex *o); /* NULL allowed; before the step */
/** ct_optex_round_run(). Collective. */
ct_status ct_optex_run(ct_optex *o, int64_t round, double rate, double *loss_p);
/** ct_optex_round_shows(). */
bool ct_optex_shows(const ct_optex *o);
/** Before a set is read: what it does not have is unknown then. */
void ct_optex_forget(ct_optex *o);
/** Lines of the log about the rounds before this one, and of a guard about the last of them. */
void ct_optex_tell(const ct_optex *o, int64_t round);
/** The rule's states are whole on all ranks, until the next round: before a set. Collective. */
ct_status ct_optex_gather(ct_optex *o);
/** Bytes that this rank keeps for it. */
int64_t ct_optex_bytes(const ct_optex *o);
/** Bytes of arrays that this rank has sent in rounds. */
int64_t ct_optex_bytes_sent(const ct_optex *o);

#endif
