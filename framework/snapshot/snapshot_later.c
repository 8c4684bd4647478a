/* Sets that threads write while training goes on: of copies. */
#include "framework/snapshot/set_writer.h"

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

typedef struct later_room {
    struct ct_snapshot_later *of;
    float *data;
    int64_t count;
} later_room;

struct ct_snapshot_later {
    ct_set_writer s;
    ct_snapshot_state state; /* the set's, on copies */
    int keep;
    char *plan;
    /* on rank 0: weights and histories */
    ct_storage copy[CT_WHOLE_ARENAS];
    later_room room[CT_WHOLE_ARENAS];
    later_room *kept; /* copies in the rank's file; the first n_kept are this set's */
    int n_kept, n_room;
    bool told, told_lack; /* how much it takes, and why not */
    bool gives_way;
    bool open;
    bool started; /* there is a thread */
    pthread_t thread;
    pthread_mutex_t lock; /* of hurry */
    pthread_cond_t turn;
    bool hurry;     /* somebody waits for the files */
    double spent_s; /* CPU time of the thread that it has rested for */
    atomic_bool written;
    ct_status status; /* the thread's, when it has been joined */
    double start_s;
};

/* Rooms stay for the next set: a page that is touched for the first time takes long. */
static ct_status make_room(ct_snapshot_later *l, later_room *r, int64_t count)
{
    r->of = l;
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
    CT_TRY(make_room(l, &l->kept[l->n_kept], count));
    memcpy(l->kept[l->n_kept].data, *data_p, (size_t)count * sizeof(float));
    *data_p = l->kept[l->n_kept++].data;
    return CT_OK;
}

/* Training comes first: the thread computes a fortieth of the time, and rests in between. What it
 * waits for a disk is not counted. */
