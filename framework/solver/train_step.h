/** @file train_step.h  One training step: forward and backward, gradients on their way, updates as
 *  they land. What the solver repeats and `cortado time` measures.
 *
 * Where gradients may travel on during the next forward (ct_train_step.forward_overlap), a step
 * ends with its backward. The next forward waits in front of each layer for the weights that the
 * layer reads; what lands is updated with the rate and scale of the step that made it. Where the
 * norm of all gradients decides (clip_gradients), what lands is added to it, and the first layer
 * that reads a weight waits for all of them. Whoever looks at weights between steps calls
 * ct_train_step_settle() first.
 *
 * A step may have several micro-batches in flight, each in a pass of its own: a schedule says in
 * which order they run forward and backward. The bits are those of one after the other, as long as
 * no layer carries state, or gives a gradient in forward to a weight that others share.
 */
#ifndef CT_TRAIN_STEP_H
#define CT_TRAIN_STEP_H

#include "framework/net/net.h"
#include "framework/exchange/exchange.h"
#include "framework/snapshot/residual_drain.h"
#include "framework/solver/division.h"
#include "framework/solver/grad_norm.h"
#include "framework/solver/host_update.h"
#include "framework/solver/update_rule.h"
#include "framework/solver/solver.h"
#include "framework/solver/update_all.h"
#include "framework/tensor/storage_shard.h"

enum { CT_MAX_HISTORY = 3 /* a rule's two, and the average of the weights */ };

