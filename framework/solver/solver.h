/** @file solver.h  The training loop: synchronous SGD as Caffe defines it, over the global batch.
 *
 * A step: iter_size times forward and backward. Gradients leave as they become final. Each bucket
 * is clipped (if asked), regularised and applied as it lands, during the next forward if need be
 * (train_step.h). The numbers are those of steps one after the other. Losses and outputs are means
 * over the global batch of all ranks. Of type OptEx an iteration is several such steps (optex.h).
 */
#ifndef CT_SOLVER_H
#define CT_SOLVER_H

#include "framework/base/json_writer.h"
#include "framework/net/net.h"
#include "framework/exchange/exchange.h"
#include "framework/proto/prototxt.h"
#include "framework/solver/division.h"
#include "framework/solver/update_rule.h"
#include "framework/tensor/storage.h"

struct ct_report;

typedef struct ct_solver ct_solver;

/** What a signal asks for at the next step boundary. */
typedef enum {
    CT_ACTION_NONE,
    CT_ACTION_STOP,    /* snapshot, then CT_STOPPED */
    CT_ACTION_SNAPSHOT /* snapshot and go on; the solver then sets the request back to NONE */
} ct_solver_action;

typedef struct ct_solver_options {
    const Ct__SolverParameter *param; /* effective: options already applied; outlives the solver */
    const struct ct_source_map *map;
    const ct_device *dev;             /* NULL: solver_mode says, CPU where it is not set          */
    const ct_arena_ops *grad_arena;   /* for the train net; NULL: plain                           */
    const ct_net_window *window;      /* ct_net_options.window of the train net                   */
    const ct_layer_ops *const *table; /* layer types; NULL: ct_layer_table                      */
    const ct_net_segment *again;      /* ct_net_options.again of the train net */
    int n_again;
    /** iter_size counts so many for each batch that a parallel file cuts into micro-batches; 0: 1.
     *  clip_gradients is a limit of their mean. */
    int micro_batches;
    /** The ranks of the job run the nets together; NULL: each runs them whole. Borrowed. */
    const ct_division *division;
    const struct ct_outer_ranks *outer; /* outer.h: whose groups the solver's `outer` is about; NULL
                                         * where it has none. Borrowed */
    const ct_group *point; /* of type OptEx on more ranks than points: those that share this rank's;
                            * NULL: a point has one rank. Borrowed */
    bool keep_values;    /* of all nets each value has memory of its own, and each layer runs alone:
                          * for    who looks at them (ct_net_options.unshared, no_fuse) */
    double memory_limit; /* recompute AUTO: bytes of the host that this rank may take; 0: any   */
    ct_net_env env; /* its seed is set here: random_seed, or drawn by rank 0                     */
    struct ct_report *report; /* log, metrics, progress; framework/report/report.h */
    /** Makes the exchange once the train net's parameters are known; NULL: one rank. Collective.
     *  The caller destroys it, after the solver. */
    ct_status (*open_exchange)(void *ctx, ct_net *net, ct_exchange *out);
    void *open_exchange_ctx;
    /** All ranks get what any of them has met alone, before they do together what the others would
     *  wait in. Collective, but once it was not CT_OK: then it gives that again, at once. NULL: a
     *  rank that fails ends the job. */
    ct_status (*agree)(void *ctx, ct_status mine);
    void *agree_ctx;
    volatile int *stop_signal; /* a ct_solver_action that a signal handler sets; may be NULL */
    const char *provenance;    /* JSON text kept in snapshots; may be NULL           */
    /** Tells the watchdog what runs now; cheap; may be NULL. */
    void (*heartbeat)(void *ctx, const char *what);
    void *heartbeat_ctx;
    struct ct_trace *trace; /* framework/base/trace.h; NULL: none */
    bool send_rows;         /* ct_net_options.send_rows of the train net: the exchange takes rows */
    /** Where the optimiser's states lie; NULL: at one address, on the device. */
    ct_storage_open_fn open_state;
    void *open_state_ctx;
    ct_storage_open_fn open_weights; /* likewise, of weights in a window */
    void *open_weights_ctx;
    bool on_host;       /* of a net on a device: the host updates the weights (train_step.h) */
    int64_t host_piece; /* floats of what crosses at once; 0: chosen */
} ct_solver_options;

