/* Sets that threads write while training goes on: of copies. */
#include "framework/snapshot/set_writer.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "framework/base/clock.h"
#include "framework/base/memory.h"
#include "framework/base/thread.h"
#include "framework/snapshot/state_copy.h"

typedef struct later_room {
    float *data;
    int64_t count;
} later_room;

/* An array that the thread of rank 0 writes, a range at a time. */
typedef struct later_view {
    struct ct_snapshot_later *of;
    ct_storage *whole;
    ct_storage_range range; /* of whole, that is wanted */
} later_view;

struct ct_snapshot_later {
    ct_set_writer s;
    ct_snapshot_state state; /* the set's, on copies */
    int keep;
    char *plan;
    ct_state_copy copy; /* of this rank */
    ct_whole *whole;    /* of all ranks, of the open set */
    later_view view[CT_WHOLE_ARENAS];
    ct_storage array[CT_WHOLE_ARENAS]; /* on rank 0 what the thread writes: by view */
    later_room *kept; /* copies in the rank's file; the first n_kept are this set's */
    int n_kept, n_room;
    bool told, told_lack; /* how much it takes, and why not */
    bool gives_way;
    bool open;
    bool started; /* there is a thread */
    pthread_t thread;
    pthread_mutex_t lock; /* of hurry */
    pthread_cond_t turn;
    bool hurry;      /* somebody waits for the files */
    double spent_s;  /* CPU time of the thread that it has rested for */
    double credit_s; /* that ranks may spend on answers */
    double told_s;   /* until when that was counted */
    atomic_bool written;
    ct_status status; /* the thread's, when it has been joined */
    double start_s;
};

/* Training comes first: threads compute a fortieth of the time, and ranks answer them in as much.
 */
#define LATER_SHARE (1.0 / 40.0)

