/* The fetching threads of the node's rank 0; the head's lock is held where nothing else is said. */
#include "framework/data/feed_private.h"

#include <string.h>

#include "framework/base/rng.h"
#include "framework/base/thread.h"

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

        for (int r = 0; (s->state == SLOT_READY) && (r < f->o.group->node_size); r++)
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
    int64_t used = 0, begin = step * f->o.global;

    if (f->o.rand_skip > 0)
        begin += (int64_t)(ct_rng_key(seed, ct_rng_hash("rand_skip"), 0) % f->o.rand_skip);
    for (int r = 0; r < f->o.group->node_size; r++) {
        for (int64_t i = 0; i < f->share[r].local; i++, p++) {
            int64_t id =
                ct_sample_at(seed, f->o.stripes, begin + f->share[r].first + i, reader->count);
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
    for (int r = 0; r < f->o.group->node_size; r++) *mark_of(f, at, r) = (mark){ 0 };
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

ct_status ct_feed_start_threads(ct_feed *f)
{
    int rc = 0;

    while ((f->n_thread < f->o.threads) && (rc == 0)) {
        rc = ct_thread_start(feed_thread, f, &f->thread[f->n_thread]);
        if (rc == 0) f->n_thread++;
    }
    if (f->n_thread > 0) return CT_OK;
    return CT_READER_FAIL(f->o.reader, CT_ERR_NOMEM, "cannot start a thread: %s", strerror(rc));
}
