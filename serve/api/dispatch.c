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

/* A replica, and the thread that runs its batches. */
typedef struct lane {
    ct_dispatch *d;
    const ct_served_model *model;
    ct_serve_batch *batch;
    ct_work **work; /* of one kind, of the batch that runs */
    ct_work_piece *piece;
    void **ended; /* [most_sequences] sequences that ended while others grew */
    int n_ended;
    pthread_t thread;
    pthread_cond_t turn; /* it may be this one's turn */
    bool made_turn, started, running;
    ct_replica_stats stats;
} lane;

struct ct_dispatch {
    ct_scheduler *scheduler;
    size_t most; /* slices of a batch */
    size_t most_sequences;
    lane **lane;
    int n_lane;
    pthread_mutex_t lock;
    pthread_cond_t quiet; /* no batch runs */
    bool stop;
    int n_running; /* batches                             */
    int n_between; /* threads that want no batch to run */
    bool made_lock, made_cond;
};

static void destroy_lane(lane *l)
{
    if (l == NULL) return;
    if (l->made_turn) (void)pthread_cond_destroy(&l->turn);
    ct_serve_batch_destroy(l->batch);
    free(l->work);
    free(l->piece);
    free(l->ended);
    free(l);
}

static ct_status add_lane(ct_dispatch *d, const ct_served_model *model)
{
    lane **all = realloc(d->lane, (size_t)(d->n_lane + 1) * sizeof(*all));
    lane *l = calloc(1, sizeof(*l));
    ct_status status;

    if (all != NULL) d->lane = all;
    if ((all == NULL) || (l == NULL)) {
        free(l);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a replica");
    }
    l->d = d;
    l->model = model;
    l->work = calloc(d->most, sizeof(ct_work *));
    l->piece = calloc(d->most, sizeof(l->piece[0]));
    l->ended = calloc(d->most_sequences + 1, sizeof(l->ended[0]));
    l->made_turn = (ct_cond_init(&l->turn) == 0);
    status = ct_serve_batch_create(d->scheduler, &l->batch);
    if ((status == CT_OK) &&
        ((l->work == NULL) || (l->piece == NULL) || (l->ended == NULL) || !l->made_turn))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for a batch of %zu requests", d->most);
    if (status != CT_OK) {
        destroy_lane(l);
        return status;
    }
    l->batch->replica = d->n_lane;
    d->lane[d->n_lane++] = l;
    return ct_scheduler_run_at_once(d->scheduler, d->n_lane);
}

/* A sequence is going to have its first chunk, on a replica that does not run. */
static int64_t begin_sequence(void *ctx, void *what, int replica)
{
    lane *l = ((const ct_dispatch *)ctx)->lane[replica];
    const ct_served_model *m = l->model;
    ct_work *w = ((ticket *)what)->work;
    ct_status status =
        m->open(m->ctx, w->ids.id, w->ids.n, w->ids.n + w->most_new, &w->sequence, &w->cached);

    if (status != CT_OK) return CT_BEGIN_FAILED;
    if (w->sequence == NULL) return CT_BEGIN_LATER;
    w->replica = replica;
    l->stats.prompt += w->ids.n;
    l->stats.cached += w->cached;
    return w->cached;
}

static int64_t peek_sequence(void *ctx, void *what, int replica)
{
    const ct_served_model *m = ((const ct_dispatch *)ctx)->lane[replica]->model;
    const ct_work *w = ((const ticket *)what)->work;

    return m->peek(m->ctx, w->ids.id, w->ids.n);
}

static ct_status make(ct_dispatch *d, const ct_served_model *model, const ct_scheduler_options *o,
                      const ct_batch_cost *cost)
{
    ct_scheduler_options own = *o;

    d->most = (size_t)o->most_count + (size_t)o->most_sequences;
    d->most_sequences = (size_t)o->most_sequences;
    own.begin = begin_sequence;
    own.peek = peek_sequence;
    own.ctx = d;
    CT_TRY(ct_scheduler_create(&own, cost, &d->scheduler));
    CT_TRY(add_lane(d, model));
    d->made_lock = (pthread_mutex_init(&d->lock, NULL) == 0);
    d->made_cond = (ct_cond_init(&d->quiet) == 0);
    if (!d->made_lock || !d->made_cond) return CT_FAIL(CT_ERR_NOMEM, "no lock for the queue");
    return CT_OK;
}

