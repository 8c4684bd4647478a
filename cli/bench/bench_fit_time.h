/** @file bench_fit_time.h  What the parts of a fit share: timing one thing on all ranks. Private.
 */
#ifndef CT_BENCH_FIT_TIME_H
#define CT_BENCH_FIT_TIME_H

#include "cli/bench/bench_fit.h"

/** What is timed: `run` does it `times` times in a row; `again` makes the buffers new, untimed. */
typedef struct ct_fit_experiment {
    ct_comm *c;
    ct_status (*again)(void *ctx);
    ct_status (*run)(void *ctx, int times);
    void *ctx;
    int times;
    bool all;     /* every rank takes part                                        */
    bool watches; /* this one does not, and leaves its core to those that do      */
} ct_fit_experiment;

/** Median seconds of one, of the slowest rank. Collective. */
ct_status ct_fit_measure(const ct_fit_experiment *e, double *seconds_p);

/** Times by size, of which those with even numbers are fitted and the others held out. */
typedef struct ct_fit_curve {
    double bytes[CT_MAX_TIME], seconds[CT_MAX_TIME];
    int n;
} ct_fit_curve;

/** The even (odd: 0) or odd (1) ones; how many. */
int ct_fit_pick(const ct_fit_curve *c, int odd, double *bytes, double *seconds);
/** Relative error (RMS) of the odd ones, where straight lines between the even ones foretell them.
 */
double ct_fit_held_out(const ct_fit_curve *c);

/** report->machine.sum_bandwidth: additions of all ranks at once. Collective. */
ct_status ct_fit_sums(ct_comm *c, ct_fit_report *report);
/** report->machine.shared: sums in the shared memory of the nodes. Collective. */
ct_status ct_fit_shared(ct_comm *c, ct_fit_report *report);

#endif
