/* Moving what is under way, by whoever holds the lock: the main thread, or a thread for it. */
#include "comm/sync/grad_pipe_impl.h"

#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "framework/base/thread.h"

/* ---- a thread that sleeps until it is woken */

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

/* ---- moving */

/* Buckets leave in one order on all ranks, whatever the order in which gradients get ready. */
static ct_status leave_what_may(ct_grad_pipe *gp)
{
    while (gp->n_left < gp->n_bucket) {
        int i = gp->n_left;

        if (atomic_load(&gp->bucket[i].missing) > 0) return CT_OK;
        /* its tags are still in use */
        if ((i >= gp->n_lane) &&
            (atomic_load(&gp->bucket[i - gp->n_lane].state) != CT_BUCKET_SUMMED))
            return CT_OK;
        gp->n_left += 1;
        CT_TRY(ct_bucket_leave(&gp->bucket[i], &gp->step));
    }
    return CT_OK;
}

/* All before it, in the order of leaving, have started all that they start. */
static int first_not_started(const ct_grad_pipe *gp)
{
    int i = 0;

    while ((i < gp->n_left) && ((atomic_load(&gp->bucket[i].state) == CT_BUCKET_SUMMED) ||
                                ct_bucket_is_started(&gp->bucket[i])))
        i += 1;
    return i;
}

/* Moves the buckets under way once, the most urgent first, until one has moved that has more urgent
 * ones before it: *again_p then tells to look at those again. */
static ct_status move_round(ct_grad_pipe *gp, bool *moved_p, bool *again_p)
{
    bool limited = (gp->n_bucket <= gp->n_lane), urgent = false;

    *again_p = false;
    for (int i = gp->n_left - 1; (i >= 0) && !*again_p; --i) {
        ct_bucket *b = &gp->bucket[i];
        ct_status status = CT_OK;

        if (atomic_load(&b->state) != CT_BUCKET_RUNNING) continue;
        status = ct_bucket_progress(b, i <= first_not_started(gp), limited && urgent);
        if (status == CT_INPROGRESS) {
            bool moved = ct_bucket_moved(b);

            *moved_p = *moved_p || moved;
            *again_p = urgent && moved;
            urgent = true;
            continue;
        }
        CT_TRY(status);
        gp->landed[gp->n_landed++] = i;
        *moved_p = true;
        *again_p = urgent; /* it made room */
    }
    return CT_OK;
}

/* Moves every bucket under way as far as it goes, those that the next forward needs first first:
 * the arena has the order of backward, so the highest. The others send only while the link has not
 * enough to do (schedule.c), each what those above it leave; what comes in they always take.
 * When one of them has moved, those above are asked again. To send nothing of them while the
 * highest sends would idle the link: each rank passes on what it got, and a rank that got nothing
 * of the highest for a moment would have nothing of the others either.
 *
 * This cannot deadlock. The highest bucket under way here is never held back. So of all buckets
 * under way on all ranks the highest is held back nowhere: it is the highest wherever it is under
 * way, and where it is not it has landed, or is going to leave, since backward waits for no bucket
 * and all ranks let buckets leave in one order. It lands; then the next. More buckets than tags are
 * the exception, where leaving waits for landing: there all may send.
 *
 * Without overlap all leave at once, and then in order: of the others only small messages go. */
ct_status ct_grad_pipe_move(ct_grad_pipe *gp, bool *moved_p)
{
    int left = gp->n_left;
    bool again = true;

    /* sums of exponents (reproducible) must start before those that left later add: no order there
     */
    gp->comm->in_order = !gp->config.overlap && !gp->config.reproducible;
    if (atomic_load(&gp->finishing) || gp->config.overlap) CT_TRY(leave_what_may(gp));
    *moved_p = (gp->n_left > left);
    while (again) CT_TRY(move_round(gp, moved_p, &again));
    return CT_OK;
}

ct_status ct_grad_pipe_move_any(void *ctx)
{
    ct_grad_pipe *gp = ctx;
    bool moved = false;

    return (gp->n_left > gp->n_landed) ? ct_grad_pipe_move(gp, &moved) : CT_OK;
}

int ct_grad_pipe_pending(void *ctx, MPI_Request **out, int max)
{
    ct_grad_pipe *gp = ctx;
    int n = 0;

    for (int i = gp->n_left - 1; i >= 0; --i) {
        if (atomic_load(&gp->bucket[i].state) == CT_BUCKET_RUNNING)
            n += ct_bucket_pending(&gp->bucket[i], out + n, max - n);
    }
    return n;
}

/* ---- the thread */

/* Additions by one thread: the cores belong to the layers that compute. */
static ct_pipe_thread_state thread_move(void *ctx)
{
    ct_grad_pipe *gp = ctx;
    int n_thread = 0;
    bool moved = false, busy = false;
    ct_status status = CT_OK;

    ct_comm_lock(gp->comm);
    n_thread = gp->comm->n_thread;
    gp->comm->n_thread = 1;
    gp->comm->prompt = true;
    if (atomic_load(&gp->threaded) && (atomic_load(&gp->fate) == CT_OK))
        status = ct_grad_pipe_move(gp, &moved);
    gp->comm->n_thread = n_thread;
    gp->comm->prompt = false;
    busy = (gp->n_left > gp->n_landed);
    if (status != CT_OK) {
        atomic_store(&gp->fate, (int)status);
        busy = false;
    }
    ct_comm_unlock(gp->comm);
    if (!busy) return CT_PIPE_DONE;
    return moved ? CT_PIPE_MOVED : CT_PIPE_STUCK;
}

ct_status ct_grad_pipe_open_thread(ct_grad_pipe *gp)
{
    const char *why = NULL;
    bool wanted = (gp->config.progress == CT_PROGRESS_THREAD);

    if ((gp->config.progress == CT_PROGRESS_POLL) || (!wanted && gp->config.tune_iterations == 0))
        return CT_OK;
    if (!ct_comm_may_thread(gp->comm, &why)) {
        if (wanted) return CT_FAIL(CT_ERR_CONFIG, "comm { progress: THREAD }: %s", why);
        return CT_OK;
    }
    if ((gp->comm->size == 1) || !gp->config.overlap || (gp->n_bucket == 0)) return CT_OK;
    CT_TRY(ct_pipe_thread_create(thread_move, gp, &gp->thread));
    if (wanted) ct_grad_pipe_use_thread(gp, true);
    return CT_OK;
}

void ct_grad_pipe_use_thread(ct_grad_pipe *gp, bool on)
{
    atomic_store(&gp->threaded, on);
}
