/** @file watched.h  A rank's own model, run with the job's threads and under the watchdog: it knows
 * that a server without work is none that hangs.
 */
#ifndef CT_WATCHED_H
#define CT_WATCHED_H

#include "runtime/job.h"
#include "serve/api/model.h"

typedef struct ct_watched {
    ct_served_model model;     /* to be run; its ctx is this                              */
    const ct_served_model *of; /* borrowed                                                */
    ct_watchdog *watchdog;
    double limit_s; /* of a batch; 0: none                                     */
    int n_thread;
} ct_watched;

/** Filled, it must stay where it is. */
void ct_watched_init(ct_watched *w, const ct_served_model *of, const ct_job *job, double limit_s);

#endif
