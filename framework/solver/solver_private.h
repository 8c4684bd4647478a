/** @file solver_private.h  The solver's parts; private to framework/solver. */
#ifndef CT_SOLVER_PRIVATE_H
#define CT_SOLVER_PRIVATE_H

#include "framework/proto/prototxt.h"
#include "framework/snapshot/snapshot.h"
#include "framework/solver/optex.h"
#include "framework/solver/outer.h"
#include "framework/solver/outputs.h"
#include "framework/solver/solver.h"
#include "framework/solver/train_step.h"

enum { CT_MAX_AVERAGE_LOSS = 1024 };

typedef struct ct_tally { /* since the last display */
    double start_s, step_s;
    double agree_s; /* of step_s: waited for the other ranks at step boundaries */
    int64_t iterations;
    double wait_data_s;
    ct_sync_stats sync; /* as it was at the start */
} ct_tally;

/** Where lr_policy "plateau" stands: learning_rate.c. */
typedef struct ct_plateau {
    bool begun;    /* a loss was seen                        */
    double least;  /* the least loss so far                  */
    int64_t event; /* iteration of the last least loss, step */
    int64_t step;  /* how often the rate was lowered         */
} ct_plateau;

struct ct_solver {
    ct_solver_options options;
    const Ct__SolverParameter *param; /* the options', or `ends` */
    Ct__SolverParameter ends;         /* with the max_iter that max_epoch makes */
    const ct_device *dev;
    ct_exchange exchange;
    ct_exchange alone;       /* of OptEx: of a step, which one rank makes at a point */
    ct_parts *parts;         /* of the division; NULL: there is none */
    ct_state_shards *shards; /* of the states, under ct_grad_sync.shards; NULL: they are whole */
    ct_outer *outer;         /* local steps; NULL: none */
    ct_optex *optex;         /* rounds of type OptEx; NULL: iterations are steps */
    ct_rank_sums sums_of[2]; /* ct_exec.sums_of, under a division */
    uint64_t seed;
    ct_source_map *map;      /* of nets that the solver read itself */
    Ct__NetParameter **read; /* and these                           */
    int n_read;
    ct_net *net, **test;
    int n_test;
    int64_t n_sample; /* of the data set, where any rank of the job reads one; 0: unknown */
    ct_outputs outputs, *test_outputs;
    const ct_update_rule *rule;
    int iter_size; /* the parameter's, or by its batch_tokens */
    int batches;   /* of an iteration: of OptEx those of a round */
    ct_train_step step;
    ct_step_calls calls;
    bool display; /* the outputs of this iteration are shown */
    int64_t iteration;
    double rate; /* of this iteration      */
    ct_plateau plateau;
    double loss_window[CT_MAX_AVERAGE_LOSS]; /* this rank's shares     */
    int n_loss, next_loss;
    double start_s;           /* max_hours counts from here            */
    double snapshot_s;        /* snapshot_minutes count from here      */
    ct_best best;             /* best.c: what tests have shown         */
    int64_t best_output;      /* which of the outputs of its test net  */
    bool best_rises;          /* more is better                        */
    int64_t best_pending;     /* iteration of a set in the list that is not on disk yet; -1: none */
    bool gave_up;             /* patience ended the run                */
    int64_t last_snapshot;    /* iteration of the set on disk or on its way, -1: none */
    ct_snapshot_later *later; /* snapshot_async; NULL: sets are written at once        */
    int64_t later_iteration;  /* of the set on its way                                 */
    ct_later_need later_need; /* of all ranks, as of the last agreement                */
    double shown_loss;        /* of the last display, for the progress line */
    int64_t test_broken;      /* broken samples that others stood in for in the last test pass */
    ct_tally tally;
};

/** memory_check.c: `memory` and snapshot_async. CT_ERR_CONFIG. */
ct_status ct_memory_check(const ct_solver_text *t);

/* config.c: before anything is made */
/** Warns of what is asked for and not done; makes the directory of snapshot_prefix and writes a
 *  probe into it. Rank 0 calls it. */
ct_status ct_solver_check_prefix(const Ct__SolverParameter *p);

/** max_iter of a run that ends by max_epoch: passes over n_sample in steps of `batch`. max_iter
 *  counts, too, where it is given and less. CT_ERR_CONFIG. */
ct_status ct_solver_end_by_epochs(const ct_solver_text *t, int64_t batch, int64_t n_sample,
                                  int32_t *max_iter_p);

/* best.c: `best` and `patience` */
ct_status ct_best_check(const ct_solver_text *t);
/** Finds the metric among the test nets' outputs. CT_ERR_CONFIG. */
ct_status ct_best_open(ct_solver *s);
/** A test of this iteration: once for each. Writes its set where it ranks. Collective. */
ct_status ct_best_note(ct_solver *s, int test_net, const double *output);
/** The set of that iteration is on disk. Collective. */
ct_status ct_best_committed(ct_solver *s, int64_t iteration);
/** What a snapshot says, where that is of the same metric. */
void ct_best_take(ct_solver *s, const ct_best *best);
/** Patience is over. */
bool ct_best_gave_up(const ct_solver *s);
/** At the end of a run. */
void ct_best_tell(const ct_solver *s);

