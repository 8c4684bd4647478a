/** @file net_impl.h  What the files of framework/net share of a net. Private to framework/net. */
#ifndef CT_NET_IMPL_H
#define CT_NET_IMPL_H

#include <stddef.h>
#include <stdint.h>

#include "framework/base/status.h"
#include "framework/net/graph.h"
#include "framework/net/step_after.h"

/** What the ParamSpecs of one name say together. */
typedef struct ct_param_rule {
    const char *name;
    const char *layer; /* that names it first, the owner */
    bool has_lr, has_decay;
    float lr, decay;
} ct_param_rule;

/** A part of the memory plan. */
typedef struct ct_region {
    size_t bytes;
    int first, last; /* steps in which it is alive, both included */
    size_t offset;   /* the result: a multiple of CT_ALIGN        */
} ct_region;

/** What a region of the memory plan holds. */
typedef enum { CT_USE_DATA, CT_USE_DIFF, CT_USE_BUFFER } ct_use_kind;

typedef struct ct_use {
    ct_use_kind kind;
    int index;     /* blob, or layer of a buffer                                     */
    int slot;      /* of a buffer                                                    */
    bool forward;  /* CT_LIFETIME_CALL has two regions: of forward, and of backward; so have data
                    * and buffers that are made again                                */
    bool backward; /* other buffers have one, both flags set; other data: of forward */
    bool again;    /* scratch of a forward that runs in backward                     */
    bool persists; /* keeps its content from pass to pass                            */
} ct_use;

#define CT_NOWHERE SIZE_MAX /* offset of what has no place */

/** A buffer that lies at a place of a pass's block that depends on the direction. */
typedef struct ct_call_buffer {
    int layer, slot;
    size_t forward, backward;
    size_t again; /* while the layer's forward runs in backward */
} ct_call_buffer;

/** The tops of a group that are not kept for backward, but made again. */
typedef struct ct_again {
    int layer, root;          /* who makes them; the blob in whose memory they lie */
    int when;                 /* the step, after those of forward, before which    */
    size_t forward, backward; /* where they lie in a pass's block                  */
} ct_again;

/** A layer that runs on the host in a net on a device: host_layer.c. */
typedef struct ct_host_layer ct_host_layer;

/** What changes from batch to batch: vary.c. */
typedef struct ct_vary ct_vary;

/** Fewer rows behind a layer: narrow.c. */
typedef struct ct_narrowing ct_narrowing;

/** What a pass tells the host: report.c. */
typedef struct ct_pass_report {
    void *there, *here; /* on the device, on the host: a word a layer, then the losses */
    size_t loss_at, bytes;
    bool draws;           /* some layer's kernels read the number of the step  */
    uint64_t *micro_step; /* it, on the device; NULL: nobody reads it there   */
    void *ticket;         /* of the copy under way                            */
} ct_pass_report;

/** What a pass keeps beside what everyone sees of it. */
typedef struct ct_pass_impl {
    ct_epilogue *tail;       /* of the groups                                            */
    void *block, *always;    /* its own of the plan; that of CT_LIFETIME_ALWAYS buffers  */
    ct_host_layer **host;    /* per layer; NULL: it runs on the net's device. May be NULL itself */
    ct_vary *vary;           /* NULL: every batch has the same shapes                    */
    ct_narrowing *narrowing; /* NULL: all layers have all rows                        */
    ct_pass_report report;
    int64_t n_use;                 /* how often other weights were taken */
    double clock_s;                /* when mark 0 of run.c was passed; 0: it was not */
    int64_t clock_iteration;       /* of the trace, then */
    struct ct_step_graphs *graphs; /* NULL: steps are given to the device one by one */
    struct ct_sum_way *sum;        /* the layers' sums over ranks: sums.c */
} ct_pass_impl;

