/** @file memory_auto.h  Which way to keep weights, gradients and states a rank takes, of those that
 *  `memory` and `recompute` leave open: the fastest that fits its limit, by the model of
 *  planner/memory_price.h.
 *
 *  Open are `state` and `weights` that are AUTO, `chunk_mb` that is 0, `recompute` that is AUTO,
 * and `zero` that is not given.
 */
#ifndef CT_MEMORY_AUTO_H
#define CT_MEMORY_AUTO_H

#include "runtime/memory_plan.h"

/** Sets what is open in `param`, which is options->param, and fills t with its plan. What fits as
 * it is is taken without a look at others; else the log says what was chosen, and why.
 * CT_ERR_CONFIG where limit_mb is set and nothing fits: says what the least is, and what to change.
 */
ct_status ct_memory_auto_settle(const ct_memory_plan *p, Ct__SolverParameter *param,
                                ct_memory_tiers *t);

#endif
