#include "serve/api/dispatch.h"

#include <math.h>
#include <stdlib.h>

#include "framework/base/clock.h"
#include "framework/base/thread.h"

/* What the scheduler knows a work by. */
typedef struct ticket {
    ct_work_set *set;
    ct_work *work;
} ticket;

struct ct_dispatch {
    const ct_served_model *model;
    ct_scheduler *scheduler;
    ct_serve_batch *batch;
    ct_work **work; /* of one kind, of the batch that runs */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool started, stop, running;
    int n_between; /* threads that want no batch to run */
    bool made_lock, made_cond;
};

static ct_status make(ct_dispatch *d, const ct_scheduler_options *o, const ct_batch_cost *cost)
{
    size_t n = (size_t)o->most_count + (size_t)o->most_sequences;

    CT_TRY(ct_scheduler_create(o, cost, &d->scheduler));
    CT_TRY(ct_serve_batch_create(d->scheduler, &d->batch));
    d->work = calloc(n, sizeof(ct_work *));
    if (d->work == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a batch of %zu requests", n);
    d->made_lock = (pthread_mutex_init(&d->lock, NULL) == 0);
    d->made_cond = (ct_cond_init(&d->changed) == 0);
    if (!d->made_lock || !d->made_cond) return CT_FAIL(CT_ERR_NOMEM, "no lock for the queue");
    return CT_OK;
}

ct_status ct_dispatch_create(const ct_served_model *model, const ct_scheduler_options *options,
                             const ct_batch_cost *cost, ct_dispatch **d_p)
{
    ct_dispatch *d = calloc(1, sizeof(*d));
    ct_status status;

    if (d == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a queue");
    d->model = model;
    status = make(d, options, cost);
    if (status != CT_OK) {
        ct_dispatch_destroy(d);
        return status;
    }
    *d_p = d;
    return CT_OK;
}

void ct_dispatch_destroy(ct_dispatch *d)
{
    if (d == NULL) return;
    if (d->started) {
        (void)pthread_mutex_lock(&d->lock);
        d->stop = true;
        (void)pthread_cond_broadcast(&d->changed);
        (void)pthread_mutex_unlock(&d->lock);
        (void)pthread_join(d->thread, NULL);
    }
    if (d->made_cond) (void)pthread_cond_destroy(&d->changed);
    if (d->made_lock) (void)pthread_mutex_destroy(&d->lock);
    ct_serve_batch_destroy(d->batch);
    ct_scheduler_destroy(d->scheduler);
    free(d->work);
    free(d);
}

/* ---- in */

/* With the lock held. */
static ct_admission admit(ct_dispatch *d, ct_work_set *set, ct_request *request, ticket *t,
                          double deadline_s, double *retry_p)
{
    double now = ct_clock_s();
    ct_admission a;

    for (int i = 0; i < set->n; i++) {
        t[i] = (ticket){ set, &set->work[i] };
        request[i] = (ct_request){ .tokens = set->work[i].tokens,
                                   .deadline_s = now + deadline_s,
                                   .what = &t[i] };
    }
    a = ct_scheduler_admit(d->scheduler, request, set->n, now, set->id);
    if (a != CT_ADMITTED) {
        *retry_p = ct_scheduler_backlog_s(d->scheduler, now);
        return a;
    }
    set->outcome = CT_OUTCOME_DONE;
    set->n_left = set->n;
    set->tickets = t;
    return a;
}

ct_status ct_dispatch_submit(ct_dispatch *d, ct_work_set *set, double deadline_s,
                             ct_admission *admission_p, double *retry_p)
{
    size_t n = (size_t)set->n;
    ct_request *request = calloc(n, sizeof(*request));
    ticket *t = calloc(n, sizeof(*t));
    bool room, admitted = false;

    (void)pthread_mutex_lock(&d->lock);
    set->id = calloc(n, sizeof(*set->id));
    room = (request != NULL) && (t != NULL) && (set->id != NULL);
    if (room) {
        *admission_p = admit(d, set, request, t, deadline_s, retry_p);
        admitted = (*admission_p == CT_ADMITTED);
    }
    if (!admitted) {
        free(set->id);
        set->id = NULL;
        free(t);
    }
    (void)pthread_cond_broadcast(&d->changed);
    (void)pthread_mutex_unlock(&d->lock);
    free(request);
    return room ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for a request of %zu inputs", n);
}

void ct_dispatch_cancel(ct_dispatch *d, const ct_work_set *set)
{
    (void)pthread_mutex_lock(&d->lock);
    for (int i = 0; (set->n_left > 0) && (i < set->n); i++)
        ct_scheduler_cancel(d->scheduler, set->id[i]);
    (void)pthread_cond_broadcast(&d->changed);
    (void)pthread_mutex_unlock(&d->lock);
}

void ct_dispatch_between(ct_dispatch *d, void (*fn)(void *ctx), void *ctx)
{
    (void)pthread_mutex_lock(&d->lock);
    d->n_between++;
    while (d->running) (void)pthread_cond_wait(&d->changed, &d->lock);
    fn(ctx);
    d->n_between--;
    (void)pthread_cond_broadcast(&d->changed);
    (void)pthread_mutex_unlock(&d->lock);
}

void ct_dispatch_drain(ct_dispatch *d)
{
    (void)pthread_mutex_lock(&d->lock);
    ct_scheduler_drain(d->scheduler);
    (void)pthread_cond_broadcast(&d->changed);
    (void)pthread_mutex_unlock(&d->lock);
}

bool ct_dispatch_is_idle(ct_dispatch *d)
{
    bool idle;

    (void)pthread_mutex_lock(&d->lock);
    idle = ct_scheduler_is_idle(d->scheduler);
    (void)pthread_mutex_unlock(&d->lock);
    return idle;
}

void ct_dispatch_read_stats(ct_dispatch *d, ct_scheduler_stats *stats)
{
    (void)pthread_mutex_lock(&d->lock);
    ct_scheduler_read_stats(d->scheduler, stats);
    (void)pthread_mutex_unlock(&d->lock);
}

/* ---- through the model */

static ct_status run_kind(ct_dispatch *d, ct_work_kind kind)
{
    const ct_served_model *m = d->model;
    int n = 0;

    for (int k = 0; k < d->batch->n; k++) {
        const ticket *t = d->batch->slice[k].what;

        if (t->work->kind == kind) d->work[n++] = t->work;
    }
    if (n == 0) return CT_OK;
    return ((kind == CT_WORK_EMBED) ? m->embed : m->infer)(m->ctx, d->work, n);
}

static ct_status run(ct_dispatch *d)
{
    CT_TRY(run_kind(d, CT_WORK_EMBED));
    return run_kind(d, CT_WORK_INFER);
}

/* Sets whose last work has ended, with the lock held. */
static ct_work_set *take_ended(ct_dispatch *d)
{
    ct_work_set *all = NULL;
    ct_outcome outcome;
    void *what;

    while (ct_scheduler_take_ended(d->scheduler, &what, &outcome)) {
        ct_work_set *set = ((ticket *)what)->set;

        if (outcome > set->outcome) set->outcome = outcome;
        if (--set->n_left > 0) continue;
        free(set->tickets);
        free(set->id);
        set->tickets = NULL;
        set->id = NULL;
        set->next = all;
        all = set;
    }
    return all;
}

/* Says so; with the lock held, but for the calls. False: there was nothing to say. */
static bool tell(ct_dispatch *d, ct_work_set *all)
{
    if (all == NULL) return false;
    (void)pthread_mutex_unlock(&d->lock);
    while (all != NULL) {
        ct_work_set *next = all->next; /* the set may be gone after the call */

        all->done(all->ctx);
        all = next;
    }
    (void)pthread_mutex_lock(&d->lock);
    return true;
}

/* With the lock held, but while the model runs. False: the lock was held all the time, and there is
 * nothing to do before *wake_p. */
static bool step(ct_dispatch *d, double *wake_p)
{
    ct_status status;
    bool some = ct_scheduler_next(d->scheduler, ct_clock_s(), d->batch, wake_p);

    if (some) {
        d->running = true;
        (void)pthread_mutex_unlock(&d->lock);
        status = run(d);
        (void)pthread_mutex_lock(&d->lock);
        d->running = false;
        (void)pthread_cond_broadcast(&d->changed);
        ct_scheduler_finish(d->scheduler, d->batch, ct_clock_s(), status != CT_OK);
    }
    return tell(d, take_ended(d)) || some; /* those that expired, or were cancelled, too */
}

void ct_dispatch_step(ct_dispatch *d)
{
    double wake;

    (void)pthread_mutex_lock(&d->lock);
    (void)step(d, &wake);
    (void)pthread_mutex_unlock(&d->lock);
}

static void *work_on(void *arg)
{
    ct_dispatch *d = arg;
    double wake, s;

    (void)pthread_mutex_lock(&d->lock);
    while (!d->stop) {
        if (d->n_between > 0) {
            (void)pthread_cond_wait(&d->changed, &d->lock);
            continue;
        }
        if (step(d, &wake)) continue;
        s = wake - ct_clock_s();
        if (d->stop || (s <= 0)) continue;
        (void)ct_cond_wait_for(&d->changed, &d->lock, fmin(s, 1));
    }
    (void)pthread_mutex_unlock(&d->lock);
    return NULL;
}

ct_status ct_dispatch_start(ct_dispatch *d)
{
    if (ct_thread_start(work_on, d, &d->thread) != 0)
        return CT_FAIL(CT_ERR_NOMEM, "no thread for the batches");
    d->started = true;
    return CT_OK;
}
