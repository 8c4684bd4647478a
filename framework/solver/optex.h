/** @file optex.h  The solver's type "OptEx": an iteration is a round of several steps of a rule
 * (optex_round.h), as `optex { }` says, with what sets of snapshots have of them.
 *
 * An iteration, so `max_iter`, rates, tests and snapshots, counts rounds. Of N points a round,
 * round t has the batches of steps N t to N t + N - 1.
 */
#ifndef CT_OPTEX_H
#define CT_OPTEX_H

#include "framework/exchange/exchange.h"
#include "framework/solver/optex_param.h"
#include "framework/solver/train_step.h"

typedef struct ct_optex ct_optex;

/** step: open; borrowed. *states become those of OptEx, which borrow *o_p. CT_ERR_CONFIG: a device,
 *  several ranks, several batches a step. */
ct_status ct_optex_create(const Ct__SolverParameter *param, ct_train_step *step,
                          ct_sync_states *states, ct_optex **o_p);
void ct_optex_destroy(ct_optex *o); /* NULL allowed; before the step */
/** ct_optex_round_run(). */
ct_status ct_optex_run(ct_optex *o, int64_t round, double rate, double *loss_p);
/** Before a set is read: what it does not have is unknown then. */
void ct_optex_forget(ct_optex *o);
/** A line of the log about the rounds before this one. */
void ct_optex_tell(const ct_optex *o, int64_t round);
/** Bytes that this rank keeps for it. */
int64_t ct_optex_bytes(const ct_optex *o);

#endif
