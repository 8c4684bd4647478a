#include "framework/net/net_impl.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST = 3 /* steps that are worth a graph */ };

typedef struct part {
    int first, n;
    void *graph; /* NULL: not recorded yet */
} part;

/* The passes of one kind: they give the device the same each time. */
typedef struct pass_kind {
    int done;         /* passes so far                                          */
    bool *single;     /* per step: not in a graph                               */
    bool after_waits; /* what follows has waited for the device                 */
    bool with_after;  /* the last part has what follows the steps, and its calls */
    part *part;       /* in the order of steps, made after the first pass */
    int n_part;
} pass_kind;

/* Backward may add to gradients, and be followed by an update, or both. */
enum { FORWARD, BACKWARD, ADDING = 1, FOLLOWED = 2, N_KIND = BACKWARD + 4 };

struct ct_step_graphs {
    const ct_net *net;
    const ct_graph_ops *ops;
    pass_kind kind[N_KIND];
    bool off; /* the device would not record, or another rank's */
};

/* One pass. */
typedef struct run {
    ct_step_graphs *g;
    pass_kind *k;
    ct_exec *ex;
    const ct_step_after *after; /* NULL: nothing follows */
    const ct_step *step;
    int n;
    const ct_graph_hooks *hooks;
    void *ctx;
} run;

static int count_steps(const ct_net *net, int kind)
{
    return (kind == FORWARD) ? net->n_forward : net->n_backward;
}

/* The host alone takes part in it. */
static bool is_call(const ct_step *s)
{
    return ct_step_is_of_weights(s) || ct_step_is_of_chunk(s);
}

/* What can be known before it runs. */
static bool stays_out(const run *r, const ct_step *s)
{
    const ct_net *net = r->g->net;
    bool alone = (net->options.env.n_rank <= 1); /* one rank has nothing to send */

    if (ct_step_is_of_chunk(s)) return true; /* weights come from the host */
    switch (s->kind) {
    case CT_STEP_ZERO_DIFF:
        return false;
    case CT_STEP_LOSS_DIFF: /* a loss's scale may move, which the device must know */
        return r->ex->numbers_there == NULL;
    case CT_STEP_BEGIN:
        if (!is_call(s)) return r->ex->sum_there == NULL; /* the host adds up: it waits */
        return !alone && ((r->after == NULL) || (r->after->replay == NULL));
    case CT_STEP_WAIT:
        if (!is_call(s)) return r->ex->sum_there == NULL;
        if (r->after != NULL) return true; /* what comes behind writes where this gradient lies */
        return !alone && (r->ex->wait != NULL);
    default:
        return net->layer[s->layer]->ops->is_data || ct_host_layer_is(net, s->layer);
    }
}

ct_step_graphs *ct_step_graphs_create(const ct_pass *pass)
{
    const ct_net *net = pass->net;
    const ct_graph_ops *ops = net->options.dev->graph;
    ct_step_graphs *g;

    if ((ops == NULL) || !net->options.graph) return NULL;
    if (ct_net_impl_of(net)->n_again > 0) {
        CT_INFO("recompute: the step is given to the device kernel by kernel, not as graphs");
        return NULL;
    }
    if (ct_pass_impl_of(pass)->vary != NULL) {
        CT_INFO("the number of samples changes from step to step: the step is given to the device "
                "kernel by kernel, not as graphs");
        return NULL;
    }
    g = calloc(1, sizeof(*g));
    if (g == NULL) return NULL;
    g->net = net;
    g->ops = ops;
    for (int k = 0; k < N_KIND; k++) {
        int n = count_steps(net, k);

        g->kind[k].single = calloc((size_t)n + 1, sizeof(bool));
        g->kind[k].part = calloc((size_t)n + 1, sizeof(part));
        if ((g->kind[k].single == NULL) || (g->kind[k].part == NULL)) {
            ct_step_graphs_destroy(g);
            return NULL;
        }
    }
    return g;
}

void ct_step_graphs_forget(ct_step_graphs *g)
{
    for (int k = 0; (g != NULL) && (k < N_KIND); k++) {
        for (int i = 0; i < g->kind[k].n_part; i++) {
            if (g->kind[k].part[i].graph != NULL) g->ops->release(g->kind[k].part[i].graph);
        }
        g->kind[k].n_part = g->kind[k].done = 0;
        g->kind[k].with_after = g->kind[k].after_waits = false;
        if (g->kind[k].single != NULL)
            memset(g->kind[k].single, 0, (size_t)count_steps(g->net, k) * sizeof(bool));
    }
}

