/** @file step.h  One step of a net's flat list: what the interpreter, the memory plan, profiles and
 *  the simulation work on. Knows no layers.
 */
#ifndef CT_STEP_H
#define CT_STEP_H

#include <stdbool.h>

#include "framework/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    CT_STEP_FORWARD,
    CT_STEP_BACKWARD,
    CT_STEP_ZERO_DIFF, /* no reader of the blob sends a gradient  */
    CT_STEP_LOSS_DIFF, /* the blob's diff becomes its loss weight */
    CT_STEP_AGAIN,     /* in backward: the layer's forward, for values that were not kept */
    CT_STEP_BEGIN,     /* something may go to the other ranks from now on … */
    CT_STEP_WAIT,      /* … and must have come back before the next step    */
    CT_STEP_DROP       /* the weights of a chunk may go from their place    */
} ct_step_kind;

/** What a BEGIN and its WAIT are of. */
typedef enum {
    /** A parameter that learns. BEGIN, in backward: its gradient is final. WAIT, in the next
     *  forward, before its first reader: its update must be done. */
    CT_PAIR_WEIGHTS,
    CT_PAIR_SUM,      /* a layer's own sum over the ranks: both in one list */
    CT_PAIR_TRANSFER, /* a layer's own transfer (transfer.h): likewise          */
    CT_PAIR_CHUNK     /* weights that come for the steps that read them: both in one list; a DROP
                       * follows */
} ct_pair_of;

typedef struct ct_step {
    ct_step_kind kind;
    int layer;      /* index into layer[]; of weights: BEGIN the last user, WAIT the first reader;
                     * …_DIFF: who makes the blob                                      */
    ct_pair_of of;  /* BEGIN, WAIT                                                     */
    int pair;       /* BEGIN, WAIT: the same number in both, and in no others          */
    int param;      /* BEGIN, WAIT of weights; of a chunk, and DROP: its number; else -1 */
    int blob;       /* ZERO_DIFF, LOSS_DIFF; else -1                                   */
    int part;       /* FORWARD, BACKWARD: of n_part; BEGIN, WAIT of a sum: which of the layer's */
    int n_part;     /* FORWARD, BACKWARD: 1 and more where the layer adds up over ranks between  */
    int count;      /* BEGIN, WAIT: the doubles of a sum; of a transfer as many as take its bytes */
    float value;    /* LOSS_DIFF: the loss weight                                  */
    double seconds; /* of the last run, where timing is on                         */
    int polls;      /* in the last run, from inside the step, where timing is on   */
} ct_step;

/** Whether the step only begins or awaits what goes to other ranks: it computes nothing. */
static inline bool ct_step_is_pair(const ct_step *s)
{
    return (s->kind == CT_STEP_BEGIN) || (s->kind == CT_STEP_WAIT);
}

/** … or it is of a chunk's weights. */
static inline bool ct_step_is_of_chunk(const ct_step *s)
{
    return (ct_step_is_pair(s) && (s->of == CT_PAIR_CHUNK)) || (s->kind == CT_STEP_DROP);
}

/** … and is of a parameter. */
static inline bool ct_step_is_of_weights(const ct_step *s)
{
    return ct_step_is_pair(s) && (s->of == CT_PAIR_WEIGHTS);
}

/* ---- The interpreter of step lists.
 *
 * It knows the order of things: what a step is to the hooks, when communication may move, when a
 * step's time ends. What the steps do is the hooks' business: layers in framework/net/run.c,
 * durations in the simulation.
 */

/** Every hook but run may be NULL; an error ends the list. */
typedef struct ct_step_hooks {
    /** Computes step i of the list: every kind but BEGIN and WAIT. */
    ct_status (*run)(void *ctx, ct_step *s, int i);
    /** CT_STEP_BEGIN: what the pair is of may leave. Never blocks. */
    ct_status (*begin)(void *ctx, ct_step *s, int i);
    /** CT_STEP_WAIT: returns once it has come back. */
    ct_status (*wait)(void *ctx, ct_step *s, int i);
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
