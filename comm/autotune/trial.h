/** @file trial.h  Candidates that take turns in real steps, and the rules that decide from their
 * times. Private to comm/.
 *
 * A candidate is whatever gradients may travel by: a plan of codecs, an algorithm of a class of
 * buckets, the thread on or off. What it took lies in a row, a place a round, on the slowest rank.
 * A rule says which candidate has the next step, and at the end which one is taken.
 *
 * Times within training hang on polls, on other ranks' work and on other programs. So candidates
 * either go once in a round, in steps next to each other. Then what lasts longer than a step meets
 * all of them. Or, where a change costs steps of its own, they take a few steps in a row.
 */
#ifndef CT_TRIAL_H
#define CT_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/core/comm.h"

enum {
    CT_TRIAL_ROUNDS = 32,     /* of a row                                              */
    CT_TRIAL_DUEL_ROUNDS = 4, /* that one must win in a row, to be taken against the model */
    CT_TRIAL_DUEL_STEPS = 2 * CT_TRIAL_DUEL_ROUNDS,
    CT_TRIAL_BLOCK = 4,   /* steps in a row of a plan …                            */
    CT_TRIAL_WINDOW = 64, /* steps                                                 */
    CT_TRIAL_WINDOWS = 3, /* in a row that are longer                              */
    CT_TRIAL_REST = 1024  /* steps before anything is decided anew                 */
};

typedef enum { CT_TRIAL_STAY, CT_TRIAL_NEXT, CT_TRIAL_DECIDED } ct_trial_turn;

typedef struct ct_trial ct_trial;

typedef struct ct_trial_rule {
    int (*first)(const ct_trial *t);
    /** A step is over: where its time belongs in t->ns; -1: nowhere. */
    int (*place)(const ct_trial *t);
    /** The rows that next() is about to compare: all ranks must have the same numbers in them.
     * Their number; 0: none. */
    int (*compares)(const ct_trial *t, int *first_p);
    /** t->step steps are over. *to_p: who goes on, or who is taken. */
    ct_trial_turn (*next)(ct_trial *t, int *to_p);
} ct_trial_rule;

struct ct_trial {
    const ct_trial_rule *rule;
    int n;        /* candidates */
    int now;      /* that goes in the step under way */
    int step;     /* steps that are over */
    int length;   /* steps of turns; duels: before them */
    int skip;     /* steps that tell nothing, before the next one does */
    bool decided; /* or never begun */
    int64_t *ns;  /* [n + 2][CT_TRIAL_ROUNDS]; 0: it did not go in this round */
    int rival;    /* duels: who meets the model's; 0: nobody */
    int held;     /* blocks: whom it was decided for before; -1: nobody */
    bool again;   /* blocks: second turns …                       */
    bool *turn;   /* … of these; [n]                              */
};

/** Candidate 0 is the model's. Each goes in turn for `length` steps. The fastest at its best, if it
 *  is clearly below the model's best, meets that in CT_TRIAL_DUEL_ROUNDS rounds of two steps. It is
 *  taken if it wins them all: a model that is wrong is wrong each time. */
extern const ct_trial_rule ct_trial_duels;
/** Two candidates, as good in all but time: the shorter median, in `length` steps. Each goes first
 *  in every other pair, so that what grows or falls meanwhile speaks for neither. */
extern const ct_trial_rule ct_trial_pairs;
/** Some steps in a row each. Dense is the last candidate, but goes first: others may end sooner
 * where they take much longer. Then codecs that are near the best one, and the best, have a second
 * turn. A codec has to be 2 % faster than dense; another way than `held` 5 % faster. */
extern const ct_trial_rule ct_trial_blocks;

