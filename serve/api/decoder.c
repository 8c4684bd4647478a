#include "serve/api/decoder.h"

#include <stdlib.h>
#include <unistd.h>

#include "framework/base/thread.h"

enum { LEAST_THREADS = 2, MOST_THREADS = 8 };
static const size_t most_bytes = (size_t)256 << 20; /* of those that wait */

struct ct_decoder {
    ct_decoder_job *first, **last;
    size_t bytes;
    pthread_t thread[MOST_THREADS];
    int n_thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool made, stop;
};

static void *work_on(void *arg)
{
    ct_decoder *d = arg;

    (void)pthread_mutex_lock(&d->lock);
    while (!d->stop) {
        ct_decoder_job *job = d->first;

        if (job == NULL) {
            (void)pthread_cond_wait(&d->changed, &d->lock);
            continue;
        }
        d->first = job->next;
        if (d->first == NULL) d->last = &d->first;
        d->bytes -= job->bytes;
        (void)pthread_mutex_unlock(&d->lock);
        job->run(job->ctx);
        (void)pthread_mutex_lock(&d->lock);
    }
    (void)pthread_mutex_unlock(&d->lock);
    return NULL;
}

static ct_status start(ct_decoder *d)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN) / 4;

    if (n < LEAST_THREADS) n = LEAST_THREADS;
    if (n > MOST_THREADS) n = MOST_THREADS;
    d->made = (pthread_mutex_init(&d->lock, NULL) == 0) && (ct_cond_init(&d->changed) == 0);
    if (!d->made) return CT_FAIL(CT_ERR_NOMEM, "no lock for decoders");
    for (; d->n_thread < n; d->n_thread++)
        if (ct_thread_start(work_on, d, &d->thread[d->n_thread]) != 0)
            return CT_FAIL(CT_ERR_NOMEM, "no thread that decodes");
    return CT_OK;
}

ct_status ct_decoder_create(ct_decoder **d_p)
{
    ct_decoder *d = calloc(1, sizeof(*d));
    ct_status status;

    if (d == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for decoders");
    d->last = &d->first;
    status = start(d);
    if (status != CT_OK) {
        ct_decoder_destroy(d);
        return status;
    }
    *d_p = d;
    return CT_OK;
}

void ct_decoder_destroy(ct_decoder *d)
{
    if (d == NULL) return;
    if (d->made) {
        (void)pthread_mutex_lock(&d->lock);
        d->stop = true;
        (void)pthread_cond_broadcast(&d->changed);
        (void)pthread_mutex_unlock(&d->lock);
        for (int i = 0; i < d->n_thread; i++) (void)pthread_join(d->thread[i], NULL);
        (void)pthread_cond_destroy(&d->changed);
        (void)pthread_mutex_destroy(&d->lock);
    }
    free(d);
}

bool ct_decoder_add(ct_decoder *d, ct_decoder_job *job)
{
    bool room;

    (void)pthread_mutex_lock(&d->lock);
    room = (d->bytes + job->bytes <= most_bytes);
    if (room) {
        job->next = NULL;
        *d->last = job;
        d->last = &job->next;
        d->bytes += job->bytes;
        (void)pthread_cond_signal(&d->changed);
    }
    (void)pthread_mutex_unlock(&d->lock);
    return room;
}
