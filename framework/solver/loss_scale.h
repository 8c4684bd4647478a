/** @file loss_scale.h  The loss times a power of two, so that small gradients stay numbers of 16
 * bits.
 *
 * With precision FP16 backward starts from the loss times `scale`, and updates divide by it. A step
 * whose gradients are not finite changes no weight and halves the scale; after loss_scale_window
 * steps without one it doubles. All ranks see the same sum and so decide alike.
 */
#ifndef CT_LOSS_SCALE_H
#define CT_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/proto/cortado.pb-c.h"

typedef struct ct_loss_scale {
    bool on;        /* otherwise scale is 1 for good       */
    float scale;    /* of the step under way, or the next  */
    int64_t good;   /* steps since the scale last changed  */
    int64_t window; /* of them until it doubles; 0: never  */
} ct_loss_scale;

ct_loss_scale ct_loss_scale_open(const Ct__SolverParameter *p);
/** After a step's gradients are known: whether they may change weights. Logs what it does not let
 *  pass. */
bool ct_loss_scale_step(ct_loss_scale *s, int64_t iteration, bool finite);

#endif
