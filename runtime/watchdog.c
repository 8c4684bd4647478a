#include "runtime/job.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/clock.h"
#include "framework/base/thread.h"
#include "runtime/signals.h"

#define LOOK_S  0.2
#define SPEAK_S 3.0 /* what the last words may take, beside readers and disks that are slow */

/* What the watchdog says, copied with the lock held and written without it: nobody waits for the
 * lock while a reader of stderr is slow. */
typedef struct notice {
    enum { SAY_NOTHING, SAY_STATE, SAY_WARNING, SAY_END } kind;
    double silent_s;
    long n_beat;
    char what[128], wait[512];
} notice;

/* stderr and the copy of the log may be files on a disk that never answers, and with it what the
 * job waits for. So threads of their own write there, and may stay there: one for all but the last
 * words, one for these. */
enum { SPEAKS, SPEAKS_LAST, N_SPEAKER };

typedef struct speaker {
    ct_watchdog *w;
    pthread_t thread;
    pthread_cond_t ask, spoken;
    notice said; /* SAY_NOTHING: it has nothing to do */
} speaker;

struct ct_watchdog {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    speaker speaker[N_SPEAKER];
    int n_speaker; /* that run */
    bool stop, warned;
    double limit_s, last_s;
    long n_beat;
    char what[128];
    ct_watchdog_describe describe;
    void *describe_ctx;
};

/* ---- the speakers */

static void write_notice(const notice *n)
{
    const char *gap = (n->wait[0] != '\0') ? "; " : "";

    if (n->kind == SAY_END) ct_deferred_errors_flush_now();
    if (n->kind == SAY_STATE) {
        ct_log_urgent(CT_LOG_WARN, __FILE__, __LINE__, "state: in %s for %.1f s, beat %ld%s%s",
                      n->what, n->silent_s, n->n_beat, gap, n->wait);
    } else {
        ct_log_urgent((n->kind == SAY_END) ? CT_LOG_ERROR : CT_LOG_WARN, __FILE__, __LINE__,
                      "no progress for %.0f s in %s%s%s", n->silent_s, n->what, gap, n->wait);
    }
}

