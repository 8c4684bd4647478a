#include "framework/base/thread.h"

#include <errno.h>
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
