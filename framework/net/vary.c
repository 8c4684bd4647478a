/* Shapes that change from batch to batch.
 *
 * Behind a layer whose tops vary (Filter) every layer is shaped again before its forward, if its
 * bottoms are not what they were. Memory is planned for the most samples; a buffer that fewer
 * samples need larger gets memory of its own. What a layer finds in the exec is the number of
 * samples that there are, so losses, statistics and accuracies are those of a net made for so many.
 * Whether layers can follow is tried while the net is made, with a few numbers of samples. Nothing
 * of it runs in nets without such a layer.
 */
#include <stdlib.h>
#include <string.h>

#include "framework/net/net_impl.h"

typedef struct vary_layer {
    bool follows;   /* it is shaped again                                                     */
    int source;     /* the layer with tops that vary from which this one's samples come first */
    int from;       /* whose samples it works on: its own count, another layer's; -1: the net's */
    ct_samples n;   /* as it counted them, where from is itself                               */
    ct_shape *seen; /* bottoms that it is shaped for                                          */
    ct_buffer planned[CT_MAX_BUFFER];
    void *own[CT_MAX_BUFFER]; /* memory of buffers that need more than is planned for them    */
    size_t own_bytes[CT_MAX_BUFFER];
} vary_layer;

struct ct_vary {
    vary_layer *layer;
    ct_shape *seen;   /* of all layers                                    */
    ct_tensor *most;  /* each blob as it is with the most samples         */
    double *of_rank;  /* samples of each rank, while they tell each other */
    ct_shape *bottom; /* room for those of one layer                      */
};

/* What of layer i's tops and buffers memory was not planned for, but for the size of buffers.
 * NULL: nothing. */
static const char *vary_misfit(const ct_pass *pass, int i);

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

