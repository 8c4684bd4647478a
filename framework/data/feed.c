#include "framework/data/feed.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/memory.h"
#include "framework/base/rng.h"
#include "framework/base/thread.h"
#include "framework/data/loader.h"

enum { RUNS = 8, MAX_THREADS = 64 };

/* Steps [first, end) of a seed; end is known once a rank has left the run. */
typedef struct run {
    int64_t generation, next, end;
    uint64_t seed;
    bool failed; /* nothing is made behind a step that failed */
} run;

typedef enum { SLOT_NEW, SLOT_FILLING, SLOT_READY } slot_state;

typedef struct slot {
    slot_state state;
    int64_t generation, step;
    ct_status status;
    char text[600];
} slot;

/* The shared memory: this, then one `member` a rank, then the slots (each: slot, mark a rank, place
 * a sample, records). Ranks map it at different addresses, so it holds no pointers. */
typedef struct head {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int64_t top, making; /* generations: the newest asked for; the one being made */
    run run[RUNS];       /* of generation g: run[g % RUNS]                        */
} head;

typedef struct member {
    int64_t generation; /* that this rank is in */
} member;

typedef struct mark { /* of a rank, on a slot */
    int busy;
    bool done;
} mark;

typedef struct place {
    int64_t offset; /* in the slot's records; -1: it did not fit */
    int64_t size;
} place;

struct ct_feed {
    ct_feed_options o;
    ct_share *share; /* [node_size] */
    int64_t *base;   /* [node_size] each rank's first place in a slot */
    int64_t n_sample, room;
    int n_slot;
    size_t mark_at, place_at, data_at, slot_bytes; /* in a slot */
    char *memory;                                  /* shared */
    void *handle;
    bool stop; /* this rank waits no more; under the lock */
    bool ended;
    pthread_t thread[MAX_THREADS];
    int n_thread;
};

/* ---- where things lie */

static inline head *head_of(const ct_feed *f)
{
    return (head *)(void *)f->memory;
}

static inline member *member_of(const ct_feed *f, int r)
{
    return (member *)(void *)(f->memory + ct_align_up(sizeof(head)) + (size_t)r * CT_ALIGN);
}

static inline char *slot_start(const ct_feed *f, int i)
{
    return f->memory + ct_align_up(sizeof(head)) + (size_t)f->o.group->node.size * CT_ALIGN +
           (size_t)i * f->slot_bytes;
}

static inline slot *slot_of(const ct_feed *f, int i)
{
    return (slot *)(void *)slot_start(f, i);
}

static inline mark *mark_of(const ct_feed *f, int i, int r)
{
    return (mark *)(void *)(slot_start(f, i) + f->mark_at) + r;
}

static inline place *places_of(const ct_feed *f, int i)
{
    return (place *)(void *)(slot_start(f, i) + f->place_at);
}

static ct_status feed_start_threads(ct_feed *f);

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
    f->place_at = f->mark_at + ct_align_up((size_t)g->node.size * sizeof(mark));
    f->data_at = f->place_at + ct_align_up((size_t)f->n_sample * sizeof(place));
    f->slot_bytes = f->data_at + ct_align_up((size_t)f->room);
    return ct_align_up(sizeof(head)) + (size_t)g->node.size * CT_ALIGN +
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

    f->share = calloc((size_t)g->node.size, sizeof(*f->share));
    f->base = calloc((size_t)g->node.size, sizeof(*f->base));
    if ((f->share == NULL) || (f->base == NULL))
        return CT_READER_FAIL(f->o.reader, CT_ERR_NOMEM, "no memory for a feed");
    for (int r = 0; r < g->node.size; r++) {
        CT_TRY(ct_share_of(f->o.global, g->member[r], g->data.size, &f->share[r]));
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

    if (status != CT_OK) goto err_release;
    CT_TRY_GOTO(status, err_release, g->acquire(g->ctx, lay_out(f), &base, &f->handle));
    f->memory = base;
    if (g->node.rank == 0) status = start_head(f);
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
    for (int r = 0; r < f->o.group->node.size; r++)
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
    member_of(f, f->o.group->node.rank)->generation = generation;
    pthread_cond_broadcast(&h->moved);
    pthread_mutex_unlock(&h->lock);
    return ((f->o.group->node.rank == 0) && (f->n_thread == 0)) ? feed_start_threads(f) : CT_OK;
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
    int me = f->o.group->node.rank, at = -1;
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
    const place *p = places_of(f, part->slot) + f->base[f->o.group->node.rank] + i;

    if (p->offset < 0) return NULL;
    *size_p = (size_t)p->size;
    return slot_start(f, part->slot) + f->data_at + p->offset;
}

