/** @file thread.h  Threads of our own, and waits with a limit.
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

#endif
