#include "framework/snapshot/whole.h"

#include "framework/base/memory.h"

typedef enum { END, FETCH, SPREAD } ask_kind;

typedef struct ask { /* as it travels */
    int64_t what;    /* an ask_kind */
    int64_t k, from, count;
} ask;

typedef struct session {
    const ct_group *g;
    int64_t count;
    ct_whole_answer answer;
    void *ctx;
    float *room;
    ct_status status; /* the first error of this rank that the others need not wait for */
} session;

/* Storage k of a session, as rank 0 sees it. */
typedef struct view {
    session *s;
    int k;
} view;

void ct_whole_note(const ct_whole_ask *a, ct_status status)
{
    if (*a->status == CT_OK) *a->status = status;
}

static ct_status answer(session *s, const ask *a, float *data)
{
    ct_whole_ask asked = { .fetch = (a->what == FETCH),
                           .k = (int)a->k,
                           .from = a->from,
                           .count = a->count,
                           .room = s->room,
                           .status = &s->status };

    return s->answer(s->ctx, &asked, data);
}

static ct_status ask_all(session *s, ask_kind what, int k, const ct_storage_range *r)
{
    ask a = { .what = what, .k = k, .from = r->from, .count = r->count };

    CT_TRY(ct_group_broadcast(s->g, &a, sizeof(a)));
    return (what != END) ? answer(s, &a, r->data) : CT_OK;
}

static ct_status view_want(ct_storage *storage, ct_stream st, ct_storage_range *r)
{
    const view *v = storage->own;
    ct_status status = CT_OK;

    (void)st;
    if (r->count > CT_STORAGE_CHUNK)
        return CT_FAIL(CT_ERR_ARG, "%lld floats of all ranks are wanted at once",
                       (long long)r->count);
    r->data = ct_mem_acquire((size_t)r->count * sizeof(float));
    if (r->data == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for arrays of all ranks");
    if (r->use != CT_STORAGE_WRITE) status = ask_all(v->s, FETCH, v->k, r);
    if (status == CT_OK) return CT_OK;
    ct_mem_release(r->data);
    return status;
}

static ct_status view_done(ct_storage *storage, ct_stream st, const ct_storage_range *r)
{
    const view *v = storage->own;
    ct_status status = (r->use != CT_STORAGE_READ) ? ask_all(v->s, SPREAD, v->k, r) : CT_OK;

    (void)st;
    ct_mem_release(r->data);
    return status;
}

static ct_status serve(session *s)
{
    for (;;) {
        ask a = { .what = END };

        CT_TRY(ct_group_broadcast(s->g, &a, sizeof(a)));
        if (a.what == END) return s->status;
        CT_TRY(answer(s, &a, s->room));
    }
}

static ct_status lead(session *s, int n, ct_whole_work work, void *ctx)
{
    static const ct_storage_ops ops = { .name = "of all ranks",
                                        .want = view_want,
                                        .done = view_done };
    ct_storage whole[CT_WHOLE_ARENAS];
    view v[CT_WHOLE_ARENAS];
    ct_status status, end;

    for (int k = 0; k < n; k++) {
        v[k] = (view){ s, k };
        whole[k] =
            (ct_storage){ .ops = &ops, .dev = ct_device_cpu(), .count = s->count, .own = &v[k] };
    }
    status = work(ctx, whole);
    end = ask_all(s, END, 0, &(ct_storage_range){ .storage = NULL });
    if (status != CT_OK) return status;
    return (s->status != CT_OK) ? s->status : end;
}

ct_status ct_whole_run(const ct_group *g, int64_t count, int n, ct_whole_answer answer_fn,
                       void *answer_ctx, ct_whole_work work, void *ctx)
{
    session s = { .g = g, .count = count, .answer = answer_fn, .ctx = answer_ctx };
    ct_status status = CT_OK;

    if (n > CT_WHOLE_ARENAS)
        status = CT_FAIL(CT_ERR_ARG, "%d arenas, at most %d", n, CT_WHOLE_ARENAS);
    s.room = ct_mem_acquire(CT_STORAGE_CHUNK * sizeof(*s.room));
    if (s.room == NULL) status = CT_FAIL(CT_ERR_NOMEM, "no memory for arrays of all ranks");
    status = ct_group_agree(g, status);
    if (status == CT_OK) {
        status = (g->rank == 0) ? lead(&s, n, work, ctx) : serve(&s);
        status = ct_group_agree(g, status);
    }
    ct_mem_release(s.room);
    return status;
}
