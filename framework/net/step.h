/** @file step.h  One step of a net's flat list: what the interpreter, the memory plan, profiles and
 *  the simulation work on. Knows no layers.
 */
#ifndef CT_STEP_H
#define CT_STEP_H

#include "framework/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    CT_STEP_FORWARD,
    CT_STEP_BACKWARD,
    CT_STEP_READY,     /* a parameter's gradient is final                       */
    CT_STEP_ZERO_DIFF, /* no reader of the blob sends a gradient                */
    CT_STEP_LOSS_DIFF, /* the blob's diff becomes its loss weight               */
    CT_STEP_WAIT       /* forward is about to read a learned parameter for the first time: its
                        * update of the step before must be done                */
} ct_step_kind;

typedef struct ct_step {
    ct_step_kind kind;
    int layer;      /* index into layer[]; READY: the last user; WAIT: the first reader;
                     * …_DIFF: who makes the blob                                      */
    int param;      /* READY, WAIT                                                 */
    int blob;       /* ZERO_DIFF, LOSS_DIFF                                        */
    float value;    /* LOSS_DIFF: the loss weight                                  */
    double seconds; /* of the last run, where timing is on                         */
    int polls;      /* in the last run, from inside the step, where timing is on   */
} ct_step;

/* ---- The interpreter of step lists.
 *
 * It knows the order of things: what a step is to the hooks, when communication may move, when a
 * step's time ends. What the steps do is the hooks' business: layers in framework/net/run.c,
 * durations in the simulation.
 */

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

/* ---- What becomes of calls that gave a device work while it was recorded
 * (net_impl.h). */

typedef enum {
    CT_REPLAY_GIVEN,  /* the device was given again what an earlier pass recorded, without calls */
    CT_REPLAY_DROPPED /* it would not record: nothing of this pass has run, the calls come again */
} ct_replay;

#endif