static void *speak(void *arg)
{
    speaker *s = arg;
    ct_watchdog *w = s->w;
    notice n;

    pthread_mutex_lock(&w->lock);
    while (!w->stop || (s->said.kind != SAY_NOTHING)) {
        if (s->said.kind == SAY_NOTHING) {
            pthread_cond_wait(&s->ask, &w->lock);
            continue;
        }
        n = s->said;
        pthread_mutex_unlock(&w->lock);
        write_notice(&n);
        pthread_mutex_lock(&w->lock);
        s->said.kind = SAY_NOTHING;
        pthread_cond_signal(&s->spoken);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* With the lock held. */
static void wait_for(speaker *s, double seconds)
{
    double end_s = ct_clock_s() + seconds, left;

    while ((s->said.kind != SAY_NOTHING) && ((left = end_s - ct_clock_s()) > 0.0))
        (void)ct_cond_wait_for(&s->spoken, &s->w->lock, left);
}

/* Waits for the last words alone; others are dropped while earlier ones are on their way. */
static void hand_over(ct_watchdog *w, const notice *n)
{
    speaker *s = &w->speaker[(n->kind == SAY_END) ? SPEAKS_LAST : SPEAKS];

    if (n->kind == SAY_NOTHING) return;
    pthread_mutex_lock(&w->lock);
    if (s->said.kind == SAY_NOTHING) {
        s->said = *n;
        pthread_cond_signal(&s->ask);
    }
    if (n->kind == SAY_END) {
        wait_for(s, SPEAK_S);
        _exit(ct_status_exit_code(CT_ERR_WATCHDOG));
    }
    pthread_mutex_unlock(&w->lock);
}

static ct_status start_speakers(ct_watchdog *w)
{
    for (int i = 0; i < N_SPEAKER; i++) {
        speaker *s = &w->speaker[i];

        s->w = w;
        (void)ct_cond_init(&s->ask);
        (void)ct_cond_init(&s->spoken);
    }
    for (; w->n_speaker < N_SPEAKER; w->n_speaker++) {
        speaker *s = &w->speaker[w->n_speaker];

        if (ct_thread_start(speak, s, &s->thread) != 0)
            return CT_FAIL(CT_ERR_NOMEM, "no thread for the watchdog");
    }
    return CT_OK;
}

/* And gives w back, unless a speaker stays where it is: then that keeps w for good. */
static void stop_speakers(ct_watchdog *w)
{
    bool stays = false;

    pthread_mutex_lock(&w->lock);
    w->stop = true;
    for (int i = 0; i < w->n_speaker; i++) {
        speaker *s = &w->speaker[i];

        pthread_cond_signal(&s->ask);
        wait_for(s, SPEAK_S);
        stays = stays || (s->said.kind != SAY_NOTHING);
    }
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->n_speaker; i++) {
        if (stays)
            pthread_detach(w->speaker[i].thread);
        else
            pthread_join(w->speaker[i].thread, NULL);
    }
    if (stays) return;
    for (int i = 0; i < N_SPEAKER; i++) {
        pthread_cond_destroy(&w->speaker[i].ask);
        pthread_cond_destroy(&w->speaker[i].spoken);
    }
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

/* ---- the watch */

/* With the lock held. */
static void look(ct_watchdog *w, notice *n)
{
    *n = (notice){ .kind = SAY_NOTHING, .silent_s = ct_clock_s() - w->last_s, .n_beat = w->n_beat };
    if ((w->limit_s > 0) && (n->silent_s >= w->limit_s)) {
        n->kind = SAY_END;
    } else if ((w->limit_s > 0) && !w->warned && (n->silent_s >= w->limit_s / 2)) {
        n->kind = SAY_WARNING;
        w->warned = true;
    } else if (ct_signals_take_dump()) {
        n->kind = SAY_STATE;
    }
    if (n->kind == SAY_NOTHING) return;
    memcpy(n->what, w->what, sizeof(n->what));
    if (w->describe != NULL) w->describe(w->describe_ctx, n->wait, sizeof(n->wait));
}

static void *watch(void *arg)
{
    ct_watchdog *w = arg;

    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        notice n;

        (void)ct_cond_wait_for(&w->wake, &w->lock, LOOK_S);
        if (w->stop) break;
        look(w, &n);
        pthread_mutex_unlock(&w->lock);
        hand_over(w, &n);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

ct_status ct_watchdog_start(double seconds, ct_watchdog **w_p)
{
    ct_watchdog *w = calloc(1, sizeof(*w));
    ct_status status;

    if (w == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the watchdog");
    w->limit_s = seconds;
    w->last_s = ct_clock_s();
    snprintf(w->what, sizeof(w->what), "the start");
    pthread_mutex_init(&w->lock, NULL);
    (void)ct_cond_init(&w->wake);
    status = start_speakers(w);
    if ((status == CT_OK) && (ct_thread_start(watch, w, &w->thread) != 0))
        status = CT_FAIL(CT_ERR_NOMEM, "no thread for the watchdog");
    if (status != CT_OK) {
        stop_speakers(w);
        return status;
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
    stop_speakers(w);
}

void ct_watchdog_limit(ct_watchdog *w, double seconds)
{
    if (w == NULL) return;
    pthread_mutex_lock(&w->lock);
    w->limit_s = seconds;
    w->last_s = ct_clock_s();
    w->warned = false;
    pthread_mutex_unlock(&w->lock);
}

void ct_watchdog_beat(void *ctx, const char *what)
{
    ct_watchdog *w = ctx;

    if (w == NULL) return;
    pthread_mutex_lock(&w->lock);
    snprintf(w->what, sizeof(w->what), "%s", what);
    w->last_s = ct_clock_s();
    w->n_beat++;
    w->warned = false;
    pthread_mutex_unlock(&w->lock);
}

const char *ct_watchdog_what(const ct_watchdog *w)
{
    return w->what;
}

void ct_watchdog_watch(ct_watchdog *w, ct_watchdog_describe describe, void *ctx)
{
    if (w == NULL) return;
    pthread_mutex_lock(&w->lock);
    w->describe = describe;
    w->describe_ctx = ctx;
    pthread_mutex_unlock(&w->lock);
}