void ct_feed_done(ct_feed *f, const ct_feed_part *part)
{
    mark *m = mark_of(f, part->slot, f->o.group->node.rank);
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

/* ---- the fetching threads of the node's rank 0; the head's lock is held where nothing else is
 * said */

/* May rank r still want what the slot holds? */
static bool is_wanted(const ct_feed *f, int i, int r)
{
    const mark *m = mark_of(f, i, r);

    if (m->busy > 0) return true;
    return !m->done && (slot_of(f, i)->generation >= member_of(f, r)->generation);
}

static int find_free(const ct_feed *f)
{
    for (int i = 0; i < f->n_slot; i++) {
        const slot *s = slot_of(f, i);
        bool wanted = (s->state == SLOT_FILLING);

        for (int r = 0; (s->state == SLOT_READY) && (r < f->o.group->node.size); r++)
            wanted = wanted || is_wanted(f, i, r);
        if (!wanted) return i;
    }
    return -1;
}

/* The run that has a step to be made, or NULL. */
static run *find_work(head *h)
{
    run *w = &h->run[h->making % RUNS];

    while (((h->making == 0) || w->failed || (w->next >= w->end)) && (h->making < h->top)) {
        h->making++;
        w = &h->run[h->making % RUNS];
    }
    if ((h->making == 0) || w->failed || (w->next >= w->end)) return NULL;
    return w;
}

/* The records of one step, of all ranks of the node; without the lock. */
static ct_status fetch_step(const ct_feed *f, void *local, uint64_t seed, int64_t step, int at)
{
    const ct_reader *reader = f->o.reader;
    place *p = places_of(f, at);
    char *data = slot_start(f, at) + f->data_at;
    int64_t used = 0, begin = step / ((f->o.crops > 0) ? f->o.crops : 1) * f->o.global;

    if (f->o.rand_skip > 0)
        begin += (int64_t)(ct_rng_key(seed, ct_rng_hash("rand_skip"), 0) % f->o.rand_skip);
    for (int r = 0; r < f->o.group->node.size; r++) {
        for (int64_t i = 0; i < f->share[r].local; i++, p++) {
            int64_t id = ct_sample_again_at(seed, f->o.stripes, f->o.repeat, f->o.global,
                                            begin + f->share[r].first + i, reader->count);
            size_t size = 0;

            *p = (place){ .offset = -1 };
            if (f->room - used < reader->largest) continue;
            CT_TRY(reader->ops->fetch(reader, local, id, data + used, &size));
            *p = (place){ used, (int64_t)size };
            used += ((int64_t)size + 7) / 8 * 8; /* floats among them stay aligned */
        }
    }
    return CT_OK;
}

/* good: this thread has what it reads with. */
static void fill_slot(ct_feed *f, run *w, int at, void *local, bool good)
{
    head *h = head_of(f);
    slot *s = slot_of(f, at);
    int64_t step = w->next++, generation = w->generation;
    uint64_t seed = w->seed;
    ct_status status;

    s->state = SLOT_FILLING;
    s->generation = generation;
    s->step = step;
    pthread_mutex_unlock(&h->lock);
    status = good ? fetch_step(f, local, seed, step, at) : CT_ERR_NOMEM;
    s->text[0] = '\0';
    if (status != CT_OK) ct_log_last_error(s->text, sizeof(s->text));
    pthread_mutex_lock(&h->lock);
    s->status = status;
    s->state = SLOT_READY;
    if (status != CT_OK) h->run[generation % RUNS].failed = true;
    for (int r = 0; r < f->o.group->node.size; r++) *mark_of(f, at, r) = (mark){ 0 };
    pthread_cond_broadcast(&h->moved);
}

static void *feed_thread(void *arg)
{
    ct_feed *f = arg;
    head *h = head_of(f);
    void *local = NULL;
    bool good = ct_reader_local(f->o.reader, &local) == CT_OK;

    pthread_mutex_lock(&h->lock);
    while (!f->ended) {
        run *w = find_work(h);
        int at = (w != NULL) ? find_free(f) : -1;

        if (at < 0)
            pthread_cond_wait(&h->moved, &h->lock);
        else
            fill_slot(f, w, at, local, good);
    }
    pthread_mutex_unlock(&h->lock);
    ct_reader_local_release(f->o.reader, local);
    return NULL;
}

static ct_status feed_start_threads(ct_feed *f)
{
    int rc = 0;

    while ((f->n_thread < f->o.threads) && (rc == 0)) {
        rc = ct_thread_start(feed_thread, f, &f->thread[f->n_thread]);
        if (rc == 0) f->n_thread++;
    }
    if (f->n_thread > 0) return CT_OK;
    return CT_READER_FAIL(f->o.reader, CT_ERR_NOMEM, "cannot start a thread: %s", strerror(rc));
}
