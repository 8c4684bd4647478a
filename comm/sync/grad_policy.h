/** @file grad_policy.h  What watches the steps of a gradient pipe and changes how gradients travel.
 *
 * Plugged in by who makes the pipe (ct_grad_pipe_config.policy). The pipe tells it what happens,
 * and lets it change codecs, collectives and the thread where a step begins.
 */
#ifndef CT_GRAD_POLICY_H
#define CT_GRAD_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/base/status.h"

struct ct_grad_pipe;

typedef enum {
    CT_GRAD_ENTER, /* the main thread comes into the pipe, …                      */
    CT_GRAD_LEAVE, /* … and leaves it: what lies between is the pipe's own        */
    CT_GRAD_READY, /* a gradient is ready                                         */
    CT_GRAD_READ   /* forward is about to read a weight                           */
} ct_grad_event;

typedef struct ct_grad_policy {
    /** Before the buckets are made: may change the ranges' codecs. *state_p NULL: nothing to watch.
     *  Collective. */
    ct_status (*create)(struct ct_grad_pipe *gp, void **state_p);
    /** The buckets are made. Collective. */
    ct_status (*open)(void *state);
    void (*destroy)(void *state); /* before the buckets go; NULL allowed; collective */
    /** A step begins, nothing is under way, the lock is held: may change the pipe's plan.
     * *begins_p, *least_p: of the codecs' step. Collective. */
    ct_status (*begin_step)(void *state, int64_t iteration, bool *begins_p, float *least_p);
    void (*observe)(void *state, ct_grad_event event, int range);
    /** Steps at the start that try ways to send. */
    int (*n_trial)(const void *state);
} ct_grad_policy;

#endif