/** A solver's parameters, and where they came from; map may be NULL. */
typedef struct ct_solver_text {
    const Ct__SolverParameter *p;
    const ct_source_map *map;
} ct_solver_text;

/** "solver.prototxt:4:1", or "--set"; "solver" where that is not known. For messages about a
 *  field's value. */
#define CT_SOLVER_AT(_t, _field)                                                                   \
    ct_source_map_where((_t)->map, (_t)->p, &(_t)->p->_field, "solver").text

/** What a solver parameter must say, nets aside; map (NULL allowed) knows where the fields stand.
 *  CT_ERR_CONFIG. */
ct_status ct_solver_check(const Ct__SolverParameter *p, const struct ct_source_map *map);
/** Which element of the outputs of a test net, which must be whole, `best` means, and whether more
 *  of it is better; t->p->best is given. CT_ERR_CONFIG. */
ct_status ct_best_find(const ct_solver_text *t, const ct_net *net, int64_t *element_p,
                       bool *rises_p);
/** How many batches of the net make a step: iter_size, or what makes batch_tokens of them.
 *  CT_ERR_CONFIG where that is no whole number, or the net has no tokens. */
ct_status ct_solver_micro_batches(const Ct__SolverParameter *p, const struct ct_source_map *map,
                                  const ct_net *net, int *n_p);
/** How many test nets there are: the named ones, then as many of the common net as test_iter has
 * entries left. CT_ERR_CONFIG where test_iter, test_state and test_interval do not fit together. */
ct_status ct_solver_count_test_nets(const Ct__SolverParameter *p, const struct ct_source_map *map,
                                    int *n_p);
/** The nets of a solver, each as one rank would run it: with shapes, without memory and data. */
typedef struct ct_whole_nets {
    ct_net *train;
    ct_net **test;
    int n_test;
    void *impl; /* the messages that were read */
} ct_whole_nets;
/** Of what options say param, dev, table and the solver's own fields of env are read. The caller
 *  destroys it. Not collective. CT_ERR_CONFIG. */
ct_status ct_whole_nets_make(const ct_solver_options *options, ct_whole_nets *w);
/** The same as this rank of the job makes them: its share of the batch, and options.window. */
ct_status ct_planned_nets_make(const ct_solver_options *options, ct_whole_nets *w);
void ct_whole_nets_destroy(ct_whole_nets *w); /* zeroed ones too */
/** Creates train and test nets, opens the exchange, broadcasts the initial weights, loads the
 *  solver's `weights`. CT_ERR_CONFIG, CT_ERR_IO (snapshot_prefix cannot be written). Collective.
 *  After an error *solver_p is what there is of it, or NULL. ct_solver_destroy() is for errors that
 *  all ranks have. It is collective, and waits for a rank that is in the middle of something. */
ct_status ct_solver_create(const ct_solver_options *options, ct_solver **solver_p);
void ct_solver_destroy(ct_solver *s); /* NULL allowed */
/** Who looks into steps. Each may be NULL. */
typedef struct ct_step_calls {
    void *ctx;
    ct_status (*start)(void *ctx);     /* a step begins */
    ct_status (*gradients)(void *ctx); /* those of its micro-batches lie in the arena, added up, and
                                        * no weight has changed */
} ct_step_calls;

/** From the next step on. CT_ERR_CONFIG: gradients, where they are never all there: several ranks,
 *  compression, `memory`, or norms that are found before. */
