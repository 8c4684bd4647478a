#include "runtime/watchdog.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "framework/base/clock.h"
#include "runtime/deferred_errors.h"
#include "runtime/signals.h"

struct ct_watchdog {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop, warned;
    double limit_s, last_s;
    long n_beat;
    char what[128];
    ct_watchdog_describe describe;
    void *describe_ctx;
};

/* With the lock held. */
static void report(ct_watchdog *w, ct_log_level level, double silent_s)
{
    char wait[512] = "";

    if (w->describe != NULL) w->describe(w->describe_ctx, wait, sizeof(wait));
    ct_log_at(level, __FILE__, __LINE__, "no progress for %.0f s in %s%s%s", silent_s, w->what,
              (wait[0] != '\0') ? "; " : "", wait);
}

static void dump(ct_watchdog *w, double silent_s)
{
    char wait[512] = "";

    if (w->describe != NULL) w->describe(w->describe_ctx, wait, sizeof(wait));
    CT_WARN("state: in %s for %.1f s, beat %ld%s%s", w->what, silent_s, w->n_beat,
            (wait[0] != '\0') ? "; " : "", wait);
}

static void *watch(void *arg)
{
    ct_watchdog *w = arg;

    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        struct timespec until;
        double silent_s;

        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 200000000;
        if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
        while (!w->stop && (pthread_cond_timedwait(&w->wake, &w->lock, &until) != ETIMEDOUT)) {
        }
        if (w->stop) break;
        silent_s = ct_clock_s() - w->last_s;
        if (ct_signals_take_dump()) dump(w, silent_s);
        if (w->limit_s <= 0) continue;
        if (silent_s >= w->limit_s) {
            report(w, CT_LOG_ERROR, silent_s);
            ct_deferred_errors_flush();
            _exit(ct_status_exit_code(CT_ERR_WATCHDOG));
        }
        if (!w->warned && (silent_s >= w->limit_s / 2)) {
            w->warned = true;
            report(w, CT_LOG_WARN, silent_s);
        }
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

ct_status ct_watchdog_start(double seconds, ct_watchdog **w_p)
{
    ct_watchdog *w = calloc(1, sizeof(*w));

    if (w == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the watchdog");
    w->limit_s = seconds;
    w->last_s = ct_clock_s();
    snprintf(w->what, sizeof(w->what), "start");
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    if (pthread_create(&w->thread, NULL, watch, w) != 0) {
        free(w);
        return CT_FAIL(CT_ERR_NOMEM, "no thread for the watchdog");
    }
    *w_p = w;
    return CT_OK;
}

void ct_watchdog_stop(ct_watchdog *w)
{
    if (w == NULL) return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

void ct_watchdog_beat(void *ctx, const char *what)
{
    ct_watchdog *w = ctx;

    pthread_mutex_lock(&w->lock);
    snprintf(w->what, sizeof(w->what), "%s", what);
    w->last_s = ct_clock_s();
    w->n_beat++;
    w->warned = false;
    pthread_mutex_unlock(&w->lock);
}

void ct_watchdog_watch(ct_watchdog *w, ct_watchdog_describe describe, void *ctx)
{
    if (w == NULL) return;
    pthread_mutex_lock(&w->lock);
    w->describe = describe;
    w->describe_ctx = ctx;
    pthread_mutex_unlock(&w->lock);
}
