/* What lies behind layers whose tops change from batch to batch, and whether it can follow them: it
 * is shaped for a few numbers of samples while the net is made. */
#include "framework/net/vary.h"

#include <stdlib.h>
#include <string.h>

void ct_graph_vary(ct_graph *g)
{
    for (int i = 0; i < g->n_node; i++) {
        ct_graph_node *n = &g->node[i];

        for (int b = 0; b < n->n_bottom; b++)
            n->varies |= ct_value_varies(g, &g->value[n->bottom[b]]);
    }
}

/* ---- whose samples */

/* The value that v is another name of: behind layers through which data only pass. */
static int root_of(const ct_graph *g, int v)
{
    const ct_graph_node *n = &g->node[g->value[v].node];

    while ((n->ops->alias & CT_ALIAS_DATA) && (n->n_bottom == 1)) {
        v = n->bottom[0];
        n = &g->node[g->value[v].node];
    }
    return v;
}

/* The first layer of its type that goes by the same last bottom: their samples are the same. */
static int first_like(const ct_graph *g, int i)
{
    const ct_graph_node *n = &g->node[i];

    for (int k = 0; k < i; k++) {
        const ct_graph_node *o = &g->node[k];

        if ((o->ops == n->ops) &&
            (root_of(g, o->bottom[o->n_bottom - 1]) == root_of(g, n->bottom[n->n_bottom - 1])))
            return k;
    }
    return i;
}

static void find_samples(const ct_net *net, int i)
{
    const ct_graph *g = &ct_net_impl_of(net)->graph;
    ct_vary_layer *all = ct_net_impl_of(net)->vary->layer, *v = &all[i];
    const ct_graph_node *n = &g->node[i];

    v->follows = n->varies;
    v->from = v->source = -1;
    for (int b = 0; n->varies && (b < n->n_bottom); b++) {
        int maker = g->value[n->bottom[b]].node;

        if (b == 0) v->from = all[maker].from;
        if (v->from != all[maker].from) v->from = i; /* a mixture */
        if (v->source < 0) v->source = g->node[maker].ops->varies ? maker : all[maker].source;
    }
    if (n->ops->varies) v->from = first_like(g, i);
}

/* ---- trying */

/* Sets a copy of the layer up for the bottoms as they are: its weights must stay what they are. */
static ct_status try_setup(const ct_net *net, int i, const char **why_p)
{
    const ct_layer *l = net->layer[i];
    ct_shape *bottom = ct_net_impl_of(net)->vary->bottom;
    ct_layer copy = *l;
    ct_status status;
    bool same;

    if (l->ops->setup == NULL) return CT_OK;
    copy.n_weight = 0;
    copy.state = calloc(1, l->ops->state_size + 1);
    if (copy.state == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for layer \"%s\"", l->name);
    for (int b = 0; b < l->n_bottom; b++) bottom[b] = net->instance[i]->bottom[b]->data.shape;
    status = l->ops->setup(&copy, bottom);
    same = (copy.n_weight == l->n_weight);
    for (int w = 0; same && (w < l->n_weight); w++)
        same = ct_shape_equal(&copy.weight[w].shape, &l->weight[w].shape);
    if ((status == CT_OK) && !same) *why_p = "its weights would have other shapes";
    if (l->ops->destroy != NULL) l->ops->destroy(&copy);
    free(copy.state);
    return status;
}

static ct_status try_layer(ct_net *net, int i)
{
    ct_net_impl *m = ct_net_impl_of(net);
    const ct_layer *l = net->layer[i];
    ct_instance *in = net->instance[i];
    ct_vary_layer *v = &m->vary->layer[i];
    int reads = in->backward_reads;
    const char *why = NULL;

    CT_TRY(try_setup(net, i, &why));
    CT_TRY(ct_net_reshape_layer(net, i));
    if (why == NULL) why = ct_vary_misfit(net, i);
    if ((why == NULL) && (in->backward_reads != reads))
        why = "its backward would read other values";
    if (why != NULL)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "the number of its samples changes from batch to batch, which it does "
                             "not take: %s",
                             why);
    for (int s = 0; s < CT_MAX_BUFFER; s++) {
        if (in->buffer[s].bytes > v->planned[s].bytes) v->planned[s] = in->buffer[s];
    }
    for (int t = 0; t < l->n_top; t++) {
        int b = m->graph.value[m->graph.node[i].top[t]].blob;

        if (!ct_shape_equal(&in->top[t]->data.shape, &m->vary->most[b].shape))
            in->top[t]->varies = true;
    }
    return CT_OK;
}

