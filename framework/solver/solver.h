/** @file solver.h  The training loop: synchronous SGD as Caffe defines it, over the global batch.
 *
 * A step: iter_size times forward and backward; gradients leave as they become final; each bucket
 * is clipped (if asked), regularised and applied as it lands. Losses and outputs are means over the
 * global batch of all ranks.
 */
#ifndef CT_SOLVER_H
#define CT_SOLVER_H

#include "framework/net/net.h"
#include "framework/solver/exchange.h"

struct ct_report;

typedef struct ct_solver ct_solver;

/** Element-wise update rule; state tensors are arenas as long as the gradient arena. */
typedef struct ct_update_rule {
    const char *type; /* solver `type:` */
    int n_state;
    const char *const *state_name; /* "momentum" … */
} ct_update_rule;

typedef struct ct_solver_options {
    const Ct__SolverParameter *param; /* effective: options already applied; outlives the solver */
    const struct ct_source_map *map;
    const ct_device *dev;
    const ct_arena_ops *grad_arena;
    ct_net_env env;
    struct ct_report *report; /* log, metrics, progress; framework/report/report.h */
    /** Makes the exchange once the train net's parameters are known. Collective. */
    ct_status (*open_exchange)(void *ctx, ct_net *net, ct_exchange *out);
    void *open_exchange_ctx;
    const volatile int
        *stop_signal;       /* != 0: a signal asks to stop at the step boundary; may be NULL */
    const char *provenance; /* JSON text kept in snapshots; may be NULL           */
    /** Tells the watchdog what runs now; cheap; may be NULL. */
    void (*heartbeat)(void *ctx, const char *what);
    void *heartbeat_ctx;
} ct_solver_options;

/** Creates train and test nets, opens the exchange, broadcasts the initial weights. Collective. */
ct_status ct_solver_create(const ct_solver_options *options, ct_solver **solver_p);
void ct_solver_destroy(ct_solver *s); /* NULL allowed */
/** --weights: copies by layer name from .caffemodel(.h5) files, comma separated. Collective. */
ct_status ct_solver_load_weights(ct_solver *s, const char *files);
/** --snapshot: FILE.solverstate.h5, or "auto": the newest good set of snapshot_prefix, a fresh
 * start where there is none. Collective. */
ct_status ct_solver_restore(ct_solver *s, const char *file);
/** Trains to max_iter. CT_STOPPED: a signal, time limit: a snapshot was taken. Collective. */
ct_status ct_solver_run(ct_solver *s);
/** One test pass over test net i: means of its outputs over the whole pass. Collective. */
ct_status ct_solver_test(ct_solver *s, int i, double *output, int n_output);

ct_net *ct_solver_net(ct_solver *s);
int ct_solver_n_test(const ct_solver *s);
ct_net *ct_solver_test_net(ct_solver *s, int i);
int64_t ct_solver_iteration(const ct_solver *s);

/** The learning rate of an iteration: fixed, step, exp, inv, multistep, poly, sigmoid, cosine, with
 *  linear warm-up. CT_ERR_CONFIG for an unknown policy or a missing field. */
ct_status ct_learning_rate(const Ct__SolverParameter *p, int64_t iteration, double *rate_p);
/** How often "step" or "multistep" has lowered the rate by then; 0 with other policies. */
int64_t ct_learning_rate_step(const Ct__SolverParameter *p, int64_t iteration);

#endif
