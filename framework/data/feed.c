#include "framework/data/feed_private.h"

#include <stdlib.h>

/* Samples of one size fill a slot exactly. Of others half as much again as the mean is enough for
 * all but unusual steps, whose last records every rank then reads itself. */
static int64_t records_room(const ct_reader *r, int64_t n_sample)
{
    double mean = (double)r->bytes / (double)r->count, most = (double)r->largest * (double)n_sample;
    double usual = 1.5 * mean * (double)n_sample + 4.0 * (double)r->largest;

    return (int64_t)((usual < most) ? usual : most) + n_sample * 8;
}

static size_t lay_out(ct_feed *f)
{
    const ct_data_group *g = f->o.group;

    f->n_slot = f->o.threads + 1;
    f->room = (g->room > 0) ? g->room : records_room(f->o.reader, f->n_sample);
    f->mark_at = ct_align_up(sizeof(slot));
    f->place_at = f->mark_at + ct_align_up((size_t)g->node_size * sizeof(mark));
    f->data_at = f->place_at + ct_align_up((size_t)f->n_sample * sizeof(place));
    f->slot_bytes = f->data_at + ct_align_up((size_t)f->room);
    return ct_align_up(sizeof(head)) + (size_t)g->node_size * CT_ALIGN +
           (size_t)f->n_slot * f->slot_bytes;
}

static ct_status start_head(ct_feed *f)
{
    head *h = head_of(f);
    pthread_mutexattr_t ma;
    pthread_condattr_t ca;
    bool good = pthread_mutexattr_init(&ma) == 0;

    good = good && (pthread_mutexattr_setpshared(&ma, PTHREAD_PROCESS_SHARED) == 0) &&
           (pthread_mutex_init(&h->lock, &ma) == 0);
    pthread_mutexattr_destroy(&ma);
    good = good && (pthread_condattr_init(&ca) == 0);
    good = good && (pthread_condattr_setpshared(&ca, PTHREAD_PROCESS_SHARED) == 0) &&
           (pthread_cond_init(&h->moved, &ca) == 0);
    return good ? CT_OK
                : CT_READER_FAIL(f->o.reader, CT_ERR_COMM, "cannot share a lock between processes");
}

static void release(ct_feed *f)
{
    if (f == NULL) return;
    free(f->share);
    free(f->base);
    free(f);
}

/* Which samples of a step the ranks of this node take. */
static ct_status deal(ct_feed *f)
{
    const ct_data_group *g = f->o.group;

    f->share = calloc((size_t)g->node_size, sizeof(*f->share));
    f->base = calloc((size_t)g->node_size, sizeof(*f->base));
    if ((f->share == NULL) || (f->base == NULL))
        return CT_READER_FAIL(f->o.reader, CT_ERR_NOMEM, "no memory for a feed");
    for (int r = 0; r < g->node_size; r++) {
        CT_TRY(ct_share_of(f->o.global, g->member[r], g->n_rank, &f->share[r]));
        f->base[r] = f->n_sample;
        f->n_sample += f->share[r].local;
    }
    return CT_OK;
}

static ct_status make_local(const ct_feed_options *options, ct_feed **feed_p)
{
    ct_feed *f = calloc(1, sizeof(*f));
    ct_status status;

    if (f == NULL) return CT_READER_FAIL(options->reader, CT_ERR_NOMEM, "no memory for a feed");
    f->o = *options;
    if (f->o.threads > MAX_THREADS) f->o.threads = MAX_THREADS;
    status = deal(f);
    if (status == CT_OK)
        *feed_p = f;
    else
        release(f);
    return status;
}

/* Every step is taken by all ranks or by none: each is collective, and so is the way back. */
ct_status ct_feed_create(const ct_feed_options *options, ct_feed **feed_p)
{
    const ct_data_group *g = options->group;
    ct_feed *f = NULL;
    void *base = NULL;
    ct_status status = g->agree(g->ctx, make_local(options, &f));

    CT_TRY_GOTO(status, err_release, status);
    CT_TRY_GOTO(status, err_release, g->acquire(g->ctx, lay_out(f), &base, &f->handle));
    f->memory = base;
    if (g->node_rank == 0) status = start_head(f);
    CT_TRY_GOTO(status, err_give_back, g->agree(g->ctx, status)); /* nobody before it is there */
    *feed_p = f;
    return CT_OK;

err_give_back:
    g->release(g->ctx, f->handle);
err_release:
    release(f);
    return status;
}

