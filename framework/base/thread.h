/** @file thread.h  Threads of our own, waits with a limit, and whether there is room to start.
 *
 * Signals that come from outside are for the main thread, so a thread made here blocks them. It
 * does not block those of its own faults (SEGV, BUS, FPE, ILL, ABRT): the kernel ends a process
 * that faults with its signal blocked, without calling the handler that says what happened.
 */
#ifndef CT_THREAD_H
#define CT_THREAD_H

#include <pthread.h>
#include <stdbool.h>

#include "framework/base/status.h"

/** Starts fn(arg). Returns 0 or what pthread_create() says. */
int ct_thread_start(void *(*fn)(void *arg), void *arg, pthread_t *thread_p);
/** A condition for ct_cond_wait_for(). Returns 0 or an error number. */
int ct_cond_init(pthread_cond_t *cond_p);
/** Waits with the lock held, at most `seconds`; false: nobody woke it. The limit goes by the clock
 *  of ct_clock_s(), so a wall clock that is set back does not make the wait longer. cond comes from
 *  ct_cond_init(). */
bool ct_cond_wait_for(pthread_cond_t *cond, pthread_mutex_t *lock, double seconds);

/** Seconds of the next nap of one that has waited for quiet_s seconds and looks whether it goes on:
 *  for what tells nobody when it comes, as messages of MPI. */
double ct_nap_after(double quiet_s);
void ct_nap(double s);

/** From here on errors of this thread are not told and not counted; ct_log_last_error() has the
 *  last one. false: as before. For threads that work side by side: who waits for them tells the
 *  first of their errors in the order of the work. */
void ct_log_hold_errors(bool hold);

/* ---- Where a limit of the system is too small, MPI and OpenMP end a rank in words of their own,
 * which name no limit, or wait for good. A stack that is too small ends in a crash. So a rank looks
 * first (process_room.c). */

/** Starts n threads that do nothing, and ends them. CT_ERR_CONFIG where not all can start: says how
 *  many can, and which limits there are. CT_ERR_NOMEM. */
ct_status ct_thread_room_check(int n);

/** Open files, the stack and the size of files, as `ulimit` has them, and OMP_STACKSIZE:
 *  CT_ERR_CONFIG, logged, where one is so small that a rank cannot start. The least ones were found
 *  by trying: Open MPI 4.1 alone needs 28 open files and files of 5 MiB, a step of a small net
 *  512 KiB of stack, a thread beside it 128 KiB. */
ct_status ct_process_room_check(void);

#endif