ct_status ct_solver_watch(ct_solver *s, const ct_step_calls *calls);
/** --weights: copies by layer name from .caffemodel(.h5) files, comma separated. Collective. */
ct_status ct_solver_load_weights(ct_solver *s, const char *files);
/** --snapshot: FILE.solverstate.h5, or "auto": the newest good set of snapshot_prefix, a fresh
 * start where there is none. Collective. */
ct_status ct_solver_restore(ct_solver *s, const char *file);
/** Trains to max_iter, or until patience is over. CT_STOPPED: a signal, time limit: a snapshot was
 * taken. CT_ERR_DIVERGED: the loss of a rank is not finite (stop_on_nan), or ranks' weights differ.
 * Collective. */
ct_status ct_solver_run(ct_solver *s);
/** Makes n steps, with the tests, snapshots and displays that are due among them; max_iter and
 *  patience do not count. All updates have landed then. CT_STOPPED, CT_ERR_DIVERGED: as
 * ct_solver_run(). Collective.
 */
ct_status ct_solver_steps(ct_solver *s, int64_t n);
/** The loss as it is shown: the mean over the global batch of the last average_loss steps.
 *  Collective. */
ct_status ct_solver_loss(ct_solver *s, double *loss_p);
/** Writes a set of this iteration. CT_ERR_CONFIG without snapshot_prefix, CT_ERR_IO. Collective. */
ct_status ct_solver_save(ct_solver *s);
/** One test pass over test net i: means of its outputs over the whole pass, the same on all ranks;
 *  n_output: as ct_report_n_output(). CT_STOPPED: a signal interrupted it. Collective. */
ct_status ct_solver_test(ct_solver *s, int i, double *output, int n_output);

ct_net *ct_solver_net(ct_solver *s);
/** Groups of ranks train by themselves, each from weights that a load must change in step. */
bool ct_solver_has_outer(const ct_solver *s);
int ct_solver_n_test(const ct_solver *s);
ct_net *ct_solver_test_net(ct_solver *s, int i);
int64_t ct_solver_iteration(const ct_solver *s);
int ct_solver_iter_size(const ct_solver *s); /* ct_solver_micro_batches() of its net */
int ct_solver_batches(const ct_solver *s);   /* of an iteration: as many, of each of its steps */
/** Broken samples of all ranks that others stood in for in training so far. */
int64_t ct_solver_broken_samples(const ct_solver *s);
uint64_t ct_solver_seed(const ct_solver *s);
/** Adds "ranks":[{"rank","stage","memory_bytes","allocated_bytes","resident_bytes"}] of the job:
 * what the plan says of a rank's train net (weights, gradients, the optimiser's states, all
 * passes), what was allocated for these, and ct_memory_resident(). Collective. */
ct_status ct_solver_ranks_json(ct_solver *s, ct_json_writer *w);
/** Adds what ended the run and its best test, where the solver has `best`:
 *  "ended_by":"patience|stop_iter|max_iter","best":{"metric","direction","iter","value"}. */
void ct_solver_best_json(const ct_solver *s, ct_json_writer *w);
/** Bytes of memory that this rank has for states, and of weights and gradients in shards: of what
 *  lies in files its buffers. */
int64_t ct_solver_state_bytes(const ct_solver *s);
/** ct_net_checksum() of all weights: of a divided net those that one rank would have. Collective.
 */
ct_status ct_solver_checksum(ct_solver *s, uint64_t *sum_p);

/** The learning rate of an iteration: fixed, step, exp, inv, multistep, poly, sigmoid, cosine,
 *  multifixed, plateau (before its first step), with linear warm-up. CT_ERR_CONFIG for an unknown
 *  policy or a missing field. */
ct_status ct_learning_rate(const Ct__SolverParameter *p, int64_t iteration, double *rate_p);
/** The same errors, with their places. */
ct_status ct_learning_rate_check(const ct_solver_text *t);
/** How often "step" or "multistep" has lowered the rate by then; 0 with other policies. */
int64_t ct_learning_rate_step(const Ct__SolverParameter *p, int64_t iteration);

#endif