typedef struct ct_net_impl {
    ct_graph graph;
    ct_net_env untimed; /* the net's without a plan: ranks with other batches ask other questions */
    ct_net_env varying; /* that, of layers whose rows vary in a net for forward alone            */
    bool force_backward, forward_only, no_fuse;
    int *data_root, *diff_root; /* per blob: the blob whose memory it uses, itself as a rule */
    ct_param_rule *rule;
    int n_rule;
    char **key;         /* of the parameters, owned */
    int *runner;        /* per layer: who runs it, itself as a rule */
    int *place;         /* per layer: the last layer of its group, where that runs */
    int *unit;          /* per layer: who runs its forward again; its runner but for norms of
                         * another block than their sum, which do so themselves: recompute.c */
    int *forward_step;  /* per layer: its step in net->forward; of several parts the last */
    int *backward_step; /* per layer: its step in net->backward, or -1; the last, too     */
    int n_pair;         /* pairs of steps: of parameters, then of layers' sums */
    int *forward_first, *backward_first; /* per layer: likewise, of several parts the first */
    int *forward_rest; /* per layer: the first that may read what part 0 does not (ct_sum_ops) */

    ct_region *region;
    ct_use *use;
    int n_region;
    size_t own_bytes;    /* of the plan: those that each pass has for itself come first … */
    size_t shared_bytes; /* … then those of all passes, in which nothing outlives a forward or a
                          * backward */
    void *shared;
    size_t always_bytes; /* of CT_LIFETIME_ALWAYS buffers, for each pass */
    ct_call_buffer *call_buffer;
    int n_call_buffer;
    ct_again *again; /* values made again in backward, in the order of forward */
    int n_again;
    bool *reruns; /* per layer: its forward runs in backward, too; NULL: no blocks are made again */
    ct_step_there *numbers; /* of the steps, on the device; NULL: not on this one */
    bool poison;            /* CORTADO_POISON: fill what dies with NaN */
    bool poison_window;     /* … on devices what comes and goes in a window alone */
    int n_chunk;            /* of a window; 0: there is none */
    int *chunk;             /* [n_chunk + 1] their first parameters */
    ct_region *gradient;    /* [n_chunk] when they are alive, and where they lie in grad_arena */
    ct_region *weight; /* [n_chunk] where weights that come and go lie in weight_arena; or NULL */
} ct_net_impl;

/** When a value or buffer is alive, in steps of forward followed by backward. */
typedef struct ct_span {
    int first, last; /* last < 0: never alive */
    bool persists;
} ct_span;

static inline bool ct_net_runs_forward_only(const ct_net_options *o)
{
    return o->forward_only || ((o->share != NULL) && !o->share_learns);
}

static inline ct_net_impl *ct_net_impl_of(const ct_net *net)
{
    return (ct_net_impl *)net->impl;
}

static inline ct_pass_impl *ct_pass_impl_of(const ct_pass *pass)
{
    return (ct_pass_impl *)pass->impl;
}

/** Whether the unit that reads v does not make it. */
static inline bool ct_net_enters(const ct_net *net, const ct_value *v)
{
    const int *unit = ct_net_impl_of(net)->unit;

    return unit[v->node] != unit[v->reader];
}

/** The place `offset` of the plan in the pass's block, or in that of all passes; CT_NOWHERE: NULL.
 */
static inline void *ct_pass_at(const ct_pass *pass, size_t offset)
{
    const ct_net_impl *m = ct_net_impl_of(pass->net);

    if (offset == CT_NOWHERE) return NULL;
    if (offset < m->own_bytes) return (char *)ct_pass_impl_of(pass)->block + offset;
    return (char *)m->shared + (offset - m->own_bytes);
}

/** A pass with room for so many instances and blobs, and nothing in it. */
ct_status ct_pass_open(ct_net *net, size_t n_instance, size_t n_blob, ct_pass **pass_p);

/* In the order in which ct_net_create calls them. What is ct_pass_... makes any further pass, too,
 * in the same order. */

/** Graph, layers and the first pass: blobs, instances and shapes. */
ct_status ct_net_build(ct_net *net, const Ct__NetParameter *param);
/** Instances and shapes of a further pass, whose blobs are there. */
ct_status ct_pass_build(ct_pass *pass);
/** Calls reshape of layer i, and checks its tops. */
ct_status ct_pass_reshape_layer(ct_pass *pass, int i);
/** Where tops vary from batch to batch: tries whether what follows them can, and raises its buffers
 *  to what they need at most. After groups are made. CT_ERR_CONFIG or what a reshape says. */
ct_status ct_pass_vary(ct_pass *pass);
void ct_pass_vary_release(ct_pass *pass);
/** Gives layer i, which is about to run forward, the shapes of this batch and the exec its samples;
 *  takes over how many it made. Collective where the exec has other ranks. */
ct_status ct_pass_vary_before(ct_pass *pass, int i);
ct_status ct_pass_vary_after(ct_pass *pass, int i);

/** The place in a packed net behind which rows may be left out: of the last layer that looks at
 *  other tokens, else of the ids. No transfer is under way there. */
int ct_net_narrow_behind(const ct_net *net);
/** From now on they may be left out. The tops of that layer, and all that lies beside them, are 1 x
 *  rows x …. Layers behind it take each row for itself. *can_p false: there is none. */
ct_status ct_pass_narrow_make(ct_pass *pass, bool *can_p);
void ct_pass_narrow_release(ct_pass *pass);
/** Rows [n], ascending, that the next forward goes on with there; NULL: all. */
void ct_pass_narrow(ct_pass *pass, const int64_t *row, int64_t n);
/** The last layer that the next forward runs with all rows. */
int ct_pass_narrow_last(const ct_pass *pass);
/** Before layer `unit` of a forward; after a forward, whether it failed or not. */
void ct_pass_narrow_before(ct_pass *pass, int unit);
void ct_pass_narrow_after(ct_pass *pass);

