/** @file step_run.h  The interpreter of step lists.
 *
 * It knows the order of things: what a step is to the hooks, when communication may move, when a
 * step's time ends. What the steps do is the hooks' business: layers in framework/net/run.c,
 * durations in the simulation.
 */
#ifndef CT_STEP_RUN_H
#define CT_STEP_RUN_H

#include "framework/base/status.h"
#include "framework/net/step.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Every hook but run may be NULL; an error ends the list. */
typedef struct ct_step_hooks {
    /** Computes step i of the list: every kind but READY and WAIT. */
    ct_status (*run)(void *ctx, ct_step *s, int i);
    /** CT_STEP_READY: the gradient of `param` is final. Never blocks. */
    ct_status (*ready)(void *ctx, int param);
    /** CT_STEP_WAIT: returns once `param` may be read. */
    ct_status (*wait)(void *ctx, int param);
    /** Lets communication move; called after every step that computes. */
    ct_status (*poll)(void *ctx);
    /** Now, in seconds, with everything asked for so far done; where it is set, steps note their
     *  time, poll not included. */
    ct_status (*now)(void *ctx, double *seconds_p);
    /** Step i has ended, of whatever kind. */
    void (*ended)(void *ctx, int i);
} ct_step_hooks;

ct_status ct_steps_run(ct_step *list, int n, const ct_step_hooks *h, void *ctx);

#ifdef __cplusplus
}
#endif

#endif
