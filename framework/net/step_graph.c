#include "framework/net/step_graph.h"

#include <stdlib.h>

#include "framework/net/net_impl.h"

enum { LEAST = 3 /* steps that are worth a graph */ };

typedef struct part {
    int first, n;
    void *graph; /* NULL: not recorded yet */
} part;

/* The passes of one kind: they give the device the same each time. */
typedef struct pass_kind {
    int done;     /* passes so far                       */
    bool *single; /* per step: not in a graph            */
    part *part;   /* in the order of steps, made after the first pass */
    int n_part;
} pass_kind;

enum { FORWARD, BACKWARD, BACKWARD_ADDING, N_KIND };

struct ct_step_graphs {
    ct_net *net;
    const ct_graph_ops *ops;
    pass_kind kind[N_KIND];
    bool off; /* the device would not record */
};

static int count_steps(const ct_net *net, int kind)
{
    return (kind == FORWARD) ? net->n_forward : net->n_backward;
}

static const ct_step *steps_of(const ct_net *net, int kind)
{
    return (kind == FORWARD) ? net->forward : net->backward;
}

static bool is_call(const ct_step *s)
{
    return (s->kind == CT_STEP_READY) || (s->kind == CT_STEP_WAIT);
}

/* What can be known before it runs. */
static bool stays_out(const ct_net *net, const ct_step *s)
{
    const ct_layer *l = net->layer[s->layer];

    switch (s->kind) {
    case CT_STEP_ZERO_DIFF:
        return false;
    case CT_STEP_LOSS_DIFF: /* the loss's scale moves */
        return true;
    case CT_STEP_READY: /* one rank has nothing to send */
    case CT_STEP_WAIT:
        return net->options.env.n_rank > 1;
    default:
        break;
    }
    return l->ops->is_data || ct_host_layer_is(net, s->layer);
}

ct_step_graphs *ct_step_graphs_create(ct_net *net)
{
    const ct_graph_ops *ops = net->options.dev->graph;
    ct_step_graphs *g;

    if ((ops == NULL) || !net->options.graph) return NULL;
    if (ct_net_impl_of(net)->n_again > 0) {
        CT_INFO("recompute: the step is given to the device kernel by kernel, not as graphs");
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
        for (int i = 0; i < n; i++) g->kind[k].single[i] = stays_out(net, &steps_of(net, k)[i]);
    }
    return g;
}

void ct_step_graphs_destroy(ct_step_graphs *g)
{
    if (g == NULL) return;
    for (int k = 0; k < N_KIND; k++) {
        for (int i = 0; i < g->kind[k].n_part; i++) {
            if (g->kind[k].part[i].graph != NULL) g->ops->release(g->kind[k].part[i].graph);
        }
        free(g->kind[k].part);
        free(g->kind[k].single);
    }
    free(g);
}

static ct_status run_one(const ct_step *s, int i, const ct_graph_hooks *h, void *ctx)
{
    if (is_call(&s[i])) return h->call(ctx, i);
    CT_TRY(h->one(ctx, i));
    return h->poll(ctx);
}

/* Kernel by kernel; what waited for the device stays out of graphs. */
static ct_status run_singly(ct_step_graphs *g, pass_kind *k, const ct_step *s, int n,
                            const ct_graph_hooks *h, void *ctx)
{
    for (int i = 0; i < n; i++) {
        int64_t waits = g->ops->waits();

        CT_TRY(run_one(s, i, h, ctx));
        if (!is_call(&s[i]) && (g->ops->waits() != waits)) k->single[i] = true;
    }
    return CT_OK;
}

static void make_parts(const ct_step_graphs *g, int kind, pass_kind *k)
{
    const ct_step *s = steps_of(g->net, kind);
    int n = count_steps(g->net, kind), in_parts = 0, computing = 0;

    k->n_part = 0;
    for (int i = 0; i < n;) {
        int first = i, work = 0;

        for (; (i < n) && !k->single[i]; i++) work += !is_call(&s[i]);
        if (work >= LEAST) {
            k->part[k->n_part++] = (part){ first, i - first, NULL };
            in_parts += work;
        }
        while ((i < n) && k->single[i]) i++;
    }
    for (int i = 0; i < n; i++) computing += !is_call(&s[i]);
    if ((kind != BACKWARD_ADDING) && (computing > 0))
        CT_INFO("%s: %d of %d steps in %d graph%s", (kind == FORWARD) ? "forward" : "backward",
                in_parts, computing, k->n_part, (k->n_part == 1) ? "" : "s");
}

/* Nothing has run on the device when this returns. CT_UNSUPPORTED: it would not record. Messages
 * between ranks move afterwards: their copies are no part of the step. */
static ct_status record(const ct_step_graphs *g, ct_exec *ex, const ct_step *s, part *p,
                        const ct_graph_hooks *h, void *ctx)
{
    ct_status (*poll)(void *ctx) = ex->poll;
    ct_status status = CT_OK, end;

    CT_TRY(g->ops->begin(ex->stream));
    ex->poll = NULL;
    for (int i = p->first; (status == CT_OK) && (i < p->first + p->n); i++) {
        if (!is_call(&s[i])) status = h->one(ctx, i);
    }
    ex->poll = poll;
    end = g->ops->end(ex->stream, &p->graph);
    return ((status == CT_OK) && (end == CT_OK)) ? CT_OK : CT_UNSUPPORTED;
}

static ct_status run_part(ct_step_graphs *g, ct_exec *ex, const ct_step *s, part *p,
                          const ct_graph_hooks *h, void *ctx)
{
    if ((p->graph == NULL) && !g->off && (record(g, ex, s, p, h, ctx) != CT_OK)) {
        CT_WARN("the device would not record the step: it is given kernel by kernel");
        g->off = true;
    }
    if (p->graph != NULL) CT_TRY(g->ops->run(ex->stream, p->graph));
    for (int i = p->first; i < p->first + p->n; i++) {
        if ((p->graph == NULL) || is_call(&s[i])) CT_TRY(run_one(s, i, h, ctx));
    }
    return h->poll(ctx);
}

ct_status ct_step_graphs_run(ct_step_graphs *g, ct_exec *ex, bool forward, const ct_graph_hooks *h,
                             void *ctx)
{
    int kind = forward ? FORWARD : (ex->accumulate ? BACKWARD_ADDING : BACKWARD), at = 0;
    pass_kind *k = &g->kind[kind];
    const ct_step *s = steps_of(g->net, kind);
    int n = count_steps(g->net, kind);

    if (k->done++ == 0) return run_singly(g, k, s, n, h, ctx);
    if (k->done == 2) make_parts(g, kind, k);
    for (int i = 0; i < n; i++) {
        if ((at == k->n_part) || (k->part[at].first != i)) {
            CT_TRY(run_one(s, i, h, ctx));
            continue;
        }
        CT_TRY(run_part(g, ex, s, &k->part[at], h, ctx));
        i += k->part[at++].n - 1;
    }
    return CT_OK;
}
