/** @file auto_rule.h  When measured steps speak for a codec, and when they have changed. No MPI.
 *  Private to comm/.
 */
#ifndef CT_AUTO_RULE_H
#define CT_AUTO_RULE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CT_AUTO_STEPS = 4, /* of a trial                     */
    CT_AUTO_MOST = 2 * CT_AUTO_STEPS,
    CT_AUTO_WINDOW = 64, /* steps                                                        */
    CT_AUTO_WINDOWS = 3, /* in a row that are longer                                     */
    CT_AUTO_REST = 1024  /* steps before anything is decided anew                        */
};

/** Steps of one plan, on the slowest rank. */
typedef struct ct_auto_times {
    int n;
    int64_t ns[CT_AUTO_MOST];
} ct_auto_times;

void ct_auto_times_add(ct_auto_times *t, int64_t ns); /* where there is room */
/** Seconds; 0: none. */
double ct_auto_median(const ct_auto_times *t);
/** The trial may end. against (NULL: nothing): the other's; half as many do where every step was
 *  1.5 times as long as its longest. second: the plan is tried once more. */
bool ct_auto_is_enough(const ct_auto_times *t, const ct_auto_times *against, bool second);
/** Less than a tenth apart: worth a second look. */
bool ct_auto_is_near(const ct_auto_times *coded, const ct_auto_times *dense);

typedef enum { CT_AUTO_NEW, CT_AUTO_DENSE, CT_AUTO_CODED } ct_auto_now;

/** Plans that take steps one after the other. Dense is the last of them, but tried first: others
 * may end sooner where it took much longer. Codecs near the best plan, and the best, have a second
 *  turn. */
enum { CT_AUTO_PLANS = 7 };
typedef struct ct_auto_trials {
    int n_plan, at;
    bool again;
    bool turn[CT_AUTO_PLANS]; /* has a second one */
    ct_auto_times times[CT_AUTO_PLANS];
} ct_auto_trials;

typedef enum { CT_AUTO_STAY, CT_AUTO_NEXT, CT_AUTO_DECIDED } ct_auto_turn;

/** Whether to compress. At first: where it is 2 % faster. Later another way than now has to be 5 %
 *  faster. */
bool ct_auto_takes(const ct_auto_times *coded, const ct_auto_times *dense, ct_auto_now now);

void ct_auto_trials_begin(ct_auto_trials *t, int n_plan);
/** The coded plan of the shortest steps, of those that had some. */
int ct_auto_trials_best(const ct_auto_trials *t);
/** A step of plan t->at took so long. held: the plan that was decided on before, which another has
 *  to be 5 % faster than; -1: none. *plan_p: the plan to go to, where not CT_AUTO_STAY. */
ct_auto_turn ct_auto_trials_add(ct_auto_trials *t, int64_t ns, int held, int *plan_p);

/** Windows of steps against the first one. */
typedef struct ct_auto_drift {
    int skip, n, longer, rest;
    double step_s[CT_AUTO_WINDOW], reference_s;
    int64_t n_all; /* steps since it was decided, without those that were skipped */
    double all_s;
} ct_auto_drift;

/** After so many more steps the reference is taken. */
void ct_auto_drift_begin(ct_auto_drift *d, int skip);
/** True where a window is full: its median, which tests and snapshots in between do not move. */
bool ct_auto_drift_add(ct_auto_drift *d, double step_s, double *median_s_p);
/** The median of a window on the slowest rank; true where it is the third in a row that is a
 * quarter longer than the reference. */
bool ct_auto_drift_window(ct_auto_drift *d, double median_s);

#endif