/* ---- every step */

/* A run's place is free once all ranks have gone on from the one that had it. */
static bool run_is_free(const ct_feed *f, int64_t generation)
{
    for (int r = 0; r < f->o.group->node_size; r++)
        if (member_of(f, r)->generation <= generation - RUNS) return false;
    return true;
}

ct_status ct_feed_jump(ct_feed *f, int64_t generation, uint64_t seed, int64_t step, int64_t taken)
{
    head *h = head_of(f);
    run *before = &h->run[(generation - 1) % RUNS];

    pthread_mutex_lock(&h->lock);
    while ((generation >= RUNS) && (h->top < generation) && !run_is_free(f, generation))
        pthread_cond_wait(&h->moved, &h->lock);
    if (h->top < generation) {
        if (before->generation == generation - 1) before->end = taken;
        h->run[generation % RUNS] =
            (run){ .generation = generation, .next = step, .end = INT64_MAX, .seed = seed };
        h->top = generation;
    }
    member_of(f, f->o.group->node_rank)->generation = generation;
    pthread_cond_broadcast(&h->moved);
    pthread_mutex_unlock(&h->lock);
    return ((f->o.group->node_rank == 0) && (f->n_thread == 0)) ? ct_feed_start_threads(f) : CT_OK;
}

static int find_step(const ct_feed *f, int64_t generation, int64_t step)
{
    for (int i = 0; i < f->n_slot; i++) {
        const slot *s = slot_of(f, i);

        if ((s->state == SLOT_READY) && (s->generation == generation) && (s->step == step))
            return i;
    }
    return -1;
}

ct_status ct_feed_wait(ct_feed *f, int64_t generation, int64_t step, ct_feed_part *part_p)
{
    int me = f->o.group->node_rank, at = -1;
    head *h = head_of(f);
    ct_status status = CT_OK;

    pthread_mutex_lock(&h->lock);
    for (;;) {
        if (f->stop || (member_of(f, me)->generation != generation)) {
            status = CT_STOPPED;
            break;
        }
        at = find_step(f, generation, step);
        if (at >= 0) break;
        pthread_cond_wait(&h->moved, &h->lock);
    }
    if (status == CT_OK) {
        mark_of(f, at, me)->busy++;
        *part_p = (ct_feed_part){ slot_of(f, at)->status, slot_of(f, at)->text, at };
    }
    pthread_mutex_unlock(&h->lock);
    return status;
}

const void *ct_feed_record(const ct_feed *f, const ct_feed_part *part, int64_t i, size_t *size_p)
{
    const place *p = places_of(f, part->slot) + f->base[f->o.group->node_rank] + i;

    if (p->offset < 0) return NULL;
    *size_p = (size_t)p->size;
    return slot_start(f, part->slot) + f->data_at + p->offset;
}

void ct_feed_done(ct_feed *f, const ct_feed_part *part)
{
    mark *m = mark_of(f, part->slot, f->o.group->node_rank);
    head *h = head_of(f);

    pthread_mutex_lock(&h->lock);
    m->busy--;
    m->done = true;
    pthread_cond_broadcast(&h->moved);
    pthread_mutex_unlock(&h->lock);
}

void ct_feed_stop(ct_feed *f)
{
    head *h = head_of(f);

    pthread_mutex_lock(&h->lock);
    f->stop = true;
    pthread_cond_broadcast(&h->moved);
    pthread_mutex_unlock(&h->lock);
}

void ct_feed_destroy(ct_feed *f)
{
    const ct_data_group *g;
    head *h;

    if (f == NULL) return;
    g = f->o.group;
    h = head_of(f);
    pthread_mutex_lock(&h->lock);
    f->ended = true;
    pthread_cond_broadcast(&h->moved);
    pthread_mutex_unlock(&h->lock);
    for (int i = 0; i < f->n_thread; i++) pthread_join(f->thread[i], NULL);
    g->release(g->ctx, f->handle); /* no rank has the memory any more when one goes on */
    release(f);
}