void ct_step_graphs_destroy(ct_step_graphs *g)
{
    if (g == NULL) return;
    ct_step_graphs_forget(g);
    for (int k = 0; k < N_KIND; k++) {
        free(g->kind[k].part);
        free(g->kind[k].single);
    }
    free(g);
}

/* ---- kernel by kernel */

static ct_status run_one(const run *r, int i)
{
    if (is_call(&r->step[i])) return r->hooks->call(r->ctx, i);
    CT_TRY(r->hooks->one(r->ctx, i));
    return ct_step_is_pair(&r->step[i]) ? CT_OK : r->hooks->poll(r->ctx);
}

static bool follows(const run *r)
{
    return (r->after != NULL) && (r->after->finish != NULL);
}

static ct_status run_after(const run *r)
{
    return follows(r) ? r->after->finish(r->after->ctx) : CT_OK;
}

/* The first pass; what waited for the device stays out of graphs. */
static ct_status run_singly(const run *r)
{
    pass_kind *k = r->k;
    int64_t waits;

    for (int i = 0; i < r->n; i++) {
        waits = r->g->ops->waits();
        CT_TRY(run_one(r, i));
        if (r->g->ops->waits() == waits) continue;
        if (is_call(&r->step[i]))
            k->after_waits = true;
        else
            k->single[i] = true;
    }
    waits = r->g->ops->waits();
    CT_TRY(run_after(r));
    k->after_waits |= (r->g->ops->waits() != waits);
    return CT_OK;
}

/* ---- parts */

/* Returns how many steps are in parts. */
static int cut(const run *r, bool with_after)
{
    pass_kind *k = r->k;
    int in_parts = 0;

    k->n_part = 0;
    for (int i = 0; i < r->n;) {
        int first = i, work = 0;

        for (; (i < r->n) && !k->single[i]; i++) work += !is_call(&r->step[i]);
        if (work + (with_after && (i == r->n)) >= LEAST) {
            k->part[k->n_part++] = (part){ first, i - first, NULL };
            in_parts += work;
        }
        while ((i < r->n) && k->single[i]) i++;
    }
    return in_parts;
}

/* Sums over ranks that a graph begins must end within it, and an update must see them all: so all
 * gradients leave in the part that has the update. */
static bool after_fits(const run *r)
{
    const pass_kind *k = r->k;
    const part *last = (k->n_part > 0) ? &k->part[k->n_part - 1] : NULL;

    if ((last == NULL) || (last->first + last->n < r->n)) return false;
    for (int i = 0; i < last->first; i++) {
        if (is_call(&r->step[i]) && (r->g->net->options.env.n_rank > 1)) return false;
    }
    return true;
}

/* flag[i] becomes whether it is set on any rank, where a device's library adds up over ranks: it
 * wants a sum in a graph on all ranks or on none, and of recordings that all made together. Sums
 * may be in any part, so then all ranks cut alike, and record together. Collective. */
