/** @file team_clock.h  The processor time of each thread of a team: how evenly work is split.
 *
 * A thread's share of the work is the time that it spends on a processor, whenever that is, so the
 * split on 64 threads can be looked at on 2 cores. That holds where threads that wait sleep
 * (OMP_WAIT_POLICY=passive), and for loops that are split beforehand. Of a loop whose threads take
 * what is left, those that wake first take most where there are too few cores.
 *
 * Things are looked at many times, and of each thread the least counts: what disturbs only adds.
 */
#ifndef CT_TEAM_CLOCK_H
#define CT_TEAM_CLOCK_H

#include <stdbool.h>

#include "framework/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ct_team_clock ct_team_clock;

/** In seconds. */
typedef struct ct_team_work {
    double mean;  /* of the threads                                                  */
    double most;  /* of the one that has most to do                                  */
    double first; /* of the one that begins the team: it does alone what is not split */
} ct_team_work;

/** For n_row things, of the team that the calling thread's parallel regions have, with as many
 *  threads as omp_get_max_threads() now. CT_ERR_NOMEM, CT_ERR_CONFIG (no such clocks here). */
ct_status ct_team_clock_create(int n_row, ct_team_clock **clock_p);
void ct_team_clock_destroy(ct_team_clock *clock); /* NULL allowed */
int ct_team_clock_threads(const ct_team_clock *clock);
/** Whether threads of the team have ended, and with them their clocks: what was seen since is
 *  wrong. Teams that shrink do that. */
bool ct_team_clock_lost(const ct_team_clock *clock);
/** Processor time of the first thread in a region in which nobody does anything, in seconds: each
 *  region's, since the threads sleep. Measures, the least of some tries; belongs to no row, so a
 *  begin must follow. */
double ct_team_clock_wake(ct_team_clock *clock);
/** What comes now counts. These two are called by the team's first thread. */
void ct_team_clock_begin(ct_team_clock *clock);
/** What the threads did since the last call of one of these is row's. */
void ct_team_clock_end(ct_team_clock *clock, int row);
/** Zeros where the row has never ended. */
ct_team_work ct_team_clock_of(const ct_team_clock *clock, int row);

#ifdef __cplusplus
}
#endif

#endif
