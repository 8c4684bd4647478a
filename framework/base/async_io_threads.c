/* Reads and writes by threads: what every system has, and the reference of the other form. */
#include <pthread.h>
#include <stdlib.h>

#include "framework/base/async_io_form.h"
#include "framework/base/thread.h"

/* A disk reads and writes at once. */
enum { N_THREAD = 2 };

typedef struct threads {
    pthread_t thread[N_THREAD];
    int n_thread;
    pthread_mutex_t lock;
    pthread_cond_t come, gone; /* a request came; one is done */
    ct_io_request *first, *last;
    bool stop;
} threads;

static void *work(void *ctx)
{
    threads *io = ctx;

    (void)pthread_mutex_lock(&io->lock);
    for (;;) {
        ct_io_request *r;

        while (!io->stop && (io->first == NULL)) (void)pthread_cond_wait(&io->come, &io->lock);
        r = io->first;
        if (r == NULL) break;
        io->first = r->next;
        if (io->first == NULL) io->last = NULL;
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
    (void)pthread_cond_broadcast(&io->come);
    (void)pthread_mutex_unlock(&io->lock);
    for (int i = 0; i < io->n_thread; i++) (void)pthread_join(io->thread[i], NULL);
    (void)pthread_cond_destroy(&io->come);
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
    (void)pthread_cond_init(&io->come, NULL);
    (void)pthread_cond_init(&io->gone, NULL);
    while (io->n_thread < N_THREAD) {
        int rc = ct_thread_start(work, io, &io->thread[io->n_thread]);

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

    r->next = NULL;
    (void)pthread_mutex_lock(&io->lock);
    if (io->last != NULL)
        io->last->next = r;
    else
        io->first = r;
    io->last = r;
    (void)pthread_cond_signal(&io->come);
    (void)pthread_mutex_unlock(&io->lock);
}

static void threads_wait(void *own, ct_io_request *r)
{
    threads *io = own;

    (void)pthread_mutex_lock(&io->lock);
    while (!r->done) (void)pthread_cond_wait(&io->gone, &io->lock);
    (void)pthread_mutex_unlock(&io->lock);
}

const ct_io_form ct_io_threads = { .name = "threads",
                                   .open = threads_open,
                                   .close = threads_close,
                                   .submit = threads_submit,
                                   .wait = threads_wait };