typedef struct ct_train_step {
    /* the caller's, before ct_train_step_open(); borrowed */
    const Ct__SolverParameter *param; /* clip_gradients, momentum, decay, comm */
    int iter_size;                    /* micro-batches of a step; 0: the parameter's         */
    int micro_batches;                /* of a batch that is cut into so many; 0: 1           */
    ct_net *net;
    ct_grad_sync *sync;
    const ct_parts *parts; /* of a net that ranks run together: norms are those of the whole net's
                            * weights. NULL: this rank has all of them */
    bool several;          /* ranks */
    const ct_exchange *ranks; /* the groups that share out parameters, under ct_grad_sync.shards */
    ct_pass *pass; /* of net; runs all micro-batches, or as the first of several the first one.
                    * Poll, wait, micro_step and accumulate of its exec are set here */
    /** What a step runs, as often as iter_size holds its micro-batches; NULL: they go forward and
     *  backward one after the other. net->options.in_flight is at least its. */
    const ct_micro_schedule *schedule;
    const ct_transport *also; /* polled beside the step's transport: of local steps. NULL: none */
    int stage, n_stage;       /* for beats; n_stage 0: none */
    const ct_update_rule *rule;
    /** The outputs of the step's last micro-step, which ran in `pass`, can be read: backward may
     *  reuse their memory. May be NULL. */
    ct_status (*look)(void *ctx, const ct_pass *pass);
    /** What runs now, for the watchdog. May be NULL. */
    void (*beat)(void *ctx, const char *what);
    void *hook_ctx;
    /** All gradients of the step are in the arena, and no weight has changed: then weights wait for
     *  all of them. Where a norm would decide, none is made, and this refuses the step. On the CPU,
     *  one rank, without codecs or a window. May be NULL; set between steps. */
    ct_status (*gradients)(void *ctx);
    void *gradients_ctx;
    /** Where weights in a window lie; NULL: as the next. */
    ct_storage_open_fn open_weights;
    void *open_weights_ctx;
    /** Where the optimiser's states lie; NULL: ct_storage_open_fixed(). */
    ct_storage_open_fn open_state;
    void *open_state_ctx;
    /** Of a net on a device: the host updates the weights. States, and the weights that it updates,
     *  lie in its memory, or where it opens them. As where weights come to a window. */
    bool on_host;
    int64_t host_piece; /* floats that cross at once; 0: chosen */

    /* made by ct_train_step_open() */
    bool may_overlap;     /* with the next forward: nothing is against it */
    bool forward_overlap; /* … and this step ends with gradients on their way */
    /** As long as the gradient arena, reached on the net's device: the rule's states, then the
     *  average of the weights where one is asked for. */
    ct_storage history[CT_MAX_HISTORY];
    const char *history_name[CT_MAX_HISTORY];
    ct_shard shard;        /* under ct_grad_sync.shards: what this rank has of them, and updates */
    const ct_device *home; /* where updates are made, and storages are reached: the net's device,
                            * or the host */
    ct_host_update host;   /* open where the net's device is not `home` */
    bool refused;          /* the step's gradients are not finite, as the device has found */
    /** The weights that learn, as the gradient arena: where they are for good, or, in a window
     *  (ct_net_options.window), this rank's, from where they come for the steps that read them. Of
     *  a host that updates them for a device its own. */
    ct_storage weights;
    /** Where some of them come and go: those that stay in the net's memory, the first n_staying
     *  floats, which `weights` then has not. */
    ct_storage staying;
    int64_t n_staying;
    /** Under shards with gradients in a window: the sums that this rank keeps, of its pieces, until
     *  all micro-batches are in and nothing waits any more. Not open where nothing waits. */
    ct_storage kept;
    ct_storage *visit_from; /* where they come from now: these, or in tests their average */
    int n_history;
    ct_storage *average;    /* one of them, or NULL */
    bool *landed;           /* [n_param] updated since the gradients left, or only there, where all
                             * wait for each other */
    bool updated;           /* … and then all were updated */
    bool *frozen;           /* [n_param] its mean square stays as it is, and was seen to */
    ct_grad_norm norm;      /* of what has landed; closed where nobody asks, or a device finds it */
    ct_square_sums squares; /* of a rule with a ratio, on the CPU: lists 2 i and 2 i + 1 are of the
                             * two norms of parameter i */
    ct_part_sums ratios;    /* over parts, of a rule with a ratio: its two norms, squared */
    ct_update_plan all;     /* many parameters in one pass; empty: one by one */
    bool in_graph; /* this step's sums over ranks and updates may be recorded with backward */
    bool owing;    /* … but not in the last step, which had `owed` or `late` to see to */

    /** As far as the host has heard: where the device decides, a step later. Who changes it sets
     *  all.has_loss to false. */
    ct_loss_scale loss_scale;

    /* of the micro-batches */
    ct_pass **passes; /* [schedule->in_flight]: number m of a step runs in m % in_flight */
    ct_pass *runs;    /* of these, the one that has the exec: it goes from pass to pass */
    int n_ahead[2];   /* of this step, whose receives have begun: backward, forward */
    bool last;        /* micro-batch of the step */
    bool first;       /* gradients under way are of its first one */
    char doing[96];   /* what it does now, for beats */

    /* of the gradients on their way */
    bool open;
    int64_t iteration;
    double rate;
    float scale;

    /* to be added to the next gradients: on the net's device, as long as the gradient arena. Of a
     * snapshot (ct_snapshot_state.owed); released when it is in; NULL: nothing */
    float *owed;
    ct_residual_drain late; /* likewise for weights; owned */

    double update_s; /* seconds in updates so far */
    double norm_s;   /* … and in the norm of all gradients */
} ct_train_step;

/** What layers ask of other ranks, they ask this group. */
void ct_exec_set_group(ct_exec *ex, const ct_group *g);
/** The same as one of ct_exec.sums_of. */
ct_rank_sums ct_group_sums(const ct_group *g);
/** The rest of t is zero. Reads comm { overlap forward_overlap }: forward_overlap needs several
 *  ranks. */
ct_status ct_train_step_open(ct_train_step *t);
void ct_train_step_close(ct_train_step *t); /* half-open ones too */
/** One step; *loss_p: this rank's share of the mean loss of its micro-steps. Collective. */
ct_status ct_train_step_run(ct_train_step *t, int64_t iteration, double rate, double *loss_p);
/** Returns with every gradient landed and every weight updated, and what the device decided on the
 *  way in the log. Collective where several ranks have gradients on their way. */
