/** @file loss_scale.h  The loss times a power of two, so that small gradients stay numbers of 16
 * bits.
 *
 * With precision FP16 backward starts from the loss times `scale`, and updates divide by it. A step
 * whose gradients are not finite changes no weight and halves the scale; after loss_scale_window
 * steps without one it doubles. All ranks see the same sum and so decide alike. The device decides
 * (framework/math/step_there.h); the host hears of it later, and keeps the same account.
 */
#ifndef CT_LOSS_SCALE_H
#define CT_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/math/step_there.h"
#include "framework/proto/cortado.pb-c.h"

ct_loss_scale ct_loss_scale_open(const Ct__SolverParameter *p);
/** ct_loss_scale_next(), with a line in the log for what it does not let pass. */
bool ct_loss_scale_step(ct_loss_scale *s, int64_t iteration, bool finite);

#endif