/* Gives the tops of a layer that decides in forward `share` of the samples that there may be. */
static void cut(ct_instance *in, int64_t (*share)(int64_t most))
{
    for (int t = 0; t < in->layer->n_top; t++) {
        ct_shape shape = in->top[t]->data.shape;

        shape.dim[0] = share(shape.dim[0]);
        ct_blob_set_like(in->top[t], &shape, &in->top[t]->data);
        in->top[t]->varies = true;
    }
}

/* share NULL: all of them, as at first. */
static ct_status try_share(ct_net *net, int64_t (*share)(int64_t most))
{
    const ct_vary_layer *all = ct_net_impl_of(net)->vary->layer;

    for (int i = 0; i < net->n_layer; i++) {
        const ct_layer *l = net->layer[i];
        ct_status status = CT_OK;

        if (all[i].follows)
            status = (share != NULL) ? try_layer(net, i) : ct_net_reshape_layer(net, i);
        else if (l->ops->varies)
            status = ct_net_reshape_layer(net, i);
        if ((status != CT_OK) && all[i].follows) {
            const ct_layer *from = net->layer[all[i].source];
            const ct_shape *s = &net->instance[all[i].source]->top[0]->data.shape;

            return CT_LAYER_FAIL(l, status,
                                 "it cannot follow layer \"%s\" (%s), which gives another number "
                                 "of samples in each batch, here %lld",
                                 from->name, from->ops->type, (long long)s->dim[0]);
        }
        CT_TRY(status);
        if (l->ops->varies && (share != NULL)) cut(net->instance[i], share);
    }
    return CT_OK;
}

static int64_t all_but_one(int64_t most)
{
    return (most > 0) ? most - 1 : 0;
}

static int64_t half(int64_t most)
{
    return most / 2;
}

static int64_t one(int64_t most)
{
    return (most > 0) ? 1 : 0;
}

static int64_t none(int64_t most)
{
    (void)most;
    return 0;
}

static ct_status make(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);
    size_t n_bottom = 1, n_seen = 1, n = (size_t)net->n_layer + 1;
    ct_vary *vary = m->vary = calloc(1, sizeof(*vary));

    for (int i = 0; i < net->n_layer; i++) {
        size_t own = (size_t)net->layer[i]->n_bottom;

        n_seen += own;
        n_bottom = (own > n_bottom) ? own : n_bottom;
    }
    if (vary != NULL) {
        vary->layer = calloc(n, sizeof(vary->layer[0]));
        vary->seen = calloc(n_seen, sizeof(vary->seen[0]));
        vary->most = calloc((size_t)net->n_blob + 1, sizeof(vary->most[0]));
        vary->of_rank = calloc((size_t)net->options.env.n_rank, sizeof(vary->of_rank[0]));
        vary->bottom = calloc(n_bottom, sizeof(vary->bottom[0]));
    }
    if ((vary == NULL) || (vary->layer == NULL) || (vary->seen == NULL) || (vary->most == NULL) ||
        (vary->of_rank == NULL) || (vary->bottom == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the shapes of %d layers", net->n_layer);
    for (int b = 0; b < net->n_blob; b++) vary->most[b] = net->blob[b]->data;
    n_seen = 0;
    for (int i = 0; i < net->n_layer; i++) {
        vary->layer[i].seen = vary->seen + n_seen;
        n_seen += (size_t)net->layer[i]->n_bottom;
        memcpy(vary->layer[i].planned, net->instance[i]->buffer, sizeof(net->instance[i]->buffer));
        find_samples(net, i);
    }
    return CT_OK;
}

ct_status ct_net_vary(ct_net *net)
{
    static int64_t (*const share[])(int64_t) = { all_but_one, half, one, none };
    const ct_layer *source = NULL;
    ct_vary *vary;

    for (int i = 0; i < net->n_layer; i++) {
        if (net->layer[i]->ops->varies) source = net->layer[i];
    }
    if (source == NULL) return CT_OK;
    if (net->batch_axis != 0)
        return CT_LAYER_FAIL(
            source, CT_ERR_CONFIG,
            "the net's data are sequences, whose first axis is time: it would drop "
            "steps, not samples");
    CT_TRY(make(net));
    vary = ct_net_impl_of(net)->vary;
    for (size_t k = 0; k < sizeof(share) / sizeof(share[0]); k++) CT_TRY(try_share(net, share[k]));
    CT_TRY(try_share(net, NULL));
    for (int i = 0; i < net->n_layer; i++) {
        if (vary->layer[i].follows)
            memcpy(net->instance[i]->buffer, vary->layer[i].planned,
                   sizeof(vary->layer[i].planned));
        for (int b = 0; b < net->layer[i]->n_bottom; b++)
            vary->layer[i].seen[b] = net->instance[i]->bottom[b]->data.shape;
    }
    return CT_OK;
}
