#include "framework/snapshot/whole.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "framework/base/clock.h"
#include "framework/base/memory.h"
#include "framework/base/thread.h"

typedef enum { END, FETCH, SPREAD, PAUSE } ask_kind;

typedef struct ask { /* as it travels */
    int64_t what;    /* an ask_kind */
    int64_t k, from, count;
} ask;

/* Storage k of a run, as rank 0 sees it. */
typedef struct view {
    ct_whole *of;
    int k;
} view;

struct ct_whole {
    ct_whole_source source;
    ct_storage *const *own;
    float *room;
    ct_status status; /* the first error of this rank that the others need not wait for */
    ct_storage storage[CT_WHOLE_ARENAS];
    view view[CT_WHOLE_ARENAS];
    /* where rank 0's work is a thread's: it asks, the main thread answers */
    bool apart;
    bool ended;           /* all ranks know that it has left */
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t turn;
    bool asked, left, stopped;
    ask ask;
    float *data;
    ct_status answered;
};

void ct_whole_note(const ct_whole_ask *a, ct_status status)
{
    if (*a->status == CT_OK) *a->status = status;
}

static ct_status answer(ct_whole *w, const ask *a, float *data)
{
    ct_whole_ask asked = { .fetch = (a->what == FETCH),
                           .k = (int)a->k,
                           .from = a->from,
                           .count = a->count,
                           .room = w->room,
                           .status = &w->status };

    return w->source.answer(w->source.who, w->own, &asked, data);
}

static ct_status ask_all(ct_whole *w, const ask *a, float *data)
{
    ask sent = *a;

    CT_TRY(ct_group_broadcast(w->source.g, &sent, sizeof(sent)));
    return ((a->what == FETCH) || (a->what == SPREAD)) ? answer(w, a, data) : CT_OK;
}

/* The thread's: waits until the main thread has answered. */
static ct_status ask_main(ct_whole *w, const ask *a, float *data)
{
    ct_status status;

    (void)pthread_mutex_lock(&w->lock);
    w->ask = *a;
    w->data = data;
    w->asked = true;
    (void)pthread_cond_signal(&w->turn);
    while (w->asked && !w->stopped) (void)pthread_cond_wait(&w->turn, &w->lock);
    status = w->stopped ? CT_STOPPED : w->answered;
    (void)pthread_mutex_unlock(&w->lock);
    return status;
}

static ct_status reach(const view *v, ask_kind what, const ct_storage_range *r)
{
    ask a = { .what = what, .k = v->k, .from = r->from, .count = r->count };

    return v->of->apart ? ask_main(v->of, &a, r->data) : ask_all(v->of, &a, r->data);
}