static void find_samples(const ct_pass *pass, int i)
{
    const ct_graph *g = &ct_net_impl_of(pass->net)->graph;
    vary_layer *all = ct_pass_impl_of(pass)->vary->layer, *v = &all[i];
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
static ct_status try_setup(const ct_pass *pass, int i, const char **why_p)
{
    const ct_layer *l = pass->net->layer[i];
    ct_shape *bottom = ct_pass_impl_of(pass)->vary->bottom;
    ct_layer copy = *l;
    ct_status status;
    bool same;

    if (l->ops->setup == NULL) return CT_OK;
    copy.n_weight = 0;
    copy.state = calloc(1, l->ops->state_size + 1);
    if (copy.state == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for layer \"%s\"", l->name);
    for (int b = 0; b < l->n_bottom; b++) bottom[b] = pass->instance[i]->bottom[b]->data.shape;
    status = l->ops->setup(&copy, bottom);
    same = (copy.n_weight == l->n_weight);
    for (int w = 0; same && (w < l->n_weight); w++)
        same = ct_shape_equal(&copy.weight[w].shape, &l->weight[w].shape);
    if ((status == CT_OK) && !same) *why_p = "its weights would have other shapes";
    if (l->ops->destroy != NULL) l->ops->destroy(&copy);
    free(copy.state);
    return status;
}

static ct_status try_layer(ct_pass *pass, int i)
{
    const ct_graph *g = &ct_net_impl_of(pass->net)->graph;
    const ct_vary *vary = ct_pass_impl_of(pass)->vary;
    const ct_layer *l = pass->net->layer[i];
    ct_instance *in = pass->instance[i];
    vary_layer *v = &vary->layer[i];
    int reads = in->backward_reads;
    const char *why = NULL;

    CT_TRY(try_setup(pass, i, &why));
    CT_TRY(ct_pass_reshape_layer(pass, i));
    if (why == NULL) why = vary_misfit(pass, i);
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
        int b = g->value[g->node[i].top[t]].blob;

        if (!ct_shape_equal(&in->top[t]->data.shape, &vary->most[b].shape))
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
static ct_status try_share(ct_pass *pass, int64_t (*share)(int64_t most))
{
    const vary_layer *all = ct_pass_impl_of(pass)->vary->layer;
    const ct_net *net = pass->net;

    for (int i = 0; i < net->n_layer; i++) {
        const ct_layer *l = net->layer[i];
        ct_status status = CT_OK;

        if (all[i].follows)
            status = (share != NULL) ? try_layer(pass, i) : ct_pass_reshape_layer(pass, i);
        else if (l->ops->varies)
            status = ct_pass_reshape_layer(pass, i);
        if ((status != CT_OK) && all[i].follows) {
            const ct_layer *from = net->layer[all[i].source];
            const ct_shape *s = &pass->instance[all[i].source]->top[0]->data.shape;

            return CT_LAYER_FAIL(l, status,
                                 "it cannot follow layer \"%s\" (%s), which gives another number "
                                 "of samples in each batch, here %lld",
                                 from->name, from->ops->type, (long long)s->dim[0]);
        }
        CT_TRY(status);
        if (l->ops->varies && (share != NULL)) cut(pass->instance[i], share);
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

static ct_status make(ct_pass *pass)
{
    const ct_net *net = pass->net;
    size_t n_bottom = 1, n_seen = 1, n = (size_t)net->n_layer + 1;
    ct_vary *vary = ct_pass_impl_of(pass)->vary = calloc(1, sizeof(*vary));

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
    for (int b = 0; b < net->n_blob; b++) vary->most[b] = pass->blob[b]->data;
    n_seen = 0;
    for (int i = 0; i < net->n_layer; i++) {
        vary->layer[i].seen = vary->seen + n_seen;
        n_seen += (size_t)net->layer[i]->n_bottom;
        memcpy(vary->layer[i].planned, pass->instance[i]->buffer,
               sizeof(pass->instance[i]->buffer));
        find_samples(pass, i);
    }
    return CT_OK;
}

/* The sizes that buffers have at most, found by trying, or known from the net's first pass. */
static ct_status find_most(ct_pass *pass)
{
    static int64_t (*const share[])(int64_t) = { all_but_one, half, one, none };
    const ct_vary *vary = ct_pass_impl_of(pass)->vary;
    const ct_pass *first = pass->net->pass;

    for (int i = 0; (pass != first) && (i < pass->net->n_layer); i++)
        memcpy(vary->layer[i].planned, ct_pass_impl_of(first)->vary->layer[i].planned,
               sizeof(vary->layer[i].planned));
    if (pass != first) return CT_OK;
    for (size_t k = 0; k < sizeof(share) / sizeof(share[0]); k++) CT_TRY(try_share(pass, share[k]));
    return try_share(pass, NULL);
}

ct_status ct_pass_vary(ct_pass *pass)
{
    const ct_net *net = pass->net;
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
    CT_TRY(make(pass));
    CT_TRY(find_most(pass));
    vary = ct_pass_impl_of(pass)->vary;
    for (int i = 0; i < net->n_layer; i++) {
        if (vary->layer[i].follows)
            memcpy(pass->instance[i]->buffer, vary->layer[i].planned,
                   sizeof(vary->layer[i].planned));
        for (int b = 0; b < net->layer[i]->n_bottom; b++)
            vary->layer[i].seen[b] = pass->instance[i]->bottom[b]->data.shape;
    }
    return CT_OK;
}

/* ---- running */

void ct_pass_vary_release(ct_pass *pass)
{
    ct_vary *vary = ct_pass_impl_of(pass)->vary;
    const ct_net *net = pass->net;

    if (vary == NULL) return;
    for (int i = 0; (vary->layer != NULL) && (i < net->n_layer); i++) {
        for (int s = 0; s < CT_MAX_BUFFER; s++) {
            if (vary->layer[i].own[s] != NULL)
                net->layer[i]->dev->mem_release(vary->layer[i].own[s]);
        }
    }
    free(vary->layer);
    free(vary->seen);
    free(vary->most);
    free(vary->of_rank);
    free(vary->bottom);
    free(vary);
    ct_pass_impl_of(pass)->vary = NULL;
}

const ct_shape *ct_net_most(const ct_net *net, int b)
{
    const ct_vary *vary = ct_pass_impl_of(net->pass)->vary;

    return (vary != NULL) ? &vary->most[b].shape : &net->pass->blob[b]->data.shape;
}

static const char *vary_misfit(const ct_pass *pass, int i)
{
    const ct_vary *vary = ct_pass_impl_of(pass)->vary;
    const ct_graph *g = &ct_net_impl_of(pass->net)->graph;
    const ct_graph_node *n = &g->node[i];
    const ct_instance *in = pass->instance[i];

    for (int t = 0; t < n->n_top; t++) {
        const ct_tensor *top = &in->top[t]->data;
        const ct_tensor *most = &vary->most[g->value[n->top[t]].blob];

        if (!ct_layout_equal(top->layout, most->layout) || (top->dtype != most->dtype) ||
            (ct_tensor_bytes(top) > ct_tensor_bytes(most)))
            return "its tops would not lie in memory as they did";
    }
    for (int s = 0; s < CT_MAX_BUFFER; s++) {
        const ct_buffer *b = &in->buffer[s], *planned = &vary->layer[i].planned[s];

        if (b->bytes == 0) continue;
        if (b->keep == CT_LIFETIME_ALWAYS) return "it keeps values from batch to batch";
        if ((planned->bytes > 0) && (planned->keep != b->keep))
            return "its buffers would be kept for another time";
    }
    return NULL;
}

/* Buffers that need more than the plan has for them. */
static ct_status outgrow(const ct_layer *l, ct_instance *in, vary_layer *v)
{
    for (int s = 0; s < CT_MAX_BUFFER; s++) {
        ct_buffer *b = &in->buffer[s];

        if (b->bytes <= v->planned[s].bytes) continue;
        if (b->bytes > v->own_bytes[s]) {
            if (v->own[s] != NULL) l->dev->mem_release(v->own[s]);
            v->own[s] = NULL;
            v->own_bytes[s] = 0;
            CT_TRY(l->dev->mem_acquire(b->bytes, &v->own[s]));
            v->own_bytes[s] = b->bytes;
            CT_DEBUG("layer \"%s\": %zu bytes for buffer %d, %zu are planned", l->name, b->bytes, s,
                     v->planned[s].bytes);
        }
        b->data = v->own[s];
    }
    return CT_OK;
}

void ct_pass_vary_bind(ct_pass *pass)
{
    const ct_vary *vary = ct_pass_impl_of(pass)->vary;

    for (int i = 0; (vary != NULL) && (i < pass->net->n_layer); i++) {
        for (int s = 0; s < CT_MAX_BUFFER; s++) {
            if (vary->layer[i].own[s] != NULL)
                pass->instance[i]->buffer[s].data = vary->layer[i].own[s];
        }
    }
}

static ct_status shape_again(ct_pass *pass, int i, vary_layer *v)
{
    const ct_layer *l = pass->net->layer[i];
    ct_instance *in = pass->instance[i];
    bool same = true;
    const char *why;

    for (int b = 0; b < l->n_bottom; b++) {
        same &= ct_shape_equal(&v->seen[b], &in->bottom[b]->data.shape);
        v->seen[b] = in->bottom[b]->data.shape;
    }
    if (same) return CT_OK;
    CT_TRY(ct_pass_reshape_layer(pass, i));
    why = vary_misfit(pass, i);
    if (why != NULL)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "it does not take a batch of this size: %s", why);
    return outgrow(l, in, v);
}

/* Everyone's number of samples to all: one sum over the ranks, whatever is asked for later. */
static ct_status count(const ct_pass *pass, int64_t local, ct_samples *n)
{
    const ct_net *net = pass->net;
    const ct_exec *ex = &pass->exec;
    double *of_rank = ct_pass_impl_of(pass)->vary->of_rank;
    int n_rank = net->options.env.n_rank;

    *n = (ct_samples){ local, local, 0 };
    if ((ex->sum_ranks == NULL) || (n_rank == 1)) return CT_OK;
    memset(of_rank, 0, (size_t)n_rank * sizeof(of_rank[0]));
    of_rank[net->options.env.rank] = (double)local;
    CT_TRY(ex->sum_ranks(ex->hook_ctx, of_rank, n_rank));
    n->global = 0;
    for (int r = 0; r < n_rank; r++) {
        if (r < net->options.env.rank) n->first += (int64_t)of_rank[r];
        n->global += (int64_t)of_rank[r];
    }
    return CT_OK;
}

/* Of a net that is divided among ranks: layers of a replica, or of this rank alone. */
static ct_samples of_place(ct_pass *pass, int i)
{
    const ct_net *net = pass->net;
    bool replica = ct_layer_is_of_replica(net->layer[i]);

    ct_exec_use_sums(&pass->exec, replica);
    return ct_place_samples(net->options.env.place, net->options.phase, net->batch_global, replica);
}

void ct_pass_set_exec(ct_pass *pass, int i)
{
    const ct_net *net = pass->net;
    const ct_vary *vary = ct_pass_impl_of(pass)->vary;
    bool placed = (net->options.env.place != NULL);
    ct_exec *ex = &pass->exec;
    ct_samples n = { net->batch_local, net->batch_global, net->batch_first };

    if ((vary == NULL) && !placed) return;
    if ((i >= 0) && placed) n = of_place(pass, i);
    if ((i >= 0) && (vary != NULL) && (vary->layer[i].from >= 0))
        n = vary->layer[vary->layer[i].from].n;
    ex->batch_local = n.local;
    ex->batch_global = n.global;
    ex->batch_first = n.first;
}

ct_status ct_pass_vary_before(ct_pass *pass, int i)
{
    const ct_layer *l = pass->net->layer[i];
    const ct_instance *in = pass->instance[i];
    const ct_vary *vary = ct_pass_impl_of(pass)->vary;
    vary_layer *v;

    if (vary == NULL) {
        ct_pass_set_exec(pass, i);
        return CT_OK;
    }
    v = &vary->layer[i];
    if (v->follows) CT_TRY(shape_again(pass, i, v));
    if (v->follows && !l->ops->varies && (v->from == i)) {
        bool tops = !l->ops->is_loss && (l->n_top > 0) && (in->top[0]->data.shape.ndim > 0);

        CT_TRY(
            count(pass, ct_shape_legacy(tops ? &in->top[0]->data.shape : &v->seen[0], 0), &v->n));
    }
    ct_pass_set_exec(pass, i);
    return CT_OK;
}

ct_status ct_pass_vary_after(ct_pass *pass, int i)
{
    const ct_vary *vary = ct_pass_impl_of(pass)->vary;
    vary_layer *v;

    if ((vary == NULL) || !pass->net->layer[i]->ops->varies) return CT_OK;
    v = &vary->layer[i];
    if (v->from != i) return CT_OK;
    return count(pass, pass->instance[i]->top[0]->data.shape.dim[0], &v->n);
}
