/* Shapes that change from batch to batch.
 *
 * Behind a layer whose tops vary (Filter, Input) every layer is shaped again before its forward, if
 * its bottoms are not what they were; layers that run as one are shaped together, and joined again.
 * Memory is planned for the most samples; a buffer that fewer samples need larger gets memory of
 * its own. What a layer finds in the exec is the number of samples that there are, so losses,
 * statistics and accuracies are those of a net made for so many. Whether layers can follow is tried
 * while the net is made, with a few numbers of samples. Nothing of it runs in nets without such a
 * layer.
 */
#include <stdlib.h>
#include <string.h>

#include "framework/net/net_impl.h"

typedef struct vary_layer {
    bool follows;   /* it is shaped again                                                     */
    int source;     /* the layer with tops that vary from which this one's samples come first */
    int from;       /* whose samples it works on: its own count, another layer's; -1: the net's */
    ct_samples n;   /* as it counted them, where from is itself                               */
    int reads;      /* its backward_reads                                                     */
    int64_t number; /* of the packed sequences that it is shaped for                          */
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

        for (int b = 0; b < n->n_bottom; b++) {
            n->varies |= ct_value_varies(g, &g->value[n->bottom[b]]);
            n->late |= ct_value_is_late(g, &g->value[n->bottom[b]]);
        }
    }
}

