/* A ring of `depth` slots. Step s belongs in slot s % depth. Threads take the next step whose slot
 * is empty, make its batch without the lock, and mark it ready; the main thread takes steps in
 * order. A jump bumps the generation: what was made or is being made for the old one is dropped.
 */
#include "framework/data/loader_private.h"

#include <stdlib.h>
#include <string.h>

#include "framework/base/clock.h"
#include "framework/base/memory.h"
#include "framework/base/thread.h"
#include "framework/tensor/device.h"

/* ---- threads */

static bool can_make(const ct_loader *l)
{
    return l->runs && !l->halted && (l->next_make < l->next_take + l->o.depth) &&
           (l->slot[l->next_make % l->o.depth].state == SLOT_EMPTY);
}

static void *loader_thread(void *arg)
{
    ct_loader *l = arg;
    void *local = NULL;
    float *rest = ct_mem_acquire((size_t)l->rest_count * sizeof(float));
    ct_status start = (rest != NULL) ? ct_reader_local(l->o.reader, &local) : CT_ERR_NOMEM;

    pthread_mutex_lock(&l->lock);
    for (;;) {
        int64_t step, generation;
        uint64_t seed;
        ct_loader_slot *s;
        ct_status status;

        while (!l->stop && !can_make(l)) pthread_cond_wait(&l->work, &l->lock);
        if (l->stop) break;
        step = l->next_make++;
        generation = l->generation;
        seed = l->seed;
        s = &l->slot[step % l->o.depth];
        s->state = SLOT_FILLING;
        s->generation = generation;
        pthread_mutex_unlock(&l->lock);
        status =
            (start == CT_OK) ? ct_loader_make(l, generation, seed, step, local, rest, s) : start;
        pthread_mutex_lock(&l->lock);
        s->status = status;
        s->state = (generation == l->generation) ? SLOT_READY : SLOT_EMPTY;
        if (s->state == SLOT_READY) {
            l->halted = l->halted || (status != CT_OK);
            pthread_cond_signal(&l->ready);
        } else {
            pthread_cond_broadcast(&l->work);
        }
    }
    pthread_mutex_unlock(&l->lock);
    ct_reader_local_release(l->o.reader, local);
    ct_mem_release(rest);
    return NULL;
}

ct_status ct_loader_place(const ct_loader *l, ct_loader_slot *s)
{
    for (int f = 0; f < l->o.reader->n_field; f++) {
        float **field = &s->field[f];

        if (*field == NULL) *field = ct_mem_acquire((size_t)l->count[f] * sizeof(float));
        if (*field == NULL) {
            return CT_READER_FAIL(l->o.reader, CT_ERR_NOMEM, "no memory for %d batches ahead",
                                  l->o.depth);
        }
    }
    return CT_OK;
}

static ct_status place_slots(ct_loader *l)
{
    for (int i = 0; i < l->o.depth; i++) {
        ct_loader_slot *s = &l->slot[i];

        if (l->o.pack == NULL)
            CT_TRY(ct_loader_place(l, s));
        else if (s->block == NULL)
            CT_TRY(l->o.pack->host_acquire(l->pack.bytes, &s->block));
    }
    return CT_OK;
}

static ct_status start_threads(ct_loader *l)
{
    int rc = 0;

    CT_TRY(place_slots(l));
    while ((l->n_thread < l->o.threads) && (rc == 0)) {
        rc = ct_thread_start(loader_thread, l, &l->thread[l->n_thread]);
        if (rc == 0) l->n_thread++;
    }
    if (l->n_thread == 0) {
        return CT_READER_FAIL(l->o.reader, CT_ERR_NOMEM, "cannot start a thread: %s", strerror(rc));
    }
    return CT_OK;
}

/* ---- the main thread */

/* Where no memory can be shared every rank reads by itself. */
static ct_status create_feed(ct_loader *l)
{
    ct_feed_options o = { .reader = l->o.reader,
                          .group = l->o.group,
                          .global = l->o.share.global,
                          .stripes = l->o.stripes,
                          .rand_skip = l->o.rand_skip,
                          .threads = l->o.threads };
    ct_status status = ct_feed_create(&o, &l->feed);

    return (status == CT_UNSUPPORTED) ? CT_OK : status;
}

ct_status ct_loader_create(const ct_loader_options *options, ct_loader **loader_p)
{
    const ct_reader *r = options->reader;
    ct_loader *l = calloc(1, sizeof(*l));
    bool good = l != NULL;

    if (l != NULL) {
        l->o = *options;
        if (l->o.threads > l->o.depth) l->o.threads = l->o.depth;
        l->rest_count = ct_reader_rest_count(r);
        for (int f = 0; f < r->n_field; f++) {
            l->count[f] =
                l->o.share.local * ct_shape_count((f == 0) ? &l->o.shape : &r->field[f], 0, -1);
        }
        if ((l->o.pack != NULL) && !ct_pack_can(&l->o.shape)) l->o.pack = NULL;
        if (l->o.pack != NULL)
            l->pack = ct_pack_lay(l->o.share.local, &l->o.shape, !r->u8, r->n_field, l->count);
        pthread_mutex_init(&l->lock, NULL);
        pthread_cond_init(&l->work, NULL);
        (void)ct_cond_init(&l->ready);
        l->thread = calloc((size_t)l->o.threads, sizeof(*l->thread));
        l->slot = calloc((size_t)l->o.depth, sizeof(*l->slot));
        l->told = malloc(((size_t)l->o.skip_broken + 1) * sizeof(*l->told));
        good = (l->thread != NULL) && (l->slot != NULL) && (l->told != NULL);
    }
    if (!good) {
        ct_loader_destroy(l);
        return CT_READER_FAIL(r, CT_ERR_NOMEM, "no memory for a loader");
    }
    if (l->o.group != NULL) {
        ct_status status = create_feed(l);

        if (status != CT_OK) {
            ct_loader_destroy(l);
            return status;
        }
    }
    *loader_p = l;
    return CT_OK;
}

