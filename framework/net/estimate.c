/* What a layer takes at least, for tables of times and for rooflines. */
#include "framework/net/net_impl.h"

#include <string.h>

/* Memory that both ends share is not moved. */
static bool passes_data(const ct_layer *l, const ct_instance *in)
{
    if (((l->ops->alias & CT_ALIAS_DATA) == 0) || (l->n_bottom < 1)) return false;
    for (int t = 0; t < l->n_top; t++) {
        if (in->top[t]->data.data != in->bottom[0]->data.data) return false;
    }
    return true;
}

static bool passes_diff(const ct_layer *l, const ct_instance *in)
{
    return ((l->ops->alias & CT_ALIAS_DIFF) != 0) && (l->n_bottom > 0) && (l->n_top > 0) &&
           (in->top[0]->diff.data == in->bottom[0]->diff.data);
}

static double weight_bytes(const ct_instance *in, int n, bool diff)
{
    double bytes = 0.0;

    for (int w = 0; w < n; w++) {
        if (!diff || (in->weight[w].wants_diff))
            bytes += (double)ct_tensor_bytes(&in->weight[w].data);
    }
    return bytes;
}

/* Bottoms and weights read, tops written. */
static double forward_bytes(const ct_layer *l, const ct_instance *in)
{
    double bytes = weight_bytes(in, l->n_weight, false);

    if ((l->ops->forward == NULL) || passes_data(l, in)) return 0.0;
    for (int b = 0; b < l->n_bottom; b++) bytes += (double)ct_tensor_bytes(&in->bottom[b]->data);
    for (int t = 0; t < l->n_top; t++) bytes += (double)ct_tensor_bytes(&in->top[t]->data);
    return bytes;
}

/* Top diffs, the values that backward says it reads, and weights where bottoms get a gradient read;
 * gradients of bottoms and weights written. */
static double backward_bytes(const ct_layer *l, const ct_instance *in)
{
    double bytes = weight_bytes(in, l->n_weight, true);
    bool wanted = false;

    if (passes_diff(l, in)) return 0.0;
    for (int b = 0; b < l->n_bottom; b++) {
        const ct_blob *x = in->bottom[b];

        if (in->backward_reads & CT_READS_BOTTOM) bytes += (double)ct_tensor_bytes(&x->data);
        if (!x->wants_diff) continue;
        bytes += (double)ct_tensor_bytes(&x->data);
        wanted = true;
    }
    for (int t = 0; t < l->n_top; t++) {
        const ct_blob *y = in->top[t];

        if (in->backward_reads & CT_READS_TOP) bytes += (double)ct_tensor_bytes(&y->data);
        if (y->wants_diff) bytes += (double)ct_tensor_bytes(&y->data);
    }
    return bytes + (wanted ? weight_bytes(in, l->n_weight, false) : 0.0);
}

/* Of what comes from outside of the group, or leaves it; the tops of a Split lie in one memory. */
static void add_member(const ct_net *net, int i, ct_estimate *e)
{
    const ct_graph *g = &ct_net_impl_of(net)->graph;
    const ct_instance *in = net->pass->instance[i];
    const ct_layer *l = in->layer;
    ct_estimate own = { 0 };
    bool wanted = false;

    if (l->ops->estimate != NULL) l->ops->estimate(l, in, &own);
    e->forward_flop += own.forward_flop;
    e->backward_flop += own.backward_flop;
    e->forward_bytes += weight_bytes(in, l->n_weight, false);
    e->backward_bytes += weight_bytes(in, l->n_weight, true);
    for (int b = 0; b < l->n_bottom; b++) {
        double bytes = (double)ct_tensor_bytes(&in->bottom[b]->data);

        wanted = wanted || in->bottom[b]->wants_diff;
        if (ct_graph_is_inner(g, &g->value[g->node[i].bottom[b]])) continue;
        e->forward_bytes += bytes;
        if (in->backward_reads & CT_READS_BOTTOM) e->backward_bytes += bytes;
        if (in->bottom[b]->wants_diff) e->backward_bytes += bytes;
    }
    for (int t = 0; t < l->n_top; t++) {
        double bytes = (double)ct_tensor_bytes(&in->top[t]->data);

        if (ct_graph_is_inner(g, &g->value[g->node[i].top[t]])) continue;
        if (t == 0) e->forward_bytes += bytes;
        if ((t == 0) && (in->backward_reads & CT_READS_TOP)) e->backward_bytes += bytes;
        if (in->top[t]->wants_diff) e->backward_bytes += bytes;
    }
    if (wanted) e->backward_bytes += weight_bytes(in, l->n_weight, false);
}

/* Its group's gradients are made in forward: backward copies those of bottoms. */
static void count_early(const ct_instance *in, ct_estimate *e)
{
    e->forward_flop += e->backward_flop;
    e->forward_bytes += e->backward_bytes;
    e->backward_flop = e->backward_bytes = 0.0;
    for (int b = 0; b < in->layer->n_bottom; b++) {
        if (in->bottom[b]->wants_diff)
            e->backward_bytes += 2.0 * (double)ct_tensor_bytes(&in->bottom[b]->data);
    }
}

void ct_net_estimate(const ct_net *net, int layer, ct_estimate *e)
{
    const ct_layer *l = net->layer[layer];
    const ct_instance *in = net->pass->instance[layer];
    bool back = (ct_net_impl_of(net)->backward_step[layer] >= 0);

    memset(e, 0, sizeof(*e));
    if (ct_net_runner(net, layer) != layer) return; /* counted with who runs it */
    e->forward_bytes = forward_bytes(l, in);
    if (back) e->backward_bytes = backward_bytes(l, in);
    if (l->ops->estimate != NULL) l->ops->estimate(l, in, e);
    if (in->tail != NULL) {
        e->forward_flop = e->backward_flop = e->forward_bytes = e->backward_bytes = 0.0;
        for (int k = layer; k < net->n_layer; k++) {
            if (ct_net_runner(net, k) == layer) add_member(net, k, e);
        }
    }
    if (back && in->early) count_early(in, e);
    if (back) return;
    e->backward_flop = e->backward_bytes = 0.0;
    e->engine[CT_RUN_BACKWARD_DATA] = e->engine[CT_RUN_BACKWARD_WEIGHT] = NULL;
}