ct_status ct_dispatch_create(const ct_served_model *model, const ct_scheduler_options *options,
                             const ct_batch_cost *cost, ct_dispatch **d_p)
{
    ct_dispatch *d = calloc(1, sizeof(*d));
    ct_status status;

    if (d == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a queue");
    status = make(d, model, options, cost);
    if (status != CT_OK) {
        ct_dispatch_destroy(d);
        return status;
    }
    *d_p = d;
    return CT_OK;
}

ct_status ct_dispatch_add_replica(ct_dispatch *d, const ct_served_model *replica)
{
    return add_lane(d, replica);
}

void ct_dispatch_destroy(ct_dispatch *d)
{
    if (d == NULL) return;
    if (d->made_lock && d->made_cond) {
        (void)pthread_mutex_lock(&d->lock);
        d->stop = true;
        for (int i = 0; i < d->n_lane; i++) (void)pthread_cond_signal(&d->lane[i]->turn);
        (void)pthread_mutex_unlock(&d->lock);
    }
    for (int i = 0; i < d->n_lane; i++)
        if (d->lane[i]->started) (void)pthread_join(d->lane[i]->thread, NULL);
    if (d->made_cond) (void)pthread_cond_destroy(&d->quiet);
    if (d->made_lock) (void)pthread_mutex_destroy(&d->lock);
    for (int i = 0; i < d->n_lane; i++) destroy_lane(d->lane[i]);
    free(d->lane);
    ct_scheduler_destroy(d->scheduler);
    free(d);
}

/* ---- whose turn it is
 *
 * Of the replicas that are free the first ones take what waits: those that ran last look for work
 * most often. As many are woken as there are requests, and one more, which waits until it is time
 * for the next batch or for a request to expire. Hundreds may sleep meanwhile. A replica that has
 * sequences sees to them itself.
 */

/* With the lock held. */
static bool has_sequences(const lane *l)
{
    return ct_scheduler_due(l->d->scheduler, l->batch->replica) > 0;
}

/* With the lock held. */
static bool has_turn(const lane *l)
{
    const ct_dispatch *d = l->d;
    int in_front = 0;

    for (int i = 0; d->lane[i] != l; i++) in_front += !d->lane[i]->running;
    return (in_front == 0) || (ct_scheduler_waiting(d->scheduler) > in_front) || has_sequences(l);
}

/* Something has changed; with the lock held. */
static void wake(ct_dispatch *d)
{
    int n = ct_scheduler_waiting(d->scheduler) + 1;

    for (int i = 0; i < d->n_lane; i++) {
        lane *l = d->lane[i];

        if (!l->running && ((n-- > 0) || has_sequences(l))) (void)pthread_cond_signal(&l->turn);
    }
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
                                   .most_new = set->work[i].most_new,
                                   .deadline_s = now + deadline_s,
                                   .what = &t[i],
                                   .samples = set->work[i].samples };
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
    wake(d);
    (void)pthread_mutex_unlock(&d->lock);
    free(request);
    return room ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for a request of %zu inputs", n);
}

ct_admission ct_dispatch_foresee(ct_dispatch *d, double deadline_s, double *retry_p)
{
    ct_admission a;
    double now;

    (void)pthread_mutex_lock(&d->lock);
    now = ct_clock_s();
    a = ct_scheduler_foresee(d->scheduler, now + deadline_s, now);
    if (a != CT_ADMITTED) *retry_p = ct_scheduler_backlog_s(d->scheduler, now);
    (void)pthread_mutex_unlock(&d->lock);
    return a;
}

void ct_dispatch_cancel(ct_dispatch *d, const ct_work_set *set)
{
    (void)pthread_mutex_lock(&d->lock);
    for (int i = 0; (set->n_left > 0) && (i < set->n); i++)
        ct_scheduler_cancel(d->scheduler, set->id[i]);
    wake(d);
    (void)pthread_mutex_unlock(&d->lock);
}

