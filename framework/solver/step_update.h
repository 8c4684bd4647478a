/** @file step_update.h  The weights of a training step, from gradients that have landed. Private to
 * framework/solver. */
#ifndef CT_STEP_UPDATE_H
#define CT_STEP_UPDATE_H

#include "framework/solver/train_step.h"

/** No weight may change before all gradients are known: a norm, or whether they are finite. */
bool ct_step_waits_for_all(const ct_train_step *t);
/** Work that holds addresses of the states may be recorded. */
bool ct_step_states_are_fixed(const ct_train_step *t);
/** t->iteration, rate and scale are a new step's: for a device that reads them there. */
ct_status ct_step_put_numbers(ct_train_step *t);
/** Parameters [first, first + n), whose sums are there. */
ct_status ct_step_update(ct_train_step *t, int first, int n);
/** All of them, where they had to wait for each other. */
ct_status ct_step_update_all(ct_train_step *t);
/** What a device has decided by itself reaches the log and the host's account; all: of the last
 *  step, too, which is waited for. */
ct_status ct_step_hear(ct_train_step *t, bool all);
/** The last step's decision sets off for the host, where there is one. */
ct_status ct_step_tell(ct_train_step *t);

#endif
