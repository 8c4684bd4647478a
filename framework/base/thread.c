#include "framework/base/thread.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <time.h>

int ct_thread_start(void *(*fn)(void *arg), void *arg, pthread_t *thread_p)
{
    static const int fault[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT };
    sigset_t outside, before;
    int rc;

    (void)sigfillset(&outside);
    for (int i = 0; i < 5; i++) (void)sigdelset(&outside, fault[i]);
    (void)pthread_sigmask(SIG_SETMASK, &outside, &before);
    rc = pthread_create(thread_p, NULL, fn, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

int ct_cond_init(pthread_cond_t *cond_p)
{
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);

    if (rc != 0) return rc;
    rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    if (rc == 0) rc = pthread_cond_init(cond_p, &attr);
    (void)pthread_condattr_destroy(&attr);
    return rc;
}

bool ct_cond_wait_for(pthread_cond_t *cond, pthread_mutex_t *lock, double seconds)
{
    struct timespec until;
    double whole = (double)(long)seconds;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)whole;
    until.tv_nsec += (long)((seconds - whole) * 1e9);
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    return pthread_cond_timedwait(cond, lock, &until) != ETIMEDOUT;
}

/* A look costs 20 microseconds. Who waits for a batch sees its answer later by an eighth of what it
 * took, and at most 1 ms. Who has had nothing to do for seconds sees work after at most 4 ms, and
 * takes 0.5 % of a core. */
#define NAP_LEAST_S 20e-6
#define NAP_BUSY_S  1e-3
#define NAP_IDLE_S  4e-3

double ct_nap_after(double quiet_s)
{
    double busy = fmin(fmax(quiet_s / 8, NAP_LEAST_S), NAP_BUSY_S);

    return fmax(busy, fmin(quiet_s / 1000, NAP_IDLE_S));
}

void ct_nap(double s)
{
    const struct timespec t = { 0, (long)(1e9 * s) };

    (void)nanosleep(&t, NULL);
}
