/** @file team_wait.h  How long threads that wait for their team keep their core.
 *
 * gcc's OpenMP spins for some milliseconds before a thread that waits sleeps. That is best on cores
 * of one's own. Where another program runs there, too, a thread that spins keeps the core from
 * those that it waits for. So one thread looks once a second how long the threads of this process
 * waited for a core. Where that is much, it keeps a team beside that only sleeps: as soon as a
 * process has more threads in teams than cores, this OpenMP spins for microseconds alone. Where
 * they no longer wait, the team goes.
 *
 * How long is in /proc/self/task/…/schedstat (the kernel's sched-stats.rst). How OpenMP waits is in
 * the manual of gcc's libgomp, GOMP_SPINCOUNT: 300 000 turns, or 1000 where threads are more than
 * cores.
 */
#ifndef CT_TEAM_WAIT_H
#define CT_TEAM_WAIT_H

#include <stdbool.h>

#include "framework/base/status.h"

typedef struct ct_team_wait ct_team_wait;

/** Begins to look, for a team of n_thread on n_core cores. *t_p is NULL, and nothing is done, where
 *  the team is one thread, or the environment says how to wait (OMP_WAIT_POLICY, GOMP_SPINCOUNT).
 *  Likewise where the kernel does not count waits, or OpenMP is not gcc's. CT_ERR_NOMEM, logged.
 *  Not collective. */
ct_status ct_team_wait_start(int n_thread, int n_core, ct_team_wait **t_p);
/** Ends looking, and the team beside. NULL allowed. */
void ct_team_wait_stop(ct_team_wait *t);

/* ---- its parts, for tests */

/** Whether waits are to be short from now on. share: of the last second, the part in which a thread
 *  of the team waited for a core. looks: how long it has been low, kept by the caller from look to
 *  look, at first 0. is_short: whether waits are short now. */
bool ct_team_wait_decide(double share, bool is_short, int *looks);
/** Makes waits short, or as they were; what the thread above does. It returns once they are.
 *  CT_ERR_NOMEM, logged: no thread could be made; waits stay as they are. */
ct_status ct_team_wait_set(ct_team_wait *t, bool is_short);

#endif