static ct_status agree(const run *r, bool *flag, int n)
{
    double *v;
    ct_status status;

    if ((r->ex->sum_ranks == NULL) || (r->ex->sum_there == NULL)) return CT_OK;
    v = calloc((size_t)n + 1, sizeof(*v));
    if (v == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d flags", n);
    for (int i = 0; i < n; i++) v[i] = flag[i];
    status = r->ex->sum_ranks(r->ex->hook_ctx, v, n);
    for (int i = 0; i < n; i++) flag[i] = (v[i] > 0);
    free(v);
    return status;
}

static ct_status make_parts(const run *r)
{
    static const char *const then[] = { "", ", with the update" };
    pass_kind *k = r->k;
    int in_parts, computing = 0;

    for (int i = 0; i < r->n; i++) k->single[i] |= stays_out(r, &r->step[i]);
    CT_TRY(agree(r, k->single, r->n)); /* a larger batch may have made another rank wait */
    CT_TRY(agree(r, &k->after_waits, 1));
    k->with_after = follows(r) && (r->after->replay != NULL) && !k->after_waits;
    in_parts = cut(r, k->with_after);
    if (k->with_after && !after_fits(r)) k->with_after = false;
    if (!k->with_after && (r->g->net->options.env.n_rank > 1)) {
        for (int i = 0; i < r->n; i++)
            k->single[i] |= is_call(&r->step[i]) && (r->step[i].kind == CT_STEP_BEGIN);
        in_parts = cut(r, false);
    }
    for (int i = 0; i < r->n; i++) computing += !is_call(&r->step[i]);
    if ((k <= &r->g->kind[BACKWARD] || follows(r)) && (computing > 0))
        CT_INFO("%s: %d of %d steps in %d graph%s%s", (r->after == NULL) ? "forward" : "backward",
                in_parts, computing, k->n_part, (k->n_part == 1) ? "" : "s", then[k->with_after]);
    return CT_OK;
}

/* ---- graphs */

/* Whether this part has what follows the steps. */
static bool has_after(const run *r, const part *p)
{
    return r->k->with_after && (p == &r->k->part[r->k->n_part - 1]);
}

static void release(const run *r, part *p)
{
    if (p->graph != NULL) r->g->ops->release(p->graph);
    p->graph = NULL;
}

/* Nothing has run on the device when this returns, whether it was recorded or not. Messages between
 * ranks move afterwards: their copies are no part of the step. */
static bool record(const run *r, part *p)
{
    ct_status (*poll)(void *ctx) = r->ex->poll;
    ct_status status = CT_OK, end;

    if (r->g->ops->begin(r->ex->stream) != CT_OK) return false;
    r->ex->poll = NULL;
    for (int i = p->first; (status == CT_OK) && (i < p->first + p->n); i++) {
        if (!is_call(&r->step[i]))
            status = r->hooks->one(r->ctx, i);
        else if (has_after(r, p))
            status = r->hooks->call(r->ctx, i);
    }
    if ((status == CT_OK) && has_after(r, p)) status = run_after(r);
    r->ex->poll = poll;
    end = r->g->ops->end(r->ex->stream, &p->graph);
    if ((status == CT_OK) && (end == CT_OK)) return true;
    release(r, p); /* of a part of the steps */
    return false;
}

/* Once; what ends a run comes again where the steps are given one by one. */
static ct_status record_part(const run *r, part *p)
{
    bool recorded, refused;

    if (r->g->off) return CT_OK;
    recorded = record(r, p);
    refused = !recorded;
    CT_TRY(agree(r, &refused, 1));
    if (!refused) return CT_OK;
    CT_WARN("%s would not record the step: it is given kernel by kernel",
            recorded ? "another rank's device" : "the device");
    release(r, p);
    r->g->off = true;
    return has_after(r, p) ? r->after->replay(r->after->ctx, CT_REPLAY_DROPPED) : CT_OK;
}

/* The part's steps, and what follows them, one after the other. */
static ct_status run_steps(const run *r, const part *p)
{
    for (int i = p->first; i < p->first + p->n; i++) CT_TRY(run_one(r, i));
    return has_after(r, p) ? run_after(r) : CT_OK;
}

static ct_status run_part(const run *r, part *p)
{
    bool recorded_now = (p->graph == NULL);

    if (recorded_now) CT_TRY(record_part(r, p));
    if (p->graph == NULL) return run_steps(r, p);
    CT_TRY(r->g->ops->run(r->ex->stream, p->graph));
    if (has_after(r, p)) {
        if (!recorded_now) CT_TRY(r->after->replay(r->after->ctx, CT_REPLAY_GIVEN));
        return r->hooks->poll(r->ctx);
    }
    for (int i = p->first; i < p->first + p->n; i++) {
        if (is_call(&r->step[i])) CT_TRY(run_one(r, i));
    }
    return r->hooks->poll(r->ctx);
}

static ct_status run_parts(const run *r)
{
    const pass_kind *k = r->k;
    int at = 0;

    for (int i = 0; i < r->n; i++) {
        if ((at == k->n_part) || (k->part[at].first != i)) {
            CT_TRY(run_one(r, i));
            continue;
        }
        CT_TRY(run_part(r, &k->part[at]));
        i += k->part[at++].n - 1;
    }
    return k->with_after ? CT_OK : run_after(r);
}

static int kind_of(bool forward, const ct_exec *ex, const ct_step_after *after)
{
    if (forward) return FORWARD;
    return BACKWARD + (ex->accumulate ? ADDING : 0) + ((after->finish != NULL) ? FOLLOWED : 0);
}

ct_status ct_step_graphs_run(ct_step_graphs *g, ct_exec *ex, bool forward,
                             const ct_step_after *after, const ct_graph_hooks *h, void *ctx)
{
    int kind = kind_of(forward, ex, after);
    run r = { .g = g,
              .k = &g->kind[kind],
              .ex = ex,
              .after = after,
              .step = forward ? g->net->forward : g->net->backward,
              .n = count_steps(g->net, kind),
              .hooks = h,
              .ctx = ctx };

    if (r.k->done++ == 0) return run_singly(&r);
    if (r.k->done == 2) CT_TRY(make_parts(&r));
    /* a pass that differs from those before: what was recorded is not what it does */
    if (r.k->with_after && (after->replay == NULL)) return run_singly(&r);
    return run_parts(&r);
}
