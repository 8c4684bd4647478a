/** @file train_step.h  One training step: forward and backward, gradients on their way, updates as
 *  they land. What the solver repeats and `cortado time` measures.
 *
 * Where gradients may travel on during the next forward (ct_train_step.forward_overlap), a step
 * ends with its backward. The next forward waits in front of each layer for the weights that the
 * layer reads; what lands is updated with the rate and scale of the step that made it. Whoever
 * looks at weights between steps calls ct_train_step_settle() first.
 */
#ifndef CT_TRAIN_STEP_H
#define CT_TRAIN_STEP_H

#include "framework/net/net.h"
#include "framework/exchange/exchange.h"
#include "framework/snapshot/residual_drain.h"
#include "framework/solver/loss_scale.h"
#include "framework/solver/update_rule.h"
#include "framework/solver/solver.h"
#include "framework/solver/update_all.h"

enum { CT_MAX_HISTORY = 3 /* a rule's two, and the average of the weights */ };

typedef struct ct_train_step {
    /* the caller's, before ct_train_step_open(); borrowed */
    const Ct__SolverParameter *param; /* iter_size, clip_gradients, momentum, decay, comm */
    ct_net *net;
    ct_grad_sync *sync;
    bool several;  /* ranks */
    ct_exec *exec; /* its poll, wait, micro_step and accumulate are set here */
    const ct_update_rule *rule;
    /** The outputs of the step's last micro-step can be read: backward may reuse their memory. May
     *  be NULL. */
    ct_status (*look)(void *ctx);
    /** What runs now, for the watchdog. May be NULL. */
    void (*beat)(void *ctx, const char *what);
    void *hook_ctx;

    /* made by ct_train_step_open() */
    bool may_overlap;     /* with the next forward: nothing is against it */
    bool forward_overlap; /* … and this step ends with gradients on their way */
    /** On the net's device, as long as the gradient arena: the rule's states, then the average of
     *  the weights where one is asked for. */
    float *history[CT_MAX_HISTORY];
    const char *history_name[CT_MAX_HISTORY];
    int n_history;
    float *average;     /* one of them, or NULL */
    bool *landed;       /* [n_param] updated since the gradients left */
    ct_update_plan all; /* many parameters in one pass; empty: one by one */
    bool in_graph;      /* this step's sums over ranks and updates may be recorded with backward */
    bool owing;         /* … but not in the last step, which had `owed` or `late` to see to */

    /** As far as the host has heard: where the device decides, a step later. Who changes it sets
     *  all.has_loss to false. */
    ct_loss_scale loss_scale;

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
} ct_train_step;

/** What layers ask of other ranks, they ask this group. */
void ct_exec_set_group(ct_exec *ex, const ct_group *g);
/** The rest of t is zero. Reads comm { overlap forward_overlap }: forward_overlap needs several
 *  ranks, and no clip_gradients, whose norm needs all gradients. */
ct_status ct_train_step_open(ct_train_step *t);
void ct_train_step_close(ct_train_step *t); /* half-open ones too */
/** One step; *loss_p: this rank's share of the mean loss of its micro-steps. Collective. */
ct_status ct_train_step_run(ct_train_step *t, int64_t iteration, double rate, double *loss_p);
/** Returns with every gradient landed and every weight updated, and what the device decided on the
 *  way in the log. Collective where several ranks have gradients on their way. */
ct_status ct_train_step_settle(ct_train_step *t);

/** How much of the weights after `done` updates goes into their average: 0: they do not count, 1:
 *  they are its first. */
float ct_average_share(const Ct__WeightAverageParameter *p, int64_t done);
/** Whether an average of the weights exists after `done` updates. */
bool ct_average_begun(const Ct__WeightAverageParameter *p, int64_t done);
/** Weights and their average change places: before a test, and back after it. */
ct_status ct_train_step_swap_average(ct_train_step *t);

#endif