/* Rooms stay for the next set: a page that is touched for the first time takes long. */
static ct_status make_room(later_room *r, int64_t count)
{
    if (r->count >= count) return CT_OK;
    ct_mem_release(r->data);
    r->data = ct_mem_acquire((size_t)count * sizeof(float));
    r->count = (r->data != NULL) ? count : 0;
    return (r->data != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for a snapshot's copy");
}

/* *data_p may change from now on: where the file is written later it becomes a copy. */
ct_status ct_set_keep(const ct_set_writer *s, int64_t count, const float **data_p)
{
    struct ct_snapshot_later *l = s->later;

    if (l == NULL) return CT_OK;
    if (l->n_kept == l->n_room) {
        later_room *kept = realloc(l->kept, (size_t)(l->n_room + 1) * sizeof(*kept));

        if (kept == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a snapshot");
        l->kept = kept;
        l->kept[l->n_room++] = (later_room){ .data = NULL };
    }
    CT_TRY(make_room(&l->kept[l->n_kept], count));
    memcpy(l->kept[l->n_kept].data, *data_p, (size_t)count * sizeof(float));
    *data_p = l->kept[l->n_kept++].data;
    return CT_OK;
}

/* What the thread waits for a disk is not counted. */
static void rest(ct_snapshot_later *l)
{
    const double per_s = 1.0 / LATER_SHARE - 1.0;
    struct timespec now = { 0, 0 };
    double cpu;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    cpu = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    (void)pthread_mutex_lock(&l->lock);
    for (double end = ct_clock_s() + per_s * (cpu - l->spent_s), left = 1.0;
         !l->hurry && ((left = end - ct_clock_s()) > 0.0);)
        (void)ct_cond_wait_for(&l->turn, &l->lock, left);
    (void)pthread_mutex_unlock(&l->lock);
    l->spent_s = cpu;
}

static void set_hurry(ct_snapshot_later *l, bool hurry)
{
    (void)pthread_mutex_lock(&l->lock);
    l->hurry = hurry;
    (void)pthread_cond_signal(&l->turn);
    (void)pthread_mutex_unlock(&l->lock);
}

/* What the thread writes next. Where other ranks have some of it, their time is what counts. */
static ct_status view_want(ct_storage *s, ct_stream st, ct_storage_range *r)
{
    later_view *v = s->own;

    if (v->of->s.group->size == 1) rest(v->of);
    CT_TRY(ct_storage_want(v->whole, st, r->from, r->count, r->use, &v->range));
    r->data = v->range.data;
    return CT_OK;
}

static ct_status view_done(ct_storage *s, ct_stream st, const ct_storage_range *r)
{
    later_view *v = s->own;

    (void)r;
    return ct_storage_done(&v->range, st);
}

/* In place of writing them: this rank's of the weights and histories. */
static ct_status copy_own(ct_set_writer *s)
{
    ct_state_copy *c = &s->later->copy;

    CT_TRY(ct_state_copy_open(c, s->state->n_history));
    return ct_state_copy_take(c, s->state);
}

/* Where the thread of rank 0 finds them. One rank has them whole. */
static void open_views(ct_snapshot_later *l)
{
    static const ct_storage_ops ops = { .name = "a snapshot's copy",
                                        .want = view_want,
                                        .done = view_done };
    bool alone = (l->s.group->size == 1) && (l->copy.shards != NULL);

    for (int k = 0; k < 1 + l->s.state->n_history; k++) {
        l->view[k] =
            (later_view){ .of = l,
                          .whole = alone ? &l->copy.copy[k] : ct_whole_storages(l->whole) + k };
        l->array[k] = (ct_storage){ .ops = &ops,
                                    .dev = ct_device_cpu(),
                                    .count = l->view[k].whole->count,
                                    .own = &l->view[k] };
    }
}

/* From now on the set is one of copies. */
static ct_status use_copies(ct_snapshot_later *l)
{
    const ct_snapshot_state *from = l->s.state;
    ct_whole_source source = ct_state_copy_source(&l->copy);

    CT_TRY(ct_whole_open(&source, l->copy.own, 1 + from->n_history, &l->whole));
    open_views(l);
    l->state = *from;
    l->state.history = l->array + 1;
    l->state.weights = NULL;
    if (from->average != NULL) l->state.average = l->array + 1 + (from->average - from->history);
    if (from->plan != NULL) {
        l->plan = strdup(from->plan);
        if (l->plan == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the plan of a snapshot");
        l->state.plan = l->plan;
    }
    l->s.state = l->s.of_state = &l->state;
    l->s.of = (ct_weights){ .net = (from->parts != NULL) ? from->parts->whole : l->s.net,
                            .storage = &l->array[0] };
    return CT_OK;
}

static void *write_later(void *arg)
{
    ct_snapshot_later *l = arg;

    l->spent_s = 0.0;
    if (l->gives_way && l->started) (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19);
    l->status = ct_set_write_rank(&l->s);
    if ((l->status == CT_OK) && (l->s.group->rank == 0)) {
        l->status = ct_set_write_weights(&l->s);
        if (l->status == CT_OK) l->status = ct_set_write_solver(&l->s);
    }
    if (l->s.group->rank == 0) ct_whole_leave(l->whole); /* the others wait for it, come what may */
    atomic_store(&l->written, true);
    return NULL;
}

/* Floats that copies take here besides what there is: of weights and histories. */
static int64_t copies_need(const ct_snapshot_later *l, int n_history)
{
    return (l->copy.n == 0) ? ct_state_copy_floats(&l->copy, n_history) : 0;
}

/* … and of the rank's file. */
static int64_t rank_needs(const ct_set_writer *s, const ct_snapshot_later *l)
{
    int64_t floats = ct_set_any_late(s) ? s->net->grad_count : 0;
    ct_sync_state e;

    for (int i = 0; i < s->net->n_param; i++)
        for (int k = 0; ct_sync_states_get(s->states, i, k, &e); k++) floats += e.count;
    for (int i = 0; i < l->n_room; i++) floats -= l->kept[i].count;
    return (floats > 0) ? floats : 0;
}

/* Whether there is room on every rank. limit: of what a rank has resident; 0: none. Collective. */
static ct_status find_room(ct_snapshot_later *l, const ct_group *g, int64_t floats, double limit,
                           bool *fits_p)
{
    double bytes = (double)floats * sizeof(float), left = 0.9 * ct_memory_free();
    int64_t lacks;

    if ((limit > 0) && (limit - (double)ct_memory_resident() < left))
        left = limit - (double)ct_memory_resident();
    lacks = ((floats > 0) && (bytes > left)) ? 1 : 0;
    if ((lacks != 0) && !l->told_lack)
        CT_WARN("snapshot_async: a copy takes %.0f MB and %.0f MB are free: training waits until "
                "snapshots are written",
                bytes / 1e6, (left > 0) ? left / 1e6 : 0.0);
    else if ((lacks == 0) && !l->told)
        CT_INFO("snapshot_async: %.0f MB for a copy of this rank's part", bytes / 1e6);
    l->told = l->told || (lacks == 0);
    l->told_lack = l->told_lack || (lacks != 0);
    CT_TRY(ct_group_max(g, &lacks, 1));
    *fits_p = (lacks == 0);
    return CT_OK;
}

ct_status ct_snapshot_later_reserve(ct_snapshot_later *l, const ct_net *net,
                                    const ct_snapshot_state *state, const ct_group *g, double limit)
{
    bool fits;

    CT_TRY(ct_state_copy_create(net, state, g, &l->copy));
    CT_TRY(find_room(l, g, copies_need(l, state->n_history), limit, &fits));
    return fits ? ct_state_copy_open(&l->copy, state->n_history) : CT_OK;
}

ct_status ct_snapshot_later_create(bool gives_way, ct_snapshot_later **l_p)
{
    ct_snapshot_later *l = calloc(1, sizeof(*l));

    if ((l == NULL) || (ct_cond_init(&l->turn) != 0)) {
        free(l);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for snapshots");
    }
    (void)pthread_mutex_init(&l->lock, NULL);
    l->gives_way = gives_way;
    *l_p = l;
    return CT_OK;
}

static ct_status end_set(ct_snapshot_later *l, ct_status status)
{
    status = ct_set_close(&l->s, status, l->keep);
    free(l->plan);
    l->plan = NULL;
    l->n_kept = 0;
    ct_whole_close(l->whole);
    l->whole = NULL;
    l->open = false;
    return status;
}

static void join(ct_snapshot_later *l)
{
    set_hurry(l, true);
    if (l->started) (void)pthread_join(l->thread, NULL);
    l->started = false;
}

/* The set is not finished. */
static void drop_set(ct_snapshot_later *l)
{
    if (l->whole != NULL) ct_whole_stop(l->whole);
    join(l);
    (void)end_set(l, CT_STOPPED);
}

void ct_snapshot_later_destroy(ct_snapshot_later *l)
{
    if (l == NULL) return;
    if (l->open) drop_set(l);
    ct_state_copy_destroy(&l->copy);
    for (int i = 0; i < l->n_room; i++) ct_mem_release(l->kept[i].data);
    free(l->kept);
    (void)pthread_cond_destroy(&l->turn);
    (void)pthread_mutex_destroy(&l->lock);
    free(l);
}

/* Everyone has a thread, or no rank goes on. */
static ct_status start_threads(ct_snapshot_later *l, bool *started_p)
{
    int64_t lacks;

    atomic_store(&l->written, false);
    set_hurry(l, false);
    l->credit_s = 0.0;
    l->told_s = ct_clock_s();
    l->started = true; /* the thread reads it */
    if (ct_thread_start(write_later, l, &l->thread) != 0) l->started = false;
    lacks = l->started ? 0 : 1;
    CT_TRY(ct_group_max(l->s.group, &lacks, 1));
    *started_p = (lacks == 0);
    return CT_OK;
}

ct_status ct_snapshot_later_begin(ct_snapshot_later *l, const char *prefix, const ct_net *net,
                                  const ct_snapshot_state *state, const ct_exchange *exchange,
                                  int keep, double limit, bool *begun_p)
{
    bool fits = true;
    ct_status status;

    *begun_p = false;
    l->s = (ct_set_writer){ .later = l };
    l->keep = keep;
    l->start_s = ct_clock_s();
    l->open = true;
    status = ct_set_open(&l->s, prefix, net, state, exchange);
    if (status == CT_OK)
        status = find_room(l, l->s.group, copies_need(l, state->n_history) + rank_needs(&l->s, l),
                           limit, &fits);
    if ((status == CT_OK) && fits) status = ct_set_prepare(&l->s, copy_own);
    if ((status == CT_OK) && fits) status = ct_group_agree(l->s.group, use_copies(l));
    if ((status == CT_OK) && fits) status = start_threads(l, begun_p);
    if ((status != CT_OK) || !*begun_p) drop_set(l);
    return status;
}

bool ct_snapshot_later_is_open(const ct_snapshot_later *l)
{
    return l->open;
}

ct_later_need ct_snapshot_later_need(ct_snapshot_later *l)
{
    double now = ct_clock_s(), most = 1.0;

    if (!l->open || atomic_load(&l->written)) return CT_LATER_NOTHING;
    l->credit_s += LATER_SHARE * (now - l->told_s);
    l->told_s = now;
    if (l->credit_s > most) l->credit_s = most;
    return ((l->credit_s > 0.0) && ct_whole_is_asked(l->whole)) ? CT_LATER_RANKS : CT_LATER_TIME;
}

ct_status ct_snapshot_later_serve(ct_snapshot_later *l)
{
    double start = ct_clock_s();

    CT_TRY(ct_whole_serve(l->whole, l->credit_s));
    l->credit_s -= ct_clock_s() - start;
    return CT_OK;
}

ct_status ct_snapshot_later_finish(ct_snapshot_later *l, double *seconds_p)
{
    ct_status status;

    set_hurry(l, true);
    CT_TRY(ct_whole_serve(l->whole, INFINITY));
    join(l);
    status = ct_whole_status(l->whole);
    status = ct_group_agree(l->s.group, (l->status != CT_OK) ? l->status : status);
    status = end_set(l, status);
    if ((status == CT_OK) && (seconds_p != NULL)) *seconds_p = ct_clock_s() - l->start_s;
    return status;
}