void ct_loader_destroy(ct_loader *l)
{
    if (l == NULL) return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    if (l->feed != NULL) ct_feed_stop(l->feed);
    for (int i = 0; i < l->n_thread; i++) pthread_join(l->thread[i], NULL);
    ct_feed_destroy(l->feed);
    for (int i = 0; (l->slot != NULL) && (i < l->o.depth); i++) {
        for (int f = 0; f < CT_MAX_FIELD; f++) ct_mem_release(l->slot[i].field[f]);
        if (l->slot[i].block != NULL) l->o.pack->host_release(l->slot[i].block);
    }
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->ready);
    pthread_mutex_destroy(&l->lock);
    free(l->slot);
    free(l->told);
    free(l->thread);
    free(l);
}

/* The lock is held. */
static ct_status jump(ct_loader *l, uint64_t seed, int64_t step)
{
    int64_t taken = l->next_take;

    l->generation++;
    l->runs = true;
    l->halted = false;
    l->seed = seed;
    l->next_make = l->next_take = step;
    for (int i = 0; i < l->o.depth; i++) {
        if (l->slot[i].state == SLOT_READY) l->slot[i].state = SLOT_EMPTY;
    }
    pthread_cond_broadcast(&l->work);
    if (l->feed == NULL) return CT_OK;
    return ct_feed_jump(l->feed, l->generation, seed, step, taken);
}

/* The threads work towards this step. */
static ct_status aim(ct_loader *l, uint64_t seed, int64_t step)
{
    ct_status status = CT_OK;

    if (step < 0) return CT_READER_FAIL(l->o.reader, CT_ERR_ARG, "step %lld", (long long)step);
    pthread_mutex_lock(&l->lock);
    if (!l->runs || (step != l->next_take) || (seed != l->seed)) status = jump(l, seed, step);
    pthread_mutex_unlock(&l->lock);
    CT_TRY(status);
    return (l->n_thread == 0) ? start_threads(l) : CT_OK;
}

/* Under the lock. */
static bool is_ready(const ct_loader *l, int64_t step)
{
    const ct_loader_slot *s = &l->slot[step % l->o.depth];

    return (s->state == SLOT_READY) && (s->generation == l->generation);
}

ct_status ct_loader_wait(ct_loader *l, uint64_t seed, int64_t step, double seconds, double *wait_s,
                         bool *ready_p)
{
    double start = ct_clock_s();

    CT_TRY(aim(l, seed, step));
    pthread_mutex_lock(&l->lock);
    if (!is_ready(l, step)) (void)ct_cond_wait_for(&l->ready, &l->lock, seconds);
    *ready_p = is_ready(l, step);
    pthread_mutex_unlock(&l->lock);
    *wait_s += ct_clock_s() - start;
    return CT_OK;
}

static ct_batch batch_of(const ct_loader *l, const ct_loader_slot *s)
{
    ct_batch b = { .block = s->packed ? s->block : NULL, .epoch = s->epoch };

    for (int f = 0; f < CT_MAX_FIELD; f++) {
        b.field[f] = s->field[f];
        b.count[f] = l->count[f];
    }
    memcpy(b.broken, s->broken, sizeof(b.broken));
    return b;
}

ct_status ct_loader_take(ct_loader *l, uint64_t seed, int64_t step, ct_batch *batch_p,
                         double *wait_s)
{
    double start = ct_clock_s();
    ct_status status;
    ct_loader_slot *s;

    CT_TRY(aim(l, seed, step));
    pthread_mutex_lock(&l->lock);
    s = &l->slot[step % l->o.depth];
    while (!is_ready(l, step)) pthread_cond_wait(&l->ready, &l->lock);
    status = s->status;
    l->next_take++;
    if (status == CT_OK) {
        l->taken = true;
    } else {
        l->runs = false; /* asked again, it tries again */
    }
    pthread_mutex_unlock(&l->lock);
    *wait_s += ct_clock_s() - start;
    if ((status != CT_OK) && (s->why[0] != '\0'))
        return CT_FAIL(status, "rank %d, which reads for this node, failed: %s",
                       l->o.group->member[0], s->why);
    CT_TRY(status);
    *batch_p = batch_of(l, s);
    return CT_OK;
}

bool ct_loader_look(ct_loader *l, int ahead, ct_batch *batch_p)
{
    int64_t step = l->next_take + ahead - 1;
    const ct_loader_slot *s = &l->slot[step % l->o.depth];
    bool good;

    pthread_mutex_lock(&l->lock);
    /* the slot of the one that is taken is ready, too */
    good = l->runs && (ahead <= l->o.depth - l->taken) && is_ready(l, step) && (s->status == CT_OK);
    pthread_mutex_unlock(&l->lock);
    if (good) *batch_p = batch_of(l, s);
    return good;
}

const ct_pack *ct_loader_pack(const ct_loader *l)
{
    return (l->o.pack != NULL) ? &l->pack : NULL;
}

void ct_loader_give_back(ct_loader *l)
{
    pthread_mutex_lock(&l->lock);
    if (l->taken) {
        l->slot[(l->next_take - 1) % l->o.depth].state = SLOT_EMPTY;
        l->taken = false;
        pthread_cond_broadcast(&l->work);
    }
    pthread_mutex_unlock(&l->lock);
}