/** Tells the instances which weights caches of them must be of. */
void ct_pass_set_versions(ct_pass *pass);
/** Gives the exec the samples that layer i works on, and the ranks that it asks for sums. i < 0:
 * the net's. */
void ct_pass_set_exec(ct_pass *pass, int i);
/** After buffers are bound for a direction: those that outgrew the plan lie elsewhere. */
void ct_pass_vary_bind(ct_pass *pass);
/** The shape that blob b has at most. */
const ct_shape *ct_net_most(const ct_net *net, int b);
/** Gives the groups to the layers that run them, or dissolves those that they do not take. */
ct_status ct_net_fuse(ct_net *net);
/** Has layer i run the group that it runs, after all of its layers were shaped again. False where
 *  it does not: then it runs no group. */
bool ct_pass_join_again(ct_pass *pass, int i);
/** Has layers run their groups. CT_ERR_CONFIG, logged, where a layer of a further pass does not. */
ct_status ct_pass_fuse(ct_pass *pass);
/** Lets a group's gradients share memory where it can work in place. After the steps are made. */
ct_status ct_net_share_diffs(ct_net *net);
/** Gathers the ParamSpecs by name. CT_ERR_CONFIG where they contradict each other. */
ct_status ct_net_param_rules(ct_net *net);
/** The multipliers of weight w of node i, whose layer is set up. */
/** What layer `layer` gives this parameter by its weight w comes as rows behind the parameter's
 *  BEGIN. */
bool ct_net_comes_later(const ct_net *net, int layer, int w, int param);
void ct_net_param_mult(const ct_net *net, int i, int w, float *lr_p, float *decay_p);
/** Makes net->param: owners, sharers, arena order. */
ct_status ct_net_params(ct_net *net);
/** Places arenas, fills weights, binds the first pass's weights. */
ct_status ct_net_arenas(ct_net *net);
/** The instances' views of the arenas. */
ct_status ct_pass_bind_weights(ct_pass *pass);
/** … and the gradients of its instances, which have a place by now. */
void ct_pass_bind_gradients(ct_pass *pass);
void ct_net_arenas_release(ct_net *net);
/** Makes the lists of steps and of outputs. */
ct_status ct_net_steps(ct_net *net);

/** Finds what is to be made again in backward, as net->recompute says, which becomes what is done;
 *  BLOCKS inserts steps. AUTO: nothing yet. */
ct_status ct_net_recompute(ct_net *net);

/* window.c: gradients, in memory of their own or sharing it */

/** Cuts what learns into chunks, where there is a window. */
ct_status ct_net_chunks(ct_net *net);
void ct_net_chunks_release(ct_net *net);
/** Puts the steps of weights that come and go into both lists, in place of those that are there. */
ct_status ct_net_fetches(ct_net *net);
/** Finds places for weights that come and go: ct_param.weight_shift, weight_memory. After the
 * steps. CT_ERR_CONFIG where the net takes the weights of another one, whose places do not suit it.
 */
ct_status ct_net_place_weights(ct_net *net);
/** Finds places for gradients: ct_param.grad_shift, grad_memory. After the steps. */
ct_status ct_net_place_gradients(ct_net *net);
/** Acquires their memory, and binds the first pass to it. */
ct_status ct_net_gradients(ct_net *net);
/** The same of weights that come and go. */
ct_status ct_net_weights(ct_net *net);
/** A BEGIN or WAIT of a chunk, or a DROP. */
ct_status ct_pass_chunk(ct_pass *pass, const ct_step *s);
/** Whether backward waits for the gradient of parameter i. */
bool ct_net_waits_for(const ct_net *net, int i);
/** CORTADO_POISON: what dies at a step. */
ct_status ct_net_poison_gradients(const ct_net *net, ct_stream st, int step);
/** Fills memory of the net's device with NaN. */
ct_status ct_net_poison(const ct_net *net, ct_stream st, void *data, size_t bytes);
/** AUTO, once memory is planned: plans again where it does not fit. */
ct_status ct_net_fit(ct_net *net);
/** What is made again and lies in `root`, or NULL. */
const ct_again *ct_net_again(const ct_net *net, int root);
/** Widens s by the moments of backward that read the data of v. */
void ct_net_touch_reads(const ct_net *net, const ct_value *v, ct_span *s);

/** Memory for the layers' sums over ranks, of which each is a pair of steps. */
ct_status ct_pass_sums_make(ct_pass *pass);
void ct_pass_sums_release(ct_pass *pass);
/** BEGIN and WAIT of a sum. Collective where the exec has other ranks. */
ct_status ct_pass_sum_begin(ct_pass *pass, const ct_step *s);
ct_status ct_pass_sum_wait(ct_pass *pass, const ct_step *s);
/** Bytes of the whole that such a step adds up, or moves, in this run. */
int64_t ct_pass_sum_bytes(const ct_pass *pass, const ct_step *s);