/* nets.c */
ct_status ct_solver_make_train_net(ct_solver *s);
ct_status ct_solver_make_test_nets(ct_solver *s);

/** The nets as all ranks together run them; this rank's where it runs them whole. */
static inline const ct_net *ct_solver_whole(const ct_solver *s)
{
    return (s->options.division != NULL) ? s->options.division->whole : s->net;
}
static inline const ct_net *ct_solver_whole_test(const ct_solver *s, int i)
{
    return (s->options.division != NULL) ? s->options.division->whole_test[i] : s->test[i];
}

/* solver.c */
/** Under a division: gives an exec what carries values, and the groups of its layers' sums. */
void ct_solver_divide_exec(ct_solver *s, ct_exec *ex);
/** Every gradient landed, every weight updated: before anyone looks at weights between steps.
 *  Collective. */
ct_status ct_solver_settle(ct_solver *s);
/** The same, and nothing of groups of local steps is under way either: at the end of steps. */
ct_status ct_solver_rest(ct_solver *s);

/** Those that share the batches of whole nets. */
static inline const ct_group *ct_solver_sharers(const ct_solver *s)
{
    if (ct_optex_points(s->param) > 1)
        return (s->options.point != NULL) ? s->options.point : &s->alone.data;
    return (s->outer != NULL) ? ct_outer_group(s->outer) : &s->exchange.data;
}
/** Local steps are under way: groups have weights of their own. */
static inline bool ct_solver_is_apart(const ct_solver *s)
{
    return (s->outer != NULL) && ct_outer_is_apart(s->outer, s->iteration);
}

/* display.c */
void ct_solver_note_loss(ct_solver *s, double share);
/** This rank's share of the smoothed loss. */
double ct_solver_smoothed_loss(const ct_solver *s);
void ct_solver_reset_tally(ct_solver *s);
/** Since the last display; 0 where there was no step. */
double ct_solver_images_per_s(const ct_solver *s);
double ct_solver_tokens_per_s(const ct_solver *s); /* likewise; 0 too where the net has none */
/* Passes over the data set so far; NAN: its size is unknown. */
double ct_solver_epoch(const ct_solver *s);
/** Loss and outputs of this iteration, summed over the ranks in one message. Collective. */
ct_status ct_solver_sum_shown(ct_solver *s, double *loss_p);
/** What happened since the last display, to log and metrics. Collective. */
ct_status ct_solver_show(ct_solver *s);

/* agree.c: what ranks decide together, at step boundaries. Collective. */
/** The most urgent action of all ranks; CT_ERR_DIVERGED where a loss is not finite. */
ct_status ct_solver_agree(ct_solver *s, bool finite, ct_solver_action *action_p);
/** The mean over replicas of BatchNorm's running statistics, on every rank. */
ct_status ct_solver_average_statistics(ct_solver *s);
ct_status ct_solver_check_weights(ct_solver *s);
/** The weights of the replicas' rank 0 to all of them; tied ones from the first stage. */
ct_status ct_solver_broadcast_weights(ct_solver *s);
/** The status of the writers' rank 0, the worst of several, on every rank of the job. */
ct_status ct_solver_share_status(ct_solver *s, ct_status status);
/** Those that run the whole net together, add up its outputs and write its snapshots: the replicas,
 *  or under a division every rank. */
static inline const ct_group *ct_solver_writers(const ct_solver *s)
{
    return (s->options.division != NULL) ? &s->exchange.job : &s->exchange.data;
}

/* learning_rate.c: of lr_policy "plateau" */
bool ct_plateau_is(const Ct__SolverParameter *p);
/** The smoothed loss of an iteration, the same on all ranks. */
void ct_plateau_note(const Ct__SolverParameter *p, int64_t iteration, double loss,
                     ct_plateau *state);
/** Of base_lr. */
double ct_plateau_factor(const Ct__SolverParameter *p, const ct_plateau *state);

/* checkpoint.c */
/** Whether there is an average of the weights by now. */
bool ct_solver_has_average(const ct_solver *s);
ct_status ct_solver_snapshot(ct_solver *s);
/** What snapshot_async needs, where it is asked for. */
ct_status ct_solver_open_later(ct_solver *s);
/** A set that is on its way is on disk; wait: also where some rank still writes. Collective. */
ct_status ct_solver_snapshot_end(ct_solver *s, bool wait);

/* test_pass.c */
ct_status ct_solver_test_all(ct_solver *s);

static inline void ct_solver_beat(const ct_solver *s, const char *what)
{
    if (s->options.heartbeat != NULL) s->options.heartbeat(s->options.heartbeat_ctx, what);
}

#endif