static void rest(ct_snapshot_later *l)
{
    const double per_s = 39.0;
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

/* A chunk of a copy, which the thread writes next. */
static ct_status copy_want(ct_storage *s, ct_stream st, ct_storage_range *r)
{
    const later_room *room = s->own;

    (void)st;
    rest(room->of);
    r->data = room->data + r->from;
    return CT_OK;
}

static ct_status copy_done(ct_storage *s, ct_stream st, const ct_storage_range *r)
{
    (void)s;
    (void)st;
    (void)r;
    return CT_OK;
}

static void copy_floats(float *to, const float *from, int64_t count)
{
    const int64_t part = 1 << 18;

#pragma omp parallel for schedule(static) if (count > part)
    for (int64_t at = 0; at < count; at += part)
        memcpy(to + at, from + at, (size_t)((count - at < part) ? count - at : part) * sizeof(*to));
}

static ct_status copy_storage(ct_storage *from, int64_t count, float *to)
{
    if (from->dev->kind != CT_DEVICE_CPU) return ct_storage_get(from, 0, count, to);
    for (int64_t at = 0; at < count; at += CT_STORAGE_CHUNK) {
        int64_t n = (count - at < CT_STORAGE_CHUNK) ? count - at : CT_STORAGE_CHUNK;
        ct_storage_range r;

        CT_TRY(ct_storage_want(from, NULL, at, n, CT_STORAGE_READ, &r));
        copy_floats(to + at, r.data, n);
        CT_TRY(ct_storage_done(&r, NULL));
    }
    return CT_OK;
}

/* What does not learn lies in the net's memory, wherever the rest is. */
static ct_status copy_rest(const ct_net *net, float *to)
{
    for (int i = 0; i < net->n_param; i++) {
        const ct_param *p = &net->param[i];

        if (p->learns) continue;
        CT_TRY(ct_net_device(net)->to_host(NULL, to + p->offset, ct_blob_data(&p->blob),
                                           (size_t)p->count * sizeof(*to)));
    }
    return CT_OK;
}

static ct_status copy_weights(const ct_set_writer *s, float *to)
{
    const ct_net *net = s->of.net;
    ct_storage here;

    if (s->of.storage != NULL) return copy_storage(s->of.storage, net->weight_count, to);
    if (s->of.learned != NULL) {
        CT_TRY(copy_storage(s->of.learned, net->grad_count, to));
        return copy_rest(net, to);
    }
    here = ct_storage_at(ct_net_device(net), net->weight_arena, net->weight_count);
    return copy_storage(&here, net->weight_count, to);
}

/* Copy k is of so many floats. */
static ct_status open_copy(ct_snapshot_later *l, int k, int64_t count)
{
    static const ct_storage_ops ops = { .name = "a snapshot's copy",
                                        .want = copy_want,
                                        .done = copy_done };

    CT_TRY(make_room(l, &l->room[k], count));
    l->copy[k] =
        (ct_storage){ .ops = &ops, .dev = ct_device_cpu(), .count = count, .own = &l->room[k] };
    return CT_OK;
}

/* In place of writing them: what all ranks have of weights and histories. */
static ct_status copy_arenas(ct_set_writer *s)
{
    ct_snapshot_later *l = s->later;
    const ct_net *net = s->of.net;
    const ct_snapshot_state *of = s->of_state;

    CT_TRY(open_copy(l, 0, net->weight_count));
    CT_TRY(copy_weights(s, l->room[0].data));
    for (int h = 0; h < of->n_history; h++) {
        CT_TRY(open_copy(l, 1 + h, net->grad_count));
        CT_TRY(copy_storage(&of->history[h], net->grad_count, l->room[1 + h].data));
    }
    return CT_OK;
}

/* From now on the set is one of copies. */
static ct_status use_copies(ct_snapshot_later *l)
{
    const ct_snapshot_state *from = l->s.state;

    l->state = *from;
    l->state.history = l->copy + 1;
    l->state.weights = NULL;
    if (from->average != NULL) l->state.average = l->copy + 1 + (from->average - from->history);
    if (from->plan != NULL) {
        l->plan = strdup(from->plan);
        if (l->plan == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the plan of a snapshot");
        l->state.plan = l->plan;
    }
    l->s.state = l->s.of_state = &l->state;
    l->s.of = (ct_weights){ .net = (from->parts != NULL) ? from->parts->whole : l->s.net,
                            .storage = &l->copy[0] };
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
    atomic_store(&l->written, true);
    return NULL;
}

/* Floats that copies take here besides what there is: of the arenas. */
static int64_t arenas_need(const ct_snapshot_later *l, const ct_group *g, const ct_net *whole,
                           int n_history)
{
    if ((g->rank != 0) || (l->room[0].data != NULL)) return 0;
    return whole->weight_count + n_history * whole->grad_count;
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
        CT_INFO("snapshot_async: %.0f MB for a copy of what is written", bytes / 1e6);
    l->told = l->told || (lacks == 0);
    l->told_lack = l->told_lack || (lacks != 0);
    CT_TRY(ct_group_max(g, &lacks, 1));
    *fits_p = (lacks == 0);
    return CT_OK;
}

ct_status ct_snapshot_later_reserve(ct_snapshot_later *l, const ct_group *g, const ct_net *whole,
                                    int n_history, double limit)
{
    ct_status status = CT_OK;
    bool fits;

    CT_TRY(find_room(l, g, arenas_need(l, g, whole, n_history), limit, &fits));
    if (!fits || (g->rank != 0)) return CT_OK;
    status = make_room(l, &l->room[0], whole->weight_count);
    for (int h = 0; (status == CT_OK) && (h < n_history); h++)
        status = make_room(l, &l->room[1 + h], whole->grad_count);
    return status;
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
    l->open = false;
    return status;
}

static void join(ct_snapshot_later *l)
{
    if (l->started) {
        set_hurry(l, true);
        (void)pthread_join(l->thread, NULL);
    }
    l->started = false;
}

void ct_snapshot_later_destroy(ct_snapshot_later *l)
{
    if (l == NULL) return;
    join(l);
    if (l->open) (void)end_set(l, CT_STOPPED);
    for (int k = 0; k < CT_WHOLE_ARENAS; k++) ct_mem_release(l->room[k].data);
    for (int i = 0; i < l->n_room; i++) ct_mem_release(l->kept[i].data);
    free(l->kept);
    (void)pthread_cond_destroy(&l->turn);
    (void)pthread_mutex_destroy(&l->lock);
    free(l);
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
        status =
            find_room(l, l->s.group,
                      arenas_need(l, l->s.group, (state->parts != NULL) ? state->parts->whole : net,
                                  state->n_history) +
                          rank_needs(&l->s, l),
                      limit, &fits);
    if ((status == CT_OK) && fits) status = ct_set_prepare(&l->s, copy_arenas);
    if ((status == CT_OK) && fits) status = ct_group_agree(l->s.group, use_copies(l));
    if ((status != CT_OK) || !fits) {
        (void)end_set(l, CT_STOPPED);
        return status;
    }
    atomic_store(&l->written, false);
    set_hurry(l, false);
    l->started = true; /* the thread reads it */
    if (ct_thread_start(write_later, l, &l->thread) != 0) {
        l->started = false;
        set_hurry(l, true);
        (void)write_later(l);
    }
    *begun_p = true;
    return CT_OK;
}

bool ct_snapshot_later_is_open(const ct_snapshot_later *l)
{
    return l->open;
}

bool ct_snapshot_later_is_written(const ct_snapshot_later *l)
{
    return !l->open || atomic_load(&l->written);
}

ct_status ct_snapshot_later_finish(ct_snapshot_later *l, double *seconds_p)
{
    ct_status status;

    join(l);
    status = end_set(l, ct_group_agree(l->s.group, l->status));
    if ((status == CT_OK) && (seconds_p != NULL)) *seconds_p = ct_clock_s() - l->start_s;
    return status;
}
