#include "comm/sync/pipe_thread.h"

#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "framework/base/thread.h"

enum { LEAST_NAP_NS = 5000, MOST_NAP_NS = 100000 };

struct ct_pipe_thread {
    ct_pipe_thread_state (*move)(void *ctx);
    void *ctx;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t change; /* of what is below */
    bool woken, held, stop;
};

static void nap(long *length)
{
    struct timespec t = { .tv_nsec = *length };

    (void)nanosleep(&t, NULL);
    *length = (2 * *length < MOST_NAP_NS) ? 2 * *length : MOST_NAP_NS;
}

/* Sleeps until there is something to do; false: the end has come. */
static bool next_task(ct_pipe_thread *p)
{
    bool stop = false;

    (void)pthread_mutex_lock(&p->lock);
    while (!p->stop && (p->held || !p->woken)) (void)pthread_cond_wait(&p->change, &p->lock);
    stop = p->stop;
    p->woken = false; /* before the move, which may find nothing: what comes now wakes again */
    (void)pthread_mutex_unlock(&p->lock);
    return !stop;
}

static void *run(void *arg)
{
    ct_pipe_thread *p = arg;
    long length = LEAST_NAP_NS;

    omp_set_num_threads(1); /* of this thread's teams: the cores compute */
    while (next_task(p)) {
        ct_pipe_thread_state state = p->move(p->ctx);

        if (state == CT_PIPE_DONE) continue;
        ct_pipe_thread_wake(p);
        if (state == CT_PIPE_MOVED) length = LEAST_NAP_NS;
        nap(&length);
    }
    return NULL;
}

ct_status ct_pipe_thread_create(ct_pipe_thread_state (*move)(void *ctx), void *ctx,
                                ct_pipe_thread **p_p)
{
    ct_pipe_thread *p = calloc(1, sizeof(*p));
    int rc = 0;

    if (p == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a progress thread");
    p->move = move;
    p->ctx = ctx;
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->change, NULL);
    rc = ct_thread_start(run, p, &p->thread);
    if (rc != 0) {
        (void)pthread_cond_destroy(&p->change);
        (void)pthread_mutex_destroy(&p->lock);
        free(p);
        return CT_FAIL(CT_ERR_NOMEM, "cannot start a progress thread: error %d", rc);
    }
    *p_p = p;
    return CT_OK;
}

void ct_pipe_thread_destroy(ct_pipe_thread *p)
{
    if (p == NULL) return;
    (void)pthread_mutex_lock(&p->lock);
    p->stop = true;
    (void)pthread_cond_signal(&p->change);
    (void)pthread_mutex_unlock(&p->lock);
    (void)pthread_join(p->thread, NULL);
    (void)pthread_cond_destroy(&p->change);
    (void)pthread_mutex_destroy(&p->lock);
    free(p);
}

void ct_pipe_thread_wake(ct_pipe_thread *p)
{
    (void)pthread_mutex_lock(&p->lock);
    p->woken = true;
    (void)pthread_cond_signal(&p->change);
    (void)pthread_mutex_unlock(&p->lock);
}

void ct_pipe_thread_hold(ct_pipe_thread *p, bool held)
{
    (void)pthread_mutex_lock(&p->lock);
    p->held = held;
    if (!held) p->woken = true;
    (void)pthread_cond_signal(&p->change);
    (void)pthread_mutex_unlock(&p->lock);
}