void ct_dispatch_between(ct_dispatch *d, void (*fn)(void *ctx), void *ctx)
{
    (void)pthread_mutex_lock(&d->lock);
    d->n_between++;
    while (d->n_running > 0) (void)pthread_cond_wait(&d->quiet, &d->lock);
    (void)pthread_mutex_unlock(&d->lock);
    fn(ctx);
    (void)pthread_mutex_lock(&d->lock);
    d->n_between--;
    wake(d);
    (void)pthread_mutex_unlock(&d->lock);
}

void ct_dispatch_drain(ct_dispatch *d)
{
    (void)pthread_mutex_lock(&d->lock);
    ct_scheduler_drain(d->scheduler);
    wake(d);
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

void ct_dispatch_read_cost(ct_dispatch *d, ct_batch_cost *cost)
{
    (void)pthread_mutex_lock(&d->lock);
    *cost = *ct_scheduler_cost(d->scheduler);
    (void)pthread_mutex_unlock(&d->lock);
}

int ct_dispatch_replicas(const ct_dispatch *d)
{
    return d->n_lane;
}

void ct_dispatch_read_replica(ct_dispatch *d, int replica, ct_replica_stats *stats)
{
    ct_replica_load load;

    (void)pthread_mutex_lock(&d->lock);
    ct_scheduler_read_replica(d->scheduler, replica, &load);
    *stats = d->lane[replica]->stats;
    stats->sequences = load.sequences;
    stats->cache_taken = load.cache_taken;
    (void)pthread_mutex_unlock(&d->lock);
}

/* ---- through the model */

static ct_work *work_of(const ct_slice *c)
{
    return ((const ticket *)c->what)->work;
}

/* What of a batch fails does so for its kind alone. */
static bool fail_kind(lane *l, ct_work_kind kind, ct_status status)
{
    for (int k = 0; (status != CT_OK) && (k < l->batch->n); k++)
        if (work_of(&l->batch->slice[k])->kind == kind) l->batch->slice[k].failed = true;
    return status != CT_OK;
}

static ct_status run_kind(lane *l, ct_work_kind kind)
{
    const ct_served_model *m = l->model;
    int n = 0;

    for (int k = 0; k < l->batch->n; k++) {
        ct_work *w = work_of(&l->batch->slice[k]);

        if (w->kind != kind) continue;
        if (l->batch->length > 0)
            w->padding = l->batch->length * ((w->samples > 0) ? w->samples : 1) - w->tokens;
        l->work[n++] = w;
    }
    if (n == 0) return CT_OK;
    return ((kind == CT_WORK_EMBED) ? m->embed : m->infer)(m->ctx, l->work, n);
}

/* Sequences grow by what the batch has of them, and some by a token that follows. */
static ct_status run_sequences(lane *l)
{
    const ct_served_model *m = l->model;
    int n = 0;

    for (int k = 0; k < l->batch->n; k++) {
        const ct_slice *c = &l->batch->slice[k];
        const ct_work *w = work_of(c);

        if (w->kind != CT_WORK_COMPLETE) continue;
        l->piece[n] = (ct_work_piece){
            .sequence = w->sequence, .id = w->ids.id + c->first, .n = c->n, .wants = c->last
        };
        n++;
    }
    if (n == 0) return CT_OK;
    CT_TRY(m->grow(m->ctx, l->piece, n));
    n = 0;
    for (int k = 0; k < l->batch->n; k++) {
        ct_slice *c = &l->batch->slice[k];
        ct_work *w = work_of(c);

        if (w->kind != CT_WORK_COMPLETE) continue;
        c->failed = l->piece[n].failed;
        if (c->last && !c->failed)
            c->failed = (w->next(w->ctx, w, l->piece[n].score, &c->ended) != CT_OK);
        n++;
    }
    return CT_OK;
}

/* False: something failed. */
static bool run(lane *l)
{
    bool failed = fail_kind(l, CT_WORK_EMBED, run_kind(l, CT_WORK_EMBED));

    failed |= fail_kind(l, CT_WORK_INFER, run_kind(l, CT_WORK_INFER));
    failed |= fail_kind(l, CT_WORK_COMPLETE, run_sequences(l));
    return !failed;
}

/* With the lock held. */
static void count(lane *l, double end_s, bool failed)
{
    l->stats.batches++;
    l->stats.tokens += l->batch->tokens;
    l->stats.failed += failed;
    l->stats.busy_s += end_s - l->batch->start_s;
}

/* A sequence has ended. Those of its replica may be growing just now: then it is closed after them.
 * With the lock held. */
static void close_sequence(ct_dispatch *d, ct_work *w)
{
    lane *l = d->lane[w->replica];

    if (w->sequence == NULL) return;
    if (l->running)
        l->ended[l->n_ended++] = w->sequence;
    else
        l->model->close(l->model->ctx, w->sequence);
    w->sequence = NULL;
}

static void close_ended(lane *l)
{
    for (int i = 0; i < l->n_ended; i++) l->model->close(l->model->ctx, l->ended[i]);
    l->n_ended = 0;
}

/* Sets whose last work has ended, with the lock held. */
static ct_work_set *take_ended(ct_dispatch *d)
{
    ct_work_set *all = NULL;
    ct_outcome outcome;
    void *what;

    while (ct_scheduler_take_ended(d->scheduler, &what, &outcome)) {
        ct_work_set *set = ((ticket *)what)->set;
        ct_work *w = ((ticket *)what)->work;

        close_sequence(d, w);
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

/* The batch is over; with the lock held. */
static void end_batch(lane *l, bool failed)
{
    ct_dispatch *d = l->d;
    double end_s = ct_clock_s();

    l->running = false;
    if (--d->n_running == 0) (void)pthread_cond_broadcast(&d->quiet);
    count(l, end_s, failed);
    close_ended(l);
    ct_scheduler_finish(d->scheduler, l->batch, end_s, false);
}

/* With the lock held, but while the model runs. False: the lock was held all the time, and there is
 * nothing to do before *wake_p. */
static bool step(lane *l, double *wake_p)
{
    ct_dispatch *d = l->d;
    int64_t given = ct_scheduler_given(d->scheduler);
    bool good, some = ct_scheduler_next(d->scheduler, ct_clock_s(), l->batch, wake_p);

    if (some) {
        l->running = true;
        d->n_running++;
    }
    /* the next is to see to what is left, and to the time; others to what they were given */
    if (some || (ct_scheduler_given(d->scheduler) > given)) wake(d);
    if (some) {
        (void)pthread_mutex_unlock(&d->lock);
        good = run(l);
        (void)pthread_mutex_lock(&d->lock);
        end_batch(l, !good);
        if (d->most_sequences > 0) wake(d); /* there is room for others, on any replica */
    }
    return tell(d, take_ended(d)) || some; /* those that expired, or were cancelled, too */
}

void ct_dispatch_step(ct_dispatch *d)
{
    double until;

    (void)pthread_mutex_lock(&d->lock);
    (void)step(d->lane[0], &until);
    (void)pthread_mutex_unlock(&d->lock);
}

static void *work_on(void *arg)
{
    lane *l = arg;
    ct_dispatch *d = l->d;
    double until, s;

    (void)pthread_mutex_lock(&d->lock);
    while (!d->stop) {
        if ((d->n_between > 0) || !has_turn(l)) {
            (void)pthread_cond_wait(&l->turn, &d->lock);
            continue;
        }
        if (step(l, &until)) continue;
        s = until - ct_clock_s();
        if (d->stop || (s <= 0)) continue;
        (void)ct_cond_wait_for(&l->turn, &d->lock, fmin(s, 1));
    }
    (void)pthread_mutex_unlock(&d->lock);
    return NULL;
}

ct_status ct_dispatch_start(ct_dispatch *d)
{
    for (int i = 0; i < d->n_lane; i++) {
        if (ct_thread_start(work_on, d->lane[i], &d->lane[i]->thread) != 0)
            return CT_FAIL(CT_ERR_NOMEM, "no thread for the batches");
        d->lane[i]->started = true;
    }
    return CT_OK;
}