static ct_status view_want(ct_storage *storage, ct_stream st, ct_storage_range *r)
{
    ct_status status = CT_OK;

    (void)st;
    if (r->count > CT_STORAGE_CHUNK)
        return CT_FAIL(CT_ERR_ARG, "%lld floats of all ranks are wanted at once",
                       (long long)r->count);
    r->data = ct_mem_acquire((size_t)r->count * sizeof(float));
    if (r->data == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for arrays of all ranks");
    if (r->use != CT_STORAGE_WRITE) status = reach(storage->own, FETCH, r);
    if (status == CT_OK) return CT_OK;
    ct_mem_release(r->data);
    return status;
}

static ct_status view_done(ct_storage *storage, ct_stream st, const ct_storage_range *r)
{
    ct_status status = (r->use != CT_STORAGE_READ) ? reach(storage->own, SPREAD, r) : CT_OK;

    (void)st;
    ct_mem_release(r->data);
    return status;
}

/* Rank 0's main thread: what it is asked for. PAUSE: nothing until then. A thread that has been
 * answered mostly asks again as soon as it has written. */
static ask await(ct_whole *w, double end, float **data_p)
{
    const double soon = 0.01;
    double now = ct_clock_s();
    ask a = { .what = PAUSE };

    if (!isinf(end) && (end > now + soon)) end = now + soon;
    (void)pthread_mutex_lock(&w->lock);
    while (!w->asked && !w->left && ((now = ct_clock_s()) < end))
        (void)ct_cond_wait_for(&w->turn, &w->lock, isinf(end) ? 1.0 : end - now);
    *data_p = w->data;
    if (w->asked)
        a = w->ask;
    else if (w->left)
        a.what = END;
    (void)pthread_mutex_unlock(&w->lock);
    return a;
}

static ct_status lead(ct_whole *w, double seconds)
{
    double end = ct_clock_s() + seconds;

    for (;;) {
        float *data = NULL;
        ask a = await(w, end, &data);
        ct_status status = ask_all(w, &a, data);

        w->ended = (a.what == END);
        if ((a.what == END) || (a.what == PAUSE)) return status;
        (void)pthread_mutex_lock(&w->lock);
        w->answered = status;
        w->asked = false;
        (void)pthread_cond_signal(&w->turn);
        (void)pthread_mutex_unlock(&w->lock);
        CT_TRY(status);
    }
}

static ct_status follow(ct_whole *w)
{
    for (;;) {
        ask a = { .what = END };

        CT_TRY(ct_group_broadcast(w->source.g, &a, sizeof(a)));
        w->ended = (a.what == END);
        if ((a.what == END) || (a.what == PAUSE)) return CT_OK;
        CT_TRY(answer(w, &a, w->room));
    }
}

static void open_views(ct_whole *w, int n)
{
    static const ct_storage_ops ops = { .name = "of all ranks",
                                        .want = view_want,
                                        .done = view_done };

    for (int k = 0; k < n; k++) {
        w->view[k] = (view){ w, k };
        w->storage[k] = (ct_storage){
            .ops = &ops, .dev = ct_device_cpu(), .count = w->source.count, .own = &w->view[k]
        };
    }
}

static ct_status take_room(ct_whole *w, int n)
{
    if (n > CT_WHOLE_ARENAS)
        return CT_FAIL(CT_ERR_ARG, "%d arenas, at most %d", n, CT_WHOLE_ARENAS);
    w->room = ct_mem_acquire(CT_STORAGE_CHUNK * sizeof(*w->room));
    if (w->room == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for arrays of all ranks");
    open_views(w, n);
    return CT_OK;
}

/* Rank 0's work in its main thread, which asks for itself. */
static ct_status do_work(ct_whole *w, ct_whole_work work, void *ctx)
{
    ct_status status = work(ctx, w->storage), end = ask_all(w, &(ask){ .what = END }, NULL);

    return (status != CT_OK) ? status : end;
}

ct_status ct_whole_run(const ct_whole_source *source, ct_storage *const *own, int n,
                       ct_whole_work work, void *ctx)
{
    ct_whole w = { .source = *source, .own = own };
    ct_status status = ct_group_agree(source->g, take_room(&w, n));

    if (status == CT_OK) {
        status = (source->g->rank == 0) ? do_work(&w, work, ctx) : follow(&w);
        status = ct_group_agree(source->g, (status != CT_OK) ? status : w.status);
    }
    ct_mem_release(w.room);
    return status;
}

/* ---- by a thread */

ct_status ct_whole_open(const ct_whole_source *source, ct_storage *const *own, int n,
                        ct_whole **w_p)
{
    ct_whole *w = calloc(1, sizeof(*w));
    ct_status status = CT_OK;

    if ((w == NULL) || (ct_cond_init(&w->turn) != 0)) {
        free(w);
        w = NULL;
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for arrays of all ranks");
    } else {
        (void)pthread_mutex_init(&w->lock, NULL);
        w->source = *source;
        w->own = own;
        w->apart = (source->g->size > 1); /* one rank answers itself */
        status = take_room(w, n);
    }
    status = ct_group_agree(source->g, status);
    if (status != CT_OK) {
        ct_whole_close(w);
        return status;
    }
    *w_p = w;
    return CT_OK;
}

ct_storage *ct_whole_storages(ct_whole *w)
{
    return w->storage;
}

void ct_whole_leave(ct_whole *w)
{
    (void)pthread_mutex_lock(&w->lock);
    w->left = true;
    (void)pthread_cond_signal(&w->turn);
    (void)pthread_mutex_unlock(&w->lock);
}

bool ct_whole_is_asked(ct_whole *w)
{
    bool asked;

    (void)pthread_mutex_lock(&w->lock);
    asked = w->asked;
    (void)pthread_mutex_unlock(&w->lock);
    return asked;
}

ct_status ct_whole_serve(ct_whole *w, double seconds)
{
    if (w->ended || !w->apart) return CT_OK;
    return (w->source.g->rank == 0) ? lead(w, seconds) : follow(w);
}

void ct_whole_stop(ct_whole *w)
{
    (void)pthread_mutex_lock(&w->lock);
    w->stopped = true;
    (void)pthread_cond_signal(&w->turn);
    (void)pthread_mutex_unlock(&w->lock);
}

ct_status ct_whole_status(const ct_whole *w)
{
    return w->status;
}

void ct_whole_close(ct_whole *w)
{
    if (w == NULL) return;
    ct_mem_release(w->room);
    (void)pthread_cond_destroy(&w->turn);
    (void)pthread_mutex_destroy(&w->lock);
    free(w);
}
