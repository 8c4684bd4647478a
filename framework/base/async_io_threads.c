/* Reads and writes by threads: what every system has, and the reference of the other form. */
#include <pthread.h>
#include <stdlib.h>

#include "framework/base/async_io_form.h"
#include "framework/base/thread.h"

/* A disk reads and writes at once. Somebody waits for what is read, so no read stands behind a
 * write: half of the threads only read, the others only write. */
enum { N_THREAD = 4, N_READER = 2 };

typedef struct queue {
    ct_io_request *first, *last;
    pthread_cond_t come;
} queue;

typedef struct worker {
    struct threads *io;
    queue *q;
    pthread_t thread;
} worker;

typedef struct threads {
    worker worker[N_THREAD];
    int n_thread;
    pthread_mutex_t lock;
    queue queue[2];      /* reads, writes */
    pthread_cond_t gone; /* one is done */
    bool stop;
} threads;

/* The next request, or NULL. With the lock held. */
static ct_io_request *next_of(queue *q)
{
    ct_io_request *r = q->first;

    if (r == NULL) return NULL;
    q->first = r->next;
    if (q->first == NULL) q->last = NULL;
    return r;
}

static void *work(void *ctx)
{
    const worker *w = ctx;
    threads *io = w->io;

    (void)pthread_mutex_lock(&io->lock);
    for (;;) {
        ct_io_request *r;

        while (!io->stop && (w->q->first == NULL)) (void)pthread_cond_wait(&w->q->come, &io->lock);
        r = next_of(w->q);
        if (r == NULL) break;
        (void)pthread_mutex_unlock(&io->lock);
        ct_io_move(r);
        (void)pthread_mutex_lock(&io->lock);
        r->done = true;
        (void)pthread_cond_broadcast(&io->gone);
    }
    (void)pthread_mutex_unlock(&io->lock);
    return NULL;
}

static void threads_close(void *own)
{
    threads *io = own;

    (void)pthread_mutex_lock(&io->lock);
    io->stop = true;
    for (int k = 0; k < 2; k++) (void)pthread_cond_broadcast(&io->queue[k].come);
    (void)pthread_mutex_unlock(&io->lock);
    for (int i = 0; i < io->n_thread; i++) (void)pthread_join(io->worker[i].thread, NULL);
    for (int k = 0; k < 2; k++) (void)pthread_cond_destroy(&io->queue[k].come);
    (void)pthread_cond_destroy(&io->gone);
    (void)pthread_mutex_destroy(&io->lock);
    free(io);
}

static ct_status threads_open(void **own_p, int *error_p)
{
    threads *io = calloc(1, sizeof(*io));

    (void)error_p;
    if (io == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read and write files");
    (void)pthread_mutex_init(&io->lock, NULL);
    for (int k = 0; k < 2; k++) (void)pthread_cond_init(&io->queue[k].come, NULL);
    (void)pthread_cond_init(&io->gone, NULL);
    while (io->n_thread < N_THREAD) {
        worker *w = &io->worker[io->n_thread];
        int rc;

        w->io = io;
        w->q = &io->queue[(io->n_thread < N_READER) ? 0 : 1];
        rc = ct_thread_start(work, w, &w->thread);
        if (rc != 0) {
            threads_close(io);
            return CT_FAIL(CT_ERR_NOMEM, "cannot start a thread that reads and writes: error %d",
                           rc);
        }
        io->n_thread++;
    }
    *own_p = io;
    return CT_OK;
}

static void threads_submit(void *own, ct_io_request *r)
{
    threads *io = own;
    queue *q = &io->queue[r->write ? 1 : 0];

    r->next = NULL;
    (void)pthread_mutex_lock(&io->lock);
    if (q->last != NULL)
        q->last->next = r;
    else
        q->first = r;
    q->last = r;
    (void)pthread_cond_signal(&q->come);
    (void)pthread_mutex_unlock(&io->lock);
}

static void threads_wait(void *own, ct_io_request *r)
{
    threads *io = own;

    (void)pthread_mutex_lock(&io->lock);
    while (!r->done) (void)pthread_cond_wait(&io->gone, &io->lock);
    (void)pthread_mutex_unlock(&io->lock);
}

static bool threads_done(void *own, ct_io_request *r)
{
    threads *io = own;
    bool done;

    (void)pthread_mutex_lock(&io->lock);
    done = r->done;
    (void)pthread_mutex_unlock(&io->lock);
    return done;
}

const ct_io_form ct_io_threads = { .name = "threads",
                                   .open = threads_open,
                                   .close = threads_close,
                                   .submit = threads_submit,
                                   .wait = threads_wait,
                                   .done = threads_done };