ct_status ct_train_step_settle(ct_train_step *t);

/* ---- weights that come and go: chunks.c */

/** Weights come to a window: t->weights is not the arena. */
bool ct_step_has_visits(const ct_train_step *t);
/** ct_exec.chunk of passes of the net, and of nets that have its weights; ctx: a ct_train_step. */
ct_status ct_step_chunk(void *ctx, ct_chunk_call call, int chunk);
/** Fills t->weights as the net's fillers say. */
ct_status ct_step_fill(ct_train_step *t);
/** The gradient of a parameter is not needed any more: its weights, or this rank's, are updated. */
ct_status ct_step_land_gradient(ct_train_step *t, int param);

/* ---- an average of the weights: step_update.c */

/** How much of the weights after `done` updates goes into their average: 0: they do not count, 1:
 *  they are its first. */
float ct_average_share(const Ct__WeightAverageParameter *p, int64_t done);
/** Whether an average of the weights exists after `done` updates. */
bool ct_average_begun(const Ct__WeightAverageParameter *p, int64_t done);

/* ---- the weights of a step, from gradients that have landed: step_update.c. Private to
 * framework/solver. */

/** Those that share out a parameter among them. */
static inline const ct_group *ct_step_sharers(const ct_train_step *t, const ct_param *p)
{
    if (t->parts == NULL) return &t->ranks->data;
    return p->tied ? &t->ranks->tied : p->own_samples ? &t->ranks->stage : &t->ranks->data;
}
/** ct_update_waits_for_all(), or norms of parameters that other ranks have parts of. */
bool ct_step_waits_for_all(const ct_train_step *t);
/** Parameters [first, first + n) have landed, or a part of one: to the norm, where it is made
 *  here. */
ct_status ct_step_add_norm(ct_train_step *t, int first, int n);
ct_status ct_step_add_part(ct_train_step *t, int param, int64_t from, int64_t count);
/** Work that holds addresses of the states may be recorded. */
bool ct_step_states_are_fixed(const ct_train_step *t);
/** t->iteration, rate and scale are a new step's: for a device that reads them there. */
ct_status ct_step_put_numbers(ct_train_step *t);
/** Parameters [first, first + n), whose sums are there. */
ct_status ct_step_update(ct_train_step *t, int first, int n);
/** The same of a piece of one, under shards. */
ct_status ct_step_update_piece(ct_train_step *t, int param, int64_t from, int64_t count);
/** Where the weights lie that learn, from this float on. */
static inline ct_storage *ct_step_weights_at(ct_train_step *t, int64_t from)
{
    return (from < t->n_staying) ? &t->staying : &t->weights;
}
/** Sums of pieces are kept: t->kept is open. */
static inline bool ct_step_keeps(const ct_train_step *t)
{
    return t->kept.ops != NULL;
}
/** Such a piece has landed: it is added to what is kept of it, or is the first. */
ct_status ct_step_keep(ct_train_step *t, int param, int64_t from, int64_t count);
/** All of them, where they had to wait for each other. */
ct_status ct_step_update_all(ct_train_step *t);
/** What a device has decided by itself reaches the log and the host's account; all: of the last
 *  step, too, which is waited for. */
ct_status ct_step_hear(ct_train_step *t, bool all);
/** The last step's decision sets off for the host, where there is one. */
ct_status ct_step_tell(ct_train_step *t);

/* The loss times a power of two, so that small gradients stay numbers of 16 bits.
 *
 * With precision FP16 backward starts from the loss times `scale`, and updates divide by it. A step
 * whose gradients are not finite changes no weight and halves the scale; after loss_scale_window
 * steps without one it doubles. All ranks see the same sum and so decide alike. The device decides
 * (framework/math/step_there.h); the host hears of it later, and keeps the same account.
 */

ct_loss_scale ct_loss_scale_open(const Ct__SolverParameter *p);
/** ct_loss_scale_next(), with a line in the log for what it does not let pass. */
bool ct_loss_scale_step(ct_loss_scale *s, int64_t iteration, bool finite);

#endif
