/** @file autotune.h  The policy of gradient pipes that refines what the cost model chose.
 *
 * It joins two: codecs of `compression { type: AUTO }` (grad_auto.h), and algorithms and the thread
 * (grad_tune.h), which are tried once the codecs are decided on.
 */
#ifndef CT_AUTOTUNE_H
#define CT_AUTOTUNE_H

#include "comm/autotune/grad_auto.h"

extern const ct_grad_policy ct_autotune;

/** What chooses codecs in a pipe that has this policy; borrowed. NULL: nothing does. For tests. */
ct_grad_auto *ct_autotune_codecs(const ct_grad_pipe *gp);

#endif
