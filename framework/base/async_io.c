#include "framework/base/async_io.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "framework/base/thread.h"

/* Threads that read and write: a disk does both at once. */
enum { N_THREAD = 2 };

struct ct_io {
    pthread_t thread[N_THREAD];
    int n_thread;
    pthread_mutex_t lock;
    pthread_cond_t come, gone; /* a request came; one is done */
    ct_io_request *first, *last;
    bool stop;
};

/* Moves all of it, or says why not. */
static void move(ct_io_request *r)
{
    r->error = 0;
    r->moved = 0;
    while (r->moved < r->bytes) {
        char *data = (char *)r->data + r->moved;
        size_t left = r->bytes - r->moved;
        off_t at = (off_t)(r->at + (int64_t)r->moved);
        ssize_t n = r->write ? pwrite(r->fd, data, left, at) : pread(r->fd, data, left, at);

        if ((n < 0) && (errno == EINTR)) continue;
        if (n <= 0) {
            r->error = (n < 0) ? errno : r->write ? ENOSPC : -1;
            return;
        }
        r->moved += (size_t)n;
    }
}

static void *work(void *ctx)
{
    ct_io *io = ctx;

    (void)pthread_mutex_lock(&io->lock);
    for (;;) {
        ct_io_request *r;

        while (!io->stop && (io->first == NULL)) (void)pthread_cond_wait(&io->come, &io->lock);
        r = io->first;
        if (r == NULL) break;
        io->first = r->next;
        if (io->first == NULL) io->last = NULL;
        (void)pthread_mutex_unlock(&io->lock);
        move(r);
        (void)pthread_mutex_lock(&io->lock);
        r->done = true;
        (void)pthread_cond_broadcast(&io->gone);
    }
    (void)pthread_mutex_unlock(&io->lock);
    return NULL;
}

ct_status ct_io_open(ct_io **io_p)
{
    ct_io *io = calloc(1, sizeof(*io));

    if (io == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read and write files");
    (void)pthread_mutex_init(&io->lock, NULL);
    (void)pthread_cond_init(&io->come, NULL);
    (void)pthread_cond_init(&io->gone, NULL);
    while (io->n_thread < N_THREAD) {
        int rc = ct_thread_start(work, io, &io->thread[io->n_thread]);

        if (rc != 0) {
            ct_io_close(io);
            return CT_FAIL(CT_ERR_NOMEM, "cannot start a thread that reads and writes: error %d",
                           rc);
        }
        io->n_thread++;
    }
    *io_p = io;
    return CT_OK;
}

void ct_io_close(ct_io *io)
{
    if (io == NULL) return;
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

const char *ct_io_name(const ct_io *io)
{
    (void)io;
    return "threads";
}

void ct_io_submit(ct_io *io, ct_io_request *r)
{
    r->next = NULL;
    r->done = false;
    (void)pthread_mutex_lock(&io->lock);
    if (io->last != NULL)
        io->last->next = r;
    else
        io->first = r;
    io->last = r;
    (void)pthread_cond_signal(&io->come);
    (void)pthread_mutex_unlock(&io->lock);
}

void ct_io_wait(ct_io *io, ct_io_request *r)
{
    (void)pthread_mutex_lock(&io->lock);
    while (!r->done) (void)pthread_cond_wait(&io->gone, &io->lock);
    (void)pthread_mutex_unlock(&io->lock);
}
