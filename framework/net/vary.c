/* Runs layers whose shapes change from batch to batch: vary.h. */
#include "framework/net/vary.h"

#include <stdlib.h>
#include <string.h>

void ct_net_vary_release(ct_net *net)
{
    ct_vary *vary = ct_net_impl_of(net)->vary;

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
    ct_net_impl_of(net)->vary = NULL;
}

const ct_shape *ct_net_most(const ct_net *net, int b)
{
    const ct_vary *vary = ct_net_impl_of(net)->vary;

    return (vary != NULL) ? &vary->most[b].shape : &net->blob[b]->data.shape;
}

const char *ct_vary_misfit(const ct_net *net, int i)
{
    const ct_vary *vary = ct_net_impl_of(net)->vary;
    const ct_graph_node *n = &ct_net_impl_of(net)->graph.node[i];
    const ct_instance *in = net->instance[i];

    for (int t = 0; t < n->n_top; t++) {
        const ct_tensor *top = &in->top[t]->data;
        const ct_tensor *most = &vary->most[ct_net_impl_of(net)->graph.value[n->top[t]].blob];

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
static ct_status outgrow(const ct_layer *l, ct_instance *in, ct_vary_layer *v)
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

void ct_net_vary_bind(ct_net *net)
{
    const ct_vary *vary = ct_net_impl_of(net)->vary;

    for (int i = 0; (vary != NULL) && (i < net->n_layer); i++) {
        for (int s = 0; s < CT_MAX_BUFFER; s++) {
            if (vary->layer[i].own[s] != NULL)
                net->instance[i]->buffer[s].data = vary->layer[i].own[s];
        }
    }
}

static ct_status shape_again(ct_net *net, int i, ct_vary_layer *v)
{
    const ct_layer *l = net->layer[i];
    ct_instance *in = net->instance[i];
    bool same = true;
    const char *why;

    for (int b = 0; b < l->n_bottom; b++) {
        same &= ct_shape_equal(&v->seen[b], &in->bottom[b]->data.shape);
        v->seen[b] = in->bottom[b]->data.shape;
    }
    if (same) return CT_OK;
    CT_TRY(ct_net_reshape_layer(net, i));
    why = ct_vary_misfit(net, i);
    if (why != NULL)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "it does not take a batch of this size: %s", why);
    return outgrow(l, in, v);
}

/* Everyone's number of samples to all: one sum over the ranks, whatever is asked for later. */
static ct_status count(const ct_net *net, ct_exec *ex, int64_t local, ct_samples *n)
{
    double *of_rank = ct_net_impl_of(net)->vary->of_rank;
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

void ct_net_vary_exec(const ct_net *net, int i, ct_exec *ex)
{
    const ct_vary *vary = ct_net_impl_of(net)->vary;
    ct_samples n = { net->batch_local, net->batch_global, net->batch_first };

    if (vary == NULL) return;
    if ((i >= 0) && (vary->layer[i].from >= 0)) n = vary->layer[vary->layer[i].from].n;
    ex->batch_local = n.local;
    ex->batch_global = n.global;
    ex->batch_first = n.first;
}

ct_status ct_net_vary_before(ct_net *net, int i, ct_exec *ex)
{
    const ct_layer *l = net->layer[i];
    const ct_instance *in = net->instance[i];
    ct_vary_layer *v;

    if (ct_net_impl_of(net)->vary == NULL) return CT_OK;
    v = &ct_net_impl_of(net)->vary->layer[i];
    if (v->follows) CT_TRY(shape_again(net, i, v));
    if (v->follows && !l->ops->varies && (v->from == i)) {
        bool tops = !l->ops->is_loss && (l->n_top > 0) && (in->top[0]->data.shape.ndim > 0);

        CT_TRY(count(net, ex, ct_shape_legacy(tops ? &in->top[0]->data.shape : &v->seen[0], 0),
                     &v->n));
    }
    ct_net_vary_exec(net, i, ex);
    return CT_OK;
}

ct_status ct_net_vary_after(ct_net *net, int i, ct_exec *ex)
{
    const ct_layer *l = net->layer[i];
    ct_vary_layer *v;

    if ((ct_net_impl_of(net)->vary == NULL) || !l->ops->varies) return CT_OK;
    v = &ct_net_impl_of(net)->vary->layer[i];
    if (v->from != i) return CT_OK;
    return count(net, ex, net->instance[i]->top[0]->data.shape.dim[0], &v->n);
}
