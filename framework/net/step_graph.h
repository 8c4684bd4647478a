/** @file step_graph.h  Runs of steps that a device is given as one.
 *
 * Giving a device its work costs the host a few microseconds a kernel. Where a net gives the same
 * kernels in every pass, a run of its steps is recorded once, in the second pass, and from then on
 * given as one. Out of it stay data layers, layers on the host, and what waits for the device;
 * between ranks also the steps at which gradients leave, unless what happens to them can be
 * recorded (step_after.h), and those at which weights are waited for, if anybody waits. Values are
 * the same, bit for bit. Private to framework/net.
 */
#ifndef CT_STEP_GRAPH_H
#define CT_STEP_GRAPH_H

#include "framework/net/step_after.h"

/** What a pass does, each with its ctx. */
typedef struct ct_graph_hooks {
    ct_status (*one)(void *ctx, int i); /* runs step i                                     */
    ct_status (*call)(void *ctx,
                      int i);     /* a step in which the host alone takes part: ready, wait */
    ct_status (*poll)(void *ctx); /* after what was given to the device              */
} ct_graph_hooks;

typedef struct ct_step_graphs ct_step_graphs;

/** For the passes of one net; NULL where its device, or what is asked for, leaves nothing to record
 *  (said once in the log). */
ct_step_graphs *ct_step_graphs_create(ct_net *net);
void ct_step_graphs_destroy(ct_step_graphs *g);
/** One pass over net->forward or net->backward, on a stream that can be recorded. after: what
 *  follows; NULL in forward. Its `ready` is called by h->call. */
ct_status ct_step_graphs_run(ct_step_graphs *g, ct_exec *ex, bool forward,
                             const ct_step_after *after, const ct_graph_hooks *h, void *ctx);
/** As ct_net_forget_graphs(); NULL allowed. */
void ct_step_graphs_forget(ct_step_graphs *g);

#endif