/** Binds it as forward wants it; makes again what step `when` is the first to want. */
void ct_pass_again_reset(ct_pass *pass);
ct_status ct_pass_again_run(ct_pass *pass, int when);
/** CT_STEP_AGAIN: runs the layer's forward with what lies where backward wants it. */
ct_status ct_pass_again_step(ct_pass *pass, const ct_step *s, int when);
/** Lifetimes of all blobs and buffers: region[] and use[], not placed yet. In place of those that
 *  there were. */
ct_status ct_net_lifetimes(ct_net *net);
/** Whether layer i runs on the host although the net's device is another. */
bool ct_host_layer_is(const ct_net *net, int i);
/** Gives such layers memory on the host for what they read, write and keep. The device's is placed.
 */
ct_status ct_host_layers(ct_pass *pass);
void ct_host_layers_release(ct_pass *pass);
/** Copies in what layer i reads, runs it, copies out what it wrote. */
ct_status ct_host_layer_forward(ct_pass *pass, int i);
ct_status ct_host_layer_backward(ct_pass *pass, int i);
/** Memory for the numbers of the net's steps, on its device. */
ct_status ct_net_numbers_make(ct_net *net);
/** Memory for a pass's losses and faults; forward begins with begin and ends with send.
 *  ct_pass_forward_end() waits for what was sent. */
ct_status ct_pass_report_make(ct_pass *pass);
void ct_pass_report_release(ct_pass *pass);
ct_status ct_pass_report_begin(ct_pass *pass);
ct_status ct_pass_report_send(ct_pass *pass);
/** Places the regions: net->memory. */
ct_status ct_net_place(ct_net *net);
/** By that plan: gives the first pass its memory. */
ct_status ct_net_memory(ct_net *net);
void ct_net_memory_release(ct_net *net);
/** Gets a pass's memory by the plan and binds blobs and buffers to it. */
ct_status ct_pass_memory(ct_pass *pass);
void ct_pass_memory_release(ct_pass *pass);

/* ---- regions with lifetimes get offsets in one block */

/** The largest sum of bytes (each rounded up to CT_ALIGN) alive in one step: no plan is smaller. */
size_t ct_memory_plan_peak(const ct_region *r, int n);
/** Sets the offsets so that regions alive in the same step do not overlap; *bytes_p is the size of
 *  the block. Greedy, in several orders; the best is kept. The same regions always get the same
 *  plan. */
ct_status ct_memory_plan_place(ct_region *r, int n, size_t *bytes_p);
/** The same for so many passes, of which one runs forward or backward at a time: in_flight · *own_p
 *  + *shared_p bytes. own[i]: region i outlives a run, as all such do at one moment at least. These
 *  lie below *own_p, of which each pass has its own. Any other lies there, or between *own_p and
 *  *own_p + *shared_p, in bytes of all passes. So many plans of one pass do not take less. */
ct_status ct_memory_plan_share(ct_region *r, const bool *own, int n, int in_flight, size_t *own_p,
                               size_t *shared_p);

/* ---- runs of steps that a device is given as one
 *
 * Giving a device its work costs the host a few microseconds a kernel. Where a net gives the same
 * kernels in every pass, a run of its steps is recorded once, in the second pass, and from then on
 * given as one. Out of it stay data layers, layers on the host, and what waits for the device.
 * Between ranks the steps at which gradients leave stay out, too, unless what happens to them can
 * be recorded (step_after.h). So do those at which weights are waited for, if anybody waits. Values
 * are the same, bit for bit.
 */

/** What a pass does, each with its ctx. */
typedef struct ct_graph_hooks {
    ct_status (*one)(void *ctx, int i); /* runs step i                                     */
    ct_status (*call)(void *ctx,
                      int i);     /* a step in which the host alone takes part: ready, wait */
    ct_status (*poll)(void *ctx); /* after what was given to the device              */
} ct_graph_hooks;

typedef struct ct_step_graphs ct_step_graphs;

/** For runs of one pass; NULL where its device, or what is asked for, leaves nothing to record
 *  (said once in the log). */
ct_step_graphs *ct_step_graphs_create(const ct_pass *pass);
void ct_step_graphs_destroy(ct_step_graphs *g);
/** One run of net->forward or net->backward, on a stream that can be recorded. after: what
 *  follows; NULL in forward. Its `ready` is called by h->call. */
ct_status ct_step_graphs_run(ct_step_graphs *g, ct_exec *ex, bool forward,
                             const ct_step_after *after, const ct_graph_hooks *h, void *ctx);
/** As ct_pass_forget_graphs(); NULL allowed. */
void ct_step_graphs_forget(ct_step_graphs *g);

#endif