static bool is_source(const ct_net *net, int i)
{
    const ct_graph *g = &ct_net_impl_of(net)->graph;

    return ct_node_varies(g, &g->node[i]);
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

/* The first layer of its type that goes by the same last bottom, or the first Input: their samples
 * are the same. */
static int first_like(const ct_graph *g, int i)
{
    const ct_graph_node *n = &g->node[i];

    for (int k = 0; k < i; k++) {
        const ct_graph_node *o = &g->node[k];

        if (!n->ops->varies && !o->ops->varies && ct_node_varies(g, o)) return k;
        if (n->ops->varies && (o->ops == n->ops) &&
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
        if (v->source < 0)
            v->source = ct_node_varies(g, &g->node[maker]) ? maker : all[maker].source;
    }
    if (ct_node_varies(g, n)) v->from = first_like(g, i);
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

/* ---- layers that run as one are shaped together, at the place where they run */

/* Who runs layer i, where that is the place for it; else -1. */
static int unit_at(const ct_net *net, int i)
{
    int runner = ct_net_impl_of(net)->runner[i];

    return (ct_net_impl_of(net)->place[runner] == i) ? runner : -1;
}

/* The layer behind k that the same one runs; -1: there is none. */
static int next_of(const ct_net *net, int k)
{
    const ct_net_impl *m = ct_net_impl_of(net);
    int runner = m->runner[k];

    for (k++; k <= m->place[runner]; k++) {
        if (m->runner[k] == runner) return k;
    }
    return -1;
}

static ct_status reshape_unit(ct_pass *pass, int unit)
{
    for (int k = unit; k >= 0; k = next_of(pass->net, k)) CT_TRY(ct_pass_reshape_layer(pass, k));
    if ((next_of(pass->net, unit) < 0) || ct_pass_join_again(pass, unit)) return CT_OK;
    return CT_LAYER_FAIL(pass->net->layer[unit], CT_ERR_CONFIG,
                         "with so many samples it would not run the layers behind it as it did: "
                         "say fuse: false in the net");
}

/* What layer i was found to need with some number of samples. why: what was wrong before. */
static ct_status take_tried(ct_pass *pass, int i, const char *why)
{
    const ct_graph *g = &ct_net_impl_of(pass->net)->graph;
    const ct_vary *vary = ct_pass_impl_of(pass)->vary;
    const ct_layer *l = pass->net->layer[i];
    ct_instance *in = pass->instance[i];
    vary_layer *v = &vary->layer[i];

    if (why == NULL) why = vary_misfit(pass, i);
    if ((why == NULL) && !ct_net_impl_of(pass->net)->forward_only &&
        (in->backward_reads != v->reads))
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

static ct_status try_unit(ct_pass *pass, int unit)
{
    const char *why = NULL;
    int i = unit;

    while ((why == NULL) && (next_of(pass->net, i) >= 0)) {
        CT_TRY(try_setup(pass, i, &why));
        CT_TRY(ct_pass_reshape_layer(pass, i));
        i = next_of(pass->net, i);
    }
    if (why == NULL) CT_TRY(try_setup(pass, i, &why));
    CT_TRY(reshape_unit(pass, unit));
    for (int k = unit; k >= 0; k = next_of(pass->net, k))
        CT_TRY(take_tried(pass, k, (k == i) ? why : NULL));
    return CT_OK;
}

/* The axis along which the caller, or the layer, gives less: samples, or tokens of one sequence. */
static int axis_of(const ct_layer *l, const ct_shape *s)
{
    return (!l->ops->varies && (s->ndim == 2) && (s->dim[0] == 1)) ? 1 : 0;
}

/* Gives the tops of a layer whose tops vary `share` of the samples that there may be: an Input at
 * least one. */
static void cut(ct_instance *in, int64_t (*share)(int64_t most))
{
    const ct_layer *l = in->layer;

    for (int t = 0; t < l->n_top; t++) {
        ct_shape shape = in->top[t]->data.shape;
        int axis = axis_of(l, &shape);

        if (shape.ndim == 0) continue;
        shape.dim[axis] = share(shape.dim[axis]);
        if (!l->ops->varies && (shape.dim[axis] < 1)) shape.dim[axis] = 1;
        ct_blob_set_like(in->top[t], &shape, &in->top[t]->data);
        in->top[t]->varies = true;
    }
}

/* A unit of what follows: its error says why its shapes are other ones. */
static ct_status follow(ct_pass *pass, int unit, bool tries)
{
    int source = ct_pass_impl_of(pass)->vary->layer[unit].source;
    const ct_layer *from = pass->net->layer[source];
    const ct_shape *s = &pass->instance[source]->top[0]->data.shape;
    char why[512];
    ct_status status;

    snprintf(why, sizeof(why),
             "; it cannot follow layer \"%s\" (%s), which gives another number of samples in each "
             "batch, here %lld",
             from->name, from->ops->type, (long long)s->dim[axis_of(from, s)]);
    ct_log_end_errors(why);
    status = tries ? try_unit(pass, unit) : reshape_unit(pass, unit);
    ct_log_end_errors(NULL);
    return status;
}

/* share NULL: all of them, as at first. */
static ct_status try_share(ct_pass *pass, int64_t (*share)(int64_t most))
{
    const vary_layer *all = ct_pass_impl_of(pass)->vary->layer;
    const ct_net *net = pass->net;

    for (int i = 0; i < net->n_layer; i++) {
        bool source = is_source(net, i);
        int unit = unit_at(net, i);

        if (unit < 0) continue;
        if (all[unit].follows)
            CT_TRY(follow(pass, unit, share != NULL));
        else if (source)
            CT_TRY(ct_pass_reshape_layer(pass, i));
        if (source && (share != NULL)) cut(pass->instance[i], share);
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
        vary->layer[i].reads = pass->instance[i]->backward_reads;
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
        if (is_source(net, i)) source = net->layer[i];
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
        if ((b->keep == CT_LIFETIME_ALWAYS) && ((b->row > 0) || (b->bytes != planned->bytes)))
            return "it keeps values from batch to batch";
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

/* The number of the packed sequences, where layer l goes by them. */
static int64_t packed_of(const ct_layer *l)
{
    bool packs = (l->env->packed != NULL) && (l->ops->sequence != NULL) && l->ops->sequence->packs;

    return packs ? l->env->packed->number : 0;
}

/* Shapes layer i, and those that it runs, for their bottoms, where these are not what they were. */
static ct_status shape_again(ct_pass *pass, int unit)
{
    const vary_layer *all = ct_pass_impl_of(pass)->vary->layer;
    const ct_net *net = pass->net;
    bool same = true;

    for (int i = unit; same && (i >= 0); i = next_of(net, i)) {
        same = (all[i].number == packed_of(net->layer[i]));
        for (int b = 0; same && (b < net->layer[i]->n_bottom); b++)
            same = ct_shape_equal(&all[i].seen[b], &pass->instance[i]->bottom[b]->data.shape);
    }
    if (same) return CT_OK;
    CT_TRY(reshape_unit(pass, unit));
    for (int i = unit; i >= 0; i = next_of(net, i)) {
        const char *why = vary_misfit(pass, i);

        if (why != NULL)
            return CT_LAYER_FAIL(net->layer[i], CT_ERR_SHAPE,
                                 "it does not take a batch of this size: %s", why);
        CT_TRY(outgrow(net->layer[i], pass->instance[i], &ct_pass_impl_of(pass)->vary->layer[i]));
    }
    /* not before: a shape that was refused is tried again */
    for (int i = unit; i >= 0; i = next_of(net, i)) {
        ct_pass_impl_of(pass)->vary->layer[i].number = packed_of(net->layer[i]);
        for (int b = 0; b < net->layer[i]->n_bottom; b++)
            all[i].seen[b] = pass->instance[i]->bottom[b]->data.shape;
    }
    return CT_OK;
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
    bool counted = (i >= 0) && (vary != NULL) && (vary->layer[i].from >= 0);

    if ((vary == NULL) && !placed) return;
    if ((i >= 0) && placed) n = of_place(pass, i);
    if (counted) n = vary->layer[vary->layer[i].from].n; /* of the ranks that are summed over */
    ex->batch_summed = counted ? 0 : net->batch_summed;
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
    ct_pass_narrow_before(pass, i);
    if (v->follows) CT_TRY(shape_again(pass, i));
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

    if ((vary == NULL) || !is_source(pass->net, i)) return CT_OK;
    v = &vary->layer[i];
    if (v->from != i) return CT_OK;
    return count(pass, pass->instance[i]->top[0]->data.shape.dim[0], &v->n);
}

/* ---- shapes from the caller */

/* The layer that has the input `name`, and which of its tops it is; -1: there is none. */
static int find_input(const ct_net *net, const char *name, int *top_p)
{
    for (int i = 0; i < net->n_layer; i++) {
        for (int t = 0; net->layer[i]->ops->keeps_top && (t < net->layer[i]->n_top); t++) {
            *top_p = t;
            if (strcmp(net->pass->instance[i]->top[t]->name, name) == 0) return i;
        }
    }
    return -1;
}

ct_status ct_pass_set_input(ct_pass *pass, const char *name, const ct_shape *shape)
{
    const ct_net *net = pass->net;
    int t = 0, i = find_input(net, name, &t);
    const ct_shape *most;
    bool fits;

    if (i < 0) return CT_FAIL(CT_ERR_ARG, "net \"%s\" has no input \"%s\"", net->name, name);
    most = ct_net_most(
        net, ct_net_impl_of(net)->graph.value[ct_net_impl_of(net)->graph.node[i].top[t]].blob);
    if (ct_shape_equal(shape, &pass->instance[i]->top[t]->data.shape)) return CT_OK;
    if (!is_source(net, i))
        return CT_LAYER_FAIL(net->layer[i], CT_ERR_SHAPE,
                             "input \"%s\" has shape %s, not %s: other shapes want input_param { "
                             "varies: true }",
                             name, ct_shape_str(most).text, ct_shape_str(shape).text);
    fits = (shape->ndim == most->ndim) &&
           (ct_shape_count(shape, 0, -1) <= ct_shape_count(most, 0, -1));
    for (int k = 0; fits && (k < shape->ndim); k++) fits = shape->dim[k] >= 1;
    if (!fits)
        return CT_LAYER_FAIL(net->layer[i], CT_ERR_SHAPE,
                             "input \"%s\" of shape %s: the net was made for %s at most", name,
                             ct_shape_str(shape).text, ct_shape_str(most).text);
    ct_blob_set_shape(pass->instance[i]->top[t], shape);
    return CT_OK;
}

ct_status ct_pass_reshape(ct_pass *pass)
{
    const ct_vary *vary = ct_pass_impl_of(pass)->vary;
    const ct_net *net = pass->net;

    for (int i = 0; (vary != NULL) && (i < net->n_layer) && (i <= ct_pass_narrow_last(pass)); i++) {
        int unit = unit_at(net, i);

        if ((unit < 0) || !vary->layer[unit].follows || ct_net_impl_of(net)->graph.node[unit].late)
            continue;
        CT_TRY(shape_again(pass, unit));
    }
    return CT_OK;
}
