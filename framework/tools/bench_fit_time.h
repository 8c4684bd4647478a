/** @file bench_fit_time.h  What the parts of a fit share: timing one thing on all ranks. Private.
 */
#ifndef CT_BENCH_FIT_TIME_H
#define CT_BENCH_FIT_TIME_H

#include "framework/tools/bench_fit.h"

enum { CT_FIT_SIZES = 21 };

/** What is timed: `run` does it `times` times in a row; `again` makes the buffers new, untimed. */
typedef struct ct_fit_experiment {
    ct_comm *c;
    ct_status (*again)(void *ctx);
    ct_status (*run)(void *ctx, int times);
    void *ctx;
    int times;
    bool watches; /* this rank takes no part: it leaves its core to those that do */
} ct_fit_experiment;

/** Median seconds of one, of the slowest rank. Collective. */
ct_status ct_fit_measure(const ct_fit_experiment *e, double *seconds_p);

/** Times by size, of which those with even numbers are fitted and the others held out. */
typedef struct ct_fit_curve {
    double bytes[CT_FIT_SIZES], seconds[CT_FIT_SIZES];
    int n;
} ct_fit_curve;

/** The even (odd: 0) or odd (1) ones; how many. */
int ct_fit_pick(const ct_fit_curve *c, int odd, double *bytes, double *seconds);

/** report->machine.sum_bandwidth: additions of all ranks at once. Collective. */
ct_status ct_fit_sums(ct_comm *c, ct_fit_report *report);
/** report->machine.shared: sums in the shared memory of the nodes. Collective. */
ct_status ct_fit_shared(ct_comm *c, ct_fit_report *report);

#endif
