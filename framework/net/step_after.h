/** @file step_after.h  What follows a backward pass and is given to the device with it: sums over
 * ranks and updates of the weights.
 *
 * Where all of that is the same in each step, and the host takes no part in it, it is recorded with
 * the steps of backward (net_impl.h). Then one graph goes from the loss to the new weights.
 */
#ifndef CT_STEP_AFTER_H
#define CT_STEP_AFTER_H

#include "framework/math/step_there.h"
#include "framework/net/net.h"
#include "framework/net/step.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ct_step_after {
    ct_ready_fn ready; /* NULL: no matter */
    void *ready_ctx;
    /** Under ct_net_options.window: returns when nobody needs the gradient of a parameter any more,
     *  since its memory is going to be another's. NULL: no matter. ctx is the one below. */
    ct_ready_fn wait;
    ct_status (*finish)(void *ctx); /* after the last step; NULL: nothing is */
    /** Not NULL: ready and finish give the device the same in each pass, and wait for nothing. It
     *  is told what becomes of their calls. */
    ct_status (*replay)(void *ctx, ct_replay what);
    void *ctx;
} ct_step_after;

/** ct_pass_backward() and what follows it. */
ct_status ct_pass_backward_and(ct_pass *pass, const ct_step_after *after);
/** Forgets what was recorded: it names memory and groups of ranks that are about to go. The next
 *  runs record anew. */
void ct_pass_forget_graphs(ct_pass *pass);

/** The numbers of this net's steps on its device; NULL: it has none. */
ct_step_there *ct_net_step_there(const ct_net *net);

#ifdef __cplusplus
}
#endif

#endif