/** length: as above. CT_ERR_NOMEM. Released also where it was zeroed, or begun before. */
ct_status ct_trial_begin(ct_trial *t, const ct_trial_rule *rule, int n, int length, int held);
void ct_trial_release(ct_trial *t);
/** The step under way took so long; 0: nobody knows. No MPI, as all of the rules. */
void ct_trial_note(ct_trial *t, int64_t ns);
/** What comes now, on the same numbers on all ranks. */
ct_trial_turn ct_trial_go_on(ct_trial *t, int *to_p);
/** Of candidate i: [CT_TRIAL_ROUNDS]. */
int64_t *ct_trial_row(const ct_trial *t, int i);

/** What a trial changes. */
typedef struct ct_tried_ops {
    /** Of the step that is over, which took step_ns; 0: it tells nothing. */
    int64_t (*took)(void *ctx, int64_t step_ns);
    ct_status (*go)(void *ctx, int candidate);     /* from this step on; may set the trial's skip */
    ct_status (*settle)(void *ctx, int candidate); /* for good; collective */
} ct_tried_ops;

/** The first candidate goes. */
ct_status ct_trial_start(const ct_trial *t, const ct_tried_ops *ops, void *ctx);
/** A step is over; nothing where it is decided. All ranks decide from the same numbers. Collective
 *  where something is compared. */
ct_status ct_trial_step(ct_trial *t, ct_comm *c, const ct_tried_ops *ops, void *ctx,
                        int64_t step_ns);

/* ---- what the rules are made of */

/** The shortest of n times; 0: it never went. */
int64_t ct_trial_best(const int64_t *ns, int n);
/** The median of the times that are not 0, n <= CT_TRIAL_ROUNDS, in nanoseconds; 0: it never went.
 */
double ct_trial_median(const int64_t *ns, int n);
/** Row i is ns[i * CT_TRIAL_ROUNDS …]. The fastest at its best, if that is below clearly * row 0's
 *  best; else 0. It is worth another look, no more. */
int ct_trial_challenger(const int64_t *ns, int n_row, int n_round, double clearly);
/** True where `other` was faster than `model` in each of the rounds that both went, at least
 *  CT_TRIAL_DUEL_ROUNDS, and its best is below clearly * the model's best. Without a difference, 1
 * of 2^rounds comparisons says so. */
bool ct_trial_wins(const int64_t *other, const int64_t *model, int n_round, double clearly);
/** True where the median of `other` is the shorter one. False where one of them never went. */
bool ct_trial_shorter(const int64_t *other, const int64_t *ns, int n_round);

typedef enum { CT_TRIAL_NEW, CT_TRIAL_DENSE, CT_TRIAL_CODED } ct_trial_held;

/** Rows of steps in a row. The turn may end. against (NULL: nothing): the other's; half as many do
 *  where every step was 1.5 times as long as its longest. second: the plan is tried once more. */
bool ct_trial_is_enough(const int64_t *ns, const int64_t *against, bool second);
/** Less than a tenth apart: worth a second look. */
bool ct_trial_is_near(const int64_t *coded, const int64_t *dense);
/** Whether to compress. At first: where it is 2 % faster. Later another way than now has to be 5 %
 *  faster. */
bool ct_trial_takes(const int64_t *coded, const int64_t *dense, ct_trial_held held);

/* ---- later: when steps have changed since it was decided */

/** Windows of steps against the first one. */
typedef struct ct_trial_drift {
    int skip, n, longer, rest;
    double step_s[CT_TRIAL_WINDOW], reference_s;
    int64_t n_all; /* steps since it was decided, without those that were skipped */
    double all_s;
} ct_trial_drift;

/** After so many more steps the reference is taken. */
void ct_trial_drift_begin(ct_trial_drift *d, int skip);
/** True where a window is full: its median, which tests and snapshots in between do not move. */
bool ct_trial_drift_add(ct_trial_drift *d, double step_s, double *median_s_p);
/** The median of a window on the slowest rank; true where it is the third in a row that is a
 * quarter longer than the reference. */
bool ct_trial_drift_window(ct_trial_drift *d, double median_s);

#endif
